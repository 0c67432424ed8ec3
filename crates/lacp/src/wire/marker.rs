//! Marker PDUs: the sender of a request learns that all earlier frames have arrived.
//!
//! A switch answers requests, and sends none. Source: IEEE 802.1AX, Marker protocol.

use crate::{
    error::PduError,
    wire::{
        frame::{SlowFrame, check_length},
        octets::Octets,
    },
};

/// The fields of a marker PDU, which a response repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// Port number of the requester.
    pub port: u16,
    /// MAC address of the requester's system, in wire order.
    pub system: [u8; 6],
    /// Number that the requester chose.
    pub transaction: u32,
}

impl Marker {
    /// TLV type of a request.
    pub(crate) const REQUEST: u8 = 1;
    /// TLV type of a response.
    pub(crate) const RESPONSE: u8 = 2;

    /// Parses the octets after the version.
    pub(crate) fn parse(octets: &mut Octets<'_>) -> Result<SlowFrame, PduError> {
        let [tlv_type, length] = octets.take()?;
        let kind = match tlv_type {
            Self::REQUEST => SlowFrame::MarkerRequest,
            Self::RESPONSE => SlowFrame::MarkerResponse,
            other => return Err(PduError::MarkerType(other)),
        };
        check_length("the marker information", length, LENGTH)?;
        let port = octets.take_u16()?;
        let system = octets.take()?;
        let transaction = octets.take().map(u32::from_be_bytes)?;
        Ok(kind(Self { port, system, transaction }))
    }

    /// Appends the octets after the version, without the final zeros.
    pub(crate) fn emit(&self, tlv_type: u8, frame: &mut Vec<u8>) {
        frame.extend([tlv_type, LENGTH]);
        frame.extend(self.port.to_be_bytes());
        frame.extend(self.system);
        frame.extend(self.transaction.to_be_bytes());
    }
}

/// Length of the marker information, with its type, length and padding.
const LENGTH: u8 = 16;
