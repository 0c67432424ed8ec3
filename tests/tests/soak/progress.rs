//! The progress of a soak, in one line that is overwritten.

use std::time::{Duration, Instant};

use shunt_switch::CacheStatus;

use crate::memory::resident_bytes;

/// Cells of the bar.
const CELLS: u64 = 30;

/// Update interval of the line.
const INTERVAL: Duration = Duration::from_millis(500);

/// The progress line.
pub(crate) struct Progress {
    packets: u64,
    is_shown: bool,
    start: Instant,
    shown: Duration,
    /// Number of changes in the finished networks.
    pub(crate) versions: u64,
}

impl Progress {
    #[expect(clippy::disallowed_methods, reason = "the command waits in real time")]
    pub(crate) fn new(packets: u64, is_shown: bool) -> Self {
        Self { packets, is_shown, start: Instant::now(), shown: Duration::ZERO, versions: 0 }
    }

    /// Shows the progress if the interval has passed.
    pub(crate) fn show(&mut self, sent: u64, caches: &CacheStatus) {
        let passed = self.start.elapsed();
        if !self.is_shown || passed < self.shown + INTERVAL {
            return;
        }
        self.shown = passed;
        let full = (sent * CELLS / self.packets.max(1)).min(CELLS);
        let bar: String = (0..CELLS).map(|cell| if cell < full { '#' } else { '.' }).collect();
        let left = passed.as_secs() * self.packets.saturating_sub(sent) / sent.max(1);
        eprint!(
            "\r[{bar}] {:>3} %, {sent} packets, version {}, {} of {} verified differ, {} MiB, {left} s left  ",
            (sent * 100 / self.packets.max(1)).min(100),
            caches.version,
            caches.differences,
            caches.verified,
            resident_bytes() >> 20,
        );
    }

    /// Ends the line of the progress.
    pub(crate) fn end(&self) {
        if self.is_shown {
            eprintln!();
        }
    }
}
