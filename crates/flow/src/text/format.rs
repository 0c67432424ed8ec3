//! Matches and packet fields as text, in the order and words of `ovs-ofctl dump-flows`.

use super::{
    ports::PortNames,
    protocol::Shorthand,
    value::{format_value_with, hex},
};
use crate::{
    FieldId, FlowKey, FlowMask, Match,
    field::{Format, vlan},
    layout::HEADER_START,
    prerequisite,
};

/// Writes a match as Open vSwitch prints it, without spaces.
/// For example, `tcp,nw_dst=10.0.0.0/8,tp_dst=80`.
///
/// [`parse_match`](super::parse_match) returns the same match for the text of a legal match. The
/// text for a match of everything is empty.
#[must_use]
pub fn format_match(matching: &Match, ports: &dyn PortNames) -> String {
    MatchWriter::new(matching.key(), FlowMask::from(matching.mask()), ports).finish()
}

/// Writes the fields of a packet as Open vSwitch prints a flow.
///
/// Header fields that the packet has are always written. Other fields are written only if they are
/// not zero.
#[must_use]
pub fn format_key(key: &FlowKey, ports: &dyn PortNames) -> String {
    MatchWriter::new(key.clone(), present(key), ports).finish()
}

/// Returns the bits of the key that [`format_key`] writes.
fn present(key: &FlowKey) -> FlowMask {
    let mut all = FlowMask::EMPTY;
    all.words_mut().fill(u64::MAX);
    let labels = mpls_labels(key);
    let is_tagged = key.field(FieldId::VlanTci) & vlan::PRESENT != 0;
    let is_present = |field: &FieldId| match field {
        // Open vSwitch prints these fields only in a match.
        FieldId::NdReserved | FieldId::NdOptionsType => false,
        FieldId::NshC1 | FieldId::NshC2 | FieldId::NshC3 | FieldId::NshC4
            if key.field(FieldId::NshMdtype) != 1 =>
        {
            false
        }
        FieldId::MplsLse1 if labels < 2 => false,
        FieldId::MplsLse2 if labels < 3 => false,
        FieldId::VlanTci1 => is_tagged,
        _ => {
            let is_header = usize::from(field.slot().word) > HEADER_START;
            (is_header || key.field(*field) != 0) && is_shown(*field, key, &all)
        }
    };
    let fields = ORDER.iter().filter_map(|part| match part {
        MatchPart::Field(field, _) | MatchPart::Vlan(TagNames { field, .. }) => Some(*field),
        MatchPart::Protocol => Some(FieldId::EthType),
        MatchPart::TunnelOptions => None,
    });
    let mut mask = FlowMask::EMPTY;
    fields.filter(is_present).for_each(|field| mask.add_field(field));
    mask
}

/// Returns the number of label stack entries of the packet.
/// The count is at most the number of label stack entries in a key.
fn mpls_labels(key: &FlowKey) -> u32 {
    let is_last = |entry: u128| entry & 0x100 != 0;
    if key.field(FieldId::MplsBos) != 0 {
        1
    } else if is_last(key.field(FieldId::MplsLse1)) {
        2
    } else {
        3
    }
}

/// Returns whether a field in `mask` is written.
fn is_shown(field: FieldId, key: &FlowKey, mask: &FlowMask) -> bool {
    match field {
        // Open vSwitch writes both addresses of a neighbour message, although each type carries
        // one.
        FieldId::NdSll | FieldId::NdTll => prerequisite::is_met(FieldId::NdTarget, key, mask),
        _ => prerequisite::is_met(field, key, mask),
    }
}

/// The text of a match, which grows by items.
struct MatchWriter<'a> {
    /// The values of the matched fields.
    key: FlowKey,
    /// The bits that are not written yet.
    mask: FlowMask,
    /// The names of the ports.
    ports: &'a dyn PortNames,
    /// The text that was written so far.
    text: String,
}

impl<'a> MatchWriter<'a> {
    /// Creates a writer with an empty text.
    const fn new(key: FlowKey, mask: FlowMask, ports: &'a dyn PortNames) -> Self {
        Self { key, mask, ports, text: String::new() }
    }

    /// Returns the text of all fields in order.
    fn finish(mut self) -> String {
        let shorthand = Shorthand::of(&self.key, &self.mask);
        for part in ORDER {
            match part {
                MatchPart::TunnelOptions => self.tunnel_options(),
                MatchPart::Protocol => shorthand.into_iter().for_each(|said| self.word(said.name)),
                MatchPart::Vlan(tag) => self.tag(tag),
                MatchPart::Field(FieldId::EthType, _) if shorthand.is_some() => {}
                MatchPart::Field(FieldId::IpProto, _)
                    if shorthand.is_some_and(|said| said.ip_proto.is_some()) => {}
                MatchPart::Field(field, name) => self.field(*field, name),
            }
        }
        self.text
    }

    /// Writes a field under a name, if the mask has bits of it.
    fn field(&mut self, field: FieldId, name: &str) {
        let mask = self.mask.field(field);
        if mask != 0 && is_shown(field, &self.key, &self.mask) {
            let value = format_match_value(field, self.key.field(field) & mask, mask, self.ports);
            self.item(name, &value);
        }
    }

    /// Writes the tunnel options of the mask.
    /// An option is written by name alone if only its presence is matched.
    fn tunnel_options(&mut self) {
        let present = self.key.tunnel_options();
        for field in FieldId::all() {
            match field.tunnel_option() {
                Some(option) if present >> option & 1 == 1 => {
                    if self.mask.field(field) == 0 {
                        self.word(field.name());
                    }
                    self.field(field, field.name());
                }
                _ => {}
            }
        }
    }

    /// Writes a VLAN tag as id and priority if these are matched whole.
    /// A match of other bits of the tag is written as TCI, with a mask if the TCI is not matched
    /// whole.
    fn tag(&mut self, tag: &TagNames) {
        let mask = self.mask.field(tag.field);
        let value = self.key.field(tag.field) & mask;
        let (vid, pcp) = (mask & vlan::VID, mask & vlan::PCP);
        let by_parts = value & vlan::PRESENT != 0
            && (vid == 0 || vid == vlan::VID)
            && (pcp == 0 || pcp == vlan::PCP)
            && (vid | pcp != 0);
        if by_parts {
            if vid != 0 {
                self.item(tag.vid, &(value & vlan::VID).to_string());
            }
            if pcp != 0 {
                self.item(tag.pcp, &(value >> 13).to_string());
            }
        } else if mask == 0xffff {
            self.item(tag.tci, &format!("{value:#06x}"));
        } else if mask != 0 {
            self.item(tag.tci, &format!("{value:#06x}/{mask:#06x}"));
        }
    }

    /// Writes an item as `name=value`.
    fn item(&mut self, name: &str, value: &str) {
        self.word(name);
        self.text.push('=');
        self.text.push_str(value);
    }

    /// Appends an item; a comma separates it from the item before.
    fn word(&mut self, word: &str) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(word);
    }
}

/// Writes a value as in a match, which for some fields differs from an action.
fn format_match_value(field: FieldId, value: u128, mask: u128, ports: &dyn PortNames) -> String {
    let exact = mask == field.value_max();
    match field {
        FieldId::EthType if exact => format!("{value:#06x}"),
        // No rule has a mask on the Ethernet type, but a lookup may have consulted single bits.
        FieldId::EthType => format!("{value:#06x}/{mask:#06x}"),
        FieldId::Ipv6Label if exact => format!("{value:#07x}"),
        FieldId::Ipv6Label => format!("{value:#07x}/{mask:#07x}"),
        FieldId::NshFlags if !exact => format!("{value:#04x}/{mask:#04x}"),
        FieldId::NshSpi if exact => format!("{value:#x}"),
        FieldId::CtZone if exact => value.to_string(),
        FieldId::TunFlags if value == 0 => "-oam".to_owned(),
        FieldId::TunFlags => "+oam".to_owned(),
        _ if field.info().format == Format::Decimal && !exact => {
            let value = if value == 0 { "0x0".to_owned() } else { hex(value) };
            format!("{value}/{}", hex(mask))
        }
        _ => format_value_with(field, value, mask, ports),
    }
}

/// An item of match text, in print order.
enum MatchPart {
    /// A field, under the name that is printed.
    Field(FieldId, &'static str),
    /// All tunnel options (`tun_metadata`).
    TunnelOptions,
    /// The shorthand for Ethernet type and protocol.
    Protocol,
    /// A VLAN tag of the packet.
    Vlan(TagNames),
}

/// The names of the parts of a VLAN tag.
struct TagNames {
    /// The field with the tag.
    field: FieldId,
    /// The name of the VLAN ID.
    vid: &'static str,
    /// The name of the priority.
    pcp: &'static str,
    /// The name of the whole tag.
    tci: &'static str,
}

/// The names of the fields of the outer tag.
const TAG: TagNames =
    TagNames { field: FieldId::VlanTci, vid: "dl_vlan", pcp: "dl_vlan_pcp", tci: "vlan_tci" };
/// The names of the fields of the inner tag.
const TAG1: TagNames =
    TagNames { field: FieldId::VlanTci1, vid: "dl_vlan1", pcp: "dl_vlan_pcp1", tci: "vlan_tci1" };

/// The print order of Open vSwitch.
/// Fields that Open vSwitch does not know follow related fields.
#[rustfmt::skip]
const ORDER: &[MatchPart] = {
    use FieldId::*;
    use MatchPart::{Field, Protocol};
    &[
        Field(PktMark, "pkt_mark"), Field(RecircId, "recirc_id"), Field(DpHash, "dp_hash"),
        Field(ConjId, "conj_id"), Field(ActsetOutput, "actset_output"),
        Field(CtState, "ct_state"), Field(CtZone, "ct_zone"), Field(CtMark, "ct_mark"),
        Field(CtLabel, "ct_label"), Field(CtNwSrc, "ct_nw_src"), Field(CtIpv6Src, "ct_ipv6_src"),
        Field(CtNwDst, "ct_nw_dst"), Field(CtIpv6Dst, "ct_ipv6_dst"),
        Field(CtNwProto, "ct_nw_proto"), Field(CtTpSrc, "ct_tp_src"), Field(CtTpDst, "ct_tp_dst"),
        Field(PacketType, "packet_type"),
        Protocol,
        Field(Reg0, "reg0"), Field(Reg1, "reg1"), Field(Reg2, "reg2"), Field(Reg3, "reg3"),
        Field(Reg4, "reg4"), Field(Reg5, "reg5"), Field(Reg6, "reg6"), Field(Reg7, "reg7"),
        Field(Reg8, "reg8"), Field(Reg9, "reg9"), Field(Reg10, "reg10"), Field(Reg11, "reg11"),
        Field(Reg12, "reg12"), Field(Reg13, "reg13"), Field(Reg14, "reg14"), Field(Reg15, "reg15"),
        Field(TunId, "tun_id"), Field(TunSrc, "tun_src"), Field(TunDst, "tun_dst"),
        Field(TunIpv6Src, "tun_ipv6_src"), Field(TunIpv6Dst, "tun_ipv6_dst"),
        Field(TunGbpId, "tun_gbp_id"), Field(TunGbpFlags, "tun_gbp_flags"),
        Field(TunErspanVer, "tun_erspan_ver"), Field(TunErspanIdx, "tun_erspan_idx"),
        Field(TunErspanDir, "tun_erspan_dir"), Field(TunErspanHwid, "tun_erspan_hwid"),
        Field(TunGtpuFlags, "tun_gtpu_flags"), Field(TunGtpuMsgtype, "tun_gtpu_msgtype"),
        Field(TunFlags, "tun_flags"), MatchPart::TunnelOptions, Field(Metadata, "metadata"), Field(InPort, "in_port"),
        MatchPart::Vlan(TAG), MatchPart::Vlan(TAG1),
        Field(EthSrc, "dl_src"), Field(EthDst, "dl_dst"), Field(EthType, "dl_type"),
        Field(NshFlags, "nsh_flags"), Field(NshTtl, "nsh_ttl"), Field(NshMdtype, "nsh_mdtype"),
        Field(NshNp, "nsh_np"), Field(NshSpi, "nsh_spi"), Field(NshSi, "nsh_si"),
        Field(NshC1, "nsh_c1"), Field(NshC2, "nsh_c2"),
        Field(NshC3, "nsh_c3"), Field(NshC4, "nsh_c4"),
        Field(Ipv6Src, "ipv6_src"), Field(Ipv6Dst, "ipv6_dst"), Field(Ipv6Label, "ipv6_label"),
        Field(ArpSpa, "arp_spa"), Field(ArpTpa, "arp_tpa"),
        Field(Ipv4Src, "nw_src"), Field(Ipv4Dst, "nw_dst"),
        Field(IpProto, "nw_proto"), Field(ArpOp, "arp_op"),
        Field(ArpSha, "arp_sha"), Field(ArpTha, "arp_tha"),
        Field(NwTos, "nw_tos"), Field(IpEcn, "nw_ecn"), Field(NwTtl, "nw_ttl"),
        Field(MplsLabel, "mpls_label"), Field(MplsTc, "mpls_tc"), Field(MplsTtl, "mpls_ttl"),
        Field(MplsBos, "mpls_bos"), Field(MplsLse1, "mpls_lse1"), Field(MplsLse2, "mpls_lse2"),
        Field(NwFrag, "nw_frag"),
        Field(IcmpType, "icmp_type"), Field(IcmpCode, "icmp_code"),
        Field(Icmpv6Type, "icmp_type"), Field(Icmpv6Code, "icmp_code"),
        Field(NdTarget, "nd_target"), Field(NdSll, "nd_sll"), Field(NdTll, "nd_tll"),
        Field(NdReserved, "nd_reserved"), Field(NdOptionsType, "nd_options_type"),
        Field(TcpSrc, "tp_src"), Field(TcpDst, "tp_dst"),
        Field(UdpSrc, "tp_src"), Field(UdpDst, "tp_dst"),
        Field(SctpSrc, "tp_src"), Field(SctpDst, "tp_dst"),
        Field(TcpFlags, "tcp_flags"),
    ]
};
