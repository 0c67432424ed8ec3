//! Log lines that clients cause, with a limit.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The log lines that the clients of a socket, or all clients of a server, cause.
///
/// A client may connect as often as it likes, and must not fill the log.
#[derive(Debug, Default)]
pub(super) struct ClientLog(Mutex<LoggedPeriod>);

/// The numbers of written and omitted log lines of one period.
#[derive(Debug, Default)]
struct LoggedPeriod {
    /// The start of the period; `None` before the first line.
    started: Option<Instant>,
    /// Number of lines that were written in the period.
    lines: u32,
    /// Number of lines that were omitted since the last written line.
    omitted: u64,
}

/// Maximum number of lines in a period.
const LINES_MAX: u32 = 20;

/// Time to which the maximum number of lines applies.
const PERIOD: Duration = Duration::from_secs(60);

impl ClientLog {
    /// Logs a warning, unless the period has too many.
    pub(super) fn warn(&self, text: &str) {
        let admitted = self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
        match admitted {
            Some(0) => tracing::warn!(target: "shunt_ovsdb", "{text}"),
            Some(omitted) => tracing::warn!(
                target: "shunt_ovsdb",
                omitted,
                "{text}; {omitted} lines about clients were omitted"
            ),
            None => {}
        }
    }
}

impl LoggedPeriod {
    /// Returns the number of omitted lines before a line, or `None` to omit this one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = |started: Instant| now.saturating_duration_since(started) >= PERIOD;
        if self.started.is_none_or(is_over) {
            self.started = Some(now);
            self.lines = 0;
        }
        if self.lines >= LINES_MAX {
            self.omitted = self.omitted.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_limited_in_each_period() {
        let (mut period, start) = (LoggedPeriod::default(), Instant::now());
        let admitted = (0..50).filter(|_| period.admit(start).is_some()).count();
        assert_eq!(admitted, 20);
        assert_eq!(period.admit(start + PERIOD), Some(30));
        assert_eq!(period.admit(start + PERIOD), Some(0));
    }
}
