//! The state of the other end, as its packets describe it.

use std::{num::NonZeroU8, time::Duration};

use crate::{
    state::{BfdDiagnostic, BfdState},
    wire::{flags::BfdFlags, packet::ControlPacket},
};

/// The state variables about the remote system.
///
/// Source: RFC 5880, 6.8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteSession {
    /// The variable `bfd.RemoteSessionState` of RFC 5880.
    pub(crate) state: BfdState,
    /// `bfd.RemoteDiscr`; 0 if it is not known.
    pub(crate) discriminator: u32,
    /// The diagnostic code in the last packet of the remote system.
    pub(crate) diagnostic: BfdDiagnostic,
    /// The flags in the last packet of the remote system.
    pub(crate) flags: BfdFlags,
    /// Detect Mult in the last packet; `None` before the first packet.
    pub(crate) multiplier: Option<NonZeroU8>,
    /// Desired Min TX Interval of the last packet.
    pub(crate) min_tx: Duration,
    /// The variable `bfd.RemoteMinRxInterval` of RFC 5880.
    pub(crate) min_rx: Duration,
    /// Time at which the last packet was received.
    pub(crate) heard: Option<Duration>,
}

impl RemoteSession {
    /// Returns the state variables that a packet describes.
    pub(crate) fn of(packet: &ControlPacket, now: Duration) -> Self {
        Self {
            state: packet.state,
            discriminator: packet.my_discriminator.get(),
            diagnostic: packet.diagnostic,
            flags: packet.flags,
            multiplier: Some(packet.multiplier),
            min_tx: Duration::from_micros(packet.desired_min_tx_us.into()),
            min_rx: Duration::from_micros(packet.required_min_rx_us.into()),
            heard: Some(now),
        }
    }

    /// Returns the time at which the session expires if no packet arrives.
    ///
    /// `required_min_rx` is the interval of this end that is in use. Source: RFC 5880, 6.8.4.
    pub(crate) fn deadline(&self, required_min_rx: Duration) -> Option<Duration> {
        let multiplier = u32::from(self.multiplier?.get());
        let detection_time = required_min_rx.max(self.min_tx).saturating_mul(multiplier);
        Some(self.heard?.saturating_add(detection_time))
    }

    /// Returns whether the other end has requested that no periodic packets are sent.
    ///
    /// RFC 5880 calls this state `bfd.RemoteDemandMode`, if the session is up at the other end.
    pub(crate) fn is_in_demand(&self) -> bool {
        self.state == BfdState::Up && self.flags.contains(BfdFlags::DEMAND)
    }
}

impl Default for RemoteSession {
    /// Returns the initial values of the state variables.
    fn default() -> Self {
        Self {
            state: BfdState::Down,
            discriminator: 0,
            diagnostic: BfdDiagnostic::NONE,
            flags: BfdFlags::default(),
            multiplier: None,
            min_tx: Duration::ZERO,
            min_rx: Duration::from_micros(1),
            heard: None,
        }
    }
}
