//! Losses before the encoder: flows and samples that found a ring full.

use std::time::Duration;

use shunt_pipeline::Time;

/// Time for which a loss is shown as a problem, and between two log lines.
const RECENT: Duration = Duration::from_secs(60);

/// The losses of an exporter, for its log and its status.
#[derive(Debug, Default)]
pub(super) struct LossLog {
    /// Number of losses that the log lines have reported.
    logged: u64,
    /// Number of losses at the last call of `note`.
    known: u64,
    /// Time of the last loss.
    last: Option<Time>,
    /// Earliest time of the next log line.
    next_line: Time,
}

impl LossLog {
    /// Records the number of losses; returns the unlogged losses if a log line is due.
    pub(super) fn note(&mut self, losses: u64, now: Time) -> Option<u64> {
        if losses > self.known {
            (self.known, self.last) = (losses, Some(now));
        }
        let new = losses.saturating_sub(self.logged);
        if new == 0 || now < self.next_line {
            return None;
        }
        (self.logged, self.next_line) = (losses, now.after(RECENT));
        Some(new)
    }

    /// Returns whether the last loss was within the last minute.
    pub(super) fn is_recent(&self, now: Time) -> bool {
        self.last.is_some_and(|last| now.since(last) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_logged_once_a_minute() {
        let mut log = LossLog::default();
        let second = |seconds: u64| Time::from_nanoseconds(seconds * 1_000_000_000);
        assert_eq!((log.note(0, second(1)), log.is_recent(second(1))), (None, false));
        assert_eq!((log.note(3, second(2)), log.is_recent(second(2))), (Some(3), true));
        assert_eq!(log.note(5, second(3)), None);
        assert_eq!((log.note(5, second(61)), log.is_recent(second(61))), (None, true));
        assert_eq!((log.note(5, second(62)), log.is_recent(second(62))), (Some(2), true));
        assert_eq!((log.note(5, second(63)), log.is_recent(second(63))), (None, false));
    }
}
