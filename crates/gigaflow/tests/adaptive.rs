//! Set duelling chooses the granularity with more hits, changes it rarely, and changes it back.

use shunt_gigaflow::{
    adaptive::{Adaptive, CLEARED_AFTER_ROUNDS, Capacity, Granularity, ProbeResult, ROUND},
    outline::{Coupling, FieldSet, OutlineStep, StateId, TraversalOutline},
    partition::{JointPolicy, PartitionPolicy},
};
use shunt_testkit::partition::{plain::PlainStages, workload::RecordedWorkload};

const CAPACITY: Capacity = Capacity { stages_count: 4, stage_entries_max: 50 };

/// Returns an outline of an Ethernet step and an IP step with these identities.
fn outline(start: u32, ethernet: u64, ip: u64) -> TraversalOutline {
    let mut outline = TraversalOutline::new();
    outline.begin(StateId::new(start));
    outline
        .step(OutlineStep { fields: FieldSet::of(&[Coupling::EthDst]), identity: ethernet << 32 });
    outline.partition_point(StateId::new(start + 1));
    outline.step(OutlineStep { fields: FieldSet::of(&[Coupling::IpDst]), identity: ip });
    outline
}

/// Pseudo-random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

/// Samples combinations of 40 first and 40 second steps: only sub-traversals fit.
fn recombine(adaptive: &mut Adaptive<JointPolicy>, start: u32, draws: u32) {
    let mut numbers = Numbers(1);
    for _ in 0..draws {
        let outline = outline(start, numbers.below(40), numbers.below(40));
        adaptive.observe(&outline, ProbeResult::Sampled);
    }
}

/// Samples 190 traversals without shared steps: only their megaflows fit.
fn sample_unshared(adaptive: &mut Adaptive<JointPolicy>, start: u32, draws: u32) {
    let mut numbers = Numbers(2);
    for _ in 0..draws {
        let number = 1000 + numbers.below(190);
        adaptive.observe(&outline(start, number, number), ProbeResult::Sampled);
    }
}

#[test]
fn flows_that_share_stay_with_sub_traversals() {
    let mut adaptive = Adaptive::new(JointPolicy::default(), CAPACITY);
    recombine(&mut adaptive, 0, 20 * ROUND);
    assert_eq!(adaptive.granularity(StateId::new(0)), Granularity::SubTraversals);
    assert_eq!(adaptive.partition(&outline(0, 1, 2), &PlainStages::empty(4)).len(), 2);
}

#[test]
fn flows_that_share_nothing_become_megaflows() {
    let mut adaptive = Adaptive::new(JointPolicy::default(), CAPACITY);
    sample_unshared(&mut adaptive, 0, 4 * ROUND);
    assert_eq!(adaptive.granularity(StateId::new(0)), Granularity::Megaflows);
    assert_eq!(adaptive.partition(&outline(0, 1, 2), &PlainStages::empty(4)).len(), 1);
}

#[test]
fn change_is_reverted_when_traffic_changes_back() {
    let mut adaptive = Adaptive::new(JointPolicy::default(), CAPACITY);
    sample_unshared(&mut adaptive, 0, 8 * ROUND);
    assert_eq!(adaptive.granularity(StateId::new(0)), Granularity::Megaflows);
    recombine(&mut adaptive, 0, (CLEARED_AFTER_ROUNDS + 8) * ROUND);
    assert_eq!(adaptive.granularity(StateId::new(0)), Granularity::SubTraversals);
}

#[test]
fn each_start_tag_is_decided_independently() {
    let mut adaptive = Adaptive::new(JointPolicy::default(), CAPACITY);
    sample_unshared(&mut adaptive, 0, 6 * ROUND);
    recombine(&mut adaptive, 10, (CLEARED_AFTER_ROUNDS + 8) * ROUND);
    assert_eq!(adaptive.granularity(StateId::new(0)), Granularity::Megaflows);
    assert_eq!(adaptive.granularity(StateId::new(10)), Granularity::SubTraversals);
}

#[test]
fn a_start_tag_without_samples_is_decided_too() {
    let (starts, mut numbers) = (u64::from(2 * CLEARED_AFTER_ROUNDS), Numbers(3));
    let mut adaptive = Adaptive::new(JointPolicy::default(), CAPACITY);
    // The megaflow of each start fits into the cache, and its sub-traversals do not.
    for _ in 0..3 * starts * u64::from(ROUND) {
        let start = numbers.below(starts);
        let number = 1000 + start;
        let outline = outline(u32::try_from(10 * start).unwrap_or_default(), number, number);
        adaptive.observe(&outline, ProbeResult::Sampled);
    }
    let is_whole =
        |start: &u32| adaptive.granularity(StateId::new(10 * start)) == Granularity::Megaflows;
    let whole = (0..2 * CLEARED_AFTER_ROUNDS).filter(is_whole).count();
    assert!(whole > 16, "{whole} of {starts}");
}

#[test]
fn misses_never_decide_set_duelling() {
    let mut adaptive = Adaptive::new(JointPolicy::default(), CAPACITY);
    for number in 0..100 * u64::from(ROUND) {
        adaptive.observe(&outline(0, number, number), ProbeResult::Missed);
    }
    assert_eq!(adaptive.granularity(StateId::new(0)), Granularity::SubTraversals);
}

#[test]
fn equal_hit_rates_change_no_decision() {
    // All entries fit with both granularities, so both hit equally often in every round.
    let roomy = Capacity { stages_count: 4, stage_entries_max: 10_000 };
    let mut adaptive = Adaptive::new(JointPolicy::default(), roomy);
    let mut changes = 0;
    let mut granularity = Granularity::SubTraversals;
    for round in 0..10 {
        sample_unshared(&mut adaptive, 0, ROUND);
        let now = adaptive.granularity(StateId::new(0));
        changes += u32::from(now != granularity);
        granularity = now;
        assert_eq!(changes, 0, "in round {round}");
    }
}

#[test]
fn a_text_that_is_no_workload_is_refused() {
    for text in ["steps\n0 xx", "paths\n7", "packets\n0", "steps\nno -", "expected\n\n"] {
        assert!(RecordedWorkload::parse(text).is_none(), "{text:?}");
    }
}
