//! Decay: a session over an idle path is slower (`decay_min_rx` of Open vSwitch).
//!
//! Received packets of any kind are counted over a while. If there were not more than twice as many as
//! control packets, the path is idle. Then this end asks the other one to send less often, until there is
//! traffic.

use std::time::Duration;

/// The current count of received packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecayWindow {
    /// Numbers of packets at the start of the count, and its end.
    current: Option<(ReceivedPackets, Duration)>,
    is_idle: bool,
}

/// Numbers of packets that were received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPackets {
    /// Packets of any kind.
    pub(crate) all: u64,
    /// Control packets of the session.
    pub(crate) control: u64,
}

impl DecayWindow {
    /// Returns whether the path is idle.
    pub(crate) const fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Returns the end of the current count.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.current.map(|(_, end)| end)
    }

    /// Forgets the count.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Counts up to now.
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

/// The least time of a count.
const WINDOW_MIN: Duration = Duration::from_secs(2);
