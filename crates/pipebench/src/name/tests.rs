//! Tests that names survive printing and parsing, and suggestions for misspelled names.

use proptest::{option, prelude::*, sample::select};

use super::*;
use crate::{
    populate::RuleForm,
    traffic::{CollectivePattern, FlowSizes, Gaps, Locality, PacketSizes, UpdateKind},
};

/// Generates the sources of rules.
fn sources() -> impl Strategy<Value = SourceName> {
    let words =
        SOURCES.iter().map(|source| source.word).chain(["./own.json", "filters/mine.rules"]);
    select(words.collect::<Vec<_>>()).prop_map(|word| SourceName::find(word).unwrap())
}

/// Generates distributions of flow sizes.
fn sizes() -> impl Strategy<Value = FlowSizes> {
    let zipf = (0_u16..=300).prop_map(|hundredths| FlowSizes::Zipf { hundredths });
    let words = [FlowSizes::Caida, FlowSizes::Mawi, FlowSizes::Campus, FlowSizes::Hadoop];
    prop_oneof![select(words.to_vec()), Just(FlowSizes::Search), Just(FlowSizes::Fixed), zipf]
}

/// Generates names of workloads.
fn names() -> impl Strategy<Value = WorkloadName> {
    let bytes = prop_oneof![
        Just(PacketSizes::Imix),
        Just(PacketSizes::Campus),
        (64_u16..=9018).prop_map(PacketSizes::Fixed),
    ];
    let gaps = select(vec![Gaps::Caida, Gaps::Mawi, Gaps::Poisson, Gaps::Constant]);
    let arrival =
        (1_u32..1_000_000, 0_u8..100).prop_map(|(flows, percent)| FlowArrival { flows, percent });
    let updates = (select(UpdateKind::ALL.to_vec()), 1_u32..100_000)
        .prop_map(|(kind, period_ms)| RuleUpdates { kind, period_ms });
    let traffic = (sizes(), bytes, gaps, option::of(1..u64::MAX), option::of(1_u32..1_000_000_000));
    let changes = (option::of(1_u32..1000), option::of(arrival), option::of(updates));
    let rules = (1_u32..1_000_000, select(vec!["acl", "fw", "ipc", "of", "x/y"]), any::<bool>());
    let base = (sources(), any::<bool>(), 1_u32..10_000_000, any::<u64>(), 0_u8..=100);
    (base, rules, traffic, changes).prop_map(|(base, rules, traffic, changes)| {
        let usual = WorkloadName::of(base.0);
        let (is_coflow, has_filters) =
            (usual.source == SourceName::Coflow, usual.source.has_filters());
        let is_pipeline =
            matches!(usual.source, SourceName::Pipeline(_) | SourceName::PipelineFile(_));
        WorkloadName {
            locality: if base.1 { Locality::High } else { Locality::Low },
            flows: base.2,
            seed: base.3,
            coflowiness: if is_coflow { base.4 } else { 0 },
            rules: if has_filters { rules.0 } else { usual.rules },
            filters: FilterName::find(if is_pipeline { rules.1 } else { "of" }).unwrap(),
            terminals: if is_pipeline && rules.2 { Terminals::All } else { Terminals::Output },
            form: if is_pipeline && rules.0 % 2 == 0 { RuleForm::Real } else { RuleForm::Plain },
            sizes: traffic.0,
            bytes: traffic.1,
            gaps: traffic.2,
            packets: traffic.3,
            rate: traffic.4,
            active: changes.0,
            arrival: changes.1.filter(|_| has_filters),
            updates: changes.2,
            trace: (is_coflow && rules.2).then(|| "traces/mine.txt".to_owned()),
            pattern: match usual.source {
                SourceName::Collective if rules.2 => CollectivePattern::Ring,
                _ => usual.pattern,
            },
            source: usual.source,
        }
    })
}

proptest! {
    #[test]
    fn a_name_round_trips_through_text(name in names()) {
        let text = name.to_string();
        prop_assert_eq!(text.parse::<WorkloadName>().map_err(|error| error.to_string()), Ok(name), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z0-9:=@%.-]{0,40}|\\PC{0,20}") {
        if let Err(error) = text.parse::<WorkloadName>() {
            prop_assert!(error.at <= text.len());
            if let Some(nearest) = error.nearest {
                prop_assert!(nearest.parse::<WorkloadName>().is_ok(), "{nearest}");
            }
        }
    }

    #[test]
    fn one_wrong_letter_gets_a_suggestion(name in names(), at: prop::sample::Index) {
        let whole = name.to_string();
        let mut parts: Vec<String> = whole.split(':').map(str::to_owned).collect();
        // Known words are sources, localities and keys, but not file names.
        let is_word = |part: &String| {
            let word = part.split('=').next().unwrap();
            !word.contains(['/', '.']) && word.starts_with(char::is_alphabetic)
        };
        let places: Vec<usize> = (0..parts.len()).filter(|place| is_word(&parts[*place])).collect();
        let place = places[at.index(places.len())];
        let length = parts[place].split('=').next().unwrap().len();
        parts[place].replace_range(1..2, "~");
        let text = parts.join(":");
        let nearest = text.parse::<WorkloadName>().unwrap_err().nearest;
        let Some(nearest) = nearest else { return Err(TestCaseError::fail(text)) };
        let is_found = nearest.parse() == Ok(name);
        // Short words have several similar words.
        prop_assert!(is_found || length < 5, "{text}: {nearest}");
    }
}

#[test]
fn default_keys_are_omitted_from_names() {
    let cases = [
        ("psc", "psc:high:100k:seed=1"),
        ("psc:low", "psc:low:100k:seed=1"),
        ("psc:5k", "psc:high:5k:seed=1"),
        ("ols:high:100K:seed=1:rules=10k:sizes=caida", "ols:high:100k:seed=1"),
        ("ofd:high:1m:bytes=imix:seed=7", "ofd:high:1m:seed=7:bytes=imix"),
        ("coflow:coflowiness=0.25", "coflow:high:193k:seed=1:coflowiness=0.25"),
        ("classbench-fw:low:1500", "classbench-fw:low:1500:seed=1"),
        ("psc:updates=p2", "psc:high:100k:seed=1:updates=p2@1s"),
        ("psc:seed=7:5k:rules=1k:low", "psc:low:5k:seed=7:rules=1k"),
        ("./a.json:low:sizes=zipf-1.00", "./a.json:low:100k:seed=1:sizes=zipf"),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<WorkloadName>().unwrap().to_string(), expected);
    }
}

#[test]
fn a_mistake_gets_a_suggestion() {
    let cases = [
        ("pcs:high:100k", "there is no source `pcs`", Some("psc:high:100k:seed=1")),
        ("psc:hgih:100k", "there is no locality `hgih`", Some("psc:high:100k:seed=1")),
        ("psc:high:100k:seeds=2", "there is no key `seeds`", Some("psc:high:100k:seed=2")),
        ("psx:lwo:1k:bites=imx", "there is no source `psx`", Some("psc:low:1k:seed=1:bytes=imix")),
        (
            "psc:high:1k:sizes=caidda",
            "sizes=caidda is not valid: write caida, mawi",
            Some("psc:high:1k:sizes=caida"),
        ),
        ("psc:high:100x", "flows=100x is not valid: write 1 to 10m, as in 500, 100k or 1m", None),
        (
            "psc:high:1OOk",
            "flows=1OOk is not valid: write 1 to 10m, as in 500, 100k or 1m",
            Some("psc:high:100k:seed=1"),
        ),
        ("psc:low:100m", "flows=100m is not valid: write 1 to 10m, as in 500, 100k or 1m", None),
        ("psc:packets=0", "packets=0 is not valid: write 1 or more, as in 100k", None),
        (
            "psc:updates=p2@0s",
            "updates=p2@0s is not valid: write p1 to p5, flap or burst, and a period of 1ms or \
             more: p2@10s",
            None,
        ),
        ("psc:seed=1:seed=2", "seed is given twice", None),
        ("psc:low:high", "locality is given twice", None),
        ("psc:1k:2k", "flows is given twice", None),
        ("psc:bytes=20", "bytes=20 is not valid: write 64 to 9018, imix or campus", None),
        ("psc:coflowiness=1", "psc has no coflowiness", None),
        (
            "psc:updates=p6",
            "updates=p6 is not valid: write p1 to p5, flap or burst, and a period of 1ms or \
             more: p2@10s",
            Some("psc:high:100k:seed=1:updates=p1@1s"),
        ),
    ];
    for (text, problem, nearest) in cases {
        let error = text.parse::<WorkloadName>().unwrap_err();
        assert!(error.to_string().starts_with(problem), "{text}: {error}");
        assert_eq!(error.nearest.as_deref(), nearest, "{text}");
    }
}
