//! A chain of entries of several flows never exceeds the bounds of a translation.

use shunt_gigaflow::partition::PolicyName;

use super::harness::{ChainFixture, config, packet};

const STAGES: u8 = 4;

/// Returns a cache with two sources and two destinations, each with extra lookups.
fn fixture(sources: [usize; 2], targets: [usize; 2]) -> ChainFixture {
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
    ChainFixture::with_rules(&rules, config(PolicyName::OneToOne, STAGES, 100))
}

fn flow(mac: &str, host: u8) -> shunt_flow::FlowKey {
    packet(&format!("tcp,dl_src=00:00:00:00:00:0{mac},nw_dst=10.0.0.{host}"))
}

#[test]
fn no_chain_of_entries_exceeds_a_bound() {
    for resumes in [false, true] {
        let mut fixture = ChainFixture { resumes, ..fixture([3000, 1], [3000, 1]) };
        for key in [flow("a", 2), flow("b", 1), flow("b", 2), flow("a", 1)] {
            // The fixture checks that pipeline and entries agree on each packet. The pipeline
            // refuses the last packet.
            fixture.send(&key);
            assert!(fixture.send(&key).is_hit);
        }
        let error = fixture.checked.translate(&flow("a", 1)).error;
        assert_eq!(
            error.expect("the traversal exceeds the limit").to_string(),
            "the packet needs more than 4096 resubmits, which is the limit"
        );
        assert_eq!(
            fixture.cache.counts().near_bounds,
            2,
            "both traversals near the bound are megaflows"
        );
    }
}

#[test]
fn sub_traversal_takes_only_share_of_bound() {
    // The sub-traversal of a source makes two more lookups to reach the next table.
    let share = 4096 / usize::from(STAGES) - 2;
    for (lookups, entries) in [(share, 2), (share + 1, 1)] {
        let mut fixture = fixture([lookups, 1], [1, 1]);
        fixture.send(&flow("a", 1));
        let sent = fixture.send(&flow("a", 1));
        assert_eq!((sent.is_hit, sent.entries), (true, entries), "{lookups} lookups");
    }
}

#[test]
fn a_partial_hit_near_a_bound_starts_over() {
    let mut fixture = ChainFixture { resumes: true, ..fixture([900, 1], [3500, 1]) };
    fixture.send(&flow("a", 2));
    // The packet matches the first entry. The rest of its traversal alone would be within the
    // bound.
    assert!(!fixture.send(&flow("a", 1)).is_hit);
    assert_eq!(fixture.resumed, 0);
    assert!(fixture.send(&flow("a", 1)).is_hit && fixture.send(&flow("a", 2)).is_hit);
}
