//! The time of the next periodic packet.
//!
//! Source: RFC 5880, 6.8.7.

use std::{num::NonZeroU8, time::Duration};

use crate::jitter::JitterSource;

/// The timer of periodic packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransmitTimer {
    /// The source of shortened intervals.
    jitter: JitterSource,
    /// Time between two packets, before jitter.
    interval: Option<Duration>,
    /// Time at which the last packet was sent.
    last: Option<Duration>,
    /// Time at which the next packet is due.
    next: Option<Duration>,
}

impl TransmitTimer {
    /// Creates a timer that is not started; `seed` is for the jitter.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { jitter: JitterSource::new(seed), interval: None, last: None, next: None }
    }

    /// Returns the time at which the last packet was sent.
    pub(crate) const fn last(&self) -> Option<Duration> {
        self.last
    }

    /// Returns the time at which the next packet is due.
    pub(crate) const fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Returns the time between two packets, before jitter.
    pub(crate) const fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Changes the interval; `None` if no periodic packets are sent.
    pub(crate) fn follow(
        &mut self,
        interval: Option<Duration>,
        multiplier: NonZeroU8,
        now: Duration,
    ) {
        if interval == self.interval {
            return;
        }
        self.interval = interval;
        self.next = match (interval, self.last) {
            (Some(_), None) => Some(now),
            (Some(interval), Some(last)) => {
                Some(last.saturating_add(self.jitter.shorten(interval, multiplier)))
            }
            (None, _) => None,
        };
    }

    /// Records that a packet was sent, because of the timer or earlier.
    pub(crate) fn sent(&mut self, multiplier: NonZeroU8, now: Duration) {
        self.last = Some(now);
        let next = |interval| now.saturating_add(self.jitter.shorten(interval, multiplier));
        self.next = self.interval.map(next);
    }
}
