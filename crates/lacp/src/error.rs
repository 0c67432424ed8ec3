//! The reasons for which received frames are ignored.

use std::{error::Error, fmt};

/// The reason why a received frame was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PduError {
    /// The frame lacks the destination address and Ethernet type of slow protocols.
    NotSlowProtocols,
    /// The frame belongs to another slow protocol, such as OAM (subtype 3).
    Subtype(u8),
    /// The frame is shorter than its protocol data unit.
    Short {
        /// Length of the frame in bytes.
        length: usize,
    },
    /// A TLV does not have the length that the standard defines.
    TlvLength {
        /// Name of the TLV.
        tlv: &'static str,
        /// Length field of the TLV.
        length: u8,
        /// Length that the standard defines.
        expected: u8,
    },
    /// The marker PDU is neither a request (1) nor a response (2).
    MarkerType(u8),
}

impl PduError {
    /// Returns whether the frame is a malformed LACPDU or marker PDU.
    ///
    /// Frames of other protocols are ignored too, but they are not malformed.
    #[must_use]
    pub const fn is_malformed(self) -> bool {
        match self {
            Self::NotSlowProtocols | Self::Subtype(_) => false,
            Self::Short { .. } | Self::TlvLength { .. } | Self::MarkerType(_) => true,
        }
    }
}

impl fmt::Display for PduError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSlowProtocols => f.write_str(
                "the frame is not of a slow protocol: it needs the destination 01:80:c2:00:00:02 \
                 and the Ethernet type 0x8809",
            ),
            Self::Subtype(subtype) => {
                write!(f, "slow protocol {subtype} is neither LACP (1) nor the marker protocol (2)")
            }
            Self::Short { length } => {
                write!(f, "frame of {length} bytes is too short: it needs 124 bytes")
            }
            Self::TlvLength { tlv, length, expected } => {
                write!(f, "{tlv} has a length of {length} bytes: it must have {expected}")
            }
            Self::MarkerType(number) => {
                write!(f, "marker TLV type {number} is neither a request (1) nor a response (2)")
            }
        }
    }
}

impl Error for PduError {}
