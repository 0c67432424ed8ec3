//! Settings of an offload device: policies of its entries, and time limits.

use std::time::Duration;

use shunt_gigaflow::{ltm::Eviction, partition::PolicyName};
use shunt_pipeline::BridgeId;

use crate::cache::MAX_IDLE_DEFAULT;

/// Settings of an offload device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadConfig {
    /// The ingress bridge of the device's packets.
    /// Packets enter the device as packets of this bridge alone.
    pub bridge: BridgeId,
    /// The policy that partitions traversals for the device.
    pub policy: PolicyName,
    /// The policy by which a full stage evicts entries.
    pub eviction: Eviction,
    /// The seed of hashes.
    pub seed: u64,
    /// Time without a hit after which an entry is removed.
    pub max_idle: Duration,
    /// Time from one reading of the counters to the next.
    pub count_every: Duration,
    /// Time to confirm the removals of a version, or to finish a reading.
    /// A device that confirms later is stale.
    pub confirm_within: Duration,
    /// The longest time that a packet stays in the device.
    pub drain: Duration,
    /// Maximum number of candidates that an iteration handles.
    pub candidates_per_iteration: usize,
    /// Maximum number of operations that an iteration sends to the device.
    pub operations_per_iteration: usize,
}

impl OffloadConfig {
    /// Returns settings that suit a NIC in front of this bridge.
    #[must_use]
    pub fn new(bridge: BridgeId) -> Self {
        Self {
            bridge,
            policy: PolicyName::default(),
            eviction: Eviction::default(),
            seed: 0,
            max_idle: MAX_IDLE_DEFAULT,
            count_every: Duration::from_secs(1),
            confirm_within: Duration::from_secs(1),
            drain: Duration::from_millis(10),
            candidates_per_iteration: 64,
            operations_per_iteration: 4096,
        }
    }
}
