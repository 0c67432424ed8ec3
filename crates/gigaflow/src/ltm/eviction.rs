//! Eviction policies, which choose the entry that a full stage evicts for a new entry.

/// The choice of the entry that a full stage evicts for a new entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "kebab-case")
)]
pub enum Eviction {
    /// Evicts only an [outdated](super::Ltm::mark_outdated) entry.
    ///
    /// A full stage without an outdated entry caches nothing new.
    Never,
    /// Evicts the least recently used entry.
    LeastRecent,
    /// Evicts entries that were not used since they were made before used entries.
    ///
    /// An entry for a recently evicted sub-traversal counts as used. S3-FIFO has the same rule
    /// (Yang and others, "FIFO Queues are All You Need for Cache Eviction").
    #[default]
    SecondUse,
    /// Of the least recently used entries, evicts one that the fewest flows share.
    LeastShared,
}

impl Eviction {
    /// All policies of eviction for space.
    pub const ALL: [Self; 4] = [Self::Never, Self::LeastRecent, Self::SecondUse, Self::LeastShared];

    /// Returns the name of the eviction policy in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::LeastRecent => "least-recent",
            Self::SecondUse => "second-use",
            Self::LeastShared => "least-shared",
        }
    }
}
