//! The rate limit of the frames of slow protocols that a port passes to the control plane.
//!
//! A partner of LACP sends three LACPDUs and five marker requests in a second, or fewer. A port that
//! receives more must not fill the queue to the control plane, which all ports of a thread share.

use std::time::Duration;

use shunt_pipeline::Time;

/// The limit of one port on one thread: a token bucket as the time when it is full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameLimit {
    full_at: Time,
}

/// Time until a token is added: ten in a second.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time in which an empty bucket becomes full. It has ten tokens.
const FILL_TIME: Duration = Duration::from_secs(1);

impl FrameLimit {
    /// Takes a token for a frame. Returns false if there is none.
    pub(super) fn takes(&mut self, now: Time) -> bool {
        let full_at = self.full_at.max(now).after(INTERVAL);
        let is_within = full_at.since(now) <= FILL_TIME;
        if is_within {
            self.full_at = full_at;
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_passes_ten_frames_and_ten_more_in_each_second() {
        let mut limit = FrameLimit::default();
        let mut pass = |from: u64, to: u64| {
            let times = (from..to).map(|ms| Time::ZERO.after(Duration::from_millis(ms)));
            times.filter(|now| limit.takes(*now)).count()
        };
        assert_eq!([pass(5000, 5010), pass(5010, 5090)], [10, 0]);
        assert_eq!([pass(5100, 6100), pass(6100, 10_100)], [10, 40]);
        assert_eq!(pass(60_000, 60_050), 10, "no more after a pause");
    }
}
