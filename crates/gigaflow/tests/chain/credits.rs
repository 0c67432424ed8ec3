//! A hit counts once for the rules of every matched entry, and idle entries expire separately.

use std::collections::BTreeMap;

use shunt_gigaflow::{ltm::Store as _, partition::PolicyName};
use shunt_pipeline::{RuleFilter, Time};

use super::harness::{BRIDGE, ChainFixture, config, packet};

const RULES: [&str; 4] = [
    "table=0,cookie=1,dl_src=00:00:00:00:00:0a,actions=goto_table:1",
    "table=0,cookie=2,dl_src=00:00:00:00:00:0b,actions=goto_table:1",
    "table=1,cookie=3,tcp,nw_dst=10.0.0.1,actions=output:2",
    "table=1,cookie=4,tcp,nw_dst=10.0.0.2,actions=output:3",
];

fn flow(mac: &str, host: u8) -> shunt_flow::FlowKey {
    packet(&format!("tcp,dl_src=00:00:00:00:00:0{mac},nw_dst=10.0.0.{host}"))
}

/// Returns the number of packets of each rule so far, by cookie.
fn rule_packets(fixture: &mut ChainFixture) -> BTreeMap<u64, u64> {
    let pipeline = std::sync::Arc::clone(&fixture.checked.pipeline);
    fixture.store.take_hits(|traversal, hits| {
        pipeline.credit(traversal, hits.packets, hits.bytes, hits.used);
    });
    let rules = pipeline.rules(BRIDGE, &RuleFilter::all());
    rules.iter().map(|rule| (rule.cookie.number(), rule.stats.totals().packets)).collect()
}

#[test]
fn hit_counts_once_for_each_rule() {
    let mut fixture = ChainFixture::with_rules(&RULES, config(PolicyName::Joint, 4, 100));
    for key in [flow("a", 1), flow("b", 2)] {
        assert!(!fixture.send(&key).is_hit);
    }
    // The caller that translates a miss credits it, so the counters of the cache stay 0.
    assert_eq!(rule_packets(&mut fixture), BTreeMap::from([(1, 0), (2, 0), (3, 0), (4, 0)]));
    for key in [flow("a", 1), flow("a", 2), flow("a", 2), flow("b", 1)] {
        assert!(fixture.send(&key).is_hit);
    }
    assert_eq!(rule_packets(&mut fixture), BTreeMap::from([(1, 3), (2, 1), (3, 2), (4, 2)]));
    assert_eq!(
        rule_packets(&mut fixture),
        BTreeMap::from([(1, 3), (2, 1), (3, 2), (4, 2)]),
        "once"
    );
}

#[test]
fn an_idle_entry_expires_alone() {
    let mut fixture = ChainFixture::with_rules(&RULES, config(PolicyName::Joint, 4, 100));
    fixture.send(&flow("a", 1));
    fixture.send(&flow("a", 2));
    let begin = Time::from_nanoseconds(fixture.now);
    fixture.send(&flow("a", 2));
    let names: Vec<_> = fixture.cache.ltm().entries().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), 3);
    let idle: Vec<_> =
        names.into_iter().filter(|name| fixture.store.used(name.slot) < begin).collect();
    let [idle] = idle[..] else { panic!("{idle:?}: expected the entry of the first host") };
    assert!(fixture.store.end(idle));
    assert!(!fixture.send(&flow("a", 1)).is_hit, "a dead entry is not hit");
    assert!(fixture.send(&flow("a", 2)).is_hit, "the shared entry stays");
}
