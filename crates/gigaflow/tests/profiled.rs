//! The profiled policy partitions by measured sharing, as soon as the measurement is complete.

use shunt_gigaflow::{
    outline::{Coupling, FieldSet, OutlineStep, StateId, TraversalOutline},
    partition::{JointPolicy, PartitionPolicy, research::ProfiledPolicy},
};
use shunt_testkit::partition::plain::PlainStages;

/// Returns an outline of two steps with these identities and fields.
fn outline(seen: [u64; 2], fields: [FieldSet; 2]) -> TraversalOutline {
    let mut outline = TraversalOutline::new();
    outline.begin(StateId::new(0));
    outline.step(OutlineStep { fields: fields[0], identity: seen[0] });
    outline.partition_point(StateId::new(1));
    outline.step(OutlineStep { fields: fields[1], identity: seen[1] });
    outline
}

/// The fields of two steps that read none.
const NO_FIELDS: [FieldSet; 2] = [FieldSet::EMPTY; 2];

/// Partitions traversals in order; returns the number of sub-traversals of each.
fn partition(
    policy: &mut impl PartitionPolicy,
    outlines: impl Iterator<Item = TraversalOutline>,
) -> Vec<usize> {
    let stages = PlainStages::empty(4);
    outlines.map(|outline| policy.partition(&outline, &stages).len()).collect()
}

/// Returns all 40,000 combinations of 200 first and 200 second steps, each once.
fn all_combinations() -> impl Iterator<Item = TraversalOutline> {
    (0..40_000_u64).map(|number| {
        let mixed = number * 7919 % 40_000;
        outline([mixed / 200, 1000 + mixed % 200], NO_FIELDS)
    })
}

#[test]
fn steps_that_combine_freely_are_separated() {
    let counts = partition(&mut ProfiledPolicy::default(), all_combinations());
    assert!(counts[..4000].iter().all(|count| *count == 1), "partitioned by fields until measured");
    assert!(counts[10_000..].iter().all(|count| *count == 2));
    assert!(
        partition(&mut JointPolicy::default(), all_combinations()).iter().all(|count| *count == 1)
    );
}

#[test]
fn steps_that_occur_together_stay_together() {
    let fields = [Coupling::EthDst, Coupling::IpDst].map(|field| FieldSet::of(&[field]));
    let paired = || (0..40_000_u64).map(|number| outline([number % 3000, number % 3000], fields));
    assert!(partition(&mut JointPolicy::default(), paired()).iter().all(|count| *count == 2));
    let counts = partition(&mut ProfiledPolicy::default(), paired());
    assert!(counts[..4000].iter().all(|count| *count == 2), "partitioned by fields until measured");
    assert!(counts[10_000..].iter().all(|count| *count == 1));
}
