//! Tests that decisions without a record equal recorded translations.

use std::time::Duration;

use proptest::prelude::*;
use shunt_flow::FlowKey;

use super::learned::kinds;
use crate::{
    decisions::packet_decider::{PacketDecider, PacketDecision},
    pipeline::training::IndexedTables,
    testing::{
        CheckedPipeline,
        generate::{self, BRIDGES},
    },
    time::Time,
};

/// Returns the counters of all objects of all bridges, as text.
///
/// Rules, tables, groups, mirrors and addresses have counters.
fn counters(checked: &CheckedPipeline) -> Vec<String> {
    let pipeline = &checked.pipeline;
    let of_bridge = |id| {
        let rules = pipeline.rules(id, &crate::RuleFilter::all());
        let rules = rules.iter().map(|rule| {
            let timeouts = (rule.idle_timeout_now(), rule.hard_timeout_now(), rule.refreshed());
            format!("{:?} {:?} {timeouts:?}", rule.id, rule.stats.totals())
        });
        let groups = pipeline.groups(id);
        let groups = groups.iter().map(|group| format!("{:?}", group.stats));
        let macs = pipeline.macs(id);
        let macs = macs.iter().map(|entry| format!("{:?} {:?}", entry.mac, entry.seen()));
        let mirrors = pipeline.mirror_counters(id);
        let mirrors = mirrors.iter().map(|own| format!("{} {:?}", own.name(), own.totals()));
        let tables = format!("{:?}", pipeline.table_stats(id));
        rules.chain(groups).chain(macs).chain(mirrors).chain([tables]).collect::<Vec<_>>()
    };
    BRIDGES.into_iter().flat_map(of_bridge).collect()
}

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    /// Includes decisions after changes, recirculated packets, and counters.
    #[test]
    fn a_decision_equals_the_recorded_translation(
        network in generate::network(),
        ops in prop::collection::vec(generate::op(), 0..6),
        packets in prop::collection::vec(generate::packet(), 8),
        kind in kinds(),
    ) {
        // The first pipeline counts decisions, and the second counts translations.
        let (mut checked, mut expected) = (CheckedPipeline::new(&network), CheckedPipeline::new(&network));
        let mut decider = PacketDecider::new();
        let mut decision = PacketDecision::default();
        for turn in 0..=ops.len() {
            // The tables first have no learned indexes, then new indexes, and then indexes with
            // changes.
            if turn % 3 != 0 {
                let tables = IndexedTables::for_decisions(1 + turn % 2).by(kind);
                checked.pipeline.train_tables(tables, Time::ZERO);
            }
            let keys: Vec<_> = packets.iter().map(crate::testing::visible).collect();
            let mut decisions: Vec<_> = keys.iter().map(|_| PacketDecision::default()).collect();
            let version = checked.pipeline.version();
            decider.decide_burst(&checked.pipeline, &keys, version, &mut decisions);
            for ((key, visible), first) in packets.iter().zip(&keys).zip(&decisions) {
                let traversal = checked.pipeline.translate(visible, version);
                prop_assert!(first.decides_like(&traversal), "{first:?} {traversal:?}");
                for traversal in checked.traversals(key) {
                    let key = FlowKey::from(&traversal.key);
                    let start = traversal.continuation.as_ref();
                    decider.decide(&checked.pipeline, &key, start, version, &mut decision);
                    prop_assert!(decision.decides_like(&traversal), "{decision:?} {traversal:?}");
                    decider.count(&decision, 100, Time::from_nanoseconds(7));
                }
                for traversal in expected.traversals(key) {
                    expected.pipeline.credit(&traversal, 1, 100, Time::from_nanoseconds(7));
                }
            }
            decider.credit(&checked.pipeline, usize::MAX, Duration::from_secs(10));
            prop_assert_eq!(decider.dirty(), 0);
            prop_assert_eq!(counters(&checked), counters(&expected));
            if let Some(op) = ops.get(turn) {
                checked.apply(op);
                expected.apply(op);
            }
        }
    }
}
