//! The status of sFlow.

use serde::Serialize;

use crate::config::SflowOptions;

/// The status of the sFlow agent of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SflowStatus {
    /// Options of the agent.
    #[serde(flatten)]
    pub options: SflowOptions,
    /// Address in the datagrams; `0.0.0.0` while it is unknown.
    pub agent_address: String,
    /// Number of sampled packets that were encoded.
    pub samples: u64,
    /// Number of sampled packets that were lost because they were too many.
    pub samples_dropped: u64,
    /// Number of datagrams that the system took, counted for each collector.
    pub datagrams: u64,
    /// Number of datagrams that could not be sent.
    pub datagrams_lost: u64,
    /// Reasons why datagrams are lost, or do not have the configured agent.
    pub trouble: Option<String>,
}
