//! Reasons why a packet cannot be traced.

use shunt_flow::{FieldId, text::MatchError};

use crate::{error::SwitchError, ports::names::BridgeNames};

/// The reason why a packet cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The bridge does not exist.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The text is not a flow.
    #[error("{0}")]
    Flow(#[from] MatchError),
    /// The bridge does not have the ingress port.
    #[error("bridge {bridge} has no port {port}; existing ports: {known}")]
    NoSuchPort {
        /// Name of the bridge.
        bridge: String,
        /// The ingress port as the user wrote it.
        port: String,
        /// Existing ports of the bridge.
        known: String,
    },
    /// A text is not a frame in hexadecimal.
    #[error(
        "`{0}` is not a frame: a frame has at least 14 bytes, with two hexadecimal digits each"
    )]
    Packet(String),
    /// A field of the packet to trace has a mask.
    #[error("{field} has a mask: a packet has one value of each field, so write it without")]
    Masked {
        /// Name of the masked field.
        field: &'static str,
    },
    /// A flow to preload has no ingress port.
    #[error("there is no ingress port: write in_port=PORT before the flow")]
    NoIngress,
    /// No preload has the number, or it is no longer kept.
    #[error(
        "preload {number} is not known: start one first (the daemon keeps the last {kept} preloads)"
    )]
    NoSuchPreload {
        /// Number of the requested preload.
        number: u64,
        /// Number of preloads that the switch keeps.
        kept: usize,
    },
    /// One of several announced flows is wrong.
    #[error("flow {number}, `{flow}`: {error}")]
    AnnouncedFlow {
        /// Number of the flow, from 1 on.
        number: usize,
        /// Text of the flow.
        flow: String,
        /// The mistake in the flow.
        error: Box<Self>,
    },
    /// The tables changed during every attempt.
    #[error("the tables changed during {TRIES} attempts to trace the packet: try again")]
    TablesChanged,
}

/// Maximum number of attempts to trace while the tables change.
pub(super) const TRIES: usize = 16;

/// The traced version was reclaimed during the trace.
pub(crate) struct TablesChanged;

impl TraceError {
    /// Returns this error; an unknown port name becomes [`Self::NoSuchPort`].
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
