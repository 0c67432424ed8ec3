//! The IPv6 extension headers of a packet and their order: `ipv6_exthdr` (OpenFlow 1.3.5, 7.2.3.8;
//! RFC 8200, 4.1).

/// The extension headers parsed so far: the value of `ipv6_exthdr`.
///
/// Each header has a rank in the order that RFC 8200 prefers. Destination options may be in two
/// positions: before the routing header and at the end.
#[derive(Clone, Copy, Default)]
pub(super) struct ExtensionSet {
    /// The bits of `ipv6_exthdr`.
    bits: u64,
    /// The rank of the last parsed header in the preferred order.
    rank: u8,
    /// Number of destination options headers.
    destinations: u8,
}

impl ExtensionSet {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    const ENCRYPTION: u8 = 50;
    pub(super) const AUTHENTICATION: u8 = 51;
    const NO_NEXT_HEADER: u8 = 59;
    pub(super) const DESTINATION: u8 = 60;

    /// A packet may have destination options before the routing header, and at the end.
    const DESTINATIONS_MAX: u8 = 2;

    /// `OFPIEH_UNREP`: a header came more often than it may.
    const REPEATED: u64 = 1 << 7;
    /// `OFPIEH_UNSEQ`: the headers are not in the preferred order.
    const OUT_OF_ORDER: u64 = 1 << 8;

    /// Returns whether a protocol number has its own bit in `ipv6_exthdr`.
    pub(super) const fn has_bit(protocol: u8) -> bool {
        Self::bit(protocol).is_some()
    }

    /// Returns the value of `ipv6_exthdr`.
    pub(super) const fn bits(self) -> u64 {
        self.bits
    }

    /// Adds a protocol number, and returns whether it has a next header.
    pub(super) fn add(&mut self, protocol: u8) -> bool {
        let Some(bit) = Self::bit(protocol) else { return false };
        let rank = self.rank(protocol);
        if rank < self.rank {
            self.bits |= Self::OUT_OF_ORDER;
        }
        let is_repeat = if protocol == Self::DESTINATION {
            self.destinations = self.destinations.saturating_add(1);
            self.destinations > Self::DESTINATIONS_MAX
        } else {
            self.bits & bit != 0
        };
        if is_repeat {
            self.bits |= Self::REPEATED;
        }
        // A hop-by-hop header that is not the first counts only as out of order.
        if protocol != Self::HOP_BY_HOP || self.rank == 0 {
            self.bits |= bit;
        }
        self.rank = self.rank.max(rank);
        !matches!(protocol, Self::ENCRYPTION | Self::NO_NEXT_HEADER)
    }

    /// Returns the bit of an extension header.
    const fn bit(protocol: u8) -> Option<u64> {
        Some(match protocol {
            Self::NO_NEXT_HEADER => 1 << 0,
            Self::ENCRYPTION => 1 << 1,
            Self::AUTHENTICATION => 1 << 2,
            Self::DESTINATION => 1 << 3,
            Self::FRAGMENT => 1 << 4,
            Self::ROUTING => 1 << 5,
            Self::HOP_BY_HOP => 1 << 6,
            _ => return None,
        })
    }

    /// Returns the rank of a header in the preferred order.
    /// The rank depends on the headers before this header.
    fn rank(&self, protocol: u8) -> u8 {
        match protocol {
            Self::HOP_BY_HOP => 0,
            Self::DESTINATION if self.rank == 0 => 1,
            Self::ROUTING => 2,
            Self::FRAGMENT => 3,
            Self::AUTHENTICATION => 4,
            Self::ENCRYPTION => 5,
            _ => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bits of a chain of extension headers.
    fn bits(chain: &[u8]) -> u64 {
        let mut set = ExtensionSet::default();
        chain.iter().take_while(|protocol| set.add(**protocol)).for_each(drop);
        set.bits()
    }

    #[test]
    fn ordered_extension_headers_set_only_their_bits() {
        assert_eq!(bits(&[6]), 0);
        assert_eq!(bits(&[59]), 0b0_0000_0001);
        assert_eq!(bits(&[0, 60, 43, 44, 51, 60, 6]), 0b0_0111_1100);
        assert_eq!(bits(&[0, 60, 60, 17]), 0b0_0100_1000);
        assert_eq!(bits(&[44, 60, 6]), 0b0_0001_1000);
        assert_eq!(bits(&[60, 44, 51, 50]), 0b0_0001_1110);
    }

    #[test]
    fn extension_headers_out_of_order_are_flagged() {
        assert_eq!(bits(&[44, 43, 6]), 0b1_0011_0000);
        assert_eq!(bits(&[60, 0, 6]), 0b1_0000_1000);
        assert_eq!(bits(&[44, 60, 51, 6]), 0b1_0001_1100);
    }

    #[test]
    fn repeated_extension_headers_are_flagged() {
        assert_eq!(bits(&[0, 0, 6]), 0b0_1100_0000);
        assert_eq!(bits(&[44, 44, 6]), 0b0_1001_0000);
        assert_eq!(bits(&[60, 60, 60, 6]), 0b0_1000_1000);
    }
}
