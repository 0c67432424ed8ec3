//! LACPDUs: the messages of LACP.

use crate::{
    error::PduError,
    wire::{frame::check_length, info::LacpInfo, octets::Octets},
};

/// A LACP data unit, without its Ethernet header.
///
/// Source: IEEE 802.1AX, LACP, structure of a LACPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacpdu {
    /// The sender's end of the link.
    pub actor: LacpInfo,
    /// The receiver's end of the link, as the sender has received it.
    pub partner: LacpInfo,
    /// Longest delay of a received frame in the sender, in units of 10 microseconds.
    pub collector_max_delay: u16,
}

impl Lacpdu {
    /// Parses the octets after the version.
    pub(crate) fn parse(octets: &mut Octets<'_>) -> Result<Self, PduError> {
        let actor = parse_info("the actor information", octets)?;
        let partner = parse_info("the partner information", octets)?;
        let [_tlv_type, length] = octets.take()?;
        check_length("the collector information", length, COLLECTOR_LENGTH)?;
        let collector_max_delay = octets.take_u16()?;
        // A terminator follows in version 1, and further TLVs in version 2.
        Ok(Self { actor, partner, collector_max_delay })
    }

    /// Appends the octets after the version, without the final zeros.
    pub(crate) fn emit(&self, frame: &mut Vec<u8>) {
        for (tlv_type, info) in [(TLV_ACTOR, &self.actor), (TLV_PARTNER, &self.partner)] {
            frame.extend([tlv_type, INFO_LENGTH]);
            info.emit(frame);
            frame.extend(INFO_RESERVED);
        }
        frame.extend([TLV_COLLECTOR, COLLECTOR_LENGTH]);
        frame.extend(self.collector_max_delay.to_be_bytes());
    }
}

/// Parses the TLV of an actor or partner.
fn parse_info(tlv: &'static str, octets: &mut Octets<'_>) -> Result<LacpInfo, PduError> {
    let [_tlv_type, length] = octets.take()?;
    check_length(tlv, length, INFO_LENGTH)?;
    let info = LacpInfo::parse(octets)?;
    let _reserved: [u8; 3] = octets.take()?;
    Ok(info)
}

/// The type of the TLV about the sender.
const TLV_ACTOR: u8 = 1;
/// The type of the TLV about the receiver.
const TLV_PARTNER: u8 = 2;
/// The type of the TLV about the collector of frames.
const TLV_COLLECTOR: u8 = 3;
/// Length of actor and partner information, with its type and length.
const INFO_LENGTH: u8 = 20;
/// The reserved bytes after the information.
const INFO_RESERVED: [u8; 3] = [0; 3];
/// Length of the collector information, with its type and length.
const COLLECTOR_LENGTH: u8 = 16;

const _: () = assert!(2 + LacpInfo::BYTES + INFO_RESERVED.len() == INFO_LENGTH as usize);
