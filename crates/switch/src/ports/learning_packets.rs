//! Learning packets: switches in the network learn that addresses moved to another bond member.
//!
//! When another member of a bond becomes active, the switches behind it still send to the previous
//! member. So the bond sends a reverse ARP request (RFC 903) for each address that the bridge has
//! learned on a port outside the bond, as Open vSwitch does.

use std::sync::Arc;

use shunt_pipeline::{BridgeId, LacpAdmission, PortInfo};

use crate::{ports::own_frames::send_frame, threads::data_plane::DataPlane};

/// Sends the learning packets of a bond.
///
/// Each packet is sent on the member that sends packets from its address.
pub(crate) async fn send_learning_packets(plane: &DataPlane, bridge: BridgeId, bond: &str) {
    let pipeline = plane.pipeline();
    let Some(ports) = pipeline.ports(bridge) else { return };
    let is_member = |port: &PortInfo| port.bond.as_ref().is_some_and(|own| *own.bond == *bond);
    let is_active = |port: &&Arc<PortInfo>| port.bond.as_ref().is_some_and(|own| own.is_active);
    let members = || ports.iter().filter(|port| is_member(port));
    let Some(active) = members().find(is_active) else { return };
    // An LACP partner uses the members as one port, so it needs no learning packets.
    if active.bond.as_ref().is_some_and(|own| own.lacp == LacpAdmission::All) {
        return;
    }
    let balance = active.bond.as_ref().and_then(|own| own.balance.as_ref());
    for entry in pipeline.macs(bridge) {
        let is_behind = members().any(|port| port.number == entry.port);
        if is_behind || !active.vlans.carries(entry.vlan) {
            continue;
        }
        let vlan = active.vlans.id_on_wire(entry.vlan);
        let sender = balance.map(|own| own.member(entry.mac, vlan));
        let Some(port) = sender.unwrap_or(Some(active.number)) else { continue };
        send_frame(plane, bridge, port, reverse_arp(entry.mac, vlan)).await;
    }
}

/// Returns a reverse ARP request from an address about itself; untagged for VLAN 0.
fn reverse_arp(mac: [u8; 6], vlan: u16) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    if vlan != 0 {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    // Ethernet type; hardware type, protocol type, both address lengths, and the operation.
    frame.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    for _sender_and_target in 0..2 {
        frame.extend(mac);
        frame.extend([0; 4]);
    }
    frame.resize(frame.len().max(FRAME_BYTES_MIN), 0);
    frame
}

/// The minimum length of an Ethernet frame without its checksum.
const FRAME_BYTES_MIN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learning_packet_is_a_reverse_arp_request() {
        let mac = [2, 0, 0, 0, 0, 7];
        let frame = reverse_arp(mac, 5);
        assert_eq!((frame.len(), &frame[..6], &frame[6..12]), (60, &[0xff; 6][..], &mac[..]));
        assert_eq!(frame[12..18], [0x81, 0, 0, 5, 0x80, 0x35]);
        assert_eq!(frame[18..26], [0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!((&frame[26..32], &frame[36..42]), (&mac[..], &mac[..]));
        assert_eq!(reverse_arp(mac, 0)[12..14], [0x80, 0x35]);
    }
}
