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
/// Each kind has its own limit, so a flood of one kind does not suppress another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarningKind {
    /// A request of the peer was refused.
    Refused,
    /// The peer sent an error.
    PeerError,
    /// Packet-ins of the connection were dropped.
    PacketInsDropped,
    /// A connection was not accepted, or ended because of an error.
    Connection,
}

impl WarningKind {
    /// Returns the shortest time between two warnings of this kind.
    ///
    /// Packet-ins are often dropped for a long time, and each warning has the total so far.
    const fn spacing(self) -> Duration {
        match self {
            Self::PacketInsDropped => Duration::from_secs(12),
            Self::Refused | Self::PeerError | Self::Connection => Duration::ZERO,
        }
    }
}

/// Number of kinds of warnings.
const KINDS: usize = WarningKind::Connection as usize + 1;

/// Limits the warnings about one peer, over all of its connections.
#[derive(Debug, Default)]
pub struct WarningRate([Mutex<RateWindow>; KINDS]);

/// The number of warnings in the current period.
#[derive(Debug, Default)]
struct RateWindow {
    /// The beginning of the period.
    began: Time,
    /// Number of warnings since `began`.
    count: u32,
    /// Time of the last warning.
    last: Option<Time>,
    /// Number of warnings suppressed since the last warning.
    suppressed: u32,
}

impl WarningRate {
    /// Logs a warning by `log`, unless the rate limit of `kind` is reached.
    ///
    /// `log` gets the number of warnings that were suppressed before this one, if any. Returns
    /// whether the warning was logged.
    pub(crate) fn warn(&self, kind: WarningKind, now: Time, log: impl FnOnce(Option<u32>)) -> bool {
        let Some(suppressed) = self.admit(kind, now) else { return false };
        log(Some(suppressed).filter(|count| *count > 0));
        true
    }

    /// Returns the number of suppressed warnings; `None` to suppress this warning too.
    fn admit(&self, kind: WarningKind, now: Time) -> Option<u32> {
        let window = self.0.get(kind as usize)?;
        let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(window.began) >= WINDOW {
            (window.began, window.count) = (now, 0);
        }
        let is_early = window.last.is_some_and(|last| now.since(last) < kind.spacing());
        if is_early || window.count >= WARNINGS_MAX {
            window.suppressed = window.suppressed.saturating_add(1);
            return None;
        }
        window.count += 1;
        window.last = Some(now);
        Some(std::mem::take(&mut window.suppressed))
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

    #[test]
    fn only_suppressed_warnings_are_counted() {
        let (rate, mut counts) = (WarningRate::default(), Vec::new());
        let mut warn =
            |now| rate.warn(WarningKind::Connection, now, |suppressed| counts.push(suppressed));
        assert!((0..WARNINGS_MAX).all(|_| warn(Time::ZERO)));
        assert!(!warn(Time::ZERO) && !warn(Time::ZERO));
        assert!(warn(Time::ZERO.after(WINDOW)));
        assert_eq!(counts, [None, None, None, None, None, Some(2)]);
    }

    #[test]
    fn a_continuing_loss_is_logged_repeatedly() {
        let rate = WarningRate::default();
        let logged = |second| {
            let now = Time::ZERO.after(Duration::from_secs(second));
            rate.admit(WarningKind::PacketInsDropped, now)
        };
        let lines: Vec<u64> = (0..120).filter(|second| logged(*second).is_some()).collect();
        assert_eq!(lines, [0, 12, 24, 36, 48, 60, 72, 84, 96, 108]);
        assert_eq!(logged(120), Some(11));
    }
}
