//! Ingress policing: the rate limit of the packets that a port receives.
//!
//! The limits follow the table `Interface` of `ovs-vswitchd.conf.db(5)`: a rate of bits and a
//! rate of packets, each with a burst. A packet that exceeds either rate is dropped before its
//! lookup, and takes no tokens.
//!
//! The length of a packet is the length of its frame without the frame check sequence. A packet
//! that is still to be segmented counts as one packet of its full length, as it does for meters and
//! rules. Such a packet may be longer than the burst: it then needs a full bucket, and overdraws
//! it, so later packets are dropped until the tokens are back. Otherwise a small burst would end
//! every TCP connection of a guest.

use shunt_pipeline::{Time, TokenBucket};

/// The limits of ingress policing, in the units of Open vSwitch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressPolicing {
    /// Maximum rate in kilobits per second; 0: no limit.
    pub kbps: u32,
    /// Burst in kilobits; 0: [`Self::BURST_KB`].
    pub burst_kb: u32,
    /// Maximum rate in thousands of packets per second; 0: no limit.
    pub kpkts_rate: u32,
    /// Burst in thousands of packets; 0: [`Self::BURST_KPKTS`].
    pub kpkts_burst: u32,
}

/// The token buckets of a port, which all packet threads share.
#[derive(Debug)]
pub struct IngressPolicer {
    /// The bucket of the limit in bits; `None` without a limit.
    bits: Option<TokenBucket>,
    /// The bucket of the limit in packets; `None` without a limit.
    packets: Option<TokenBucket>,
}

/// Number of bits of a kilobit, and of packets of a kilopacket.
const KILO: u64 = 1000;

impl IngressPolicing {
    /// The burst in kilobits if none is given.
    pub const BURST_KB: u32 = 8000;

    /// The burst in thousands of packets if none is given.
    pub const BURST_KPKTS: u32 = 16;
}

impl IngressPolicer {
    /// Creates full buckets; `None` without a limit.
    #[must_use]
    pub fn new(limits: IngressPolicing, now: Time) -> Option<Self> {
        let IngressPolicing { kbps, burst_kb, kpkts_rate, kpkts_burst } = limits;
        if kbps == 0 && kpkts_rate == 0 {
            return None;
        }
        let scaled = |rate: u32, burst: u32, default: u32| {
            let burst = if burst == 0 { default } else { burst };
            (rate > 0).then_some((u64::from(rate) * KILO, u64::from(burst) * KILO))
        };
        let bits = scaled(kbps, burst_kb, IngressPolicing::BURST_KB);
        let packets = scaled(kpkts_rate, kpkts_burst, IngressPolicing::BURST_KPKTS);
        Some(Self {
            bits: bits.map(|(rate, burst)| TokenBucket::of_bits(rate, burst, now)),
            packets: packets.map(|(rate, burst)| TokenBucket::of_packets(rate, burst, now)),
        })
    }

    /// Takes the tokens of a packet; returns whether the packet passes.
    pub fn admit(&self, now: Time, bytes: usize) -> bool {
        let bits = (bytes as u64).saturating_mul(8);
        if self.bits.as_ref().is_some_and(|bucket| !bucket.take_or_overdraw(now, bits)) {
            return false;
        }
        let passes = self.packets.as_ref().is_none_or(|bucket| bucket.take(now, 1));
        if !passes && let Some(bucket) = &self.bits {
            bucket.give_back(bits);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
    };

    use proptest::prelude::*;

    use super::*;

    fn after_us(microseconds: u64) -> Time {
        Time::from_nanoseconds(microseconds * 1000)
    }

    /// Returns a policer with full buckets.
    fn policer(limits: IngressPolicing) -> IngressPolicer {
        IngressPolicer::new(limits, Time::ZERO).unwrap()
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let only_bursts = IngressPolicing { burst_kb: 5, kpkts_burst: 5, ..Default::default() };
        for limits in [IngressPolicing::default(), only_bursts] {
            assert!(IngressPolicer::new(limits, Time::ZERO).is_none());
        }
    }

    #[test]
    fn bursts_have_the_defaults_of_open_vswitch() {
        let passed = |limits, bytes| {
            let policer = policer(limits);
            (0..100_000).filter(|_| policer.admit(Time::ZERO, bytes)).count()
        };
        assert_eq!(passed(IngressPolicing { kbps: 1, ..Default::default() }, 1000), 1000);
        assert_eq!(passed(IngressPolicing { kpkts_rate: 1, ..Default::default() }, 60), 16_000);
    }

    #[test]
    fn a_packet_above_the_burst_delays_later_packets() {
        let policer = policer(IngressPolicing { kbps: 8, burst_kb: 8, ..Default::default() });
        assert!(policer.admit(Time::ZERO, 3000) && !policer.admit(Time::ZERO, 1));
        // The bucket is full again after the three seconds of the long packet.
        assert!(!policer.admit(after_us(2_000_000), 1000));
        assert!(policer.admit(after_us(3_000_000), 1000));
    }

    #[test]
    fn packet_refused_once_takes_no_tokens() {
        let limits = IngressPolicing { kbps: 8, burst_kb: 80, kpkts_rate: 1, kpkts_burst: 1 };
        let policer = policer(limits);
        assert!((0..1000).all(|_| policer.admit(Time::ZERO, 1)), "1000 packets and 1000 bytes");
        assert!((0..5000).all(|_| !policer.admit(Time::ZERO, 1000)), "no packet is left");
        // After a millisecond, the bucket of packets has one token, and the bucket of bits has 9000
        // bytes.
        assert!(policer.admit(after_us(1000), 9000) && !policer.admit(after_us(2000), 1000));
    }

    #[test]
    fn threads_share_one_rate() {
        let policer = policer(IngressPolicing { kbps: 800, burst_kb: 80, ..Default::default() });
        let passed = AtomicU64::new(0);
        thread::scope(|scope| {
            for pace in 1..5_u64 {
                let (policer, passed) = (&policer, &passed);
                scope.spawn(move || {
                    for packet in 0..20_000_u64 {
                        // The clock of every thread ends at one second, and each clock runs at its
                        // own pace.
                        let now = if packet == 19_999 { 1_000_000 } else { packet * pace * 10 };
                        let passes = policer.admit(after_us(now), 100);
                        passed.fetch_add(passes.into(), Ordering::Relaxed);
                    }
                });
            }
        });
        // The least result is a burst and the 0.2 s of the slowest clock. The greatest result is a
        // burst, the 0.8 s of the fastest clock, and a second burst when the first clock jumps to
        // its end.
        let passed = passed.load(Ordering::Relaxed);
        assert!((300..=1000).contains(&passed), "{passed} packets passed");
    }

    /// The limits as two amounts that grow with time, in exact arithmetic.
    struct Oracle {
        /// Rate per second and burst, if there is a limit.
        bits: Option<(i128, i128)>,
        packets: Option<(i128, i128)>,
        /// Billionths of bits and of packets that the buckets lack until they are full.
        missing: (i128, i128),
        now: u64,
    }

    /// Number of nanoseconds in a second.
    const BILLION: i128 = 1_000_000_000;

    impl Oracle {
        fn new(limits: IngressPolicing) -> Self {
            let kilo = |rate: u32, burst: u32, default: u32| {
                let burst = if burst > 0 { burst } else { default };
                (rate > 0).then_some((i128::from(rate) * 1000, i128::from(burst) * 1000))
            };
            Self {
                bits: kilo(limits.kbps, limits.burst_kb, 8000),
                packets: kilo(limits.kpkts_rate, limits.kpkts_burst, 16),
                missing: (0, 0),
                now: 0,
            }
        }

        fn admit(&mut self, now: u64, bytes: u32) -> bool {
            let passed = i128::from(now - self.now);
            self.now = now;
            let rate = |limit: Option<(i128, i128)>| limit.map_or(0, |(rate, _)| rate);
            self.missing.0 = (self.missing.0 - passed * rate(self.bits)).max(0);
            self.missing.1 = (self.missing.1 - passed * rate(self.packets)).max(0);
            let bits = i128::from(bytes) * 8 * BILLION;
            let fits_bits = self.bits.is_none_or(|(_, burst)| {
                self.missing.0 == 0 || self.missing.0 + bits <= burst * BILLION
            });
            let fits_packets =
                self.packets.is_none_or(|(_, burst)| self.missing.1 + BILLION <= burst * BILLION);
            if fits_bits && fits_packets {
                self.missing.0 += if self.bits.is_some() { bits } else { 0 };
                self.missing.1 += if self.packets.is_some() { BILLION } else { 0 };
            }
            fits_bits && fits_packets
        }
    }

    /// Rates that divide the ticks of a second, so that no cost is rounded.
    fn rate() -> impl Strategy<Value = u32> {
        prop_oneof![
            Just(0),
            (0..=8_u32, 0..=4_u32).prop_map(|(twos, fives)| 2_u32.pow(twos) * 5_u32.pow(fives)),
        ]
    }

    proptest! {
        #[test]
        fn a_policer_equals_exact_arithmetic(
            kbps in rate(),
            burst_kb in 0..200_u32,
            kpkts_rate in rate(),
            kpkts_burst in 0..2_u32,
            packets in prop::collection::vec((0..300_000_u64, 0..9000_u32), 1..200),
        ) {
            let limits = IngressPolicing { kbps, burst_kb, kpkts_rate, kpkts_burst };
            let policer = IngressPolicer::new(limits, Time::ZERO);
            let mut oracle = Oracle::new(limits);
            let mut now = 0;
            for (pause, bytes) in packets {
                now += pause;
                let passes = policer.as_ref().is_none_or(|own| {
                    own.admit(Time::from_nanoseconds(now), bytes as usize)
                });
                prop_assert_eq!(passes, oracle.admit(now, bytes));
            }
        }
    }
}
