//! The status of sFlow.

use serde::Serialize;

use crate::config::SflowOptions;

/// The status of the sFlow agent of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SflowStatus {
    /// Options of the agent.
    #[serde(flatten)]
    pub options: SflowOptions,
    /// IP address of the agent in the datagrams; `0.0.0.0` while it is unknown.
    pub agent_address: String,
    /// Number of sampled packets that were encoded.
    pub samples: u64,
    /// Number of sampled packets that were lost because a ring was full.
    pub samples_dropped: u64,
    /// Number of datagrams that the kernel accepted, counted for each collector.
    pub datagrams: u64,
    /// Number of datagrams that could not be sent.
    pub datagrams_lost: u64,
    /// Reasons why datagrams are lost, or have no configured agent address.
    pub problem: Option<String>,
}
