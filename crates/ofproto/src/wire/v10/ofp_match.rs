//! Matches: `ofp_match` (OpenFlow 1.0.0, 5.2.3) and `nx_match`.
//!
//! `ofp_match` has a fixed length, and a bit or a prefix length for the wildcard of each field.
//! Some fields share their place: an ARP operation is in `nw_proto`, and the type of an ICMP
//! message is in `tp_src`. A field without its prerequisite is ignored, as in Open vSwitch.

use bytes::BufMut;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo, oxm};
use shunt_pipeline::Cookie;

use super::port::PORT_UNUSED;
use crate::{
    error::ErrorCode,
    wire::{
        ByteReader, MessageLengthError,
        v13::{length, oxm::match_error, port_no},
    },
};

/// `ofp_flow_wildcards`.
mod wildcard {
    pub(super) const IN_PORT: u32 = 1;
    pub(super) const DL_VLAN: u32 = 1 << 1;
    pub(super) const DL_SRC: u32 = 1 << 2;
    pub(super) const DL_DST: u32 = 1 << 3;
    pub(super) const DL_TYPE: u32 = 1 << 4;
    pub(super) const NW_PROTO: u32 = 1 << 5;
    pub(super) const TP_SRC: u32 = 1 << 6;
    pub(super) const TP_DST: u32 = 1 << 7;
    pub(super) const NW_SRC_SHIFT: u32 = 8;
    pub(super) const NW_DST_SHIFT: u32 = 14;
    pub(super) const DL_VLAN_PCP: u32 = 1 << 20;
    pub(super) const NW_TOS: u32 = 1 << 21;
    pub(super) const ALL: u32 = 0x3f_ffff;
    /// Number of wildcarded address bits for a wildcarded address.
    pub(super) const ADDRESS_BITS: u32 = 32;
}

/// All wildcards in table statistics.
pub(super) const WILDCARDS_ALL: u32 = wildcard::ALL;

/// `OFP_VLAN_NONE`: matches packets without a tag.
const VLAN_NONE: u16 = 0xffff;
/// The bit of `vlan_tci` that is set if the packet has a tag.
const VLAN_PRESENT: u128 = 0x1000;

/// Protocol numbers with fields in `tp_src` and `tp_dst`.
mod protocol {
    pub(super) const ICMP: u8 = 1;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    pub(super) const ICMPV6: u8 = 58;
    pub(super) const SCTP: u8 = 132;
}

/// Ethernet types with fields in `nw_*`.
mod ethertype {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const ARP: u16 = 0x0806;
    pub(super) const RARP: u16 = 0x8035;
    pub(super) const IPV6: u16 = 0x86dd;
}

/// The content of an `ofp_match`.
#[derive(Clone, Copy, Debug, Default)]
struct StandardMatch {
    wildcards: u32,
    in_port: u16,
    dl_src: [u8; 6],
    dl_dst: [u8; 6],
    dl_vlan: u16,
    dl_vlan_pcp: u8,
    dl_type: u16,
    nw_tos: u8,
    nw_proto: u8,
    nw_src: u32,
    nw_dst: u32,
    tp_src: u16,
    tp_dst: u16,
}

/// A match read from an `ofp_match`.
pub(super) struct ReadMatch {
    pub(super) matching: Match,
    /// True if no field has a wildcard: the rule then has the highest priority.
    pub(super) is_exact: bool,
}

/// Reads an `ofp_match`.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<ReadMatch, ErrorCode> {
    let fields = StandardMatch::read(reader)?;
    let is_exact = fields.wildcards & wildcard::ALL == 0;
    Ok(ReadMatch { matching: fields.to_match(), is_exact })
}

/// Writes an `ofp_match`; leaves out fields that it lacks.
///
/// Returns whether no field has a wildcard.
pub(super) fn put(out: &mut Vec<u8>, matching: &Match) -> bool {
    let fields = StandardMatch::of(matching);
    fields.put(out);
    fields.wildcards & wildcard::ALL == 0
}

impl StandardMatch {
    /// Reads an `ofp_match` of 40 bytes.
    fn read(reader: &mut ByteReader<'_>) -> Result<Self, MessageLengthError> {
        let wildcards = reader.u32()?;
        let in_port = reader.u16()?;
        let (dl_src, dl_dst) = (reader.array()?, reader.array()?);
        let (dl_vlan, dl_vlan_pcp) = (reader.u16()?, reader.u8()?);
        reader.skip(1)?;
        let (dl_type, nw_tos, nw_proto) = (reader.u16()?, reader.u8()?, reader.u8()?);
        reader.skip(2)?;
        let (nw_src, nw_dst) = (reader.u32()?, reader.u32()?);
        let (tp_src, tp_dst) = (reader.u16()?, reader.u16()?);
        Ok(Self {
            wildcards,
            in_port,
            dl_src,
            dl_dst,
            dl_vlan,
            dl_vlan_pcp,
            dl_type,
            nw_tos,
            nw_proto,
            nw_src,
            nw_dst,
            tp_src,
            tp_dst,
        })
    }

    /// Writes the match as `ofp_match`.
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.wildcards);
        out.put_u16(self.in_port);
        out.extend_from_slice(&self.dl_src);
        out.extend_from_slice(&self.dl_dst);
        out.put_u16(self.dl_vlan);
        out.put_u8(self.dl_vlan_pcp);
        out.put_u8(0);
        out.put_u16(self.dl_type);
        out.put_u8(self.nw_tos);
        out.put_u8(self.nw_proto);
        out.put_u16(0);
        out.put_u32(self.nw_src);
        out.put_u32(self.nw_dst);
        out.put_u16(self.tp_src);
        out.put_u16(self.tp_dst);
    }

    /// Returns whether the field of a wildcard bit is matched.
    const fn is_matched(&self, wildcard: u32) -> bool {
        self.wildcards & wildcard == 0
    }

    /// Returns the match that the fields with their prerequisites mean.
    fn to_match(self) -> Match {
        let mut built = MatchedFields::default();
        if self.is_matched(wildcard::IN_PORT) {
            built.set(FieldId::InPort, port_no::widen(self.in_port).number().into());
        }
        if self.is_matched(wildcard::DL_SRC) {
            built.set(FieldId::EthSrc, mac_number(self.dl_src));
        }
        if self.is_matched(wildcard::DL_DST) {
            built.set(FieldId::EthDst, mac_number(self.dl_dst));
        }
        self.add_tag(&mut built);
        if self.is_matched(wildcard::DL_TYPE) {
            built.set(FieldId::EthType, self.dl_type.into());
            match self.dl_type {
                ethertype::IPV4 => {
                    self.add_addresses(&mut built, [FieldId::Ipv4Src, FieldId::Ipv4Dst]);
                    self.add_protocol(&mut built);
                }
                ethertype::IPV6 => self.add_protocol(&mut built),
                ethertype::ARP | ethertype::RARP => {
                    self.add_addresses(&mut built, [FieldId::ArpSpa, FieldId::ArpTpa]);
                    if self.is_matched(wildcard::NW_PROTO) {
                        built.set(FieldId::ArpOp, self.nw_proto.into());
                    }
                }
                _ => {}
            }
        }
        Match::new(&built.key, &built.mask)
    }

    /// Adds the match on the VLAN tag.
    fn add_tag(&self, built: &mut MatchedFields) {
        if self.is_matched(wildcard::DL_VLAN) {
            if self.dl_vlan == VLAN_NONE {
                // A packet without a tag has no priority, so the priority is ignored.
                return built.set(FieldId::VlanVid, 0);
            }
            built.set(FieldId::VlanVid, VLAN_PRESENT | u128::from(self.dl_vlan & 0xfff));
        }
        if self.is_matched(wildcard::DL_VLAN_PCP) {
            built.set(FieldId::VlanPcp, u128::from(self.dl_vlan_pcp & 7));
            built.add(FieldId::VlanTci, VLAN_PRESENT, VLAN_PRESENT);
        }
    }

    /// Adds the matches on the network addresses.
    fn add_addresses(&self, built: &mut MatchedFields, [source, destination]: [FieldId; 2]) {
        let mask = |shift: u32| {
            let bits = self.wildcards >> shift & 0x3f;
            u32::MAX.checked_shl(bits).unwrap_or(0)
        };
        built.add(source, self.nw_src.into(), mask(wildcard::NW_SRC_SHIFT).into());
        built.add(destination, self.nw_dst.into(), mask(wildcard::NW_DST_SHIFT).into());
    }

    /// Adds the matches on the protocol and its ports.
    fn add_protocol(&self, built: &mut MatchedFields) {
        if self.is_matched(wildcard::NW_TOS) {
            built.set(FieldId::IpDscp, u128::from(self.nw_tos >> 2));
        }
        if !self.is_matched(wildcard::NW_PROTO) {
            return;
        }
        built.set(FieldId::IpProto, self.nw_proto.into());
        let Some(ports) = transport_fields(self.dl_type, self.nw_proto) else { return };
        let bits = [wildcard::TP_SRC, wildcard::TP_DST];
        for ((field, wildcard), value) in
            ports.into_iter().zip(bits).zip([self.tp_src, self.tp_dst])
        {
            if self.is_matched(wildcard) {
                // The upper byte of an ICMP type or code is ignored.
                built.set(field, u128::from(value) & field.value_max());
            }
        }
    }

    /// Returns the fields of a match that an `ofp_match` has.
    fn of(matching: &Match) -> Self {
        let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
        let mut fields = Self {
            wildcards: wildcard::ALL & !(0xfff << wildcard::NW_SRC_SHIFT)
                | wildcard::ADDRESS_BITS << wildcard::NW_SRC_SHIFT
                | wildcard::ADDRESS_BITS << wildcard::NW_DST_SHIFT,
            ..Self::default()
        };
        let mut take = |field: FieldId, wildcard: u32| {
            let is_whole = mask.field(field) == field.value_max();
            is_whole.then(|| {
                fields.wildcards &= !wildcard;
                key.field(field)
            })
        };
        let in_port = take(FieldId::InPort, wildcard::IN_PORT);
        let (dl_src, dl_dst) =
            (take(FieldId::EthSrc, wildcard::DL_SRC), take(FieldId::EthDst, wildcard::DL_DST));
        let dl_type = take(FieldId::EthType, wildcard::DL_TYPE).map_or(0, low_u16);
        let is_ip = matches!(dl_type, ethertype::IPV4 | ethertype::IPV6);
        let is_arp = matches!(dl_type, ethertype::ARP | ethertype::RARP);
        let nw_tos = is_ip.then(|| take(FieldId::IpDscp, wildcard::NW_TOS)).flatten();
        let operation = if is_arp { FieldId::ArpOp } else { FieldId::IpProto };
        let nw_proto = (is_ip || is_arp).then(|| take(operation, wildcard::NW_PROTO)).flatten();
        let ports = nw_proto.and_then(|number| transport_fields(dl_type, low_u8(number)));
        let [tp_src, tp_dst] = ports.map_or([None; 2], |[source, destination]| {
            [take(source, wildcard::TP_SRC), take(destination, wildcard::TP_DST)]
        });
        let in_port = in_port.map(|port| PortNo::new(low_u32(port)));
        fields.in_port = in_port.map_or(0, |port| port_no::narrow(port).unwrap_or(PORT_UNUSED));
        fields.dl_src = mac_bytes(dl_src.unwrap_or(0));
        fields.dl_dst = mac_bytes(dl_dst.unwrap_or(0));
        fields.dl_type = dl_type;
        fields.nw_tos = low_u8(nw_tos.unwrap_or(0)) << 2;
        fields.nw_proto = low_u8(nw_proto.unwrap_or(0));
        fields.tp_src = low_u16(tp_src.unwrap_or(0));
        fields.tp_dst = low_u16(tp_dst.unwrap_or(0));
        fields.take_tag(&key, &mask);
        match dl_type {
            ethertype::IPV4 => {
                fields.take_addresses(&key, &mask, [FieldId::Ipv4Src, FieldId::Ipv4Dst]);
            }
            _ if is_arp => fields.take_addresses(&key, &mask, [FieldId::ArpSpa, FieldId::ArpTpa]),
            _ => {}
        }
        fields
    }

    /// Sets the VLAN id and the priority that a match requires.
    fn take_tag(&mut self, key: &FlowKey, mask: &FlowMask) {
        let (tci, tci_mask) = (key.field(FieldId::VlanTci), mask.field(FieldId::VlanTci));
        if tci_mask & VLAN_PRESENT == 0 {
            return;
        }
        if tci & VLAN_PRESENT == 0 {
            // The priority of an absent tag has no meaning; Open vSwitch writes it as known.
            self.wildcards &= !(wildcard::DL_VLAN | wildcard::DL_VLAN_PCP);
            self.dl_vlan = VLAN_NONE;
            return;
        }
        if tci_mask & 0xfff == 0xfff {
            self.wildcards &= !wildcard::DL_VLAN;
            self.dl_vlan = low_u16(tci & 0xfff);
        }
        if tci_mask >> 13 & 7 == 7 {
            self.wildcards &= !wildcard::DL_VLAN_PCP;
            self.dl_vlan_pcp = low_u8(tci >> 13 & 7);
        }
    }

    /// Takes addresses with a prefix mask; OpenFlow 1.0 has no form for other masks.
    fn take_addresses(&mut self, key: &FlowKey, mask: &FlowMask, fields: [FieldId; 2]) {
        let shifts = [wildcard::NW_SRC_SHIFT, wildcard::NW_DST_SHIFT];
        let places = [&mut self.nw_src, &mut self.nw_dst];
        for ((field, shift), place) in fields.into_iter().zip(shifts).zip(places) {
            let bits = low_u32(mask.field(field));
            if bits.leading_ones().saturating_add(bits.trailing_zeros()) == 32 && bits != 0 {
                self.wildcards = self.wildcards & !(0x3f << shift) | bits.trailing_zeros() << shift;
                *place = low_u32(key.field(field));
            }
        }
    }
}

/// A key and the bits that a match asks for.
#[derive(Default)]
struct MatchedFields {
    key: FlowKey,
    mask: FlowMask,
}

impl MatchedFields {
    /// Adds some bits of a field.
    fn add(&mut self, field: FieldId, value: u128, bits: u128) {
        self.key.set_field_masked(field, value & bits, bits);
        self.mask.add_bits(field, bits);
    }

    /// Adds a field with a match of all its bits.
    fn set(&mut self, field: FieldId, value: u128) {
        self.add(field, value, field.value_max());
    }
}

/// Returns the fields in `tp_src` and `tp_dst`.
const fn transport_fields(dl_type: u16, nw_proto: u8) -> Option<[FieldId; 2]> {
    Some(match (dl_type, nw_proto) {
        (_, protocol::TCP) => [FieldId::TcpSrc, FieldId::TcpDst],
        (_, protocol::UDP) => [FieldId::UdpSrc, FieldId::UdpDst],
        (_, protocol::SCTP) => [FieldId::SctpSrc, FieldId::SctpDst],
        (ethertype::IPV4, protocol::ICMP) => [FieldId::IcmpType, FieldId::IcmpCode],
        (ethertype::IPV6, protocol::ICMPV6) => [FieldId::Icmpv6Type, FieldId::Icmpv6Code],
        _ => return None,
    })
}

/// Returns a MAC address as a number.
fn mac_number([a, b, c, d, e, f]: [u8; 6]) -> u128 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]).into()
}

/// Returns the MAC address of a number.
fn mac_bytes(number: u128) -> [u8; 6] {
    let [.., a, b, c, d, e, f] = number.to_be_bytes();
    [a, b, c, d, e, f]
}

/// Returns the low 32 bits of a field value.
fn low_u32(value: u128) -> u32 {
    let [.., a, b, c, d] = value.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Returns the low 16 bits of a field value.
fn low_u16(value: u128) -> u16 {
    let [.., high, low] = value.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns the low byte of a field value.
fn low_u8(value: u128) -> u8 {
    let [.., low] = value.to_be_bytes();
    low
}

/// A match read from an `nx_match`, with the cookie that selects rules.
pub(super) struct ReadNxMatch {
    pub(super) matching: Match,
    pub(super) cookie: Cookie,
    pub(super) cookie_mask: u64,
}

/// `NXM_NX_COOKIE` without a mask: the cookie is in the match of a request.
const NXM_COOKIE: u32 = 0x0001_3c08;
/// `NXM_NX_COOKIE` with a mask.
const NXM_COOKIE_W: u32 = 0x0001_3d10;

/// Reads an `nx_match` of `length` bytes, and its padding.
pub(super) fn read_nxm(reader: &mut ByteReader<'_>, length: u16) -> Result<ReadNxMatch, ErrorCode> {
    let length = usize::from(length);
    let bytes = reader.bytes(length).map_err(|MessageLengthError| ErrorCode::MatchNicira)?;
    reader.skip(length::padding(length)).map_err(|MessageLengthError| ErrorCode::MatchNicira)?;
    let mut entries = ByteReader::new(bytes);
    let (mut cookie, mut cookie_mask) = (0, 0);
    let mut fields = Vec::with_capacity(bytes.len());
    while !entries.is_empty() {
        let header = oxm::OxmHeader::read(entries.rest()).map_err(match_error)?;
        let is_cookie = matches!(header.word(), NXM_COOKIE | NXM_COOKIE_W);
        let entry = entries
            .bytes(header.entry_len())
            .map_err(|MessageLengthError| ErrorCode::MatchLength)?;
        if !is_cookie {
            fields.extend_from_slice(entry);
            continue;
        }
        if cookie_mask != 0 {
            return Err(ErrorCode::MatchDuplicate);
        }
        let mut entry = ByteReader::new(entry);
        entry.skip(4)?;
        cookie = entry.u64()?;
        cookie_mask = if header.has_mask() { entry.u64()? } else { u64::MAX };
    }
    let matching = oxm::decode_match(&fields).map_err(match_error)?;
    Ok(ReadNxMatch { matching, cookie: Cookie::new(cookie & cookie_mask), cookie_mask })
}

/// Writes an `nx_match` with a cookie, and its padding.
///
/// Returns the length without padding.
pub(super) fn put_nxm(
    out: &mut Vec<u8>,
    matching: &Match,
    cookie: Cookie,
    cookie_mask: u64,
) -> u16 {
    let start = out.len();
    oxm::encode_nxm_match(matching, out);
    if cookie_mask != 0 {
        out.put_u32(if cookie_mask == u64::MAX { NXM_COOKIE } else { NXM_COOKIE_W });
        out.put_u64(cookie.number() & cookie_mask);
        if cookie_mask != u64::MAX {
            out.put_u64(cookie_mask);
        }
    }
    let length = out.len().saturating_sub(start);
    length::pad(out, start);
    // A match has less than 64 KiB: no field occurs twice.
    u16::try_from(length).unwrap_or(u16::MAX)
}
