//! What traffic shares decides the cuts, once it is known.

use shunt_gigaflow::{
    outline::{Coupling, FieldSet, OutlineStep, StateId, TraversalOutline},
    partition::{JointPolicy, PartitionPolicy, research::ProfiledPolicy},
    testing::plain::PlainStages,
};

/// A way of two steps that saw these and looked at these fields.
fn outline(seen: [u64; 2], fields: [FieldSet; 2]) -> TraversalOutline {
    let mut outline = TraversalOutline::new();
    outline.begin(StateId::new(0));
    outline.step(OutlineStep { fields: fields[0], identity: seen[0] });
    outline.partition_point(StateId::new(1));
    outline.step(OutlineStep { fields: fields[1], identity: seen[1] });
    outline
}

const UNKNOWN: [FieldSet; 2] = [FieldSet::EMPTY; 2];

/// How many pieces the policy makes of each of so many ways, one after the other.
fn partition(
    policy: &mut impl PartitionPolicy,
    outlines: impl Iterator<Item = TraversalOutline>,
) -> Vec<usize> {
    let stages = PlainStages::empty(4);
    outlines.map(|outline| policy.partition(&outline, &stages).len()).collect()
}

/// 40,000 combinations of 200 first and 200 second steps, without a repetition.
fn recombined() -> impl Iterator<Item = TraversalOutline> {
    (0..40_000_u64).map(|number| {
        let mixed = number * 7919 % 40_000;
        outline([mixed / 200, 1000 + mixed % 200], UNKNOWN)
    })
}

#[test]
fn steps_that_recombine_are_parted_whatever_their_fields() {
    let counts = partition(&mut ProfiledPolicy::default(), recombined());
    assert!(
        counts[..4000].iter().all(|count| *count == 1),
        "the rule of fields, until it is known"
    );
    assert!(counts[10_000..].iter().all(|count| *count == 2));
    assert!(partition(&mut JointPolicy::default(), recombined()).iter().all(|count| *count == 1));
}

#[test]
fn steps_that_go_together_are_kept_together_whatever_their_fields() {
    let fields = [Coupling::EthDst, Coupling::IpDst].map(|field| FieldSet::of(&[field]));
    let paired = || (0..40_000_u64).map(|number| outline([number % 3000, number % 3000], fields));
    assert!(partition(&mut JointPolicy::default(), paired()).iter().all(|count| *count == 2));
    let counts = partition(&mut ProfiledPolicy::default(), paired());
    assert!(
        counts[..4000].iter().all(|count| *count == 2),
        "the rule of fields, until it is known"
    );
    assert!(counts[10_000..].iter().all(|count| *count == 1));
}
