//! Frames of a NIC: which it takes apart, and how it rewrites them.

use shunt_datapath::Packet;
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Layers, Match,
    extract::{VlanLimit, extract},
    layout::word,
    rewrite::{ChecksumState, pop_vlan, push_vlan, set_header},
};
use shunt_gigaflow::ltm::LtmRule;

/// The bit of `vlan_tci` that says that there is a tag; it is no bit on the wire.
const TCI_PRESENT: u16 = 0x1000;
const TPID: u16 = 0x8100;
const TAG_BYTES: usize = 4;

/// The headers of a frame, `None` if the program does not take it apart.
pub(crate) fn take_apart(frame: &[u8], key: &mut FlowKey) -> Option<Layers> {
    let layers = extract(frame, VlanLimit::Two, key);
    let field = |id| key.field(id);
    let tag = field(FieldId::VlanTpid);
    let is_known_tag = (tag == 0 || tag == u128::from(TPID)) && field(FieldId::VlanTpid1) == 0;
    let ether_type = field(FieldId::EthType);
    let is_known = match ether_type {
        0x0800 => {
            let network = layers.network().and_then(|start| frame.get(start));
            let protocol = field(FieldId::IpProto);
            network == Some(&0x45)
                && ![2, 132].contains(&protocol)
                && has_transport(key, &layers, frame)
        }
        0x86dd => {
            let start = layers.network();
            let version = start.and_then(|start| frame.get(start)).map(|byte| byte >> 4);
            let protocol = start.and_then(|start| frame.get(start.checked_add(6)?));
            let is_plain = protocol.is_some_and(|number| !EXTENSIONS.contains(number));
            let is_discovery =
                protocol == Some(&58) && [135, 136].contains(&field(FieldId::Icmpv6Type));
            version == Some(6) && is_plain && !is_discovery && has_transport(key, &layers, frame)
        }
        0x0806 | 0x8035 => {
            layers.network().and_then(|start| frame.get(start..)?.get(..ARP_BYTES)).is_some()
        }
        0x8100 | 0x88a8 | 0x894f => false,
        // A length, or the type in a SNAP header.
        _ => outer_type(frame, tag != 0).is_some_and(|number| number >= 0x0600),
    };
    (is_known_tag && is_known).then_some(layers)
}

/// The header of ARP and RARP, for Ethernet and IPv4.
const ARP_BYTES: usize = 28;

/// Protocols behind IPv6 that the program does not look behind.
const EXTENSIONS: [u8; 8] = [0, 2, 43, 44, 51, 60, 132, 135];

/// The type that stands in the Ethernet header, or behind the tag.
fn outer_type(frame: &[u8], is_tagged: bool) -> Option<u16> {
    let start = if is_tagged { 16 } else { 12 };
    let bytes = frame.get(start..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Whether what TCP, UDP or ICMP need is in the frame.
fn has_transport(key: &FlowKey, layers: &Layers, frame: &[u8]) -> bool {
    let length = match key.field(FieldId::IpProto) {
        6 => 20,
        17 | 1 | 58 => 8,
        _ => return true,
    };
    let is_later = key.field(FieldId::NwFrag) & 2 != 0;
    let end = layers.transport().and_then(|start| start.checked_add(length));
    is_later || end.is_some_and(|end| end <= frame.len())
}

/// Rewrites a frame by the rules of its walk. `false`: a tag has no room.
pub(crate) fn rewrite<'a>(
    packet: &mut Packet,
    layers: &Layers,
    key: &mut FlowKey,
    rules: impl Iterator<Item = &'a LtmRule>,
) -> bool {
    let was_tagged = tci(key) & TCI_PRESENT != 0;
    let checksum = if packet.offload.needs_checksum {
        ChecksumState::Partial
    } else {
        ChecksumState::Complete
    };
    let mut tag = tci(key);
    for rule in rules {
        let set = without_tag(&rule.rewrite, &mut tag);
        set_header(packet.frame_mut(), layers, key, &set, checksum);
    }
    match (was_tagged, tag & TCI_PRESENT != 0) {
        (false, false) => true,
        (true, true) => {
            let mut mask = FlowMask::EMPTY;
            mask.add_bits(FieldId::VlanTci, (!TCI_PRESENT).into());
            let mut value = FlowKey::ZERO;
            value.set_field(FieldId::VlanTci, tag.into());
            set_header(packet.frame_mut(), layers, key, &Match::new(&value, &mask), checksum);
            true
        }
        (false, true) => {
            if !packet.push_front(TAG_BYTES) {
                return false;
            }
            push_vlan(packet.frame_mut(), TPID, tag & !TCI_PRESENT);
            true
        }
        (true, false) => {
            pop_vlan(packet.frame_mut());
            packet.pop_front(TAG_BYTES);
            true
        }
    }
}

fn tci(key: &FlowKey) -> u16 {
    u16::try_from(key.field(FieldId::VlanTci)).unwrap_or(0)
}

/// A rewrite without what it does to the tag, which is done to `tag`.
fn without_tag(rewrite: &Match, tag: &mut u16) -> Match {
    let mut mask = FlowMask::from(rewrite.mask());
    let bits = u16::try_from(mask.field(FieldId::VlanTci)).unwrap_or(0);
    if bits == 0 {
        return rewrite.clone();
    }
    let value = rewrite.key();
    *tag = *tag & !bits | tci(&value) & bits;
    if let Some(words) = mask.words_mut().get_mut(usize::from(word::VLAN)) {
        *words = 0;
    }
    Match::new(&value, &mask)
}
