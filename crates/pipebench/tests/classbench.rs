//! Generated ClassBench rule sets, compared with those of the original generator.
//!
//! The original parameter files may not be redistributed. The variable `PIPEBENCH_CLASSBENCH` may
//! name a folder with these files (`acl1_seed` and so on), and with rule sets made from them
//! (`acl1_10k`). The tests then compare generated sets with them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{io::Write, path::PathBuf};

use shunt_pipebench::{
    Progress, Seed,
    classbench::{
        BuiltinSet, Filter, FilterRequest, PUBLISHED, Parameters, PublishedSet, Statistics,
        generate, read_filters,
    },
};

fn make(parameters: &Parameters, rules: u32, seed: u64) -> Vec<Filter> {
    let request = FilterRequest::new(rules);
    generate(parameters, &request, Seed::new(seed), &Progress::hidden()).unwrap()
}

fn text(filters: &[Filter]) -> String {
    filters.iter().map(|filter| format!("{filter}\n")).collect()
}

/// Returns a file of the folder; without a folder it prints a message.
fn original(file: &str) -> Option<String> {
    let Some(folder) = std::env::var_os("PIPEBENCH_CLASSBENCH").map(PathBuf::from) else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: PIPEBENCH_CLASSBENCH names no folder with {file}"
        );
        return None;
    };
    let text = std::fs::read_to_string(folder.join(file));
    assert!(text.is_ok(), "{} has no {file}: {text:?}", folder.display());
    text.ok()
}

fn assert_near(what: &str, set: &PublishedSet, ours: f64, theirs: f64, tolerance: f64) {
    let away = (ours - theirs).abs();
    assert!(away <= tolerance, "{} {}: {what} {ours}, not {theirs}", set.seed, set.requested);
}

#[test]
fn generated_sets_resemble_original_sets() {
    for set in PUBLISHED.iter() {
        let Some(text) = original(&format!("{}_seed", set.seed)) else { return };
        let parameters = Parameters::parse(&text).unwrap();
        let ours = Statistics::of(&make(&parameters, set.requested, 1));
        // The tolerance is the difference between two seeds of one generator, which is larger for
        // fewer filters.
        let small = set.requested < 10_000;
        let (part, points) = if small { (0.20, 0.10) } else { (0.10, 0.06) };
        let count = |count: usize| f64::from(u32::try_from(count).unwrap());
        let pairs = [
            ("rules", count(ours.rules), f64::from(set.rules)),
            ("address pairs", count(ours.address_pairs), f64::from(set.address_pairs)),
            ("masks", count(ours.masks), f64::from(set.masks)),
            (
                "masks without ranges",
                count(ours.masks_without_ranges),
                f64::from(set.masks_without_ranges),
            ),
            ("expansion", ours.expansion, set.expansion),
        ];
        for (what, ours, theirs) in pairs {
            assert_near(what, set, ours, theirs, part * theirs);
        }
        assert_near("independent", set, ours.independent, set.independent, points);
    }
}

#[test]
fn statistics_of_original_sets_are_published_ones() {
    for set in PUBLISHED.iter().filter(|set| set.requested <= 10_000) {
        let Some(text) = original(&format!("{}_{}k", set.seed, set.requested / 1000)) else {
            return;
        };
        let filters = read_filters(&text).unwrap();
        let statistics = Statistics::of(&filters);
        let counts = [statistics.rules, statistics.address_pairs, statistics.masks];
        let published = [set.rules, set.address_pairs, set.masks].map(|count| count as usize);
        assert_eq!(counts, published, "{}", set.seed);
        assert_near("expansion", set, statistics.expansion, set.expansion, 0.006);
        assert_near("independent", set, statistics.independent, set.independent, 0.0006);
    }
}

/// Returns the minimum and maximum of a published statistic over a family of sets.
fn family(set: BuiltinSet, requested: u32, of: impl Fn(&PublishedSet) -> f64) -> (f64, f64) {
    let family = PUBLISHED.iter().filter(|published| {
        published.requested == requested && published.seed.starts_with(set.name())
    });
    family.map(of).fold((f64::MAX, f64::MIN), |(least, most), n| (least.min(n), most.max(n)))
}

#[test]
fn generated_sets_resemble_their_family() {
    // The original generator has no OpenFlow family.
    for set in [BuiltinSet::Acl, BuiltinSet::Firewall, BuiltinSet::Ipc] {
        let statistics = Statistics::of(&make(&set.parameters(), 10_000, 1));
        let count = |count: usize| f64::from(u32::try_from(count).unwrap());
        let among = |what: &str, ours: f64, of: fn(&PublishedSet) -> f64| {
            let (least, most) = family(set, 10_000, of);
            let range = least * 0.8..=most * 1.2;
            assert!(range.contains(&ours), "{set}: {what} {ours} is not in {range:?}");
        };
        among("rules", count(statistics.rules), |set| f64::from(set.rules));
        among("pairs", count(statistics.address_pairs), |set| f64::from(set.address_pairs));
        among("masks", count(statistics.masks), |set| f64::from(set.masks));
        let without = count(statistics.masks_without_ranges);
        among("masks without ranges", without, |set| f64::from(set.masks_without_ranges));
        among("expansion", statistics.expansion, |set| set.expansion);
        among("independent", statistics.independent, |set| set.independent);
    }
}

#[test]
fn filter_sets_never_change() {
    let firsts = BuiltinSet::ALL.map(|set| {
        let filters = make(&set.parameters(), 1000, 1);
        assert_eq!(text(&filters), text(&make(&set.parameters(), 1000, 1)));
        assert_ne!(text(&filters), text(&make(&set.parameters(), 1000, 2)));
        filters.first().unwrap().to_string()
    });
    let expected = [
        "@40.81.107.97/32\t235.190.30.246/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0002/0x0012\t",
        "@12.45.203.90/32\t2.205.63.115/32\t0 : 65535\t995 : 995\t0x06/0xFF\t0x0000/0x0000\t",
        "@59.234.165.168/32\t146.160.209.124/32\t4500 : 4500\t443 : 443\t0x06/0xFF\t0x0002/0x0012\t",
        "@0.111.206.12/32\t254.243.82.31/32\t0 : 65535\t143 : 143\t0x06/0xFF\t0x0000/0x0000\t",
    ];
    assert_eq!(firsts, expected);
}

#[test]
fn openflow_filters_have_few_hosts_and_no_ranges() {
    let statistics = Statistics::of(&make(&BuiltinSet::OpenFlow.parameters(), 10_000, 1));
    assert_eq!(statistics.expansion, 1.0);
    assert!(statistics.masks_without_ranges < 20, "{statistics:?}");
    let [destination, pair, .., all] = statistics.recurrence;
    assert!(destination > 15.0 && pair > 1.5 && all == 1.0, "{statistics:?}");
}

/// Returns whether every packet of the inner filter matches the outer.
fn contains(outer: &Filter, inner: &Filter) -> bool {
    let ports = |outer: shunt_pipebench::classbench::PortRange,
                 inner: shunt_pipebench::classbench::PortRange| {
        outer.low() <= inner.low() && inner.high() <= outer.high()
    };
    outer.source.length() <= inner.source.length()
        && outer.source.contains(inner.source.address())
        && outer.destination.length() <= inner.destination.length()
        && outer.destination.contains(inner.destination.address())
        && ports(outer.source_ports, inner.source_ports)
        && ports(outer.destination_ports, inner.destination_ports)
        && outer.protocol.is_none_or(|protocol| inner.protocol == Some(protocol))
}

#[test]
fn wider_filters_hide_no_later_filter() {
    for set in BuiltinSet::ALL {
        let filters = make(&set.parameters(), 1000, 3);
        for (index, later) in filters.iter().enumerate() {
            for earlier in &filters[..index] {
                let same_flags = earlier.flags == later.flags;
                let hidden = contains(earlier, later) && same_flags;
                assert!(!hidden, "{earlier} hides {later}");
            }
        }
    }
}

#[test]
fn wider_scopes_make_wider_filters() {
    let parameters = BuiltinSet::Acl.parameters();
    let bits = |address_scope: f64| {
        let request = FilterRequest { address_scope, ..FilterRequest::new(2000) };
        let set = generate(&parameters, &request, Seed::new(1), &Progress::hidden()).unwrap();
        let bits: usize =
            set.iter().map(|f| usize::from(f.source.length() + f.destination.length())).sum();
        bits / set.len()
    };
    assert!(bits(-0.9) > bits(0.0) && bits(0.0) > bits(0.9));
}
