//! The bounds of a translation, along a chain: what its tables refuse, no pieces of other flows add up to.

use shunt_gigaflow::partition::PolicyName;

use super::harness::{Bench, config, packet};

const STAGES: u8 = 4;

/// Sources a and b, then targets 1 and 2; each makes so many lookups besides.
fn bench(sources: [usize; 2], targets: [usize; 2]) -> Bench {
    let lookups = |count: usize| vec!["resubmit(,9)"; count].join(",");
    let source = |(mac, count)| {
        format!("dl_src=00:00:00:00:00:0{mac},actions=clone({}),goto_table:1", lookups(count))
    };
    let target = |(host, count)| {
        format!("table=1,ip,nw_dst=10.0.0.{host},actions=clone({}),output:2", lookups(count))
    };
    let mut rules: Vec<String> = ["a", "b"].into_iter().zip(sources).map(source).collect();
    rules.extend(["1", "2"].into_iter().zip(targets).map(target));
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    Bench::with_rules(&rules, config(PolicyName::OneToOne, STAGES, 100))
}

fn flow(mac: &str, host: u8) -> shunt_flow::FlowKey {
    packet(&format!("tcp,dl_src=00:00:00:00:00:0{mac},nw_dst=10.0.0.{host}"))
}

#[test]
fn no_pieces_of_ways_within_the_bound_make_a_way_beyond_it() {
    for resumes in [false, true] {
        let mut bench = Bench { resumes, ..bench([3000, 1], [3000, 1]) };
        for key in [flow("a", 2), flow("b", 1), flow("b", 2), flow("a", 1)] {
            // Each fares as its tables say, by tables and by entries; those of the last refuse it.
            bench.send(&key);
            assert!(bench.send(&key).is_hit);
        }
        let error = bench.twin.translate(&flow("a", 1)).error;
        assert_eq!(error.expect("it is beyond").to_string(), "more than 4096 resubmits");
        assert_eq!(bench.cache.counts().near_bounds, 2, "both that come near are kept whole");
    }
}

#[test]
fn a_piece_takes_no_more_than_its_share_of_a_bound() {
    // A lookup more for what leads on.
    let share = 4096 / usize::from(STAGES) - 2;
    for (lookups, entries) in [(share, 2), (share + 1, 1)] {
        let mut bench = bench([lookups, 1], [1, 1]);
        bench.send(&flow("a", 1));
        let sent = bench.send(&flow("a", 1));
        assert_eq!((sent.is_hit, sent.entries), (true, entries), "{lookups} lookups");
    }
}

#[test]
fn what_is_left_of_a_way_that_comes_near_a_bound_starts_over() {
    let mut bench = Bench { resumes: true, ..bench([900, 1], [3500, 1]) };
    bench.send(&flow("a", 2));
    // It meets the first piece, and its rest alone would be within the bound.
    assert!(!bench.send(&flow("a", 1)).is_hit);
    assert_eq!(bench.resumed, 0);
    assert!(bench.send(&flow("a", 1)).is_hit && bench.send(&flow("a", 2)).is_hit);
}
