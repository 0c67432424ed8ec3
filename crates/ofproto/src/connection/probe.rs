//! Noticing that a controller is gone (`inactivity_probe`).

use std::time::Duration;

use shunt_pipeline::Time;

/// Watches the silence of a peer.
#[derive(Debug)]
pub(super) struct Probe {
    interval: Duration,
    /// When the peer was last heard, or was asked.
    since: Time,
    asked: bool,
}

/// What silence asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing yet.
    Bearable,
    /// Time to ask for an echo.
    Ask,
    /// The peer was asked and did not answer.
    GiveUp,
}

impl Probe {
    pub(super) const fn new(interval: Duration, now: Time) -> Self {
        Self { interval, since: now, asked: false }
    }

    /// Something was heard.
    pub(super) const fn heard(&mut self, now: Time) {
        self.since = now;
        self.asked = false;
    }

    /// When to look again; `None`: never.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.interval.is_zero()).then(|| self.since.after(self.interval))
    }

    /// Looks at the clock.
    pub(super) fn tick(&mut self, now: Time) -> Silence {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Silence::Bearable;
        }
        if self.asked {
            return Silence::GiveUp;
        }
        self.since = now;
        self.asked = true;
        Silence::Ask
    }
}
