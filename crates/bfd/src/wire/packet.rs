//! The control packet.
//!
//! Source: RFC 5880, 4.1 (format) and 6.8.6 (checks of a received packet).

use std::num::{NonZeroU8, NonZeroU32};

use crate::{
    error::BfdError,
    state::{BfdDiagnostic, BfdState},
    wire::{flags::BfdFlags, octets::BfdOctets},
};

/// A control packet without authentication.
///
/// Intervals are in microseconds, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPacket {
    /// Diagnostic of the last state change of the sender's session.
    pub diagnostic: BfdDiagnostic,
    /// State of the sender's session.
    pub state: BfdState,
    /// Flags, without Authentication Present and Multipoint.
    pub flags: BfdFlags,
    /// Detection multiplier of the sender.
    pub multiplier: NonZeroU8,
    /// Discriminator of the session at the sender.
    pub my_discriminator: NonZeroU32,
    /// Discriminator of the session at the receiver; 0 if it is unknown to the sender.
    pub your_discriminator: u32,
    /// Minimum time between two packets that the sender wants to send.
    pub desired_min_tx_us: u32,
    /// Minimum time between two packets that the sender can receive; 0:
    /// it wants no packets.
    pub required_min_rx_us: u32,
    /// Minimum time between two Echo packets that the sender loops back; 0: none.
    pub required_min_echo_rx_us: u32,
}

impl ControlPacket {
    /// Parses the payload of a UDP datagram.
    ///
    /// Octets after the packet are ignored.
    ///
    /// # Errors
    ///
    /// The first of those reasons in RFC 5880, 6.8.6 to discard a packet that do not depend on a
    /// session.
    pub fn parse(payload: &[u8]) -> Result<Self, BfdError> {
        let mut octets = BfdOctets::new(payload);
        let short = BfdError::Short { length: payload.len(), needed: PACKET_BYTES };
        let [version_diagnostic, state_flags, multiplier, length] =
            octets.take().map_err(|_| short)?;
        let version = version_diagnostic >> 5;
        if version != VERSION {
            return Err(BfdError::Version(version));
        }
        let flags = BfdFlags::from_bits(state_flags);
        let is_authenticated = flags.contains(BfdFlags::AUTHENTICATION);
        let needed = if is_authenticated { AUTHENTICATED_BYTES } else { PACKET_BYTES };
        if usize::from(length) < needed {
            return Err(BfdError::Short { length: length.into(), needed });
        }
        if usize::from(length) > payload.len() {
            return Err(BfdError::Length { length, payload: payload.len() });
        }
        let multiplier = NonZeroU8::new(multiplier).ok_or(BfdError::ZeroMultiplier)?;
        if flags.contains(BfdFlags::MULTIPOINT) {
            return Err(BfdError::Multipoint);
        }
        let my_discriminator =
            NonZeroU32::new(octets.take_u32()?).ok_or(BfdError::ZeroDiscriminator)?;
        let your_discriminator = octets.take_u32()?;
        let state = BfdState::from_bits(state_flags >> 6);
        if your_discriminator == 0 && state.is_connected() {
            return Err(BfdError::MissingDiscriminator);
        }
        if is_authenticated {
            return Err(BfdError::Authenticated);
        }
        Ok(Self {
            diagnostic: BfdDiagnostic::from_bits(version_diagnostic),
            state,
            flags,
            multiplier,
            my_discriminator,
            your_discriminator,
            desired_min_tx_us: octets.take_u32()?,
            required_min_rx_us: octets.take_u32()?,
            required_min_echo_rx_us: octets.take_u32()?,
        })
    }

    /// Returns the octets of the packet.
    #[must_use]
    pub fn emit(&self) -> [u8; PACKET_BYTES] {
        let first = u32::from_be_bytes([
            (VERSION << 5) | self.diagnostic.bits(),
            (self.state.bits() << 6) | self.flags.bits(),
            self.multiplier.get(),
            LENGTH,
        ]);
        let words = [
            first,
            self.my_discriminator.get(),
            self.your_discriminator,
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ];
        let mut octets = [0; PACKET_BYTES];
        for (chunk, word) in octets.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        octets
    }
}

/// The length of a packet without authentication, in octets.
pub const PACKET_BYTES: usize = 24;

/// The value of the field Length in emitted packets.
const LENGTH: u8 = 24;

/// The minimum length of a packet with authentication, in octets.
const AUTHENTICATED_BYTES: usize = 26;

/// The version of the BFD protocol.
const VERSION: u8 = 1;

const _: () = assert!(LENGTH as usize == PACKET_BYTES);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_packet, packet};

    proptest! {
        #[test]
        fn an_emitted_packet_parses_back(packet in any_packet()) {
            let mut octets = packet.emit().to_vec();
            prop_assert_eq!(ControlPacket::parse(&octets), Ok(packet));
            octets.extend([0xee; 9]);
            prop_assert_eq!(ControlPacket::parse(&octets), Ok(packet), "octets behind it");
        }

        #[test]
        fn a_truncated_packet_is_refused(packet in any_packet(), length in 0..PACKET_BYTES) {
            prop_assert!(ControlPacket::parse(&packet.emit()[..length]).is_err());
        }
    }

    #[test]
    fn each_wrong_octet_has_its_error() {
        for (changes, expected) in [
            (&[(0, 0)][..], "the BFD version of the packet is 0: it must be 1"),
            (&[(0, 0x5f)], "the BFD version of the packet is 2: it must be 1"),
            (&[(3, 23)], "the BFD packet ends after 23 bytes, but needs 24"),
            (&[(1, 0xc4), (3, 25)], "the BFD packet ends after 25 bytes, but needs 26"),
            (&[(3, 25)], "the BFD packet states a length of 25 bytes, but the UDP payload has 24"),
            (&[(2, 0)], "the field Detect Mult is zero: it must be at least 1"),
            (&[(1, 0xc1)], "the Multipoint bit is set: it must be clear"),
            (&[(7, 0)], "the field My Discriminator is zero: the sender needs a number"),
            (
                &[(11, 0)],
                "the field Your Discriminator is zero, although the state of the sender is init \
                 or up",
            ),
            // The packet is wrong in several ways, and the first reason is reported.
            (&[(0, 0), (2, 0), (7, 0)], "the BFD version of the packet is 0: it must be 1"),
            (&[(2, 0), (1, 0xc1)], "the field Detect Mult is zero: it must be at least 1"),
        ] {
            let mut octets = packet(BfdState::Up, 1, 2).emit();
            for (position, octet) in changes {
                octets[*position] = *octet;
            }
            let error = ControlPacket::parse(&octets).unwrap_err();
            assert_eq!(error.to_string(), expected, "{changes:?}");
        }
        let mut authenticated = packet(BfdState::Up, 1, 2).emit().to_vec();
        authenticated.extend([1, 4, 0, 0]);
        (authenticated[1], authenticated[3]) = (0xc4, 28);
        assert_eq!(ControlPacket::parse(&authenticated), Err(BfdError::Authenticated));
    }

    #[test]
    fn a_down_sender_may_omit_the_discriminator() {
        for state in [BfdState::AdminDown, BfdState::Down] {
            let own = packet(state, 1, 0);
            assert_eq!(ControlPacket::parse(&own.emit()), Ok(own));
        }
    }
}
