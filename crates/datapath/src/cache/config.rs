//! Settings of the caches of a packet thread.

use std::time::Duration;

use shunt_nuevomatch::StartIndexKind;

use super::{ExactConfig, MegaflowConfig, Training, chain::GigaflowConfig};

/// Default time without a hit after which an entry expires.
pub(crate) const MAX_IDLE_DEFAULT: Duration = Duration::from_secs(10);

/// Sizes of the caches of one packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Maximum number of entries of the megaflow cache, dead entries included.
    pub entries_max: usize,
    /// The exact-match cache, which is looked up before the wildcard cache.
    pub exact: ExactConfig,
    /// The kind of the wildcard cache, with its settings.
    pub wildcard: Wildcard,
    /// Selects the thread that trains learned indexes.
    pub training: Training,
}

/// Selects the wildcard cache of a packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcard {
    /// Megaflows: one entry for the whole traversal of a packet.
    Megaflow(MegaflowConfig),
    /// No cache: the tables decide each packet (computational flows).
    Flows(FlowsConfig),
    /// Gigaflow: LTM entries in a chain of stages.
    ///
    /// A chain has at most [`CHAIN_MAX`](crate::metrics::CHAIN_MAX) stages. The seed of the thread
    /// replaces the seed of the configuration.
    Gigaflow(GigaflowConfig),
}

/// Settings of a thread that decides packets by the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// Minimum number of rules of a table with a learned index.
    pub learned_rules_min: usize,
    /// The kind of the learned indexes.
    pub learned_kind: StartIndexKind,
}

impl FlowsConfig {
    /// The default settings of computational flows.
    pub const DEFAULT: Self = Self { learned_rules_min: 64, learned_kind: StartIndexKind::Tree };
}

impl Default for Wildcard {
    fn default() -> Self {
        Self::Megaflow(MegaflowConfig::default())
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            entries_max: 262_144,
            exact: ExactConfig::default(),
            wildcard: Wildcard::default(),
            training: Training::default(),
        }
    }
}
