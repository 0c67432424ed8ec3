//! How a target is filled and judged.

use std::time::Duration;

use shunt_gigaflow::{ltm::Eviction, partition::PolicyName};
use shunt_pipeline::BridgeId;

/// How a target is filled and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadConfig {
    /// The bridge that packets of the target come in at: the target knows the beginning of one alone.
    pub bridge: BridgeId,
    /// Where ways are cut.
    pub policy: PolicyName,
    /// What makes room in a full stage.
    pub eviction: Eviction,
    /// What hashes begin with.
    pub seed: u64,
    /// Time without a hit after which a piece goes.
    pub max_idle: Duration,
    /// Time from one reading of the counters to the next.
    pub count_every: Duration,
    /// Time that the target has to confirm what a version asks for, or to answer a reading; then it is
    /// stale.
    pub confirm_within: Duration,
    /// Time after which no packet is under way in the target any more that was there before.
    pub drain: Duration,
    /// Offers taken in a turn.
    pub candidates_per_iteration: usize,
    /// Operations handed over in a turn.
    pub operations_per_iteration: usize,
}

impl OffloadConfig {
    /// What suits a NIC in front of this bridge.
    #[must_use]
    pub const fn new(bridge: BridgeId) -> Self {
        Self {
            bridge,
            policy: PolicyName::Joint,
            eviction: Eviction::LeastRecent,
            seed: 0,
            max_idle: Duration::from_secs(10),
            count_every: Duration::from_secs(1),
            confirm_within: Duration::from_secs(1),
            drain: Duration::from_millis(10),
            candidates_per_iteration: 64,
            operations_per_iteration: 4096,
        }
    }
}
