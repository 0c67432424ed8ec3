//! Settings of the partition.

use crate::{Error, blocks::BUCKET_RULES_MAX};

/// Settings of the partition of rules into iSets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// Maximum number of iSets, at most 4. Each iSet costs one search per lookup.
    pub sets_max: usize,
    /// Maximum number of rules in a bucket at build time, at most 64.
    ///
    /// The papers use 40.
    pub bucket_rules: usize,
    /// Share of a bucket in percent that a build leaves free for insertions.
    ///
    /// Overlapping rules that need this room may use it. The share only limits the merging of
    /// neighbouring buckets.
    pub spare_percent: usize,
    /// Least share of all rules in permille that an iSet must have.
    /// An iSet with fewer rules is not built.
    pub coverage_permille_min: usize,
}

impl Default for PartitionSettings {
    fn default() -> Self {
        Self { sets_max: 3, bucket_rules: 40, spare_percent: 20, coverage_permille_min: 20 }
    }
}

impl PartitionSettings {
    /// Checks that the settings are within their limits.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(1..=BUCKET_RULES_MAX).contains(&self.bucket_rules) {
            let (bucket_rules, max) = (self.bucket_rules, BUCKET_RULES_MAX);
            return Err(Error::BucketRules { bucket_rules, max });
        }
        Ok(())
    }

    /// Returns the number of rules up to which neighbouring buckets are merged.
    pub(crate) fn bucket_fill(&self) -> usize {
        let spare = self.bucket_rules * self.spare_percent.min(100) / 100;
        (self.bucket_rules - spare).max(1)
    }

    /// Returns the least number of rules of an iSet, for `rules` rules in total.
    pub(crate) fn rules_min(&self, rules: usize) -> usize {
        (rules * self.coverage_permille_min).div_ceil(1000).max(1)
    }
}
