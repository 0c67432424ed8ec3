//! The inactivity probe of a controller (`inactivity_probe`).

use std::time::Duration;

use shunt_pipeline::Time;

/// Measures the idle time of a peer.
#[derive(Debug)]
pub(super) struct Probe {
    interval: Duration,
    /// Time of the last received byte or of the last probe.
    since: Time,
    asked: bool,
}

/// The action that the idle time requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeAction {
    /// Nothing to do yet.
    Wait,
    /// Send an echo request.
    SendEcho,
    /// The peer did not reply to the echo request.
    Disconnect,
}

impl Probe {
    pub(super) const fn new(interval: Duration, now: Time) -> Self {
        Self { interval, since: now, asked: false }
    }

    /// Records that bytes were received.
    pub(super) const fn record_activity(&mut self, now: Time) {
        self.since = now;
        self.asked = false;
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
        if self.asked {
            return ProbeAction::Disconnect;
        }
        self.since = now;
        self.asked = true;
        ProbeAction::SendEcho
    }
}
