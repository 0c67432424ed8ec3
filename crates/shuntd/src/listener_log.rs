//! Log lines about connections that a listener did not take, with a limit.

use std::{io, time::Duration};

use tokio::time::Instant;
use tracing::warn;

/// Time between two log lines of one kind.
const INTERVAL: Duration = Duration::from_secs(60);

/// The log lines about the connections that a listener did not take.
///
/// Each kind of line is logged once a minute at most, because clients may connect at any rate. The
/// next line has the number of lines in between.
#[derive(Debug)]
pub(crate) struct ListenerLog {
    /// The name of the listener in log lines.
    listener: &'static str,
    /// Limits the lines about connections over the maximum.
    refused: LogInterval,
    /// Limits the lines about connections that could not be accepted.
    failed: LogInterval,
}

impl ListenerLog {
    /// Creates the log of a listener with a name for the log.
    pub(crate) fn new(listener: &'static str) -> Self {
        Self { listener, refused: LogInterval::default(), failed: LogInterval::default() }
    }

    /// Logs that a connection was refused, because `max` connections are open.
    pub(crate) fn log_refused(&mut self, max: usize) {
        let Some(omitted) = self.refused.admit(Instant::now()) else { return };
        let omitted = (omitted > 0).then_some(omitted);
        warn!(
            max,
            omitted,
            "{}: a connection is refused, because too many clients are connected: \
             end some of them",
            self.listener
        );
    }

    /// Logs that a connection could not be accepted.
    pub(crate) fn log_failed(&mut self, error: &io::Error) {
        let Some(omitted) = self.failed.admit(Instant::now()) else { return };
        let omitted = (omitted > 0).then_some(omitted);
        warn!(%error, omitted, "{}: a connection cannot be accepted", self.listener);
    }
}

/// The last log line of one kind.
#[derive(Debug, Default)]
struct LogInterval {
    /// Time of the last line.
    last: Option<Instant>,
    /// Number of lines that were left out since then.
    omitted: u64,
}

impl LogInterval {
    /// Returns the number of omitted lines before a line; `None` to omit it, too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            self.omitted = self.omitted.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_minute_counts_the_others() {
        let (mut interval, start) = (LogInterval::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(interval.admit(start), Some(0));
        for tenth in 1..600 {
            assert_eq!(interval.admit(after(tenth * 100)), None);
        }
        assert_eq!(interval.admit(after(60_000)), Some(599));
        assert_eq!(interval.admit(after(119_999)), None);
        assert_eq!(interval.admit(after(300_000)), Some(1));
    }
}
