//! Builds frames for the flow keys of generated packets, and flow keys for the oracle.
//!
//! Each frame contains a number after its headers, by which tests recognize all copies of the
//! packet.

use shunt_flow::{
    FieldId, FlowKey,
    extract::{VlanLimit, extract},
    layout::word,
    rewrite,
    testing::packet::PacketBuilder,
};
use shunt_pipeline::{
    Action, FlowMod, Modification,
    testing::{generate::Op, set_test_word, visible},
};

/// Returns a frame with the header fields of a generated packet.
pub(crate) fn frame_of(key: &FlowKey) -> Vec<u8> {
    let number = |field| u16::try_from(key.field(field)).unwrap();
    let byte = |field| u8::try_from(key.field(field)).unwrap();
    let address = |field| u32::try_from(key.field(field)).unwrap().to_be_bytes();
    let mac = |field| {
        let [_, _, mac @ ..] = u64::try_from(key.field(field)).unwrap().to_be_bytes();
        mac
    };
    let (source, target) = (mac(FieldId::EthSrc), mac(FieldId::EthDst));
    let (from, to) = (address(FieldId::Ipv4Src), address(FieldId::Ipv4Dst));
    let packet = match hidden_type(key) {
        0x0800 => {
            let fragment = [0, 0x2000, 0x2000, 0x2010][usize::from(byte(FieldId::NwFrag))];
            let ports = (number(FieldId::TcpSrc), number(FieldId::TcpDst));
            let packet = PacketBuilder::ipv4(from, to).ttl(byte(FieldId::NwTtl)).fragment(fragment);
            let packet = packet.tos(byte(FieldId::IpDscp) << 2);
            match byte(FieldId::IpProto) {
                // An IGMP message has its type at the same offset as ICMP.
                2 => {
                    let kind = byte(FieldId::IcmpType);
                    packet.protocol(2).payload([kind, 0, 0, 0, 0, 0, 0, 0])
                }
                6 => packet.tcp(ports.0, ports.1).tcp_flags(number(FieldId::TcpFlags)),
                _ => packet.udp(ports.0, ports.1),
            }
        }
        0x0806 => PacketBuilder::arp(1, (source, from), ([0; 6], to)),
        other => PacketBuilder::ethernet(other),
    };
    let packet = labels(key).iter().fold(packet, |packet, entry| {
        let [class, ttl] = [entry >> 9 & 7, entry & 0xff].map(|part| u8::try_from(part).unwrap());
        packet.mpls(entry >> 12, class, ttl)
    });
    let vlan = key.words()[usize::from(word::VLAN)].to_be_bytes();
    let tags = vlan.chunks(4).filter(|tag| tag[2] & 0x10 != 0);
    tags.fold(packet, |packet, tag| {
        let part = |at: usize| u16::from_be_bytes([tag[at], tag[at + 1]]);
        packet.tag(part(0), part(2))
    })
    .macs(source, target)
    .build()
}

pub(crate) fn key_of(frame: &[u8]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::Two, &mut key);
    key
}

pub(crate) fn headers(key: &FlowKey) -> &[u64] {
    &key.words()[usize::from(word::ETH_DST)..]
}

pub(crate) fn number_of(frame: &[u8]) -> u32 {
    let is_number = |part: &&[u8]| part.starts_with(b"#N") && part.ends_with(b"N#");
    let part = frame.windows(8).find(is_number).expect("every frame has its number");
    u32::from_be_bytes([part[2], part[3], part[4], part[5]])
}

/// Returns the frame length of a generated packet.
pub(crate) fn length(key: &FlowKey) -> usize {
    usize::try_from(key.words()[usize::from(word::MPLS_PBB)] & 0xffff).unwrap()
}

/// Returns the flow key for the oracle.
/// The key has the visible fields, and the headers after the MPLS labels.
pub(crate) fn with_hidden(key: &FlowKey, frame: &[u8]) -> FlowKey {
    let extract_behind = |labels: usize| {
        let mut bare = frame.to_vec();
        let mut layers = extract(&bare, VlanLimit::Two, &mut FlowKey::default());
        for _ in 0..labels {
            let payload = layers.payload().unwrap();
            rewrite::pop_mpls(&mut bare, payload, hidden_type(key));
            bare.drain(..4);
            layers = layers.shifted_payload(-4);
        }
        key_of(&bare)
    };
    let mut key_for_oracle = visible(&key_of(frame));
    if is_mpls(key) {
        let hidden = extract_behind(labels(key).len());
        let network = usize::from(word::IPV4);
        key_for_oracle.words_mut()[network..].copy_from_slice(&hidden.words()[network..]);
    }
    set_test_word(&mut key_for_oracle, hidden_type(key), u16::try_from(frame.len()).unwrap());
    key_for_oracle.set_bridge(key.bridge());
    key_for_oracle.set_in_port(key.in_port());
    key_for_oracle
}

/// Returns the EtherType after the MPLS labels of a generated packet.
fn hidden_type(key: &FlowKey) -> u16 {
    u16::try_from(key.words()[usize::from(word::MPLS_PBB)] >> 16 & 0xffff).unwrap()
}

fn is_mpls(key: &FlowKey) -> bool {
    matches!(key.eth_type(), 0x8847 | 0x8848)
}

/// Returns the MPLS label stack of a generated packet.
/// The flow key has only the first three entries of the stack.
fn labels(key: &FlowKey) -> Vec<u32> {
    if !is_mpls(key) {
        return Vec::new();
    }
    let words = [word::MPLS, word::MPLS_PBB].map(|word| key.words()[usize::from(word)]);
    let shown = [words[0] >> 32, words[0] & 0xffff_ffff, words[1] >> 32];
    let shown = shown.map(|entry| u32::try_from(entry).unwrap());
    match shown.iter().position(|entry| entry & 0x100 != 0) {
        Some(bottom) => shown[..=bottom].to_vec(),
        None => [shown.as_slice(), &[16 << 12 | 0x140]].concat(),
    }
}

/// Changes an operation so that counters and frames stay comparable.
/// The changed operation resets no counters, and truncates no packet before its number.
pub(crate) fn normalize(op: &mut Op) {
    fn normalize_all(actions: &mut [Action]) {
        for action in actions {
            match action {
                Action::OutputTruncated { max_len, .. } => *max_len += 80,
                Action::Clone(inner) => normalize_all(inner),
                _ => {}
            }
        }
    }
    fn normalize_rule(request: &mut FlowMod) {
        request.flags.reset_counts = false;
        normalize_all(&mut request.instructions.apply);
        normalize_all(&mut request.instructions.write);
    }
    match op {
        Op::Apply(_, mods) => mods.iter_mut().for_each(normalize_rule),
        Op::Modify(_, mods) => {
            for request in mods {
                match request {
                    Modification::Flow(request) => normalize_rule(request),
                    Modification::Group(request) => {
                        request.buckets.iter_mut().for_each(|own| normalize_all(&mut own.actions));
                    }
                    Modification::Meter(_) => {}
                }
            }
        }
        Op::SetMirrors(_, mirrors) => {
            for snaplen in mirrors.iter_mut().filter_map(|own| own.snaplen.as_mut()) {
                *snaplen += 80;
            }
        }
        Op::SetFloodVlans(..)
        | Op::SetSendsMisses(..)
        | Op::SetFailsOpen(..)
        | Op::SetSnooping(..)
        | Op::Snoop(..)
        | Op::AddStaticMac(..)
        | Op::RemoveStaticMac(..)
        | Op::SetPorts(..)
        | Op::LearnFrom(_)
        | Op::Reclaim
        | Op::Expire(_) => {}
        Op::Commit(..) => unreachable!("these tests generate no bundles"),
    }
}
