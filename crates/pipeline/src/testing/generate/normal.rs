//! VLANs of ports, and settings of bridges for NORMAL.

use proptest::{collection::btree_set, option, prelude::*, sample::select};
use shunt_flow::PortNo;

use super::{BRIDGES, MACS, Op, mirror};
use crate::{
    bridges::{
        mac_table::static_macs::StaticMac,
        port_vlans::{PortVlans, PriorityTags, QinqEthtype, VlanMode},
    },
    id::BridgeId,
};

/// No tag (0), a VLAN of generated packets, and a VLAN that no packet has.
const VLANS: &[u16] = &[0, 5, 7];

/// The VLANs of a port, and a flag: true if the port is protected.
pub(super) fn settings() -> impl Strategy<Value = (PortVlans, bool)> {
    (vlans(), prop::bool::weighted(0.25))
}

/// The VLANs of a port; most ports carry all VLANs.
fn vlans() -> impl Strategy<Value = PortVlans> {
    let vlan = || select(VLANS);
    let mode = prop_oneof![
        6 => Just(VlanMode::Trunk),
        1 => vlan().prop_map(VlanMode::Access),
        1 => vlan().prop_map(VlanMode::NativeTagged),
        1 => vlan().prop_map(VlanMode::NativeUntagged),
        1 => vlan().prop_map(VlanMode::Dot1qTunnel),
    ];
    let trunks = option::weighted(0.2, btree_set(vlan(), 0..3));
    let tags = prop_oneof![4 => Just(PriorityTags::Never), 1 => select(PriorityTags::ALL.to_vec())];
    let cvlans = option::weighted(0.4, btree_set(vlan(), 1..3));
    let types = select(QinqEthtype::ALL.to_vec());
    (mode, trunks, tags, cvlans, types).prop_map(
        |(mode, trunks, priority_tags, cvlans, qinq_ethtype)| PortVlans {
            mode,
            trunks,
            cvlans,
            qinq_ethtype,
            priority_tags,
        },
    )
}

/// A change of the settings of a bridge.
///
/// The settings are VLANs without learning, static addresses, the treatment of misses, and
/// fail-open.
pub(super) fn op() -> impl Strategy<Value = Op> {
    let bridge = || select(&BRIDGES[..]);
    let vlans = (bridge(), btree_set(select(VLANS), 0..2))
        .prop_map(|(id, vlans)| Op::SetFloodVlans(id, vlans));
    let misses = (bridge(), any::<bool>()).prop_map(|(id, sends)| Op::SetSendsMisses(id, sends));
    let fails_open = (bridge(), prop::bool::weighted(0.3))
        .prop_map(|(id, fails_open)| Op::SetFailsOpen(id, fails_open));
    prop_oneof![1 => vlans, 1 => misses, 1 => fails_open, 2 => static_mac()]
}

/// The mirrors and the fail-open of a new bridge.
///
/// Few bridges fail open, because they do not use their tables.
pub(super) fn first_settings(id: BridgeId) -> impl Strategy<Value = Vec<Op>> {
    let fails_open = prop::bool::weighted(0.06);
    (mirror::first(id), fails_open).prop_map(move |(mut ops, fails_open)| {
        ops.extend(fails_open.then_some(Op::SetFailsOpen(id, true)));
        ops
    })
}

/// Generates the addition or the removal of a static address.
fn static_mac() -> impl Strategy<Value = Op> {
    let mac = select(MACS).prop_map(|address| {
        let [.., a, b, c, d, e, f] = address.to_be_bytes();
        [a, b, c, d, e, f]
    });
    let port = option::weighted(0.7, 1..5_u32);
    (select(&BRIDGES[..]), select(VLANS), mac, port).prop_map(|(id, vlan, mac, port)| match port {
        Some(port) => Op::AddStaticMac(id, StaticMac { vlan, mac, port: PortNo::new(port) }),
        None => Op::RemoveStaticMac(id, vlan, mac),
    })
}
