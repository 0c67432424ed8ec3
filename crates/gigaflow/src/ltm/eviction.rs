//! Eviction policies: the entry that a full stage evicts for a new one.

/// The entry that a full stage evicts for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "kebab-case")
)]
pub enum Eviction {
    /// Evicts only an [outdated](super::Ltm::mark_outdated) entry.
    ///
    /// A full stage caches nothing else.
    Never,
    /// The least recently used entry.
    LeastRecent,
    /// An entry that was not used since it was made, then the least recently used one.
    ///
    /// A sub-traversal that is installed again after such an eviction is treated like a used one. S3-FIFO does
    /// the same (Yang and others, "FIFO Queues are All You Need for Cache Eviction").
    #[default]
    SecondUse,
    /// The entry that the fewest flows share, among the least recently used ones.
    LeastShared,
}

impl Eviction {
    /// All eviction policies.
    pub const ALL: [Self; 4] = [Self::Never, Self::LeastRecent, Self::SecondUse, Self::LeastShared];

    /// The name as users write it.
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
