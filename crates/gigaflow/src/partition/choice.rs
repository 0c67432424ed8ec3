//! Maps the policy names of the configuration to policies.

use std::{fmt, str::FromStr};

use super::{
    contract::{PartitionPolicy, Placement, StageView},
    joint::JointPolicy,
    megaflow::MegaflowPolicy,
    research::{DisjointPolicy, FirstFitPolicy, OneToOnePolicy, ProfiledPolicy, RandomPolicy},
};
use crate::{error::UnknownPolicy, outline::TraversalOutline};

/// The name of a partition policy in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "kebab-case")
)]
pub enum PolicyName {
    /// The policy [`DisjointPolicy`], named `disjoint`.
    Disjoint,
    /// The policy [`JointPolicy`], named `joint`.
    #[default]
    Joint,
    /// The policy [`ProfiledPolicy`], named `profiled`.
    Profiled,
    /// The policy [`FirstFitPolicy`], named `first-fit`.
    FirstFit,
    /// The policy [`RandomPolicy`], named `random`.
    Random,
    /// The policy [`OneToOnePolicy`], named `one-to-one`.
    OneToOne,
    /// The policy [`MegaflowPolicy`], named `megaflow`.
    Megaflow,
}

impl PolicyName {
    /// The names of all policies.
    pub const ALL: [Self; 7] = [
        Self::Disjoint,
        Self::Joint,
        Self::Profiled,
        Self::FirstFit,
        Self::Random,
        Self::OneToOne,
        Self::Megaflow,
    ];

    /// Returns the name of the policy in the configuration.
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

    /// Creates the policy of this name with its default score.
    ///
    /// Only [`RandomPolicy`] uses the seed.
    #[must_use]
    pub fn policy(self, seed: u64) -> AnyPolicy {
        match self {
            Self::Disjoint => AnyPolicy::Disjoint(DisjointPolicy::default()),
            Self::Joint => AnyPolicy::Joint(JointPolicy::default()),
            Self::Profiled => AnyPolicy::Profiled(ProfiledPolicy::default()),
            Self::FirstFit => AnyPolicy::FirstFit(FirstFitPolicy::default()),
            Self::Random => AnyPolicy::Random(RandomPolicy::new(seed)),
            Self::OneToOne => AnyPolicy::OneToOne(OneToOnePolicy::default()),
            Self::Megaflow => AnyPolicy::Megaflow(MegaflowPolicy::default()),
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

/// One of the policies, selected at run time.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the policy of its name")]
pub enum AnyPolicy {
    Disjoint(DisjointPolicy),
    Joint(JointPolicy),
    Profiled(ProfiledPolicy),
    FirstFit(FirstFitPolicy),
    Random(RandomPolicy),
    OneToOne(OneToOnePolicy),
    Megaflow(MegaflowPolicy),
}

impl PartitionPolicy for AnyPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        match self {
            Self::Disjoint(policy) => policy.partition(outline, stages),
            Self::Joint(policy) => policy.partition(outline, stages),
            Self::Profiled(policy) => policy.partition(outline, stages),
            Self::FirstFit(policy) => policy.partition(outline, stages),
            Self::Random(policy) => policy.partition(outline, stages),
            Self::OneToOne(policy) => policy.partition(outline, stages),
            Self::Megaflow(policy) => policy.partition(outline, stages),
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
        assert_eq!(unknown, Err(format!("unknown policy \"greedy\": use {known}")));
    }
}
