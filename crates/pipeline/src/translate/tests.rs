//! The laws of translation, against the oracle.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shunt_flow::PortNo;

use super::laws;
use crate::{
    action::Action,
    learn::learning::Learning,
    testing::{
        Twin, draw,
        generate::{self, Op},
        runner, visible,
    },
    traversals::{
        datapath_action::DatapathAction,
        traversal::{Refresh, Traversal, TraversalError},
    },
    versions::delta::Object,
};

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    #[test]
    fn a_traversal_does_what_the_tables_say(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
    ) {
        let twin = Twin::new(&world);
        for key in &packets {
            let traversal = twin.translate(key);
            prop_assert_eq!(twin.fate(&traversal, key), twin.world.translate(key));
        }
    }

    #[test]
    fn packets_that_agree_under_the_mask_fare_alike(
        world in generate::world(),
        // With those that are drawn for each, a hundred thousand in all.
        packets in prop::collection::vec(generate::packet(), 84),
    ) {
        let (twin, mut runner) = (Twin::new(&world), runner());
        for key in &packets {
            laws::agreeing_packets_fare_alike(&twin, key, &mut runner)?;
        }
    }

    #[test]
    fn packets_that_are_parsed_again_and_agree_under_the_mask_fare_alike(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
    ) {
        let (twin, mut runner) = (Twin::new(&world), runner());
        for key in &packets {
            laws::agreeing_packets_go_on_alike(&twin, key, &mut runner)?;
        }
    }

    #[test]
    fn each_visit_is_uniform_under_its_own_mask(
        world in generate::world(),
        packet in generate::packet(),
    ) {
        laws::visits_are_uniform(&Twin::new(&world), &packet, &mut runner())?;
    }

    #[test]
    fn what_changes_a_traversal_is_in_its_visits_or_its_reads(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 4),
        ops in prop::collection::vec(generate::op(), 1..8),
    ) {
        let mut twin = Twin::new(&world);
        for op in &ops {
            laws::changes_are_named(&mut twin, &packets, op)?;
        }
    }

    #[test]
    fn a_packet_out_does_what_its_actions_say(
        world in generate::world(),
        mut packet in generate::packet(),
        actions in prop::collection::vec(generate::action(), 0..5),
        port in prop::sample::select(vec![1, 2, 4, 0xffff_fffd, 0xffff_fffe, 0xffff_ffff]),
    ) {
        let twin = Twin::new(&world);
        packet.set_in_port(PortNo::new(port));
        let traversal =
            twin.pipeline.translate_actions(&visible(&packet), &actions, twin.pipeline.version());
        prop_assert_eq!(twin.fate(&traversal, &packet), twin.world.packet_out(&packet, &actions));
    }

    #[test]
    fn what_reads_no_object_that_changed_stays_as_it_was(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
        ops in prop::collection::vec(generate::op(), 1..6),
    ) {
        let mut twin = Twin::new(&world);
        for op in &ops {
            laws::objects_not_read_change_nothing(&mut twin, &packets, op)?;
        }
    }
}

/// What the laws above are worth: packets of generated worlds meet everything, often enough, also
/// after they were parsed again.
#[test]
fn the_generated_worlds_reach_every_feature() {
    let mut runner = runner();
    let mut met: BTreeMap<Feature, usize> = BTreeMap::new();
    for _ in 0..600 {
        let mut twin = Twin::new(&draw(&mut runner, &generate::world()));
        let keys: Vec<_> = (0..4).map(|_| draw(&mut runner, &generate::packet())).collect();
        // The second time, they meet what they have taught.
        for key in keys.iter().chain(&keys) {
            let traversals = twin.traversals(key);
            let features: BTreeSet<_> = traversals.iter().flat_map(features).collect();
            features.into_iter().for_each(|feature| *met.entry(feature).or_default() += 1);
            let fate = twin.fate(&traversals[0], key);
            let fates = [
                (Feature::Metered, fate.was_metered),
                (Feature::LaterError, !fate.later_errors.is_empty()),
                (Feature::SixCuts, traversals.iter().any(|last| last.error == Some(TOO_MANY_CUTS))),
            ];
            fates.iter().filter(|(_, is_met)| *is_met).for_each(|(feature, _)| {
                *met.entry(*feature).or_default() += 1;
            });
            twin.apply(&Op::Teach(Box::new(key.clone())));
        }
    }
    let rare: Vec<_> = Feature::ALL
        .iter()
        .filter(|feature| met.get(*feature).is_none_or(|count| *count < LEAST))
        .collect();
    assert!(rare.is_empty(), "{rare:?} of {met:?}");
}

/// How many of the packets meet each feature at least.
const LEAST: usize = 12;

const TOO_MANY_CUTS: TraversalError = TraversalError::TooManyRecirculations(6);

macro_rules! features {
    ($($name:ident),* $(,)?) => {
        /// Something that a packet meets on its way.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        enum Feature { $($name),* }

        impl Feature {
            const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

features! {
    All, Select, Indirect, FastFailover, ChainedGroups, GroupLater,
    Meter, Remark, Metered, MeterLater,
    Copy, Recirculate, CheckLength, TtlCopy, TwoCuts, SixCuts, LaterError,
    PushLabel, PopLabel, PushValue, PopValue,
    LearnRule, KnownRule, LearnLater, Normal, LearnMac, KnownMac, NormalLater, FinTimeout,
    Conjunction, ConjunctionLater, Pause, PauseLater, MeteredCut,
}

/// What a traversal met.
fn features(traversal: &Traversal) -> Vec<Feature> {
    use Feature as F;
    let mut met = Vec::new();
    let is_later = traversal.continuation.is_some();
    let mut meet = |first: F, later: Option<F>| {
        met.push(first);
        met.extend(later.filter(|_| is_later));
    };
    for hit in &traversal.group_hits {
        let kinds = [F::All, F::Select, F::Indirect, F::FastFailover];
        meet(kinds[hit.group.kind as usize], Some(F::GroupLater));
    }
    if traversal.group_hits.len() > 1 {
        meet(F::ChainedGroups, None);
    }
    for learning in &traversal.learnings {
        match learning {
            Learning::Rule(_) => meet(F::LearnRule, Some(F::LearnLater)),
            Learning::Mac(_) => meet(F::LearnMac, None),
        }
    }
    for refresh in &traversal.refreshes {
        match refresh {
            Refresh::Rule(_) => meet(F::KnownRule, None),
            Refresh::Mac(_) => meet(F::KnownMac, None),
            Refresh::FinTimeout { .. } => meet(F::FinTimeout, None),
        }
    }
    if traversal.reads.iter().any(|read| matches!(read, Object::Mac(..))) {
        meet(F::Normal, Some(F::NormalLater));
    }
    for visit in &traversal.visits {
        if !visit.clauses.is_empty() {
            meet(F::Conjunction, Some(F::ConjunctionLater));
        }
        for action in visit.rule.iter().flat_map(|rule| &rule.instructions.apply) {
            match action {
                Action::Push(_) => meet(F::PushValue, None),
                Action::Pop(_) => meet(F::PopValue, None),
                _ => {}
            }
        }
    }
    for action in &*traversal.actions {
        emitted(action, &mut meet);
    }
    if traversal.actions.iter().filter(|action| is_cut(action)).count() > 1 {
        meet(F::TwoCuts, None);
    }
    met
}

fn emitted(action: &DatapathAction, meet: &mut impl FnMut(Feature, Option<Feature>)) {
    use Feature as F;
    match action {
        DatapathAction::Meter(meter) => {
            meet(F::Meter, Some(F::MeterLater));
            if meter.remarks() {
                meet(F::Remark, None);
            }
        }
        DatapathAction::Copy(inner) => {
            meet(F::Copy, None);
            let is_metered = inner.iter().any(|own| matches!(own, DatapathAction::Meter(_)));
            if is_metered && inner.iter().any(is_cut) {
                meet(F::MeteredCut, None);
            }
            inner.iter().for_each(|action| emitted(action, meet));
        }
        DatapathAction::Recirculate(continuation) => {
            let is_copy = continuation.ttl_copy().is_some();
            meet(if is_copy { F::TtlCopy } else { F::Recirculate }, None);
        }
        DatapathAction::CheckLength { .. } => meet(F::CheckLength, None),
        DatapathAction::Punt(punt) if punt.continuation.is_some() => {
            meet(F::Pause, Some(F::PauseLater));
        }
        DatapathAction::PushMpls { .. } => meet(F::PushLabel, None),
        DatapathAction::PopMpls { .. } => meet(F::PopLabel, None),
        _ => {}
    }
}

fn is_cut(action: &DatapathAction) -> bool {
    match action {
        DatapathAction::Recirculate(_) | DatapathAction::CheckLength { .. } => true,
        DatapathAction::Copy(inner) => inner.iter().any(is_cut),
        _ => false,
    }
}
