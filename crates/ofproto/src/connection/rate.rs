//! A rate limit for log lines about one peer.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use shunt_pipeline::Time;

/// Number of warnings of one kind that are logged per [`WINDOW`].
const WARNINGS_MAX: u32 = 5;
/// Period over which warnings are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The kind of a warning.
///
/// Each kind has its own limit, so a flood of one hides no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarningKind {
    /// A request was refused.
    Refused,
    /// The peer sent an error.
    PeerError,
    /// Packet-ins were dropped.
    PacketInsDropped,
    /// A connection was not accepted, or ended because of an error.
    Connection,
}

/// Number of kinds of warnings.
const KINDS: usize = WarningKind::Connection as usize + 1;

/// Limits the warnings about one peer, over all of its connections.
#[derive(Debug, Default)]
pub struct WarningRate([Mutex<RateWindow>; KINDS]);

#[derive(Debug, Default)]
struct RateWindow {
    began: Time,
    count: u32,
}

impl WarningRate {
    /// Returns the number of suppressed warnings; `None` if the limit is reached.
    pub(crate) fn admit(&self, kind: WarningKind, now: Time) -> Option<u32> {
        let window = self.0.get(kind as usize)?;
        let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
        let mut suppressed = 0;
        if now.since(window.began) >= WINDOW {
            suppressed = window.count.saturating_sub(WARNINGS_MAX);
            *window = RateWindow { began: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        (window.count <= WARNINGS_MAX).then_some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_per_minute_are_limited() {
        let rate = WarningRate::default();
        let mut admitted = 0;
        for _ in 0..1000 {
            admitted += u32::from(rate.admit(WarningKind::Refused, Time::ZERO).is_some());
        }
        assert_eq!(admitted, WARNINGS_MAX);
        assert_eq!(rate.admit(WarningKind::PeerError, Time::ZERO), Some(0), "another kind");
        let later = Time::ZERO.after(WINDOW);
        assert_eq!(rate.admit(WarningKind::Refused, later), Some(1000 - WARNINGS_MAX));
        assert_eq!(rate.admit(WarningKind::Refused, later), Some(0));
    }
}
