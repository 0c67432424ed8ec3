//! The status of NetFlow.

use serde::Serialize;

use crate::config::NetflowOptions;

/// The status of the NetFlow exporter of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetflowStatus {
    /// Options of the exporter.
    #[serde(flatten)]
    pub options: NetflowOptions,
    /// Engine number in the datagrams.
    pub engine: u8,
    /// Number of flows that have not ended, as of the last second.
    pub active_flows: u64,
    /// Number of flow records in datagrams; a flow may be reported several times.
    pub flows: u64,
    /// Number of lost flows.
    ///
    /// Flows are lost if a ring is full, or with a lost datagram. The flows of a lost datagram are
    /// counted for each collector.
    pub flows_lost: u64,
    /// Number of datagrams that were sent, counted for each collector.
    pub datagrams: u64,
    /// Number of datagrams that could not be sent.
    pub datagrams_lost: u64,
    /// Reason why collectors do not get all datagrams.
    pub problem: Option<String>,
}
