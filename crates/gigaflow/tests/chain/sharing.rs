//! Resumed packets and packets that start over count as shares alike. `least-shared` evicts by the
//! number of shares.

use shunt_flow::FlowKey;
use shunt_gigaflow::{
    cache::Config,
    ltm::{Eviction, LtmRule},
    partition::{PolicyName, StageId},
};

use super::harness::{ChainFixture, config, packet};

/// Returns a fixture with rules for sources, targets and ports in three tables.
fn fixture(config: Config, resumes: bool) -> ChainFixture {
    let mut rules = Vec::new();
    for number in 1..=4 {
        rules.push(format!("table=0,dl_src=00:00:00:00:00:0{number},actions=goto_table:1"));
        rules.push(format!("table=1,ip,nw_dst=10.0.0.{number},actions=goto_table:2"));
        rules.push(format!("table=2,tcp,tp_dst={number},actions=output:{number}"));
    }
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    ChainFixture { resumes, ..ChainFixture::with_rules(&rules, config) }
}

fn flow(source: u8, target: u8, port: u8) -> FlowKey {
    packet(&format!("tcp,dl_src=00:00:00:00:00:0{source},nw_dst=10.0.0.{target},tp_dst={port}"))
}

fn entries(fixture: &ChainFixture) -> Vec<(StageId, &LtmRule)> {
    fixture.cache.ltm().entries().map(|(_, stage, rule)| (stage, rule)).collect()
}

/// Misses that resume after a partial hit make the entries of whole translations.
#[test]
fn resumed_packet_shares_like_a_new_one() {
    let fixtures =
        [false, true].map(|resumes| fixture(config(PolicyName::OneToOne, 3, 100), resumes));
    let [mut over, mut on] = fixtures;
    // The flow, the number of its entries that exist, and the number of entries that its packet
    // matches.
    for (key, shared, matched) in [
        (flow(1, 1, 1), 0, 0),
        (flow(1, 1, 2), 2, 2),
        (flow(1, 2, 2), 2, 1),
        (flow(2, 2, 1), 2, 0),
        (flow(2, 3, 3), 1, 1),
    ] {
        for fixture in [&mut over, &mut on] {
            let before = (fixture.cache.counts().shared, fixture.cache.ltm().shares_count());
            let sent = fixture.send(&key);
            assert_eq!((sent.is_hit, sent.entries), (false, matched));
            let after = (fixture.cache.counts().shared, fixture.cache.ltm().shares_count());
            assert_eq!(after, (before.0 + shared, before.1 + shared), "{}", fixture.resumes);
        }
    }
    assert_eq!((over.resumed, on.resumed), (0, 3));
    assert_eq!(entries(&over), entries(&on));
}

#[test]
fn the_least_shared_entry_is_evicted() {
    for resumes in [false, true] {
        let config =
            Config { eviction: Eviction::LeastShared, ..config(PolicyName::OneToOne, 3, 2) };
        let mut fixture = fixture(config, resumes);
        // Two more flows share the entry of the first source, which is older. No flow shares the
        // entry of the second source.
        for key in [flow(1, 1, 1), flow(1, 1, 2), flow(1, 2, 2), flow(2, 2, 2)] {
            assert!(!fixture.send(&key).is_hit);
        }
        assert_eq!(fixture.resumed, if resumes { 2 } else { 0 });
        assert!(!fixture.send(&flow(3, 1, 2)).is_hit, "the stage of sources is full");
        assert!(fixture.send(&flow(1, 1, 2)).is_hit, "the shared entry stays");
        assert!(!fixture.send(&flow(2, 1, 2)).is_hit, "the unshared entry is gone");
    }
}
