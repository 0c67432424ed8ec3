//! Checks the rules that every policy keeps, and compares the results of each policy with brute
//! force.

use std::{cell::Cell, ops::Range};

use proptest::{prelude::*, test_runner::TestRunner};
use shunt_gigaflow::{
    outline::{Coupling, FieldSet, SubTraversalOutline},
    partition::{
        JointPolicy, PartitionPolicy, Placement, PolicyName, STAGES_MAX, Score, StageId, StageSet,
        StageView,
        research::{DisjointPolicy, FirstFitPolicy, Ties},
    },
};
use shunt_testkit::partition::{
    brute,
    plain::{self, PlainOutline, PlainStage, PlainStages, StageRoom},
};

const SCORES: [Score; 2] = [Score::Length, Score::Joins];

fn placements(
    policy: &mut impl PartitionPolicy,
    outline: &PlainOutline,
    stages: &impl StageView,
) -> Vec<Placement> {
    policy.partition(&outline.outline(), stages).to_vec()
}

/// Checks that a partition keeps the rules of the contract.
/// The partition must not be empty if a stage has room.
fn check_legal(
    all: &[Vec<Placement>],
    outline: &PlainOutline,
    stages: &PlainStages,
    placements: &[Placement],
) {
    if placements.is_empty() {
        let full = stages.0.iter().all(|stage| stage.room == StageRoom::Full);
        assert!(full, "no entries for {outline:?} in {stages:?}");
        return;
    }
    assert!(
        all.iter().any(|other| other == placements),
        "{placements:?} is no partition of {outline:?} in {stages:?}"
    );
}

fn check_joint(all: &[Vec<Placement>], outline: &PlainOutline, stages: &PlainStages) {
    for score in SCORES {
        let found = placements(&mut JointPolicy::new(score), outline, stages);
        check_legal(all, outline, stages, &found);
        let value = brute::joint_value(outline, stages, &found, score);
        let best = brute::joint(all, outline, stages, score);
        assert_eq!(
            (!found.is_empty()).then_some(value),
            best,
            "{outline:?} in {stages:?}: {found:?}"
        );
    }
}

fn check_disjoint(all: &[Vec<Placement>], outline: &PlainOutline, stages: &PlainStages) {
    for score in SCORES {
        for ties in [Ties::Cached, Ties::Canonical] {
            let found = placements(&mut DisjointPolicy::new(score, ties), outline, stages);
            let best = brute::disjoint(all, outline, stages, score, ties);
            assert_eq!(found, best, "{outline:?} in {stages:?}");
        }
    }
}

/// Returns outlines of this length with all choices of consulted fields.
///
/// A step consults no field, one of three fields, or two of them. In outlines of more than six
/// steps, a step consults no field or one of two fields, to limit the number of outlines.
fn all_outlines(steps_count: u32) -> impl Iterator<Item = PlainOutline> {
    let [a, b, c] = [Coupling::EthSrc, Coupling::IpSrc, Coupling::TpDst];
    let kinds = [&[][..], &[a], &[b], &[a, b], &[c]].map(FieldSet::of);
    let base = if steps_count > 6 { 3 } else { kinds.len() };
    (0..base.pow(steps_count)).map(move |number| {
        let kind = |at| kinds[number / base.pow(at) % base];
        PlainOutline::open(&(0..steps_count).map(kind).collect::<Vec<_>>())
    })
}

#[test]
fn short_traversals_are_partitioned_like_brute_force() {
    for (steps_count, stages_count) in (1..=8).flat_map(|steps| (1..=5).map(move |k| (steps, k))) {
        let stages = PlainStages::empty(stages_count);
        let any = PlainOutline::open(&vec![FieldSet::EMPTY; steps_count as usize]);
        let all = brute::partitions(&any, &stages);
        for outline in all_outlines(steps_count) {
            check_joint(&all, &outline, &stages);
            check_disjoint(&all, &outline, &stages);
        }
    }
}

#[test]
fn equal_prefixes_are_partitioned_equally() {
    let compared = Cell::new(0);
    let inputs = (plain::outline(5), plain::outline(4), plain::outline(4), 1_u8..=5);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(4000));
    let result = runner.run(&inputs, |(prefix, one, other, stages_count)| {
        let end = u16::try_from(prefix.0.len()).unwrap_or(u16::MAX);
        let stages = PlainStages::empty(stages_count);
        for policy in [PolicyName::Disjoint, PolicyName::Joint, PolicyName::FirstFit] {
            let ranges = |rest: &PlainOutline| {
                let outline = PlainOutline([prefix.0.clone(), rest.0.clone()].concat());
                let found = placements(&mut policy.policy(0), &outline, &stages);
                let inside = found.iter().map(|placement| placement.steps.clone());
                inside.take_while(|steps| steps.end <= end).collect::<Vec<_>>()
            };
            let (one, other) = (ranges(&one), ranges(&other));
            let reaches = |ranges: &[Range<u16>]| ranges.last().is_some_and(|last| last.end == end);
            if reaches(&one) && reaches(&other) && one.len() == other.len() {
                prop_assert_eq!(&one, &other);
                compared.set(compared.get() + usize::from(one.len() > 1));
            }
        }
        Ok(())
    });
    assert_eq!(result, Ok(()));
    assert!(compared.get() > 10, "only {} prefixes with two or more parts", compared.get());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn joint_finds_the_best_partition(
        outline in plain::outline(8),
        stages in plain::stages(5, 8),
    ) {
        check_joint(&brute::partitions(&outline, &stages), &outline, &stages);
    }

    #[test]
    fn the_disjoint_policy_finds_its_best_partition(
        outline in plain::outline(8),
        stages in plain::stages(5, 8),
    ) {
        check_disjoint(&brute::partitions(&outline, &stages), &outline, &stages);
    }

    #[test]
    fn stage_with_room_precedes_contended_stages(
        outlines in prop::collection::vec(plain::outline(7), 1..4),
        stages in plain::stages(5, 7),
    ) {
        let has_free = stages.0.iter().any(|stage| stage.room == StageRoom::Free);
        for name in [
            PolicyName::Joint, PolicyName::Profiled, PolicyName::Disjoint, PolicyName::Megaflow,
        ] {
            let mut policy = name.policy(7);
            for outline in outlines.iter().filter(|_| has_free) {
                let found = placements(&mut policy, outline, &stages);
                prop_assert_eq!(brute::new_entries_in_nearly_full_stages(&stages, &found), 0, "{}: {:?}", name, found);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_policy_finds_entries_while_there_is_room(
        outlines in prop::collection::vec(plain::outline(7), 1..4),
        stages in plain::stages(5, 7),
    ) {
        for name in PolicyName::ALL {
            let mut policy = name.policy(7);
            for outline in &outlines {
                let found = placements(&mut policy, outline, &stages);
                check_legal(&brute::partitions(outline, &stages), outline, &stages, &found);
            }
        }
    }

    #[test]
    fn first_fit_uses_score_without_full_stages(
        outline in plain::outline(8),
        stages_count in 1_u8..=5,
    ) {
        let stages = PlainStages::empty(stages_count);
        let steps = |placements: Vec<Placement>| placements.into_iter().map(|placement| placement.steps).collect::<Vec<_>>();
        let found = placements(&mut FirstFitPolicy::default(), &outline, &stages);
        let stages_used: Vec<u8> = found.iter().map(|placement| placement.stage.number()).collect();
        prop_assert_eq!(&stages_used, &(0..).take(found.len()).collect::<Vec<u8>>());
        let all = brute::partitions(&outline, &stages);
        let best = brute::disjoint(&all, &outline, &stages, Score::Length, Ties::Canonical);
        prop_assert_eq!(steps(found), steps(best));
    }

    #[test]
    fn tables_with_related_fields_stay_together(outline in plain::outline(8)) {
        let fields = outline.fields();
        for placement in outline.outline().sub_traversals() {
            let steps = usize::from(placement.steps.start)..usize::from(placement.steps.end);
            prop_assert_eq!(placement.coupled, brute::coupled(&fields[steps]), "{:?}", placement.steps);
        }
    }
}

#[test]
fn relations_of_fields_ignore_table_order() {
    let [a, b] = [Coupling::EthSrc, Coupling::EthDst];
    let order = |kinds: [&[Coupling]; 3]| PlainOutline::open(&kinds.map(FieldSet::of));
    for outline in [order([&[a], &[b], &[a, b]]), order([&[a], &[a, b], &[b]])] {
        assert!(
            outline
                .outline()
                .sub_traversals()
                .any(|placement| placement.steps == (0..3) && placement.coupled)
        );
        assert_eq!(
            placements(&mut JointPolicy::default(), &outline, &PlainStages::empty(4)).len(),
            1
        );
    }
}

#[test]
fn a_full_stage_still_shares_its_entries() {
    let [a, b] = [Coupling::EthSrc, Coupling::IpDst].map(|field| FieldSet::of(&[field]));
    let outline = PlainOutline::open(&[a, a, b, b]);
    let full = PlainStage { room: StageRoom::Full, held: std::iter::once(0..2).collect() };
    let free = PlainStage { room: StageRoom::Free, held: Vec::new() };
    let stages = PlainStages(vec![full, free]);
    let stage = |number| StageId::new(number).unwrap();
    let expected =
        [Placement { steps: 0..2, stage: stage(0) }, Placement { steps: 2..4, stage: stage(1) }];
    assert_eq!(placements(&mut JointPolicy::default(), &outline, &stages), expected);
    // The policy of the paper does not use the full stage, although it holds the entry.
    let whole = [Placement { steps: 0..4, stage: stage(1) }];
    assert_eq!(placements(&mut DisjointPolicy::default(), &outline, &stages), whole);
}

#[test]
fn sub_traversals_begin_at_partition_points_only() {
    let field = |field| FieldSet::of(&[field]);
    let outline = PlainOutline(vec![
        (true, field(Coupling::EthSrc)),
        (false, field(Coupling::IpDst)),
        (true, field(Coupling::TpDst)),
    ]);
    for name in PolicyName::ALL {
        let found = placements(&mut name.policy(1), &outline, &PlainStages::empty(4));
        assert!(found.iter().all(|placement| placement.steps.start != 1), "{name}: {found:?}");
    }
}

#[test]
fn random_partitions_have_every_size_and_every_point() {
    let outline = PlainOutline::open(&[FieldSet::EMPTY; 6]);
    let mut policy = PolicyName::Random.policy(3);
    let (mut counts, mut starts) = ([0; 5], [0; 6]);
    for _ in 0..1000 {
        let found = placements(&mut policy, &outline, &PlainStages::empty(4));
        counts[found.len()] += 1;
        found.iter().for_each(|placement| starts[usize::from(placement.steps.start)] += 1);
    }
    assert!(counts[1..].iter().all(|count| *count > 150), "{counts:?}");
    assert!(starts.iter().all(|count| *count > 150), "{starts:?}");
}

#[test]
fn a_traversal_without_steps_has_no_sub_traversals() {
    for name in PolicyName::ALL {
        let outline = PlainOutline(Vec::new());
        assert_eq!(placements(&mut name.policy(1), &outline, &PlainStages::empty(4)), []);
        let outline = PlainOutline::open(&[FieldSet::EMPTY; 3]);
        assert_eq!(placements(&mut name.policy(1), &outline, &PlainStages::empty(0)), []);
    }
}

/// Stages with room.
/// The first step of a sub-traversal selects the stage that holds it.
struct Many(u8);

impl StageView for Many {
    fn count(&self) -> u8 {
        self.0
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        let stage =
            u8::try_from(sub_traversal.steps.start % u16::from(self.0)).ok().and_then(StageId::new);
        stage.map_or(StageSet::EMPTY, |stage| StageSet::EMPTY.with(stage))
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(self.0)
    }
}

#[test]
fn stages_64_cover_traversal_of_4096_visits() {
    let fields = [Coupling::EthSrc, Coupling::IpDst].map(|field| FieldSet::of(&[field]));
    let fields: Vec<FieldSet> = (0..4096).map(|step| fields[step / 100 % 2]).collect();
    let outline = PlainOutline::open(&fields);
    for name in PolicyName::ALL {
        let found = placements(&mut name.policy(1), &outline, &Many(STAGES_MAX));
        let mut next = 0;
        for placement in &found {
            assert_eq!(placement.steps.start, next, "{name}");
            next = placement.steps.end;
        }
        assert_eq!(next, 4096, "{name}");
        assert!(found.is_sorted_by(|one, other| one.stage < other.stage), "{name}");
    }
}
