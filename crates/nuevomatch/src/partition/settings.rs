//! Settings of the partition.

use crate::{Error, blocks::BUCKET_RULES_MAX};

/// Settings of the partition of rules into iSets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// Maximum number of iSets, at most 4. Each costs one search of every lookup.
    pub sets_max: usize,
    /// Maximum number of rules in a bucket at build time, at most 64.
    ///
    /// The papers use 40.
    pub bucket_rules: usize,
    /// Share of a bucket that a build leaves free for insertions, in percent.
    ///
    /// Overlapping rules that need the room have it: the share decides only if neighbours are put
    /// into one bucket.
    pub spare_percent: usize,
    /// An iSet of fewer rules than this share of all rules is not made, in permille.
    pub coverage_permille_min: usize,
}

impl Default for PartitionSettings {
    fn default() -> Self {
        Self { sets_max: 3, bucket_rules: 40, spare_percent: 20, coverage_permille_min: 20 }
    }
}

impl PartitionSettings {
    /// Checks the limits of the settings.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(1..=BUCKET_RULES_MAX).contains(&self.bucket_rules) {
            let (bucket_rules, max) = (self.bucket_rules, BUCKET_RULES_MAX);
            return Err(Error::BucketRules { bucket_rules, max });
        }
        Ok(())
    }

    /// Returns the number of rules up to which neighbours are put into one bucket.
    pub(crate) fn bucket_fill(&self) -> usize {
        let spare = self.bucket_rules * self.spare_percent.min(100) / 100;
        (self.bucket_rules - spare).max(1)
    }

    /// Returns the least number of rules of an iSet, of `rules` rules in all.
    pub(crate) fn rules_min(&self, rules: usize) -> usize {
        (rules * self.coverage_permille_min).div_ceil(1000).max(1)
    }
}
