//! What traffic shares decides the cuts, once it is known.

use shunt_gigaflow::{
    outline::{Coupling, FieldSet, StateId, Step, TraversalOutline},
    partition::{Joint, Policy, Profiled},
    testing::ways::PlainStages,
};

/// A way of two steps that saw these and looked at these fields.
fn way(seen: [u64; 2], fields: [FieldSet; 2]) -> TraversalOutline {
    let mut way = TraversalOutline::new();
    way.begin(StateId::new(0));
    way.step(Step { fields: fields[0], identity: seen[0] });
    way.cut(StateId::new(1));
    way.step(Step { fields: fields[1], identity: seen[1] });
    way
}

const UNKNOWN: [FieldSet; 2] = [FieldSet::EMPTY; 2];

/// How many pieces the policy makes of each of so many ways, one after the other.
fn cut(policy: &mut impl Policy, ways: impl Iterator<Item = TraversalOutline>) -> Vec<usize> {
    let stages = PlainStages::empty(4);
    ways.map(|way| policy.partition(&way, &stages).len()).collect()
}

/// 40,000 combinations of 200 first and 200 second steps, without a repetition.
fn recombined() -> impl Iterator<Item = TraversalOutline> {
    (0..40_000_u64).map(|number| {
        let mixed = number * 7919 % 40_000;
        way([mixed / 200, 1000 + mixed % 200], UNKNOWN)
    })
}

#[test]
fn steps_that_recombine_are_parted_whatever_their_fields() {
    let pieces = cut(&mut Profiled::default(), recombined());
    assert!(
        pieces[..4000].iter().all(|count| *count == 1),
        "the rule of fields, until it is known"
    );
    assert!(pieces[10_000..].iter().all(|count| *count == 2));
    assert!(cut(&mut Joint::default(), recombined()).iter().all(|count| *count == 1));
}

#[test]
fn steps_that_go_together_are_kept_together_whatever_their_fields() {
    let fields = [Coupling::EthDst, Coupling::IpDst].map(|field| FieldSet::of(&[field]));
    let paired = || (0..40_000_u64).map(|number| way([number % 3000, number % 3000], fields));
    assert!(cut(&mut Joint::default(), paired()).iter().all(|count| *count == 2));
    let pieces = cut(&mut Profiled::default(), paired());
    assert!(
        pieces[..4000].iter().all(|count| *count == 2),
        "the rule of fields, until it is known"
    );
    assert!(pieces[10_000..].iter().all(|count| *count == 1));
}
