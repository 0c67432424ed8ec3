//! What the caches of a packet thread are like.

use shunt_gigaflow::cache::Config as ChainConfig;

use super::ExactConfig;

/// Sizes of the caches of one packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Entries of the megaflow cache, those that wait to be buried included.
    pub entries_max: usize,
    /// The exact-match cache, which stands in front of the other.
    pub exact: ExactConfig,
    /// What knows packets by the bits that mattered.
    pub wildcard: Wildcard,
}

/// What knows packets by the bits that mattered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wildcard {
    /// One entry for the whole way of a packet.
    #[default]
    Megaflow,
    /// A chain of at most [`CHAIN_MAX`](crate::metrics::CHAIN_MAX) stages. The seed is the thread's.
    Gigaflow(ChainConfig),
}

impl Default for CacheConfig {
    fn default() -> Self {
        let (exact, wildcard) = (ExactConfig::default(), Wildcard::default());
        Self { entries_max: 65_536, exact, wildcard }
    }
}
