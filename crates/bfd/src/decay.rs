//! Decay: a session on an idle path has a longer interval (`decay_min_rx` of Open vSwitch).
//!
//! Received packets of any kind are counted in a window of time. If there were at most twice as
//! many as control packets, the path is idle. While the path is idle, this end requests longer
//! intervals from the other end, until the path has traffic again.

use std::time::Duration;

/// The current window in which received packets are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecayWindow {
    /// Numbers of packets at the start of the window, and the end of the window.
    current: Option<(ReceivedPackets, Duration)>,
    /// True if no packets were received in the last window.
    is_idle: bool,
}

/// Numbers of received packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPackets {
    /// Number of received packets of any kind.
    pub(crate) all: u64,
    /// Control packets of the session.
    pub(crate) control: u64,
}

impl DecayWindow {
    /// Returns whether the path was idle in the last window.
    pub(crate) const fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Returns the end of the current window.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.current.map(|(_, end)| end)
    }

    /// Forgets the current window, and that the path was idle.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Evaluates the window if it has ended, and starts the next window.
    pub(crate) fn run(&mut self, decay_min_rx: Duration, received: ReceivedPackets, now: Duration) {
        if let Some((start, end)) = self.current {
            if end > now {
                return;
            }
            let all = received.all.saturating_sub(start.all);
            let control = received.control.saturating_sub(start.control);
            self.is_idle = all <= control.saturating_mul(2);
        }
        let window = decay_min_rx.max(WINDOW_MIN);
        self.current = Some((received, now.saturating_add(window)));
    }
}

/// The minimum length of a window.
const WINDOW_MIN: Duration = Duration::from_secs(2);
