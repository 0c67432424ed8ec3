//! Settings of the classifier.

use crate::PartitionSettings;

/// The choice of the capacity of buckets at build time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketCapacity {
    /// Chooses the capacity with the least estimated cost of a lookup.
    #[default]
    ByCost,
    /// Uses the capacity of [`PartitionSettings::bucket_rules`]; the papers use 40.
    Fixed,
}

/// Settings of a [`NuevoMatch`](crate::NuevoMatch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NuevoMatchSettings {
    /// The partition of rules into iSets.
    pub partition: PartitionSettings,
    /// The choice of the capacity of buckets.
    pub capacity: BucketCapacity,
    /// The seed of the hash tables of the remainder.
    ///
    /// With a secret seed, an attacker cannot choose rules that collide.
    pub seed: u64,
}
