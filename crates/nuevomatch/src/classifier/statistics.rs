//! The sizes of a [`NuevoMatch`](crate::NuevoMatch) classifier.

/// The sizes of one iSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetStatistics {
    /// The lane of the iSet.
    pub lane: usize,
    /// Number of rules of the iSet.
    pub rules: usize,
    /// Number of buckets of the iSet.
    pub buckets: usize,
    /// Number of bytes of the index over the starts of buckets.
    pub index_bytes: usize,
    /// Largest error of a prediction of a learned index, in buckets.
    ///
    /// `None`: the index is a search tree, which predicts nothing.
    pub certified_error: Option<u32>,
}

/// The sizes of a [`NuevoMatch`](crate::NuevoMatch).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NuevoMatchStatistics {
    /// Number of rules of the classifier.
    pub rules: usize,
    /// Maximum number of rules in a bucket at build time.
    pub bucket_rules: usize,
    /// The sizes of each iSet.
    pub sets: Vec<SetStatistics>,
    /// Number of rules in the remainder.
    pub remainder_rules: usize,
    /// Number of hash tables of the remainder.
    /// The number is 0 for a short remainder, which is a list.
    pub remainder_tables: usize,
    /// Number of bytes of all data that lookups read.
    pub bytes: usize,
}

impl NuevoMatchStatistics {
    /// Returns the share of rules that are in iSets, from 0 to 1.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        if self.rules == 0 {
            return 1.0;
        }
        1.0 - self.remainder_rules as f64 / self.rules as f64
    }
}
