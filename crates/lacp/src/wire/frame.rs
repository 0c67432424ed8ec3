//! Slow-protocols frames: an Ethernet header with a protocol data unit.
//!
//! Source: IEEE 802.1AX (LACPDU and marker PDU); IEEE 802.3, annex 57A (slow protocols).

use crate::{
    error::PduError,
    wire::{lacpdu::Lacpdu, marker::Marker, octets::Octets},
};

/// A received frame of LACP or of the marker protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowFrame {
    /// The frame is a LACPDU.
    Lacpdu(Lacpdu),
    /// A marker PDU that requests a response.
    MarkerRequest(Marker),
    /// A marker PDU that is the response to a request.
    MarkerResponse(Marker),
}

impl SlowFrame {
    /// Parses an Ethernet frame without its check sequence.
    ///
    /// The parser ignores version numbers, TLV types, reserved octets and octets after the data
    /// unit, so that later versions of the protocol may use them.
    ///
    /// # Errors
    ///
    /// If the frame is of another protocol, is too short, or a TLV has the wrong length.
    pub fn parse(frame: &[u8]) -> Result<Self, PduError> {
        let mut octets = Octets::new(frame);
        let header = (octets.take(), octets.take::<6>(), octets.take_u16());
        let (Ok(SLOW_PROTOCOLS_ADDRESS), Ok(_source), Ok(SLOW_PROTOCOLS_TYPE)) = header else {
            return Err(PduError::NotSlowProtocols);
        };
        let subtype = octets.take_u8()?;
        if frame.len() < FRAME_BYTES && matches!(subtype, SUBTYPE_LACP | SUBTYPE_MARKER) {
            return Err(PduError::Short { length: frame.len() });
        }
        let _version = octets.take_u8()?;
        match subtype {
            SUBTYPE_LACP => Lacpdu::parse(&mut octets).map(Self::Lacpdu),
            SUBTYPE_MARKER => Marker::parse(&mut octets),
            subtype => Err(PduError::Subtype(subtype)),
        }
    }

    /// Returns the Ethernet frame; `source` is the MAC address of the sending port.
    #[must_use]
    pub fn emit(&self, source: [u8; 6]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        frame.extend(SLOW_PROTOCOLS_ADDRESS);
        frame.extend(source);
        frame.extend(SLOW_PROTOCOLS_TYPE.to_be_bytes());
        match self {
            Self::Lacpdu(pdu) => {
                frame.extend([SUBTYPE_LACP, VERSION]);
                pdu.emit(&mut frame);
            }
            Self::MarkerRequest(marker) => {
                frame.extend([SUBTYPE_MARKER, VERSION]);
                marker.emit(Marker::REQUEST, &mut frame);
            }
            Self::MarkerResponse(marker) => {
                frame.extend([SUBTYPE_MARKER, VERSION]);
                marker.emit(Marker::RESPONSE, &mut frame);
            }
        }
        frame.resize(FRAME_BYTES, 0);
        frame
    }
}

/// Checks the length of a TLV.
pub(crate) const fn check_length(
    tlv: &'static str,
    length: u8,
    expected: u8,
) -> Result<(), PduError> {
    if length == expected { Ok(()) } else { Err(PduError::TlvLength { tlv, length, expected }) }
}

/// The destination MAC address of slow protocols, which no bridge forwards.
pub const SLOW_PROTOCOLS_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x02];

/// The Ethernet type of slow protocols.
pub const SLOW_PROTOCOLS_TYPE: u16 = 0x8809;

/// The length of a frame without its frame check sequence: header and 110 octets.
pub const FRAME_BYTES: usize = 124;

/// The subtype of an LACPDU.
const SUBTYPE_LACP: u8 = 1;
/// The subtype of a marker PDU.
const SUBTYPE_MARKER: u8 = 2;

/// Version number of LACP and of the marker protocol.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{LacpInfo, LacpState, SystemId};

    /// Generates the information about an actor or partner.
    fn info() -> impl Strategy<Value = LacpInfo> {
        any::<(u16, [u8; 6], u16, u16, u16, u8)>().prop_map(
            |(priority, mac, key, port_priority, port, state)| {
                let system = SystemId { priority, mac };
                let state = LacpState::from_octet(state);
                LacpInfo { system, key, port_priority, port, state }
            },
        )
    }

    fn slow_frame() -> impl Strategy<Value = SlowFrame> {
        let lacpdu = (info(), info(), any::<u16>()).prop_map(|(actor, partner, delay)| {
            SlowFrame::Lacpdu(Lacpdu { actor, partner, collector_max_delay: delay })
        });
        let marker = any::<(u16, [u8; 6], u32, bool)>().prop_map(
            |(port, system, transaction, is_request)| {
                let marker = Marker { port, system, transaction };
                let kind =
                    if is_request { SlowFrame::MarkerRequest } else { SlowFrame::MarkerResponse };
                kind(marker)
            },
        );
        prop_oneof![lacpdu, marker]
    }

    /// Returns the frame of an LACPDU.
    fn lacpdu() -> Vec<u8> {
        SlowFrame::Lacpdu(Lacpdu::default()).emit([2; 6])
    }

    proptest! {
        #[test]
        fn an_emitted_frame_parses_back(frame in slow_frame(), source: [u8; 6]) {
            let mut bytes = frame.emit(source);
            prop_assert_eq!(bytes.len(), FRAME_BYTES);
            prop_assert_eq!(&bytes[6..12], &source);
            prop_assert_eq!(SlowFrame::parse(&bytes), Ok(frame));
            bytes.extend([0xee; 30]);
            prop_assert_eq!(SlowFrame::parse(&bytes), Ok(frame), "octets behind it are ignored");
        }

        #[test]
        fn a_truncated_frame_is_refused(frame in slow_frame(), length in 0..FRAME_BYTES) {
            let bytes = frame.emit([2; 6]);
            prop_assert!(SlowFrame::parse(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn each_wrong_octet_has_its_error() {
        let marker = SlowFrame::MarkerRequest(Marker::default()).emit([2; 6]);
        for (frame, position, octet, text) in [
            (lacpdu(), 5, 3, "the frame is not of a slow protocol"),
            (lacpdu(), 13, 8, "the frame is not of a slow protocol"),
            (lacpdu(), 14, 3, "slow protocol 3 is neither LACP (1) nor the marker protocol (2)"),
            (lacpdu(), 17, 19, "the actor information has a length of 19 bytes: it must have 20"),
            (lacpdu(), 37, 0, "the partner information has a length of 0 bytes: it must have 20"),
            (
                lacpdu(),
                57,
                17,
                "the collector information has a length of 17 bytes: it must have 16",
            ),
            (marker.clone(), 16, 3, "marker TLV type 3 is neither a request (1)"),
            (marker, 17, 15, "the marker information has a length of 15 bytes: it must have 16"),
        ] {
            let mut bytes = frame;
            bytes[position] = octet;
            let error = SlowFrame::parse(&bytes).unwrap_err();
            assert!(error.to_string().starts_with(text), "{error}");
            assert_eq!(error.is_malformed(), position > 14);
        }
        let error = SlowFrame::parse(&lacpdu()[..123]).unwrap_err();
        assert_eq!(error.to_string(), "frame of 123 bytes is too short: it needs 124 bytes");
    }

    #[test]
    fn versions_types_and_reserved_octets_are_ignored() {
        let expected = SlowFrame::parse(&lacpdu());
        for position in [15, 16, 33, 34, 35, 36, 53, 54, 55, 56, 60, 71, 72, 73, 123] {
            let mut bytes = lacpdu();
            bytes[position] = 0xfe;
            assert_eq!(SlowFrame::parse(&bytes), expected, "octet {position}");
        }
    }
}
