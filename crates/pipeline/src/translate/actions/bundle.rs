//! `bundle` and `bundle_load`: choose a port with its link up (`nx_action_bundle`).

use shunt_flow::PortNo;

use super::hash::hash_fields;
use crate::{
    action::{BundleAction, BundleAlgorithm},
    bridges::port::PortInfo,
    translate::{bridge_view::BridgeView, working_packet::WorkingPacket},
};

/// Chooses a live member, and writes its number if the action has a target.
///
/// The number has 16 bits, and is `OFPP_NONE` if no member is live. For an action without a target,
/// returns the chosen port.
pub(in crate::translate) fn bundle(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    action: &BundleAction,
) -> Option<PortNo> {
    let chosen = match action.algorithm {
        BundleAlgorithm::ActiveBackup => {
            let mut members = action.members.iter().copied();
            members.find(|port| is_live_member(packet, bridge, *port))
        }
        BundleAlgorithm::HighestRandomWeight => heaviest_member(packet, bridge, action),
    };
    let Some(target) = action.target else { return chosen };
    // The number has 16 bits, as in the OpenFlow message.
    let number = chosen.unwrap_or(PortNo::NONE).number() & 0xffff;
    let value = u128::from(number) << target.offset & target.bits();
    packet.set_field(target.field, value, target.bits());
    None
}

/// Returns the live member with the highest random weight.
///
/// If a port goes down, only packets of this port move to other ports.
fn heaviest_member(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    action: &BundleAction,
) -> Option<PortNo> {
    if let [only] = *action.members {
        return Some(only).filter(|port| is_live_member(packet, bridge, *port));
    }
    let hash = hash_fields(packet, action.fields, action.basis);
    let members =
        (0_u32..).zip(&action.members).filter(|(_, port)| is_live_member(packet, bridge, **port));
    let heaviest = members.max_by_key(|(index, _)| hash.with(u128::from(*index)).whole());
    heaviest.map(|(_, port)| *port)
}

/// Returns whether a member is live.
///
/// A port of the bridge and `LOCAL` have their own state. Other reserved ports are always live,
/// except `CONTROLLER` and `NONE`.
fn is_live_member(packet: &mut WorkingPacket, bridge: BridgeView<'_>, port: PortNo) -> bool {
    match port {
        PortNo::IN_PORT | PortNo::TABLE | PortNo::NORMAL | PortNo::FLOOD | PortNo::ALL => true,
        _ => bridge.find_port(port, &mut packet.recorder).is_some_and(PortInfo::is_live),
    }
}
