//! Property tests of the invariants of translation, and comparisons with the oracle.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shunt_flow::PortNo;

use super::invariants;
use crate::{
    action::Action,
    learn::learning::Learning,
    testing::{
        CheckedPipeline, bridge_with_rules, draw,
        generate::{self, Op},
        runner, visible,
    },
    traversals::{
        datapath_action::DatapathAction,
        drop_cause::DropCause,
        traversal::{Refresh, Traversal, TraversalError},
    },
    versions::delta::Object,
};

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    #[test]
    fn a_traversal_does_what_the_tables_say(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 8),
    ) {
        let checked = CheckedPipeline::new(&network);
        for key in &packets {
            let traversal = checked.translate(key);
            prop_assert_eq!(checked.effects(&traversal, key), checked.model.translate(key));
        }
    }

    #[test]
    fn packets_equal_under_mask_get_one_result(
        network in generate::network(),
        // With the packets that are generated to agree with each, the test has a hundred thousand
        // packets.
        packets in prop::collection::vec(generate::packet(), PACKETS),
    ) {
        let (checked, mut runner) = (CheckedPipeline::new(&network), runner());
        let mut lookups_left = LOOKUPS_PER_NETWORK;
        for key in &packets {
            let lookups = invariants::agreeing_packets_get_one_result(&checked, key, &mut runner)?;
            lookups_left = lookups_left.saturating_sub(lookups);
            if lookups_left == 0 {
                break;
            }
        }
    }

    #[test]
    fn recirculated_packets_that_agree_get_one_result(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 8),
    ) {
        let (checked, mut runner) = (CheckedPipeline::new(&network), runner());
        for key in &packets {
            invariants::agreeing_packets_continue_alike(&checked, key, &mut runner)?;
        }
    }

    #[test]
    fn packets_under_a_visit_mask_match_alike(
        network in generate::network(),
        packet in generate::packet(),
    ) {
        invariants::visits_are_uniform(&CheckedPipeline::new(&network), &packet, &mut runner())?;
    }

    #[test]
    fn traversal_changes_are_in_visits_or_reads(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 4),
        ops in prop::collection::vec(generate::op(), 1..8),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        for op in &ops {
            invariants::changes_are_named(&mut checked, &packets, op)?;
        }
    }

    #[test]
    fn a_packet_out_does_what_its_actions_say(
        network in generate::network(),
        mut packet in generate::packet(),
        actions in prop::collection::vec(generate::action(), 0..5),
        port in prop::sample::select(vec![1, 2, 4, 0xffff_fffd, 0xffff_fffe, 0xffff_ffff]),
    ) {
        let checked = CheckedPipeline::new(&network);
        packet.set_in_port(PortNo::new(port));
        let traversal =
            checked.pipeline.translate_actions(&visible(&packet), &actions, checked.pipeline.version());
        prop_assert_eq!(checked.effects(&traversal, &packet), checked.model.packet_out(&packet, &actions));
    }

    #[test]
    fn unread_objects_change_no_translation(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 8),
        ops in prop::collection::vec(generate::op(), 1..6),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        for op in &ops {
            invariants::objects_not_read_change_nothing(&mut checked, &packets, op)?;
        }
    }
}

/// Number of packets per network of the test of agreeing packets.
const PACKETS: usize = 84;

/// Number of lookups after which the test of agreeing packets ends for a network.
///
/// In few networks, each packet needs thousands of lookups, and the test would take minutes.
const LOOKUPS_PER_NETWORK: usize = 200_000;

/// Checks that the test of agreeing packets skips few of them.
#[test]
fn most_packets_need_few_lookups() {
    let (mut runner, mut costly) = (runner(), 0);
    for _ in 0..100 {
        let model = CheckedPipeline::new(&draw(&mut runner, &generate::network())).model;
        let keys = (0..4).map(|_| draw(&mut runner, &generate::packet()));
        let lookups_max = LOOKUPS_PER_NETWORK / (PACKETS * invariants::SIBLINGS);
        costly += keys.filter(|key| model.translate_within(key, lookups_max).is_none()).count();
    }
    assert!(costly <= 40, "{costly} of 400 packets need many lookups");
}

/// Checks that the generated packets of the invariants use every feature.
///
/// Each feature must occur often enough, also after packets were parsed again.
#[test]
fn generated_switches_reach_every_feature() {
    let mut runner = runner();
    let mut counts: BTreeMap<Feature, usize> = BTreeMap::new();
    for _ in 0..600 {
        let mut checked = CheckedPipeline::new(&draw(&mut runner, &generate::network()));
        let keys: Vec<_> = (0..4).map(|_| draw(&mut runner, &generate::packet())).collect();
        // In the second round, packets match the rules and addresses of the first round.
        for key in keys.iter().chain(&keys) {
            let traversals = checked.traversals(key);
            let features: BTreeSet<_> = traversals.iter().flat_map(features).collect();
            features.into_iter().for_each(|feature| *counts.entry(feature).or_default() += 1);
            let effects = checked.effects(&traversals[0], key);
            let observed = [
                (Feature::Metered, effects.was_metered),
                (Feature::LaterError, !effects.later_errors.is_empty()),
                (
                    Feature::SixRecirculations,
                    traversals.iter().any(|last| last.error == Some(TOO_MANY_RECIRCULATIONS)),
                ),
            ];
            observed.iter().filter(|(_, is_satisfied)| *is_satisfied).for_each(|(feature, _)| {
                *counts.entry(*feature).or_default() += 1;
            });
            checked.apply(&Op::LearnFrom(Box::new(key.clone())));
        }
    }
    let rare: Vec<_> = Feature::ALL
        .iter()
        .filter(|feature| counts.get(*feature).is_none_or(|count| *count < LEAST))
        .collect();
    assert!(rare.is_empty(), "{rare:?} of {counts:?}");
}

/// Checks that packets of generated bonds use the buckets of the bonds.
///
/// `a_bonded_bridge_equals_the_oracle` compares the output ports of such packets with the oracle.
///
/// In the networks of the other tests, buckets forward few packets: two sevenths of the networks
/// have bonds, half of these bonds balance, and NORMAL must choose such a bond.
#[test]
fn generated_bonds_reach_their_buckets() {
    let mut runner = runner();
    let id = generate::BRIDGES[0];
    let mut balanced = 0;
    for _ in 0..100 {
        let mut checked = CheckedPipeline::taking(&bridge_with_rules(id, &["actions=NORMAL"]));
        checked.apply(&Op::SetPorts(id, draw(&mut runner, &generate::bonded_ports(id))));
        for _ in 0..8 {
            let mut packet = draw(&mut runner, &generate::packet());
            packet.set_bridge(id.number().into());
            let uses_bucket = checked.traversals(&packet).iter().any(|own| buckets(own) > 0);
            balanced += usize::from(uses_bucket);
        }
    }
    assert!(balanced >= LEAST, "{balanced} of 800 packets");
}

/// The minimum number of packets that must use each feature.
const LEAST: usize = 12;

/// The error of a packet that is parsed too often.
const TOO_MANY_RECIRCULATIONS: TraversalError = TraversalError::TooManyRecirculations(6);

macro_rules! features {
    ($($name:ident),* $(,)?) => {
        /// A feature that a packet uses.
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
    Copy, Recirculate, CheckLength, TtlCopy, TwoRecirculations, SixRecirculations, LaterError,
    PushLabel, PopLabel, PushValue, PopValue,
    LearnRule, KnownRule, LearnLater, Normal, LearnMac, KnownMac, NormalLater, FinTimeout,
    Conjunction, ConjunctionLater, Pause, PauseLater, MeteredRecirculation,
    Mirrored, ReservedPort, FailOpen,
}

/// Returns the number of buckets of bonds that forward a traversal.
///
/// The counter of a bucket has a name with a space.
fn buckets(traversal: &Traversal) -> usize {
    traversal.output_hits.iter().filter(|hit| hit.name().contains(' ')).count()
}

/// Returns the features that a traversal used.
fn features(traversal: &Traversal) -> Vec<Feature> {
    use Feature as F;
    let mut used = Vec::new();
    let is_later = traversal.continuation.is_some();
    let mut add = |first: F, later: Option<F>| {
        used.push(first);
        used.extend(later.filter(|_| is_later));
    };
    for hit in &traversal.group_hits {
        let kinds = [F::All, F::Select, F::Indirect, F::FastFailover];
        add(kinds[hit.group.kind as usize], Some(F::GroupLater));
    }
    if traversal.group_hits.len() > 1 {
        add(F::ChainedGroups, None);
    }
    if traversal.output_hits.len() > buckets(traversal) {
        add(F::Mirrored, None);
    }
    if traversal.drop_cause == DropCause::MirrorOutputPort {
        add(F::ReservedPort, None);
    }
    for learning in &traversal.learnings {
        match learning {
            Learning::Rule(_) => add(F::LearnRule, Some(F::LearnLater)),
            Learning::Mac(_) => add(F::LearnMac, None),
            Learning::Multicast(_) => panic!("no translation learns from a message"),
        }
    }
    for refresh in &traversal.refreshes {
        match refresh {
            Refresh::Rule(_) => add(F::KnownRule, None),
            Refresh::Mac(_) => add(F::KnownMac, None),
            Refresh::FinTimeout { .. } => add(F::FinTimeout, None),
        }
    }
    if traversal.reads.iter().any(|read| matches!(read, Object::Mac(..))) {
        add(F::Normal, Some(F::NormalLater));
        if traversal.visits.is_empty() && !is_later {
            add(F::FailOpen, None);
        }
    }
    for visit in &traversal.visits {
        if !visit.clauses.is_empty() {
            add(F::Conjunction, Some(F::ConjunctionLater));
        }
        for action in visit.rule.iter().flat_map(|rule| &rule.instructions.apply) {
            match action {
                Action::Push(_) => add(F::PushValue, None),
                Action::Pop(_) => add(F::PopValue, None),
                _ => {}
            }
        }
    }
    for action in &*traversal.actions {
        add_features(action, &mut add);
    }
    if traversal.actions.iter().filter(|action| is_recirculated(action)).count() > 1 {
        add(F::TwoRecirculations, None);
    }
    used
}

fn add_features(action: &DatapathAction, add: &mut impl FnMut(Feature, Option<Feature>)) {
    use Feature as F;
    match action {
        DatapathAction::Meter(meter) => {
            add(F::Meter, Some(F::MeterLater));
            if meter.remarks() {
                add(F::Remark, None);
            }
        }
        DatapathAction::Copy(inner) => {
            add(F::Copy, None);
            let is_metered = inner.iter().any(|own| matches!(own, DatapathAction::Meter(_)));
            if is_metered && inner.iter().any(is_recirculated) {
                add(F::MeteredRecirculation, None);
            }
            inner.iter().for_each(|action| add_features(action, add));
        }
        DatapathAction::Recirculate(continuation) => {
            let is_copy = continuation.ttl_copy().is_some();
            add(if is_copy { F::TtlCopy } else { F::Recirculate }, None);
        }
        DatapathAction::CheckLength { .. } => add(F::CheckLength, None),
        DatapathAction::Punt(punt) if punt.continuation.is_some() => {
            add(F::Pause, Some(F::PauseLater));
        }
        DatapathAction::PushMpls { .. } => add(F::PushLabel, None),
        DatapathAction::PopMpls { .. } => add(F::PopLabel, None),
        _ => {}
    }
}

fn is_recirculated(action: &DatapathAction) -> bool {
    match action {
        DatapathAction::Recirculate(_) | DatapathAction::CheckLength { .. } => true,
        DatapathAction::Copy(inner) => inner.iter().any(is_recirculated),
        _ => false,
    }
}
