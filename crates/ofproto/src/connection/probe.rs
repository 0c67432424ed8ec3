//! The inactivity probe of a connection (`inactivity_probe`).

use std::time::Duration;

use shunt_pipeline::Time;

/// Measures the idle time of a peer.
#[derive(Debug)]
pub(super) struct Probe {
    /// Time without a byte after which the peer is probed.
    interval: Duration,
    /// Time of the last received byte or of the last probe.
    since: Time,
    /// True while the answer to a probe is awaited.
    is_probed: bool,
}

/// The action that the idle time requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeAction {
    /// The connection needs no probe yet.
    Wait,
    /// Send an echo request to the peer.
    SendEcho,
    /// The peer did not reply to the echo request.
    Disconnect,
}

impl Probe {
    /// Returns a probe of a peer that last sent a byte at `now`.
    pub(super) const fn new(interval: Duration, now: Time) -> Self {
        Self { interval, since: now, is_probed: false }
    }

    /// Records that bytes were received.
    pub(super) const fn record_activity(&mut self, now: Time) {
        self.since = now;
        self.is_probed = false;
    }

    /// Returns the time of the next [`Self::tick`]; `None` if probing is disabled.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.interval.is_zero()).then(|| self.since.after(self.interval))
    }

    /// Returns the action that is due at `now`.
    pub(super) fn tick(&mut self, now: Time) -> ProbeAction {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return ProbeAction::Wait;
        }
        if self.is_probed {
            return ProbeAction::Disconnect;
        }
        self.since = now;
        self.is_probed = true;
        ProbeAction::SendEcho
    }
}
