//! The status of IPFIX.

use serde::Serialize;

use crate::config::IpfixOptions;

/// The status of the IPFIX exporter of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IpfixStatus {
    /// Options of the exporter.
    #[serde(flatten)]
    pub options: IpfixOptions,
    /// Number of flows that are not reported yet.
    pub active_flows: u64,
    /// Number of sampled packets.
    pub samples: u64,
    /// Number of sampled packets that were lost because a ring was full.
    pub samples_dropped: u64,
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
