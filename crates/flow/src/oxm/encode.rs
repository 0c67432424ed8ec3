//! Encoding of a match.

use super::header::{OxmHeader, preferred};
use crate::{
    FieldId, FlowKey, FlowMask, Match,
    field::{Oxm, vlan},
    prerequisite,
};

/// Appends a match to `out`, without the header and padding of `ofp_match`.
///
/// Every bit of a legal match is in some entry (see [`prerequisite::is_legal`]), and
/// [`decode_match`](super::decode_match) gives the same match back.
pub fn encode_match(matching: &Match, out: &mut Vec<u8>) {
    encode(matching, NumberPreference::Standard, out);
}

/// Appends a match to `out` as an `nx_match` without its padding.
///
/// Every field with a number of Nicira has that number. OpenFlow 1.0 knows no other numbers.
/// [`decode_match`](super::decode_match) gives the same match back.
pub fn encode_nxm_match(matching: &Match, out: &mut Vec<u8>) {
    encode(matching, NumberPreference::Nicira, out);
}

/// The presence and the id of a VLAN tag.
const TAG: u128 = vlan::PRESENT | vlan::VID;

/// The numbers of fields that are preferred.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberPreference {
    Standard,
    Nicira,
}

/// Appends a match as OXM entries, in the order of Open vSwitch.
fn encode(matching: &Match, numbers: NumberPreference, out: &mut Vec<u8>) {
    let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
    let is_standard = numbers == NumberPreference::Standard && has_standard_vlan(&key, &mask);
    let options = key.tunnel_options();
    for field in ORDER.iter().copied() {
        let is_encoded = match field {
            FieldId::VlanTci => !is_standard,
            FieldId::VlanVid | FieldId::VlanPcp => is_standard,
            _ => prerequisite::is_met(field, &key, &mask),
        };
        let bits = mask.field(field);
        let is_present = field.tunnel_option().is_some_and(|option| options >> option & 1 == 1);
        if is_encoded && (bits != 0 || is_present) {
            match numbers {
                NumberPreference::Standard => {
                    encode_field(field, key.field(field), Some(bits), out);
                }
                NumberPreference::Nicira => encode_nxm_field(field, &key, &mask, out),
            }
        }
    }
}

/// Appends one entry to `out`.
/// Returns whether the field has a [`header`](super::header).
///
/// Value bits outside the mask are sent as zero. No mask is sent for `None` and for a mask of all
/// bits of the field.
pub fn encode_field(field: FieldId, value: u128, mask: Option<u128>, out: &mut Vec<u8>) -> bool {
    let Some(oxm) = preferred(field) else { return false };
    put_entry(oxm, field, (value, mask.unwrap_or(u128::MAX)), out);
    true
}

/// Appends an entry without a mask, with the number of Nicira if the field has one.
///
/// Appends nothing for a field without a number.
pub fn encode_nxm_value(field: FieldId, value: u128, out: &mut Vec<u8>) {
    if let Some(oxm) = field.info().oxms.first() {
        put_entry(*oxm, field, (value, u128::MAX), out);
    }
}

/// Appends one entry with the number of Nicira, if the field has one.
fn encode_nxm_field(field: FieldId, key: &FlowKey, mask: &FlowMask, out: &mut Vec<u8>) {
    // Nicira defined a field for the whole byte of which DSCP is a part.
    let field = if field == FieldId::IpDscp { FieldId::NwTos } else { field };
    let bits = mask.field(field);
    let value = key.field(field) & bits;
    // As in Open vSwitch, the absence of a tag needs no mask: an absent tag has no priority.
    let is_untagged = field == FieldId::VlanTci && bits & TAG == TAG && value == 0;
    let bits = if is_untagged { field.value_max() } else { bits };
    if let Some(oxm) = field.info().oxms.first() {
        put_entry(*oxm, field, (value, bits), out);
    }
}

/// Appends one entry with a value and a mask.
fn put_entry(oxm: Oxm, field: FieldId, (value, mask): (u128, u128), out: &mut Vec<u8>) {
    let whole = field.value_max();
    let mask = mask & whole;
    let header = OxmHeader::of(oxm, field, mask != whole);
    header.write(out);
    write_number(value & mask, header.value_len(), out);
    if header.has_mask() {
        write_number(mask, header.value_len(), out);
    }
}

/// Appends the last `length` bytes of a number.
fn write_number(number: u128, length: usize, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    out.extend_from_slice(&bytes[bytes.len() - length..]);
}

/// Returns whether `vlan_vid` and `vlan_pcp` can express the match on the tag.
///
/// The two fields can express a match with no bit of the priority, or with the whole priority and
/// the presence of a tag.
fn has_standard_vlan(key: &FlowKey, mask: &FlowMask) -> bool {
    let tci_mask = mask.field(FieldId::VlanTci);
    let tagged = key.field(FieldId::VlanTci) & tci_mask & vlan::PRESENT != 0;
    match tci_mask & vlan::PCP {
        0 => true,
        vlan::PCP => tagged,
        _ => false,
    }
}

/// The order in which Open vSwitch emits fields.
/// Fields that Open vSwitch does not know follow related fields.
#[rustfmt::skip]
const ORDER: &[FieldId] = {
    use FieldId::*;
    &[
        PacketType, DpHash, RecircId, ConjId, InPort, ActsetOutput, EthSrc, EthDst,
        EthType, VlanTci, VlanVid, VlanPcp, MplsTc, MplsBos, MplsTtl, MplsLabel,
        Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, NwFrag, IpDscp, IpEcn, NwTtl, Ipv6Label,
        IpProto, TcpSrc, TcpDst, TcpFlags, UdpSrc, UdpDst, SctpSrc, SctpDst, IcmpType, IcmpCode,
        Icmpv6Type, Icmpv6Code, NdReserved, NdTarget, NdOptionsType, NdSll, NdTll,
        ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha,
        NshFlags, NshTtl, NshMdtype, NshNp, NshSpi, NshSi, NshC1, NshC2, NshC3, NshC4,
        TunId, TunFlags, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunGbpId, TunGbpFlags,
        TunMetadata0, TunMetadata1, TunMetadata2, TunMetadata3, TunMetadata4, TunMetadata5,
        TunMetadata6, TunMetadata7, TunMetadata8, TunMetadata9, TunMetadata10, TunMetadata11,
        TunMetadata12, TunMetadata13, TunMetadata14, TunMetadata15, TunMetadata16, TunMetadata17,
        TunMetadata18, TunMetadata19, TunMetadata20, TunMetadata21, TunMetadata22, TunMetadata23,
        TunMetadata24, TunMetadata25, TunMetadata26, TunMetadata27, TunMetadata28, TunMetadata29,
        TunMetadata30, TunMetadata31, TunMetadata32, TunMetadata33, TunMetadata34, TunMetadata35,
        TunMetadata36, TunMetadata37, TunMetadata38, TunMetadata39, TunMetadata40, TunMetadata41,
        TunMetadata42, TunMetadata43, TunMetadata44, TunMetadata45, TunMetadata46, TunMetadata47,
        TunMetadata48, TunMetadata49, TunMetadata50, TunMetadata51, TunMetadata52, TunMetadata53,
        TunMetadata54, TunMetadata55, TunMetadata56, TunMetadata57, TunMetadata58, TunMetadata59,
        TunMetadata60, TunMetadata61, TunMetadata62, TunMetadata63,
        TunErspanIdx, TunErspanVer, TunErspanDir, TunErspanHwid, TunGtpuFlags, TunGtpuMsgtype,
        Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7, Reg8, Reg9, Reg10, Reg11, Reg12, Reg13,
        Reg14, Reg15, PktMark, CtState, CtZone, CtMark, CtLabel, CtNwSrc, CtIpv6Src, CtNwDst,
        CtIpv6Dst, CtNwProto, CtTpSrc, CtTpDst, Metadata,
    ]
};
