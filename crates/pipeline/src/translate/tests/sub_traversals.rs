//! Tests that sub-traversals together have the effect of their whole traversal.

use super::invariants;
use crate::{
    testing::{
        CheckedPipeline, cases,
        generate::{self, BRIDGES, Op},
        merged, runner, traversals, visible,
    },
    translate::partition::compose::begins_plain,
};
use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo};

/// Generates a choice of partition points: all of them, or some.
fn choice() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), any::<u64>()]
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn sub_traversals_equal_the_traversal(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let checked = CheckedPipeline::new(&network);
        for key in packets {
            let expected = checked.model.translate(&key);
            let whole = checked.translate(&key);
            let noted = checked.pipeline.translate_noted(&visible(&key), None, whole.version);
            prop_assert!(whole.decides_like(&noted.traversal) || !whole.learnings.is_empty());
            // A traversal with learn requests is not cached, and its sub-traversals lack the
            // learning rule.
            if expected.error.is_none() && whole.learnings.is_empty() {
                let sub_traversals = invariants::sub_traversals(&checked, &visible(&key), choice);
                prop_assert_eq!(checked.effects(&merged(traversals(&sub_traversals)), &key), expected);
            }
        }
    }

    #[test]
    fn packets_of_a_region_share_the_sub_traversal(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let (checked, mut runner) = (CheckedPipeline::new(&network), runner());
        for key in packets {
            let sub_traversals = invariants::sub_traversals(&checked, &visible(&key), choice);
            invariants::sub_traversals_are_uniform(&checked, &sub_traversals, &mut runner)?;
        }
    }

    #[test]
    fn a_recorded_sub_traversal_equals_a_translated_one(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let checked = CheckedPipeline::new(&network);
        for key in packets.iter().map(visible) {
            let sub_traversals = invariants::sub_traversals(&checked, &key, choice);
            if sub_traversals.iter().any(|sub_traversal| !sub_traversal.traversal.learnings.is_empty())
                || sub_traversals.iter().any(|sub_traversal| sub_traversal.traversal.error.is_some())
            {
                continue;
            }
            // A sub-traversal that ends in a plain state is translated the first time, and composed
            // the second time.
            for _ in 0..2 {
                invariants::noted_sub_traversals_match_the_tables(&checked, &sub_traversals)?;
            }
        }
    }

    #[test]
    fn composed_sub_traversals_equal_translated_ones(
        network in generate::goto_network(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let checked = CheckedPipeline::new(&network);
        for key in packets.iter().map(visible) {
            let sub_traversals = invariants::sub_traversals(&checked, &key, choice);
            if sub_traversals.iter().all(|sub_traversal| sub_traversal.traversal.learnings.is_empty()) {
                for _ in 0..2 {
                    invariants::noted_sub_traversals_match_the_tables(&checked, &sub_traversals)?;
                }
            }
        }
    }

    #[test]
    fn visits_and_reads_explain_changed_sub_traversals(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
        op in generate::op(),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        let sub_traversals: Vec<_> =
            packets.iter().flat_map(|key| invariants::sub_traversals(&checked, &visible(key), choice)).collect();
        invariants::changes_of_sub_traversals_are_named(&mut checked, &sub_traversals, &op)?;
    }

    #[test]
    fn later_changes_keep_sub_traversals_of_a_version(
        network in prop_oneof![generate::network().boxed(), generate::goto_network().boxed()],
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
        ops in prop::collection::vec(generate::op(), 1..5),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        let sub_traversals: Vec<_> =
            packets.iter().flat_map(|key| invariants::sub_traversals(&checked, &visible(key), choice)).collect();
        for op in &ops {
            checked.apply(op);
            invariants::sub_traversals_keep_their_version(&checked, &sub_traversals)?;
        }
    }
}

/// Bits that a tail writes before it reads them are not bits of the packet.
/// So masks of composed and of translated sub-traversals do not contain these bits.
#[test]
fn bits_written_before_reading_are_not_consulted() -> Result<(), TestCaseError> {
    let checked = CheckedPipeline::with_rules(
        BRIDGES[0],
        &[
            "table=0,actions=goto_table:1",
            "table=1,actions=load:3->NXM_OF_IN_PORT[],mod_dl_dst:00:00:00:00:00:07,goto_table:2",
            "table=2,in_port=3,dl_dst=00:00:00:00:00:07,actions=output:2",
        ],
    );
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGES[0].number().into());
    key.set_in_port(PortNo::new(1));
    // First the traversal is one sub-traversal, then it is partitioned before the tail.
    for choice in [0, 1] {
        let sub_traversals = invariants::sub_traversals(&checked, &key, choice);
        for _ in 0..2 {
            invariants::noted_sub_traversals_match_the_tables(&checked, &sub_traversals)?;
        }
        for sub_traversal in &sub_traversals {
            let mask = FlowMask::from(&sub_traversal.traversal.mask);
            assert_eq!((mask.field(FieldId::InPort), mask.field(FieldId::EthDst)), (0, 0));
        }
    }
    Ok(())
}

/// A bridge that fails open begins without a lookup, so nothing is composed.
#[test]
fn fail_open_is_no_plain_state() {
    let rules = ["table=0,actions=goto_table:1", "table=1,actions=output:2"];
    let mut checked = CheckedPipeline::with_rules(BRIDGES[0], &rules);
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGES[0].number().into());
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthSrc, 2 << 40 | 1);
    key.set_field(FieldId::EthDst, 2 << 40 | 2);
    for fails_open in [false, true, false] {
        checked.apply(&Op::SetFailsOpen(BRIDGES[0], fails_open));
        let (pipeline, version) = (&checked.pipeline, checked.pipeline.version());
        let begins = pipeline.with_tables(version, |tables| begins_plain(tables, &key, None));
        assert_eq!(begins, !fails_open);
        assert_eq!(checked.effects(&checked.translate(&key), &key), checked.model.translate(&key));
    }
}
