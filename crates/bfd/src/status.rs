//! The state of a session, for people and programs that watch it.

use std::{fmt, time::Duration};

use crate::{
    state::{BfdDiagnostic, BfdState},
    wire::flags::BfdFlags,
};

/// The state of a session: the content of `bfd/show` and of `bfd_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdStatus {
    /// True if the path may be used.
    pub forwarding: bool,
    /// Number of changes of `forwarding`.
    pub flap_count: u64,
    /// Detection multiplier that packets state.
    pub multiplier: u8,
    /// True if packets state that the path behind this end has failed.
    pub cpath_down: bool,
    /// Time between two sent packets; `None` if none are sent at intervals.
    pub tx_interval: Option<Duration>,
    /// Time between two packets of the other end, at most.
    pub rx_interval: Duration,
    /// Time when the session expires without a further packet.
    ///
    /// It may have passed. `None` if no packet was received since the session expired.
    pub detect_at: Option<Duration>,
    /// Time of the next packet.
    pub next_tx: Option<Duration>,
    /// Time of the last packet.
    pub last_tx: Option<Duration>,
    /// Flags of the next packet.
    pub flags: BfdFlags,
    /// State of the session.
    pub state: BfdState,
    /// Reason of its last change.
    pub diagnostic: BfdDiagnostic,
    /// Number of the session.
    pub discriminator: u32,
    /// Desired Min TX Interval in the packets.
    pub min_tx: Duration,
    /// Required Min RX Interval in the packets.
    pub min_rx: Duration,
    /// The other end.
    pub remote: BfdRemoteStatus,
    /// Events of the session.
    pub counters: BfdCounters,
}

/// The state of the other end, as its last packet describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdRemoteStatus {
    /// Flags of the packet.
    pub flags: BfdFlags,
    /// State of the session.
    pub state: BfdState,
    /// Reason of its last change.
    pub diagnostic: BfdDiagnostic,
    /// Number of the session; 0 if it is not known.
    pub discriminator: u32,
    /// Desired Min TX Interval.
    pub min_tx: Duration,
    /// Required Min RX Interval.
    pub min_rx: Duration,
    /// Detection multiplier; 0 if it is not known.
    pub multiplier: u8,
}

/// The numbers of events of a session, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BfdCounters {
    /// Packets that were sent.
    pub tx_packets: u64,
    /// Packets that were received and used.
    pub rx_packets: u64,
    /// Packets that were received and refused.
    pub rx_bad_packets: u64,
}

/// A change of a session, for the log.
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
    /// State before.
    pub from: BfdState,
    /// State after.
    pub to: BfdState,
    /// Reason of the change.
    pub diagnostic: BfdDiagnostic,
    /// Reason of the last change at the other end.
    pub remote_diagnostic: BfdDiagnostic,
}

impl fmt::Display for BfdEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, diagnostic, remote_diagnostic } = self;
        write!(f, "state {from} -> {to}")?;
        // A session that comes up keeps the reason of its last failure.
        if *diagnostic != BfdDiagnostic::NONE && !to.is_connected() {
            write!(f, ", {diagnostic}")?;
        }
        if *remote_diagnostic != BfdDiagnostic::NONE {
            write!(f, ", remote: {remote_diagnostic}")?;
        }
        Ok(())
    }
}
