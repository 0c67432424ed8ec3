//! The number of insertions that may be pending.
//!
//! A device processes operations in order. So a removal waits for all insertions that were sent
//! before, and a version waits for the removal. The number of pending insertions is limited to the
//! number that the device confirms in one or two intervals.

use std::time::Duration;

use shunt_pipeline::Time;

/// The number of insertions that may be pending, by the speed of the device.
#[derive(Debug)]
pub(super) struct InsertionLimit {
    /// The beginning of the current interval.
    since: Time,
    /// Number of insertions that were confirmed in this interval.
    acked: usize,
    /// Number of insertions that may be pending.
    allowed: usize,
}

/// The length of an interval.
const INTERVAL: Duration = Duration::from_millis(10);

/// Number of insertions that may always be pending: one batch.
const ALLOWED_MIN: usize = 256;

impl Default for InsertionLimit {
    fn default() -> Self {
        Self { since: Time::ZERO, acked: 0, allowed: ALLOWED_MIN }
    }
}

impl InsertionLimit {
    /// Records the response to an insertion.
    pub(super) const fn record_response(&mut self) {
        self.acked += 1;
    }

    /// Returns the number of insertions that may be pending.
    pub(super) fn allowed(&mut self, now: Time) -> usize {
        let moments = now.since(self.since).as_nanos() / INTERVAL.as_nanos();
        if moments > 0 {
            // A longer pause gives the lowest rate in any case.
            let moments = usize::try_from(moments).unwrap_or(usize::MAX);
            self.allowed = (2 * self.acked / moments).max(ALLOWED_MIN);
            (self.since, self.acked) = (now, 0);
        }
        self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_speed_of_the_device() {
        let (mut limit, mut now) = (InsertionLimit::default(), Time::ZERO);
        let mut after = |acked: usize, milliseconds| {
            (0..acked).for_each(|_| limit.record_response());
            now = now.after(Duration::from_millis(milliseconds));
            limit.allowed(now)
        };
        assert_eq!(after(100, 10), ALLOWED_MIN);
        assert_eq!(after(2000, 10), 4000);
        assert_eq!(after(500, 5), 4000, "the interval is not over");
        assert_eq!(after(500, 5), 2000);
        assert_eq!(after(2000, 40), 1000);
        assert_eq!(after(0, 1000), ALLOWED_MIN);
    }
}
