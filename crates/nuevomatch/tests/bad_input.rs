//! Tests of degenerate and refused rule sets, by each kind of index.
//!
//! A build returns the right answers, or an error that names the rule. The classifier never returns
//! a wrong result, and never ends the process.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic when a test fails")]

use std::{env, hint::black_box, process::Command};

use shunt_nuevomatch::{
    ACL_CATEGORIES_MAX, AclClassifier, AclError, AclRule, AnyStartIndex, BestMatch, BoxRule,
    BucketCapacity, Error, FieldMatch, KeySchema, LiveAclClassifier, LiveNuevoMatch, LiveSettings,
    NuevoMatch, NuevoMatchSettings, PartitionSettings, PriorityRule, RuleUpdate, StartIndexKind,
};

/// A rule over a field of 32 bits, one of no bits, and one of 16 bits.
type Rule = PriorityRule<3>;

type Classifier = NuevoMatch<3, AnyStartIndex>;

/// The kinds of indexes.
const KINDS: [StartIndexKind; 3] =
    [StartIndexKind::Tree, StartIndexKind::Segments, StartIndexKind::Rqrmi];

fn schema() -> KeySchema {
    KeySchema::new(&[32, 0, 16]).unwrap()
}

fn rule(address: FieldMatch, port: FieldMatch, priority: u32, value: u32) -> Rule {
    Rule::new(&schema(), &[address, FieldMatch::Any, port], priority, value).unwrap()
}

fn exact(value: u32) -> FieldMatch {
    FieldMatch::Exact(value.into())
}

fn range(low: u32, high: u32) -> FieldMatch {
    FieldMatch::Range { low: low.into(), high: high.into() }
}

/// Returns named rule sets at the limits of what a classifier accepts.
fn degenerate_sets() -> Vec<(&'static str, Vec<Rule>)> {
    let (any, last) = (FieldMatch::Any, u32::MAX);
    let ends = [0, 1, last - 1, last];
    let points = |values: &[u32]| -> Vec<Rule> {
        (0..).zip(values).map(|(i, value)| rule(exact(*value), any, i, i)).collect()
    };
    vec![
        ("no rule", vec![]),
        ("one rule for all keys", vec![rule(any, any, 0, 0)]),
        ("the largest priority and value", vec![rule(any, any, last - 1, last)]),
        ("one point at each end", points(&ends)),
        ("a point at the last key alone", points(&[last])),
        (
            "many points",
            points(&(0..400_u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect::<Vec<_>>()),
        ),
        (
            "points and the whole domain",
            [points(&ends), vec![rule(range(0, last), any, 9, 9)]].concat(),
        ),
        ("one rule, many times", vec![rule(exact(7), exact(80), 3, 3); 300]),
        (
            "equal boxes and priorities",
            (0..200).map(|i| rule(any, exact(80), 5, 200 - i)).collect(),
        ),
        (
            "all overlap in all lanes",
            (0..500).map(|i| rule(range(i, last - i), range(i, 0xffff - i), i % 7, i)).collect(),
        ),
        (
            "nested at both ends",
            (0..32)
                .flat_map(|i| {
                    [
                        rule(range(0, last >> i), any, 64 - i, i),
                        rule(range(last << i, last), any, 64 - i, i),
                    ]
                })
                .collect(),
        ),
        ("nothing but the last lane", (0..0x300).map(|i| rule(any, exact(i * 85), 1, i)).collect()),
    ]
}

/// Returns the corners of rules, and their neighbours.
fn keys(rules: &[Rule]) -> Vec<[u32; 3]> {
    let corners = rules.iter().map(Rule::as_box).flat_map(|own| {
        let neighbours = |[a, _, c]: [u32; 3]| {
            [-1_i32, 0, 1]
                .map(|step| [a.wrapping_add_signed(step), 0, c.wrapping_add_signed(step) & 0xffff])
        };
        [own.low, own.high].into_iter().flat_map(neighbours)
    });
    // A field of no bits ignores all bits of the key.
    corners.chain([[0, 77, 0], [u32::MAX, u32::MAX, 0xffff], [7, 1, 80]]).collect()
}

/// Compares lookups with a scan, in batches and one by one.
fn check(name: &str, classifier: &Classifier, rules: &[Rule]) {
    let keys = keys(rules);
    let mut found = vec![None; keys.len()];
    classifier.lookup_batch(&keys, &mut found);
    for (key, found) in keys.iter().zip(found) {
        let key_of_lanes = [key[0], 0, key[2]];
        let matching = rules.iter().filter(|rule| rule.matches(&key_of_lanes));
        let best = matching.map(|rule| (rule.priority(), rule.value())).min();
        let expected = best.map(|(priority, value)| BestMatch { priority, value });
        assert_eq!(found, expected, "{name}: {key:?}");
        assert_eq!(classifier.lookup(key), expected, "{name}: {key:?} alone");
    }
}

/// Returns settings with small and large buckets, with and without iSets.
fn all_settings() -> [NuevoMatchSettings; 4] {
    let fixed = |sets_max, bucket_rules| {
        let partition = PartitionSettings { sets_max, bucket_rules, ..Default::default() };
        NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, seed: 3 }
    };
    [NuevoMatchSettings::default(), fixed(3, 1), fixed(1, 40), fixed(0, 16)]
}

#[test]
fn degenerate_rule_sets_equal_a_scan() {
    for (name, rules) in degenerate_sets() {
        for (kind, settings) in
            KINDS.into_iter().flat_map(|kind| all_settings().map(|own| (kind, own)))
        {
            let name = format!("{name}, {kind:?}, {settings:?}");
            let mut classifier =
                Classifier::build_with(&schema(), &rules, &settings, &kind).unwrap();
            check(&name, &classifier, &rules);
            let (first, second) = rules.split_at(rules.len() / 2);
            assert!(first.iter().all(|rule| classifier.remove(rule)), "{name}");
            check(&name, &classifier, second);
            assert!(first.iter().all(|rule| classifier.insert(rule)), "{name}");
            check(&name, &classifier, &rules);
            assert!(rules.iter().all(|rule| classifier.remove(rule)), "{name}");
            assert!(!rules.iter().any(|rule| classifier.remove(rule)), "{name}");
            check(&name, &classifier, &[]);
        }
    }
}

/// Looks up all keys of a schema of 16 bits.
#[test]
fn every_key_of_16_bits_equals_a_scan() {
    let schema = KeySchema::new(&[16]).unwrap();
    let mut state = 1_u32;
    let mut word = || {
        state = state.wrapping_mul(0x915f_77f5).wrapping_add(1);
        state >> 16
    };
    let rules: Vec<PriorityRule<1>> = (0..300)
        .map(|i| {
            let (low, length) = (word(), word() >> (i % 16));
            let field = range(low, (low + length).min(0xffff));
            PriorityRule::new(&schema, &[field], word() % 50, i).unwrap()
        })
        .collect();
    // The best rule of each key, by painting the rules over all keys from the worst to the best.
    let mut painted = vec![None; 1 << 16];
    let mut ordered: Vec<_> = rules.iter().collect();
    ordered.sort_by_key(|rule| std::cmp::Reverse((rule.priority(), rule.value())));
    for rule in ordered {
        let BoxRule { low: [low], high: [high], .. } = rule.as_box();
        let best = BestMatch { priority: rule.priority(), value: rule.value() };
        painted[low as usize..=high as usize].fill(Some(best));
    }
    let keys: Vec<[u32; 1]> = (0..1 << 16).map(|key| [key]).collect();
    for (kind, settings) in KINDS.into_iter().flat_map(|kind| all_settings().map(|own| (kind, own)))
    {
        let classifier =
            NuevoMatch::<1, AnyStartIndex>::build_with(&schema, &rules, &settings, &kind).unwrap();
        let mut found = vec![None; keys.len()];
        classifier.lookup_batch(&keys, &mut found);
        let wrong = (0..).zip(found.iter().zip(&painted)).find(|(_, (own, best))| own != best);
        assert_eq!(wrong, None::<(u32, _)>, "{kind:?}, {settings:?}");
    }
}

#[test]
fn a_refused_rule_is_named_by_every_build() {
    let good = rule(exact(1), FieldMatch::Any, 1, 1);
    let of_box = |low, high| Rule::from_box(&BoxRule { low, high, value: 1 }, 1).unwrap();
    let refused = [
        (of_box([9, 0, 0], [8, 0, 1]), Error::EmptyRange { rule: 2, lane: 0, low: 9, high: 8 }),
        (
            of_box([0, 0, 0], [0, 0, 0x1_0000]),
            Error::OutsideLane { rule: 2, lane: 2, high: 0x1_0000, max: 0xffff },
        ),
        (of_box([0, 0, 0], [0, 1, 0]), Error::OutsideLane { rule: 2, lane: 1, high: 1, max: 0 }),
    ];
    for (bad, expected) in refused {
        let (rules, settings) = ([good, good, bad, bad], NuevoMatchSettings::default());
        for kind in KINDS {
            let error = Classifier::build_with(&schema(), &rules, &settings, &kind).unwrap_err();
            assert_eq!(error, expected);
        }
        let live = LiveNuevoMatch::<3>::new(&schema(), &rules, LiveSettings::default());
        assert_eq!(live.unwrap_err(), expected);
        let live = LiveNuevoMatch::<3>::new(&schema(), &[good], LiveSettings::default()).unwrap();
        let changes = [RuleUpdate::Insert(bad), RuleUpdate::Remove(bad)];
        assert_eq!(live.apply(&changes), 0, "a refused rule changes nothing");
        live.rebuild().unwrap();
        assert_eq!(live.statistics().current.rules, 1);
    }
}

/// Variable that marks the process with little memory.
const CHILD: &str = "SHUNT_NUEVOMATCH_LITTLE_MEMORY";

/// Number of rules that fit into the memory of the process once, but not twice.
const RULES_OF_CHILD: usize = 4_000_000;

/// Kilobytes of addresses of the process.
const KILOBYTES_OF_CHILD: usize = 300 * 1024;

const _: () = assert!(2 * RULES_OF_CHILD * size_of::<Rule>() > KILOBYTES_OF_CHILD * 1024);

/// Number of rules of an ACL that fit into the memory of the process only once.
///
/// The rules do not fit once for each category.
const ACL_RULES_OF_CHILD: usize = 400_000;

const _: () = assert!(
    ACL_CATEGORIES_MAX * ACL_RULES_OF_CHILD * size_of::<PriorityRule<5>>()
        > KILOBYTES_OF_CHILD * 1024
);

/// Returns whether this is the process with little memory.
fn has_little_memory() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs a test alone in a second process, which has little memory.
fn run_with_little_memory(test: &str) {
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -v "$1" && exec "$0" --exact "$2""#])
        .arg(env::current_exe().unwrap())
        .arg(KILOBYTES_OF_CHILD.to_string())
        .arg(test)
        .env(CHILD, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

/// A build without memory is an error, and the process continues.
#[test]
fn a_build_without_memory_is_an_error() {
    if !has_little_memory() {
        return run_with_little_memory("a_build_without_memory_is_an_error");
    }
    let rules = vec![rule(exact(1), FieldMatch::Any, 1, 1); RULES_OF_CHILD];
    let settings = NuevoMatchSettings::default();
    let error = Classifier::build(&schema(), &rules, &settings).unwrap_err();
    let expected = (RULES_OF_CHILD, RULES_OF_CHILD * size_of::<Rule>());
    assert!(
        matches!(error, Error::Memory { rules, bytes } if (rules, bytes) == expected),
        "{error}"
    );
    let few = Classifier::build(&schema(), &rules[..100], &settings).unwrap();
    assert_eq!(few.len(), 100);
}

/// The build copies a rule for each of its categories.
#[test]
fn an_acl_without_memory_is_an_error() {
    if !has_little_memory() {
        return run_with_little_memory("an_acl_without_memory_is_an_error");
    }
    let rule = AclRule {
        category_mask: u32::MAX,
        priority: 1,
        userdata: 1,
        source: (0, 0),
        destination: (0, 0),
        source_ports: (0, 65535),
        destination_ports: (0, 65535),
        protocol: (0, 0),
    };
    let rules = vec![rule; ACL_RULES_OF_CHILD];
    let errors = [
        AclClassifier::build(&rules, ACL_CATEGORIES_MAX, 0).unwrap_err(),
        LiveAclClassifier::build(&rules, ACL_CATEGORIES_MAX, 0).unwrap_err(),
    ];
    let bytes = ACL_RULES_OF_CHILD * size_of::<PriorityRule<5>>();
    let expected = Error::Memory { rules: ACL_RULES_OF_CHILD, bytes };
    assert_eq!(errors, [AclError::Build(expected); 2]);
    assert!(AclClassifier::build(&rules[..100], ACL_CATEGORIES_MAX, 0).is_ok());
}

/// A rebuild copies the rules; without memory the old classifier stays.
#[test]
fn a_rebuild_without_memory_is_an_error() {
    const RULES: u32 = 100_000;
    const PIECE: usize = 1 << 20;
    if !has_little_memory() {
        return run_with_little_memory("a_rebuild_without_memory_is_an_error");
    }
    let rules: Vec<_> = (0..RULES).map(|i| rule(exact(i), FieldMatch::Any, 1, i)).collect();
    let live = LiveNuevoMatch::<3>::new(&schema(), &rules, LiveSettings::default()).unwrap();
    // All memory in pieces, of which two are freed: less than half of the rules.
    let mut pieces: Vec<Vec<u8>> = Vec::with_capacity(KILOBYTES_OF_CHILD * 1024 / PIECE);
    loop {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(PIECE).is_err() {
            break;
        }
        pieces.push(black_box(piece));
    }
    pieces.truncate(pieces.len() - 2);
    let bytes = rules.len() * size_of::<Rule>();
    assert!(bytes > 4 * PIECE);
    assert_eq!(live.rebuild(), Err(Error::Memory { rules: rules.len(), bytes }));
    drop(pieces);
    let found = |key: u32| live.reader().lookup(&[key, 0, 80]).map(|best| best.value);
    assert_eq!([0, RULES - 1, RULES].map(found), [Some(0), Some(RULES - 1), None]);
    live.rebuild().unwrap();
    let statistics = live.statistics();
    assert_eq!((statistics.rebuilds, statistics.rebuild_errors), (1, 1));
    assert_eq!(statistics.current.rules, rules.len());
}
