//! Rate limits of the LACP, BFD and multicast frames from a port to the control plane.
//!
//! All ports of a packet thread share one queue to the control plane. The limits keep the frames of
//! one port from filling this queue.

use std::time::Duration;

use shunt_pipeline::Time;

/// A token bucket for one port on one thread, stored as the time when it is full.
///
/// The bucket gains a token every `INTERVAL_US` microseconds, up to `BURST` tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameLimit<const INTERVAL_US: u64, const BURST: u32> {
    /// Time at which the bucket is full again.
    full_at: Time,
}

/// The limit of LACP and marker frames: ten frames per second.
///
/// An LACP partner sends at most three LACPDUs and five marker requests per second.
pub(super) type SlowProtocolLimit = FrameLimit<100_000, 10>;

/// The limit of BFD: two thousand packets per second.
///
/// The shortest interval of a BFD session is one millisecond.
pub(super) type BfdLimit = FrameLimit<500, 32>;

/// The limit of IGMP and MLD messages for snooping: two hundred per second.
///
/// A switch or an access point at the port passes on the messages of many hosts. Hosts answer a
/// query within ten seconds.
pub(super) type SnoopingLimit = FrameLimit<5_000, 200>;

impl<const INTERVAL_US: u64, const BURST: u32> FrameLimit<INTERVAL_US, BURST> {
    /// The time after which one more frame may pass.
    const INTERVAL: Duration = Duration::from_micros(INTERVAL_US);

    /// The time after which an empty bucket is full.
    const FILL_TIME: Duration = Self::INTERVAL.saturating_mul(BURST);

    /// Takes a token for a frame; returns false if the bucket is empty.
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
    fn a_port_passes_ten_frames_in_a_second() {
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
    fn a_port_passes_200_membership_messages_a_second() {
        let mut limit = SnoopingLimit::default();
        let mut pass = |ms: u64| {
            let now = Time::ZERO.after(Duration::from_millis(ms));
            (0..300).filter(|_| limit.takes(now)).count()
        };
        assert_eq!([pass(5000), pass(5050), pass(60_000)], [200, 10, 200]);
    }

    #[test]
    fn a_port_passes_2000_bfd_packets_a_second() {
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
