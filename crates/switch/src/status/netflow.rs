//! The status of NetFlow.

use serde::Serialize;

use crate::config::NetflowOptions;

/// The status of the NetFlow exporter of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetflowStatus {
    /// Options of the exporter.
    #[serde(flatten)]
    pub options: NetflowOptions,
    /// Number of the engine in the datagrams.
    pub engine: u8,
    /// Number of flows that last, as of the last second.
    pub active_flows: u64,
    /// Number of flows that were put into datagrams, each time that they were.
    pub flows: u64,
    /// Number of flows that were lost.
    ///
    /// Those that were too many, and those of lost datagrams, counted for each collector.
    pub flows_lost: u64,
    /// Number of datagrams that were sent, counted for each collector.
    pub datagrams: u64,
    /// Number of datagrams that could not be sent.
    pub datagrams_lost: u64,
    /// Reason why collectors do not get all datagrams.
    pub trouble: Option<String>,
}
