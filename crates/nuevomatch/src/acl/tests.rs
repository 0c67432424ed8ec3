//! Tests of the classifiers with the contract of `rte_acl`.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use proptest::{collection::vec, prelude::*};

use super::*;

/// Generates a rule of an access list.
fn rule() -> impl Strategy<Value = AclRule> {
    let numbers = (0_u32..8, 1_u32..5, 1_u32..100);
    let address = || (0_u32..4, 30_u8..33);
    let ports = || (0_u16..4, 0_u16..4).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let protocol = prop::sample::select(vec![(6, 0xff), (17, 0xff), (0, 0), (4, 4)]);
    (numbers, address(), address(), ports(), ports(), protocol).prop_map(
        |(numbers, source, destination, source_ports, destination_ports, protocol)| {
            let (category_mask, priority, userdata) = numbers;
            AclRule {
                category_mask,
                priority,
                userdata,
                source,
                destination,
                source_ports,
                destination_ports,
                protocol,
            }
        },
    )
}

/// Returns the value of the best rule, by comparing all rules.
fn expected(rules: &[AclRule], category: usize, key: &[u32; 5]) -> u32 {
    let is_inside =
        |(low, high): (u16, u16), port: u32| (u32::from(low)..=u32::from(high)).contains(&port);
    let agrees = |(value, bits): (u32, u8), address: u32| {
        (value ^ address).checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
    };
    let matching = rules.iter().filter(|rule| {
        let (value, mask) = rule.protocol;
        rule.category_mask & 1 << category != 0
            && agrees(rule.source, key[0])
            && agrees(rule.destination, key[1])
            && is_inside(rule.source_ports, key[2])
            && is_inside(rule.destination_ports, key[3])
            && (u32::from(value) ^ key[4]) & u32::from(mask) == 0
    });
    let best = matching.min_by_key(|rule| (std::cmp::Reverse(rule.priority), rule.userdata));
    best.map_or(0, |rule| rule.userdata)
}

/// Compares both classifiers with the list of rules.
fn check(
    classifier: &AclClassifier,
    live: &LiveAclClassifier,
    rules: &[AclRule],
    keys: &[[u32; 5]],
) {
    let mut results = vec![7; keys.len() * 3];
    classifier.classify(keys, &mut results);
    let mut of_reader = vec![7; keys.len() * 3];
    live.reader().classify(keys, &mut of_reader);
    assert_eq!(of_reader, results);
    for (key, results) in keys.iter().zip(results.chunks(3)) {
        let expected = [0, 1, 2].map(|category| expected(rules, category, key));
        assert_eq!(results, expected, "{key:?}");
    }
}

proptest! {
    #[test]
    fn each_category_has_its_winner(
        rules in vec(rule(), 0..60),
        more in vec(rule(), 0..20),
        keys in vec([0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5, 4_u32..19], 1..80),
    ) {
        let mut classifier = AclClassifier::build(&rules, 3, 1).unwrap();
        let live = LiveAclClassifier::build(&rules, 3, 1).unwrap();
        check(&classifier, &live, &rules, &keys);
        let mut rules = rules;
        for rule in more {
            prop_assert!(classifier.insert(&rule).unwrap() && live.insert(&rule).unwrap());
            rules.push(rule);
        }
        check(&classifier, &live, &rules, &keys);
        for rule in rules.drain(..rules.len() / 2) {
            let is_somewhere = rule.category_mask != 0;
            prop_assert_eq!(classifier.remove(&rule).unwrap(), is_somewhere);
            prop_assert_eq!(live.remove(&rule).unwrap(), is_somewhere);
        }
        check(&classifier, &live, &rules, &keys);
    }
}

/// A rule that matches every packet.
const ANY: AclRule = AclRule {
    category_mask: 1,
    priority: 1,
    userdata: 1,
    source: (0, 0),
    destination: (0, 0),
    source_ports: (0, 65535),
    destination_ports: (0, 65535),
    protocol: (0, 0),
};

/// A lookup sees each change that returned before it, while a trainer rebuilds.
#[test]
fn readers_see_changes_of_another_thread() {
    const CHANGES: u32 = 500;
    let live = LiveAclClassifier::build(&[ANY], 1, 0).unwrap();
    let _trainers = live.spawn_trainers().unwrap();
    let (reader, returned) = (live.reader(), AtomicU32::new(1));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut results = [0];
            while results[0] < CHANGES {
                let least = returned.load(Ordering::Acquire);
                reader.classify(&[[1, 2, 3, 4, 5]], &mut results);
                assert!(results[0] >= least, "{} before change {least}", results[0]);
            }
        });
        for number in 2..=CHANGES {
            let rule = AclRule { priority: number, userdata: number, ..ANY };
            assert!(live.insert(&rule).unwrap());
            returned.store(number, Ordering::Release);
        }
    });
    assert_eq!(live.statistics()[0].current.rules, CHANGES as usize);
}

/// Two threads insert and remove the same rule.
#[test]
fn changes_have_one_order_in_all_categories() {
    const CHANGES: usize = 20;
    let live = LiveAclClassifier::build(&[], ACL_CATEGORIES_MAX, 0).unwrap();
    let rule = AclRule { category_mask: u32::MAX, ..ANY };
    for round in 0..300 {
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            for number in 0..2 {
                let (begin, live) = (&begin, &live);
                scope.spawn(move || {
                    begin.wait();
                    for change in number..number + CHANGES {
                        let change = if change % 2 == 0 {
                            LiveAclClassifier::insert
                        } else {
                            LiveAclClassifier::remove
                        };
                        change(live, &rule).unwrap();
                    }
                });
            }
        });
        let rules: Vec<_> = live.statistics().iter().map(|own| own.current.rules).collect();
        assert!(rules.iter().all(|own| *own == rules[0]), "round {round}: {rules:?}");
    }
}

#[test]
fn illegal_rules_are_refused_with_number_and_field() {
    let max = ACL_PRIORITY_MAX;
    let high = max + 1;
    let reversed = (80, 79);
    let illegal = [
        (AclRule { priority: 0, ..ANY }, AclRuleError::Priority { priority: 0, max }),
        (
            // A rule without categories is checked, too.
            AclRule { priority: high, category_mask: 0, ..ANY },
            AclRuleError::Priority { priority: high, max },
        ),
        (AclRule { userdata: 0, ..ANY }, AclRuleError::UserData),
        (AclRule { source: (0, 33), ..ANY }, AclRuleError::Prefix { field: "source", length: 33 }),
        (
            AclRule { destination: (0, 255), ..ANY },
            AclRuleError::Prefix { field: "destination", length: 255 },
        ),
        (
            AclRule { source_ports: reversed, ..ANY },
            AclRuleError::Ports { field: "source_ports", low: 80, high: 79 },
        ),
        (
            AclRule { destination_ports: reversed, ..ANY },
            AclRuleError::Ports { field: "destination_ports", low: 80, high: 79 },
        ),
    ];
    let mut classifier = AclClassifier::build(&[ANY], 1, 0).unwrap();
    let live = LiveAclClassifier::build(&[ANY], 1, 0).unwrap();
    for (rule, problem) in illegal {
        let expected = AclError::Rule { rule: 2, problem };
        let rules = [ANY, ANY, rule, rule];
        assert_eq!(AclClassifier::build(&rules, 1, 0).unwrap_err(), expected);
        assert_eq!(LiveAclClassifier::build(&rules, 1, 0).unwrap_err(), expected);
        assert_eq!(classifier.insert(&rule), Err(problem));
        assert_eq!(classifier.remove(&rule), Err(problem));
        assert_eq!(live.insert(&rule), Err(problem));
        assert_eq!(live.remove(&rule), Err(problem));
    }
    let text = AclError::Rule { rule: 2, problem: illegal[5].1 }.to_string();
    assert_eq!(
        text,
        "rule 2: the range of source_ports begins at 80 and ends at 79: swap the two ends"
    );
    for categories in [0, 17] {
        let expected = AclError::Categories { categories, max: 16 };
        assert_eq!(AclClassifier::build(&[ANY], categories, 0).unwrap_err(), expected);
    }
}
