//! A limit for log lines about a peer.
//!
//! A peer decides how often it connects and breaks rules, so without a limit it could fill the log.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// The log lines about the peers of one port or socket.
#[derive(Debug, Default)]
pub struct PeerLog {
    /// The reason in the last line, so that repeated reasons are logged once.
    last_reason: String,
    /// The end of the present period; `None` before the first line.
    end: Option<Instant>,
    /// Number of lines in the period.
    lines: u32,
    /// Number of lines that were omitted since the last line.
    left_out: u64,
}

/// The end of a log line, with the number of omitted lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLogNote {
    left_out: u64,
    is_last: bool,
}

/// Maximum number of lines in a period.
const LINES_MAX: u32 = 20;

/// Length of a period in which log lines are counted.
const PERIOD: Duration = Duration::from_secs(60);

impl PeerLog {
    /// Returns the end of the next log line; `None` if the line must be omitted.
    ///
    /// At most 20 lines are permitted in a minute.
    pub fn note(&mut self, now: Instant) -> Option<PeerLogNote> {
        self.last_reason.clear();
        if self.end.is_none_or(|end| end <= now) {
            (self.end, self.lines) = (Some(now + PERIOD), 0);
        }
        if self.lines == LINES_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.lines += 1;
        let left_out = std::mem::take(&mut self.left_out);
        Some(PeerLogNote { left_out, is_last: self.lines == LINES_MAX })
    }

    /// Returns the end of the next log line; `None` also if the reason was logged last.
    pub fn note_new(&mut self, reason: &str, now: Instant) -> Option<PeerLogNote> {
        if self.last_reason == reason {
            return None;
        }
        let note = self.note(now);
        reason.clone_into(&mut self.last_reason);
        note
    }
}

impl fmt::Display for PeerLogNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left_out {
            0 => {}
            1 => f.write_str(" (1 line before this one was left out)")?,
            count => write!(f, " ({count} lines before this one were left out)")?,
        }
        if self.is_last {
            f.write_str(" (further lines of this minute are left out)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the period starts at the current time")]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_limited_in_each_minute() {
        let start = Instant::now();
        let mut log = PeerLog::default();
        let mut note = |text: &str, seconds| {
            let now = start + Duration::from_secs(seconds);
            match text {
                "connected" => log.note(now),
                reason => log.note_new(reason, now),
            }
            .map(|note| note.to_string())
        };
        assert_eq!(note("gone", 0).as_deref(), Some(""));
        assert_eq!(note("gone", 1), None, "the reason is the same");
        let texts = ["connected", "gone"].into_iter().cycle().take(19 + 30);
        let notes: Vec<_> = texts.map(|text| note(text, 59)).collect();
        assert!(notes[..18].iter().all(|note| note.as_deref() == Some("")));
        assert_eq!(notes[18].as_deref(), Some(" (further lines of this minute are left out)"));
        assert!(notes[19..].iter().all(Option::is_none));
        assert_eq!(note("c", 60).as_deref(), Some(" (30 lines before this one were left out)"));
        assert_eq!(note("connected", 60).as_deref(), Some(""));
        assert_eq!(note("connected", 60).as_deref(), Some(""));
    }
}
