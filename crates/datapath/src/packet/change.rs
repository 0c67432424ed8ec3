//! Header changes: fields to set, VLAN tags and MPLS labels to push or pop.

use shunt_flow::{
    FieldId,
    layout::word,
    rewrite::{self, MplsHeader},
};
use shunt_pipeline::DatapathAction;

use crate::{packet::buffer::Packet, thread::execute::ParsedPacket};

/// Applies a header change; returns `false` if the packet does not allow it.
///
/// Actions that change no header have no effect.
pub(crate) fn change(
    packet: &mut Packet,
    action: &DatapathAction,
    parsed: &mut ParsedPacket<'_>,
) -> bool {
    match action {
        DatapathAction::SetHeader(set) => {
            let layers = &parsed.layers;
            let checksum = packet.virtio.checksum_state(layers);
            rewrite::set_header(packet.frame_mut(), layers, parsed.key, set, checksum);
            true
        }
        DatapathAction::PushVlan { tpid, tci } => {
            if !packet.push_front(VLAN_TAG_LEN) {
                return false;
            }
            rewrite::push_vlan(packet.frame_mut(), *tpid, *tci);
            parsed.layers = parsed.layers.shifted(VLAN_TAG_SHIFT);
            let vlan = &mut parsed.key.words_mut()[usize::from(word::VLAN)];
            *vlan = u64::from(*tpid) << 48 | u64::from(*tci) << 32 | *vlan >> 32;
            true
        }
        DatapathAction::PushMpls { lse, ethertype } => {
            let Some(payload) = parsed.layers.payload() else { return false };
            if !packet.push_front(LABEL_LEN) {
                return false;
            }
            let header = MplsHeader { ether_type: *ethertype, entry: *lse };
            rewrite::push_mpls(packet.frame_mut(), payload, header);
            // Later rewrites read this Ethernet type only to check if the packet has labels.
            parsed.key.set_field(FieldId::EthType, u128::from(*ethertype));
            parsed.layers = parsed.layers.shifted_payload(LABEL_SHIFT);
            true
        }
        DatapathAction::PopMpls { ethertype } => {
            let Some(payload) = parsed.layers.payload() else { return false };
            if packet.len() < payload + LABEL_LEN {
                return false;
            }
            rewrite::pop_mpls(packet.frame_mut(), payload, *ethertype);
            packet.pop_front(LABEL_LEN);
            parsed.key.set_field(FieldId::EthType, u128::from(*ethertype));
            parsed.layers = parsed.layers.shifted_payload(-LABEL_SHIFT);
            true
        }
        DatapathAction::PopVlan => {
            if packet.len() < TAGGED_HEADER_LEN {
                return false;
            }
            rewrite::pop_vlan(packet.frame_mut());
            packet.pop_front(VLAN_TAG_LEN);
            parsed.layers = parsed.layers.shifted(-VLAN_TAG_SHIFT);
            let vlan = &mut parsed.key.words_mut()[usize::from(word::VLAN)];
            *vlan <<= 32;
            true
        }
        DatapathAction::Output { .. }
        | DatapathAction::OutputIngress { .. }
        | DatapathAction::Punt(_)
        | DatapathAction::Meter(_)
        | DatapathAction::Copy(_)
        | DatapathAction::Recirculate(_)
        | DatapathAction::CheckLength { .. }
        | DatapathAction::Sample(_) => true,
    }
}

/// Length of a VLAN tag (IEEE 802.1Q, 9.3).
const VLAN_TAG_LEN: usize = 4;
/// Distance by which one VLAN tag moves the later headers, in bytes.
const VLAN_TAG_SHIFT: i16 = 4;

/// Length of an MPLS label stack entry (RFC 3032, 2.1).
const LABEL_LEN: usize = 4;
/// Distance by which one MPLS label moves the later headers, in bytes.
const LABEL_SHIFT: i16 = 4;

/// Length of an Ethernet header with one VLAN tag.
const TAGGED_HEADER_LEN: usize = 18;
