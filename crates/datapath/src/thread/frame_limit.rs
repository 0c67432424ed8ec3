//! The rate limits of the frames of protocols that a port passes to the control plane.
//!
//! A port that receives more must not fill the queue to the control plane, which all ports of a thread share.

use std::time::Duration;

use shunt_pipeline::Time;

/// The limit of one port on one thread: a token bucket as the time when it is full.
///
/// A token is added in each interval of `INTERVAL_US` microseconds. A full bucket has `BURST` tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameLimit<const INTERVAL_US: u64, const BURST: u32> {
    full_at: Time,
}

/// The limit of LACP: ten frames in a second.
///
/// A partner sends three LACPDUs and five marker requests in a second, or fewer.
pub(super) type SlowProtocolLimit = FrameLimit<100_000, 10>;

/// The limit of BFD: two thousand packets in a second.
///
/// The shortest interval of a session is a millisecond.
pub(super) type BfdLimit = FrameLimit<500, 32>;

/// The limit of multicast snooping: two hundred messages in a second.
///
/// A switch or an access point behind the port passes on the messages of many hosts. After a query they
/// report in the course of ten seconds.
pub(super) type SnoopingLimit = FrameLimit<5_000, 200>;

impl<const INTERVAL_US: u64, const BURST: u32> FrameLimit<INTERVAL_US, BURST> {
    const INTERVAL: Duration = Duration::from_micros(INTERVAL_US);

    /// Time in which an empty bucket becomes full.
    const FILL_TIME: Duration = Self::INTERVAL.saturating_mul(BURST);

    /// Takes a token for a frame. Returns false if there is none.
    pub(super) fn takes(&mut self, now: Time) -> bool {
        let full_at = self.full_at.max(now).after(Self::INTERVAL);
        let is_within = full_at.since(now) <= Self::FILL_TIME;
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
        let mut limit = SlowProtocolLimit::default();
        let mut pass = |from: u64, to: u64| {
            let times = (from..to).map(|ms| Time::ZERO.after(Duration::from_millis(ms)));
            times.filter(|now| limit.takes(*now)).count()
        };
        assert_eq!([pass(5000, 5010), pass(5010, 5090)], [10, 0]);
        assert_eq!([pass(5100, 6100), pass(6100, 10_100)], [10, 40]);
        assert_eq!(pass(60_000, 60_050), 10, "no more after a pause");
    }

    #[test]
    fn a_port_passes_two_hundred_messages_of_hosts_in_a_second() {
        let mut limit = SnoopingLimit::default();
        let mut pass = |ms: u64| {
            let now = Time::ZERO.after(Duration::from_millis(ms));
            (0..300).filter(|_| limit.takes(now)).count()
        };
        assert_eq!([pass(5000), pass(5050), pass(60_000)], [200, 10, 200]);
    }

    #[test]
    fn a_port_passes_two_thousand_packets_of_bfd_in_a_second() {
        let mut limit = BfdLimit::default();
        let mut pass = |from: u64, to: u64| {
            let times = (from..to).map(|us| Time::ZERO.after(Duration::from_micros(us)));
            times.filter(|now| limit.takes(*now)).count()
        };
        assert_eq!(pass(5_000_000, 5_000_040), 32);
        let steady = pass(5_000_040, 6_000_040);
        assert!((1999..=2001).contains(&steady), "{steady}");
    }
}
