//! Which entry of a full stage makes room for another.

/// Which entry of a full stage makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// None, but for what is [outdated](super::Ltm::outdate): what does not fit is not cached.
    Never,
    /// The one that was used longest ago.
    LeastRecent,
    /// One that nobody has used since it was made, then the one that was used longest ago. One that went
    /// like that and comes again stays as long as those that were used, as in S3-FIFO (Yang and
    /// others, "FIFO Queues are All You Need for Cache Eviction").
    #[default]
    SecondUse,
    /// Of those that were used longest ago, the one that the fewest flows share.
    LeastShared,
}

impl Eviction {
    /// Every policy of eviction.
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
