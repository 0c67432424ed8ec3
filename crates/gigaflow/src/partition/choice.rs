//! Policies by name, as the configuration says them.

use std::{fmt, str::FromStr};

use super::{
    contract::{Piece, Policy, Stages},
    disjoint::Disjoint,
    first_fit::FirstFit,
    joint::Joint,
    one_to_one::OneToOne,
    profiled::Profiled,
    random::Random,
    whole::Whole,
};
use crate::{error::UnknownPolicy, outline::TraversalOutline};

/// The name of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// [`Disjoint`], as `disjoint`.
    Disjoint,
    /// [`Joint`], as `joint`.
    #[default]
    Joint,
    /// [`Profiled`], as `profiled`.
    Profiled,
    /// [`FirstFit`], as `first-fit`.
    FirstFit,
    /// [`Random`], as `random`.
    Random,
    /// [`OneToOne`], as `one-to-one`.
    OneToOne,
    /// [`Whole`], as `megaflow`.
    Megaflow,
}

impl PolicyName {
    /// Every policy.
    pub const ALL: [Self; 7] = [
        Self::Disjoint,
        Self::Joint,
        Self::Profiled,
        Self::FirstFit,
        Self::Random,
        Self::OneToOne,
        Self::Megaflow,
    ];

    /// The name as users write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disjoint => "disjoint",
            Self::Joint => "joint",
            Self::Profiled => "profiled",
            Self::FirstFit => "first-fit",
            Self::Random => "random",
            Self::OneToOne => "one-to-one",
            Self::Megaflow => "megaflow",
        }
    }

    /// The policy of this name, with the default score; the seed is [`Random`]'s.
    #[must_use]
    pub fn policy(self, seed: u64) -> AnyPolicy {
        match self {
            Self::Disjoint => AnyPolicy::Disjoint(Disjoint::default()),
            Self::Joint => AnyPolicy::Joint(Joint::default()),
            Self::Profiled => AnyPolicy::Profiled(Profiled::default()),
            Self::FirstFit => AnyPolicy::FirstFit(FirstFit::default()),
            Self::Random => AnyPolicy::Random(Random::new(seed)),
            Self::OneToOne => AnyPolicy::OneToOne(OneToOne::default()),
            Self::Megaflow => AnyPolicy::Megaflow(Whole::default()),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| UnknownPolicy { name: text.to_owned() })
    }
}

/// One of the policies, chosen while the switch runs.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the policy of its name")]
pub enum AnyPolicy {
    Disjoint(Disjoint),
    Joint(Joint),
    Profiled(Profiled),
    FirstFit(FirstFit),
    Random(Random),
    OneToOne(OneToOne),
    Megaflow(Whole),
}

impl Policy for AnyPolicy {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        match self {
            Self::Disjoint(policy) => policy.partition(way, stages),
            Self::Joint(policy) => policy.partition(way, stages),
            Self::Profiled(policy) => policy.partition(way, stages),
            Self::FirstFit(policy) => policy.partition(way, stages),
            Self::Random(policy) => policy.partition(way, stages),
            Self::OneToOne(policy) => policy.partition(way, stages),
            Self::Megaflow(policy) => policy.partition(way, stages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for name in PolicyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let unknown = "greedy".parse::<PolicyName>().map_err(|error| error.to_string());
        let known = "disjoint, joint, profiled, first-fit, random, one-to-one or megaflow";
        assert_eq!(unknown, Err(format!("there is no policy \"greedy\": it is one of {known}")));
    }
}
