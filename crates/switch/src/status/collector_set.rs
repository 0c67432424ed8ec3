//! The status of a set of IPFIX collectors.

use serde::Serialize;

use crate::config::CollectorSetOptions;

/// The status of a set of IPFIX collectors for the packets that rules sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CollectorSetStatus {
    /// Options of the set.
    #[serde(flatten)]
    pub options: CollectorSetOptions,
    /// Number of flows that are not reported yet.
    pub active_flows: u64,
    /// Number of sampled packets.
    pub samples: u64,
    /// Number of flows that have ended, including lost flows.
    pub flows: u64,
    /// Number of lost flows, counted once for each collector.
    pub flows_lost: u64,
    /// Number of messages that were sent, counted for each collector.
    pub messages: u64,
    /// Number of messages that could not be sent.
    pub messages_lost: u64,
    /// Reason why collectors do not get all messages.
    pub problem: Option<String>,
}
