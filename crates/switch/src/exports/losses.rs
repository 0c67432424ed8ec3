//! Losses before the encoder: flows and samples that a ring had no room for.

use std::time::Duration;

use shunt_pipeline::Time;

/// Time for which a loss is a trouble, and between two log lines about losses.
const RECENT: Duration = Duration::from_secs(60);

/// The losses of an exporter, for its log and its status.
#[derive(Debug, Default)]
pub(super) struct LossLog {
    /// Number of losses until the last line.
    logged: u64,
    /// Number of losses until the last call.
    known: u64,
    /// Time of the last loss.
    last: Option<Time>,
    /// Earliest time of the next line.
    next_line: Time,
}

impl LossLog {
    /// Notes the number of losses; returns the new ones if it is time to log them.
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

    /// Returns whether the last loss was not long ago.
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
