//! Egress policing: the rate limit of the packets that a port sends.
//!
//! Egress policing is the QoS type `egress-policer` of `ovs-vswitchd.conf.db(5)`: packets above a
//! committed rate are dropped, and no packet is delayed. The length of a packet is the length of
//! its frame without the Ethernet header and the frame check sequence, as in Open vSwitch. A packet
//! that is longer than the burst needs a full bucket, as in [ingress
//! policing](super::ingress_policer).

use shunt_pipeline::{Time, TokenBucket};

/// The limits of an `egress-policer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressPolicing {
    /// Committed information rate, in bytes per second.
    pub cir: u64,
    /// Committed burst size, in bytes.
    pub cbs: u64,
}

/// The token bucket of a port, which all packet threads share.
#[derive(Debug)]
pub struct EgressPolicer(TokenBucket);

/// Bytes of an Ethernet header without a VLAN tag.
const ETHERNET_HEADER: usize = 14;

impl EgressPolicer {
    /// Creates a full bucket.
    #[must_use]
    pub fn new(limits: EgressPolicing, now: Time) -> Self {
        let EgressPolicing { cir, cbs } = limits;
        Self(TokenBucket::of_bits(bits(cir), bits(cbs), now))
    }

    /// Takes the tokens of a frame; returns whether it passes.
    pub fn admit(&self, now: Time, frame_bytes: usize) -> bool {
        let bytes = frame_bytes.saturating_sub(ETHERNET_HEADER);
        self.0.take_or_overdraw(now, bits(bytes as u64))
    }
}

/// Returns a number of bytes in bits.
const fn bits(bytes: u64) -> u64 {
    bytes.saturating_mul(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_ms(milliseconds: u64) -> Time {
        Time::from_nanoseconds(milliseconds * 1_000_000)
    }

    #[test]
    fn policer_passes_burst_and_then_rate() {
        let policer = EgressPolicer::new(EgressPolicing { cir: 1000, cbs: 500 }, Time::ZERO);
        let passed = |now| (0..100).filter(|_| policer.admit(now, 114)).count();
        assert_eq!((passed(after_ms(0)), passed(after_ms(99)), passed(after_ms(100))), (5, 0, 1));
        assert_eq!(passed(after_ms(60_000)), 5, "a full bucket does not grow");
    }

    #[test]
    fn a_frame_above_the_burst_delays_later_frames() {
        let policer = EgressPolicer::new(EgressPolicing { cir: 1000, cbs: 500 }, Time::ZERO);
        assert!(policer.admit(Time::ZERO, 3014) && !policer.admit(after_ms(2500), 515));
        assert!(policer.admit(after_ms(3000), 514) && !policer.admit(after_ms(3000), 15));
    }
}
