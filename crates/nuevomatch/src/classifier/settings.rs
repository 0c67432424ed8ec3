//! Settings of the classifier.

use crate::PartitionSettings;

/// The capacity of buckets at build time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketCapacity {
    /// The capacity with the least estimated cost of a lookup.
    #[default]
    ByCost,
    /// The capacity of [`PartitionSettings::bucket_rules`]; 40 is the published one.
    Fixed,
}

/// Settings of a [`NuevoMatch`](crate::NuevoMatch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NuevoMatchSettings {
    /// The partition of rules into iSets.
    pub partition: PartitionSettings,
    /// The choice of the capacity of buckets.
    pub capacity: BucketCapacity,
    /// Seed of the hash tables of the remainder.
    ///
    /// With a secret seed, rules from outside cannot choose collisions.
    pub seed: u64,
}
