//! Compares extracted keys with the keys that Open vSwitch 3.1.0 has for the same frames.
//!
//! The recorded data names its source. The test has its own parser of key texts, so that it checks
//! extraction and not the text parser of the crate.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed")]

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use shunt_flow::{
    FieldId, FlowKey, PortNo,
    extract::{VlanLimit, extract},
};

const RECORDED: &str = include_str!("data/extracted-keys.json");

/// Fields that the recorded texts leave out.
const NOT_PRINTED: [FieldId; 3] = [FieldId::VlanTpid, FieldId::VlanTpid1, FieldId::Ipv6Exthdr];

/// Fields of neighbour discovery that the recorded texts leave out.
const NOT_PRINTED_OF_ND: [FieldId; 2] = [FieldId::NdReserved, FieldId::NdOptionsType];

#[test]
fn recorded_frames_have_keys_of_open_vswitch() {
    let recorded: Value = serde_json::from_str(RECORDED).unwrap();
    let packets = recorded["packets"].as_array().unwrap();
    assert_eq!(packets.len(), 788);
    let failures: Vec<String> = packets.iter().filter_map(difference).collect();
    assert!(failures.is_empty(), "{} keys differ:\n{}", failures.len(), failures.join("\n"));
}

/// Returns how the extracted key of a packet differs from its recorded key.
fn difference(packet: &Value) -> Option<String> {
    let frame = bytes(packet["frame"].as_str().unwrap());
    let text = packet["key"].as_str().unwrap();
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo::new(u32::try_from(packet["in_port"].as_u64().unwrap()).unwrap()));
    extract(&frame, VlanLimit::One, &mut key);
    NOT_PRINTED.into_iter().for_each(|field| key.set_field(field, 0));
    if text.contains("nd_target=") {
        NOT_PRINTED_OF_ND.into_iter().for_each(|field| key.set_field(field, 0));
    }
    let expected = key_of(text);
    let differing = |field: &FieldId| key.field(*field) != expected.field(*field);
    let fields: Vec<String> = FieldId::all()
        .filter(differing)
        .map(|f| format!("{} {:x}, not {:x}", f.name(), key.field(f), expected.field(f)))
        .collect();
    (key != expected).then(|| format!("{}: {text}: {}", packet["case"], fields.join("; ")))
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Parses a recorded key: `name` or `name=value`, separated by commas.
fn key_of(text: &str) -> FlowKey {
    let mut key = FlowKey::ZERO;
    for item in text.split(',') {
        match item.split_once('=') {
            None => set_protocol(&mut key, item),
            Some((name, value)) => set_value(&mut key, name, value),
        }
    }
    key
}

fn set_protocol(key: &mut FlowKey, name: &str) {
    let (ether_type, protocol) = match name {
        "ip" => (0x0800, 0),
        "icmp" => (0x0800, 1),
        "tcp" => (0x0800, 6),
        "udp" => (0x0800, 17),
        "sctp" => (0x0800, 132),
        "ipv6" => (0x86dd, 0),
        "tcp6" => (0x86dd, 6),
        "udp6" => (0x86dd, 17),
        "icmp6" => (0x86dd, 58),
        "sctp6" => (0x86dd, 132),
        "arp" => (0x0806, 0),
        "mpls" => (0x8847, 0),
        _ => panic!("protocol {name}"),
    };
    key.set_field(FieldId::EthType, ether_type);
    key.set_field(FieldId::IpProto, protocol);
}

fn set_value(key: &mut FlowKey, name: &str, text: &str) {
    let field = match name {
        "in_port" => FieldId::InPort,
        "vlan_tci" => FieldId::VlanTci,
        "dl_vlan" => FieldId::DlVlan,
        "dl_vlan_pcp" => FieldId::DlVlanPcp,
        "vlan_tci1" => FieldId::VlanTci1,
        "dl_src" => FieldId::EthSrc,
        "dl_dst" => FieldId::EthDst,
        "dl_type" => FieldId::EthType,
        "mpls_label" => FieldId::MplsLabel,
        "mpls_tc" => FieldId::MplsTc,
        "mpls_ttl" => FieldId::MplsTtl,
        "mpls_bos" => FieldId::MplsBos,
        "mpls_lse1" => FieldId::MplsLse1,
        "mpls_lse2" => FieldId::MplsLse2,
        "nw_src" => FieldId::Ipv4Src,
        "nw_dst" => FieldId::Ipv4Dst,
        "ipv6_src" => FieldId::Ipv6Src,
        "ipv6_dst" => FieldId::Ipv6Dst,
        "ipv6_label" => FieldId::Ipv6Label,
        "nw_proto" => FieldId::IpProto,
        "nw_tos" => FieldId::NwTos,
        "nw_ecn" => FieldId::IpEcn,
        "nw_ttl" => FieldId::NwTtl,
        "nw_frag" => FieldId::NwFrag,
        "arp_op" => FieldId::ArpOp,
        "arp_spa" => FieldId::ArpSpa,
        "arp_tpa" => FieldId::ArpTpa,
        "arp_sha" => FieldId::ArpSha,
        "arp_tha" => FieldId::ArpTha,
        "tp_src" => FieldId::TcpSrc,
        "tp_dst" => FieldId::TcpDst,
        "tcp_flags" => FieldId::TcpFlags,
        "icmp_type" => FieldId::IcmpType,
        "icmp_code" => FieldId::IcmpCode,
        "nd_target" => FieldId::NdTarget,
        "nd_sll" => FieldId::NdSll,
        "nd_tll" => FieldId::NdTll,
        _ => panic!("field {name}"),
    };
    key.set_field(field, value(field, text));
    if field == FieldId::DlVlan {
        let tci = key.field(FieldId::VlanTci) | 0x1000;
        key.set_field(FieldId::VlanTci, tci);
    }
}

fn value(field: FieldId, text: &str) -> u128 {
    match field {
        FieldId::NwFrag => {
            ["no", "first", "", "later"].iter().position(|f| *f == text).unwrap() as _
        }
        FieldId::TcpFlags if text != "0" => text.split('|').map(tcp_flag).sum(),
        _ => number(text),
    }
}

fn number(text: &str) -> u128 {
    if let Some(hex) = text.strip_prefix("0x") {
        return u128::from_str_radix(hex, 16).unwrap();
    }
    if let Ok(number) = text.parse() {
        return number;
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return address.to_bits().into();
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return address.to_bits();
    }
    let octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap());
    octets.fold(0, |address, octet| address << 8 | u128::from(octet))
}

fn tcp_flag(name: &str) -> u128 {
    let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];
    1 << names.iter().position(|known| *known == name).unwrap()
}
