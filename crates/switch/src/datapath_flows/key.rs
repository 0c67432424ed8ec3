//! The key of a cache entry in the syntax of Open vSwitch's datapath.

use shunt_flow::{FieldId, text::format_value};

use super::fields::{
    FieldSyntax::{Decimal, DecimalBareMask, DecimalHexMask, Hex, Ipv4, Ipv6, Mac},
    MaskedFields, hex,
};

const ETHERTYPE_IPV4: u128 = 0x0800;
const ETHERTYPE_ARP: u128 = 0x0806;
const ETHERTYPE_IPV6: u128 = 0x86dd;
const ETHERTYPES_MPLS: [u128; 2] = [0x8847, 0x8848];
/// The smallest Ethernet type; smaller numbers are lengths of 802.3 frames.
const ETHERTYPE_MIN: u128 = 0x600;

/// The bit of a TCI that is set if the tag is present.
const TAG_PRESENT: u128 = 0x1000;

/// Returns the key of an entry as text.
///
/// `in_port` is the text of the ingress port, if it is written.
pub(super) fn key_text(
    fields: MaskedFields<'_>,
    recirc_id: u32,
    in_port: Option<String>,
) -> String {
    let mut parts = Vec::new();
    if fields.with_wildcards {
        let absent = "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0)";
        parts.push(format!("{absent},ct_label(0/0)"));
    }
    parts.push(format!("recirc_id({})", hex(recirc_id.into())));
    if fields.with_wildcards {
        parts.push("dp_hash(0/0)".to_owned());
    }
    parts.extend(in_port.map(|port| format!("in_port({port})")));
    parts.push("packet_type(ns=0,id=0)".to_owned());
    parts.extend(ethernet(fields));
    parts.extend(text_from_tags(fields));
    parts.join(",")
}

/// Returns the Ethernet addresses as `eth(..)`.
pub(super) fn ethernet(fields: MaskedFields<'_>) -> Option<String> {
    let own = [("src", FieldId::EthSrc), ("dst", FieldId::EthDst)];
    MaskedFields::attribute("eth", own.map(|(name, field)| fields.field(name, field, Mac)))
}

/// Returns the text of the headers from the first VLAN tag on.
///
/// A tag is written if the entry matches any bit of it.
fn text_from_tags(fields: MaskedFields<'_>) -> Option<String> {
    let tags = [(FieldId::VlanTpid, FieldId::VlanTci), (FieldId::VlanTpid1, FieldId::VlanTci1)];
    let (mut text, mut depth) = (String::new(), 0);
    for (tpid, tci) in tags {
        let mask = fields.mask.field(tci);
        let is_present = fields.key.field(tci) & TAG_PRESENT != 0;
        if !is_present || mask == 0 && !fields.with_wildcards {
            break;
        }
        let tag = tag(fields.key.field(tci), mask, fields.with_wildcards);
        text += &format!("eth_type({:#06x}),{tag},encap(", fields.key.field(tpid));
        depth += 1;
    }
    let inner = text_after_tags(fields);
    if depth == 0 {
        return (!inner.is_empty()).then(|| inner.join(","));
    }
    Some(format!("{text}{}{}", inner.join(","), ")".repeat(depth)))
}

/// Writes a VLAN tag with its mask.
fn tag(tci: u128, mask: u128, with_wildcards: bool) -> String {
    let part = |name: &str, bits: u128, shift: u32| {
        let (value, mask) = (tci >> shift & bits, mask >> shift & bits);
        match mask {
            0 if !with_wildcards => None,
            _ if mask == bits => Some(format!("{name}={value}")),
            _ => Some(format!("{name}={value}/{mask:#x}")),
        }
    };
    let parts = [part("vid", 0xfff, 0), part("pcp", 7, 13)];
    MaskedFields::attribute("vlan", parts).unwrap_or_else(|| "vlan()".to_owned())
}

/// Returns the text of the headers after the VLAN tags.
fn text_after_tags(fields: MaskedFields<'_>) -> Vec<String> {
    let ethertype = fields.key.field(FieldId::EthType);
    if fields.mask.field(FieldId::EthType) == 0 && !fields.with_wildcards {
        return Vec::new();
    }
    let mut parts = vec![match ethertype {
        ..ETHERTYPE_MIN => "eth_type(0/0xffff)".to_owned(),
        _ => format!("eth_type({ethertype:#06x})"),
    }];
    match ethertype {
        ETHERTYPE_ARP => parts.extend(arp(fields)),
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => {
            parts.extend(network(fields, frag(fields)));
            parts.extend(transport(fields));
        }
        _ if ETHERTYPES_MPLS.contains(&ethertype) => parts.extend(mpls(fields)),
        _ => {}
    }
    parts
}

/// Returns the ARP header as `arp(..)`.
pub(super) fn arp(fields: MaskedFields<'_>) -> Option<String> {
    MaskedFields::attribute(
        "arp",
        [
            fields.field("sip", FieldId::ArpSpa, Ipv4),
            fields.field("tip", FieldId::ArpTpa, Ipv4),
            fields.field("op", FieldId::ArpOp, Decimal),
            fields.field("sha", FieldId::ArpSha, Mac),
            fields.field("tha", FieldId::ArpTha, Mac),
        ],
    )
}

/// Returns the outermost MPLS label as `mpls(..)`, with all four parts.
///
/// `None` if the entry matches no bit of the label, unless wildcards are written too.
pub(super) fn mpls(fields: MaskedFields<'_>) -> Option<String> {
    let all = MaskedFields { with_wildcards: true, ..fields };
    let parts = [
        ("label", FieldId::MplsLabel, DecimalHexMask),
        ("tc", FieldId::MplsTc, DecimalBareMask),
        ("ttl", FieldId::MplsTtl, DecimalHexMask),
        ("bos", FieldId::MplsBos, DecimalBareMask),
    ];
    let is_written =
        fields.with_wildcards || parts.iter().any(|(_, field, _)| fields.mask.field(*field) != 0);
    // Open vSwitch writes the mask of each part if the mask of any part is not exact.
    let is_exact = parts.iter().all(|(_, field, _)| fields.mask.field(*field) == field.value_max());
    let text = |(name, field, syntax)| {
        let text = all.field(name, field, syntax)?;
        let whole = if syntax == DecimalHexMask { "/0x" } else { "/" };
        let is_whole = !is_exact && fields.mask.field(field) == field.value_max();
        Some(if is_whole { format!("{text}{whole}{:x}", field.value_max()) } else { text })
    };
    is_written.then(|| MaskedFields::attribute("mpls", parts.map(text))).flatten()
}

/// Returns the IP header as `ipv4(..)` or `ipv6(..)`.
pub(super) fn network(fields: MaskedFields<'_>, frag: Option<String>) -> Option<String> {
    if fields.key.field(FieldId::EthType) == ETHERTYPE_IPV4 {
        return MaskedFields::attribute(
            "ipv4",
            [
                fields.field("src", FieldId::Ipv4Src, Ipv4),
                fields.field("dst", FieldId::Ipv4Dst, Ipv4),
                fields.field("proto", FieldId::IpProto, Decimal),
                fields.field("tos", FieldId::NwTos, Hex),
                fields.field("ttl", FieldId::NwTtl, Decimal),
                frag,
            ],
        );
    }
    MaskedFields::attribute(
        "ipv6",
        [
            fields.field("src", FieldId::Ipv6Src, Ipv6),
            fields.field("dst", FieldId::Ipv6Dst, Ipv6),
            fields.field("label", FieldId::Ipv6Label, Hex),
            fields.field("proto", FieldId::IpProto, Decimal),
            fields.field("tclass", FieldId::NwTos, Hex),
            fields.field("hlimit", FieldId::NwTtl, Decimal),
            frag,
        ],
    )
}

/// Returns the fragment state as `frag=..`.
///
/// A packet that is not a fragment has neither bit of the field, and a later fragment has both.
fn frag(fields: MaskedFields<'_>) -> Option<String> {
    let word = match fields.key.field(FieldId::NwFrag) {
        0 => "no",
        1 => "first",
        _ => "later",
    };
    (fields.mask.field(FieldId::NwFrag) != 0).then(|| format!("frag={word}"))
}

/// Returns the text of the transport header, and of neighbour discovery.
pub(super) fn transport(fields: MaskedFields<'_>) -> Option<String> {
    let is_ipv6 = fields.key.field(FieldId::EthType) == ETHERTYPE_IPV6;
    let is_later = fields.key.field(FieldId::NwFrag) > 1;
    let is_matched = fields.mask.field(FieldId::IpProto) != 0 || fields.with_wildcards;
    if is_later || !is_matched {
        return None;
    }
    let pair = |name, first: (&str, FieldId), second: (&str, FieldId)| {
        let parts = [first, second].map(|(name, field)| fields.field(name, field, Decimal));
        MaskedFields::attribute(name, parts)
    };
    let parts = match fields.key.field(FieldId::IpProto) {
        6 => {
            vec![pair("tcp", ("src", FieldId::TcpSrc), ("dst", FieldId::TcpDst)), tcp_flags(fields)]
        }
        17 => vec![pair("udp", ("src", FieldId::UdpSrc), ("dst", FieldId::UdpDst))],
        132 => vec![pair("sctp", ("src", FieldId::SctpSrc), ("dst", FieldId::SctpDst))],
        1 if !is_ipv6 => {
            vec![pair("icmp", ("type", FieldId::IcmpType), ("code", FieldId::IcmpCode))]
        }
        58 if is_ipv6 => vec![
            pair("icmpv6", ("type", FieldId::Icmpv6Type), ("code", FieldId::Icmpv6Code)),
            neighbour(fields),
        ],
        _ => Vec::new(),
    };
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Formats a match on TCP flags.
fn tcp_flags(fields: MaskedFields<'_>) -> Option<String> {
    let field = FieldId::TcpFlags;
    let (value, mask) = (fields.key.field(field), fields.mask.field(field));
    match mask {
        0 if fields.with_wildcards => Some("tcp_flags(0/0)".to_owned()),
        0 => None,
        _ => Some(format!("tcp_flags({})", format_value(field, value & mask, mask))),
    }
}

/// Returns `nd(..)`, the fields of a neighbour solicitation or advertisement.
fn neighbour(fields: MaskedFields<'_>) -> Option<String> {
    let is_discovery = matches!(fields.key.field(FieldId::Icmpv6Type), 135 | 136);
    let parts = [
        fields.field("target", FieldId::NdTarget, Ipv6),
        fields.field("sll", FieldId::NdSll, Mac),
        fields.field("tll", FieldId::NdTll, Mac),
    ];
    is_discovery.then(|| MaskedFields::attribute("nd", parts)).flatten()
}
