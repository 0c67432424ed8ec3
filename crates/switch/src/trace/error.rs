//! Reasons why a packet cannot be traced.

use shunt_flow::{FieldId, text::MatchError};

use crate::{error::SwitchError, ports::names::BridgeNames};

/// Why a packet cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no such bridge.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The text is not a flow.
    #[error("{0}")]
    Flow(#[from] MatchError),
    /// The packet is to come in by a port that the bridge does not have.
    #[error("bridge {bridge} has no port {port}; there are: {known}")]
    NoSuchPort {
        /// The bridge.
        bridge: String,
        /// The port, as it was written.
        port: String,
        /// The ports that there are.
        known: String,
    },
    /// The text is not a packet.
    #[error("`{0}` is no frame: a frame has at least 14 bytes, of two hexadecimal digits each")]
    Packet(String),
    /// The tables were changed all the time while it was looked at how the packet is kept.
    #[error("the tables changed {TRIES} times while the packet was traced; trace it again")]
    Overtaken,
}

/// How often a trace that changes of the tables overtake is begun.
pub(super) const TRIES: usize = 16;

/// What a trace looked at has been forgotten meanwhile.
pub(crate) struct Overtaken;

impl TraceError {
    /// This error, with the ports of the bridge where a name is none of them.
    pub(super) fn of_bridge(self, bridge: &str, names: &BridgeNames) -> Self {
        match self {
            Self::Flow(MatchError::BadValue { name, text, .. })
                if FieldId::InPort.info().names.contains(&name) =>
            {
                Self::NoSuchPort { bridge: bridge.to_owned(), port: text, known: names.list() }
            }
            error => error,
        }
    }
}
