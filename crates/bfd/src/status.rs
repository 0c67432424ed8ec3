//! The status of a session, for operators and programs.

use std::{fmt, time::Duration};

use crate::{
    state::{BfdDiagnostic, BfdState},
    wire::flags::BfdFlags,
};

/// The status of a session: the content of `bfd/show` and of `bfd_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdStatus {
    /// True if the path may be used.
    pub forwarding: bool,
    /// Number of changes of `forwarding` so far.
    pub flap_count: u64,
    /// Detection multiplier in the sent packets.
    pub multiplier: u8,
    /// True if sent packets state that the path behind this end has failed.
    pub cpath_down: bool,
    /// Time between two sent packets; `None` if no periodic packets are sent.
    pub tx_interval: Option<Duration>,
    /// Longest time between two packets of the other end.
    pub rx_interval: Duration,
    /// Time at which the session expires if no packet arrives.
    ///
    /// The time may have passed. `None` if no packet has arrived since the session expired.
    pub detect_at: Option<Duration>,
    /// Time at which the next packet is sent.
    pub next_tx: Option<Duration>,
    /// Time at which the last packet was sent.
    pub last_tx: Option<Duration>,
    /// Flags of the next sent packet.
    pub flags: BfdFlags,
    /// State of the session.
    pub state: BfdState,
    /// Diagnostic of the last state change.
    pub diagnostic: BfdDiagnostic,
    /// Discriminator of the session at this end.
    pub discriminator: u32,
    /// Desired Min TX Interval in the sent packets.
    pub min_tx: Duration,
    /// Required Min RX Interval in the sent packets.
    pub min_rx: Duration,
    /// Status of the other end.
    pub remote: BfdRemoteStatus,
    /// Numbers of sent and received packets.
    pub counters: BfdCounters,
}

/// The status of the other end, as its last packet describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdRemoteStatus {
    /// Flags of the last received packet.
    pub flags: BfdFlags,
    /// State of the session at the other end.
    pub state: BfdState,
    /// Diagnostic of the last state change at the other end.
    pub diagnostic: BfdDiagnostic,
    /// Discriminator of the session at the other end; 0 if it is not known.
    pub discriminator: u32,
    /// Desired Min TX Interval of the other end.
    pub min_tx: Duration,
    /// Required Min RX Interval of the other end.
    pub min_rx: Duration,
    /// Detection multiplier of the other end; 0 if it is not known.
    pub multiplier: u8,
}

/// The packet counters of a session, since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BfdCounters {
    /// Packets that were sent.
    pub tx_packets: u64,
    /// Packets that were received and accepted.
    pub rx_packets: u64,
    /// Packets that were received and refused.
    pub rx_bad_packets: u64,
}

/// A state change of a session, for the log.
///
/// ```
/// use shunt_bfd::{BfdDiagnostic, BfdEvent, BfdState};
///
/// let event = BfdEvent {
///     from: BfdState::Up,
///     to: BfdState::Down,
///     diagnostic: BfdDiagnostic::TIME_EXPIRED,
///     remote_diagnostic: BfdDiagnostic::NONE,
/// };
/// assert_eq!(event.to_string(), "state up -> down, Control Detection Time Expired");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdEvent {
    /// State of the session before the change.
    pub from: BfdState,
    /// State of the session after the change.
    pub to: BfdState,
    /// Diagnostic of the change.
    pub diagnostic: BfdDiagnostic,
    /// Diagnostic of the last change at the other end.
    pub remote_diagnostic: BfdDiagnostic,
}

impl fmt::Display for BfdEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, diagnostic, remote_diagnostic } = self;
        write!(f, "state {from} -> {to}")?;
        // A session that comes up keeps the diagnostic of its last failure, which is not printed.
        if *diagnostic != BfdDiagnostic::NONE && !to.is_connected() {
            write!(f, ", {diagnostic}")?;
        }
        if *remote_diagnostic != BfdDiagnostic::NONE {
            write!(f, ", remote: {remote_diagnostic}")?;
        }
        Ok(())
    }
}
