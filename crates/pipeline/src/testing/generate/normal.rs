//! Ports with VLANs.

use proptest::{collection::btree_set, option, prelude::*, sample::select};

use crate::bridges::port_vlans::{PortVlans, VlanMode};

/// VLANs that tags of generated packets name, none, and one that no packet names.
const VLANS: &[u16] = &[0, 5, 7];

/// The VLANs of a port: mostly all.
pub(super) fn vlans() -> impl Strategy<Value = PortVlans> {
    let vlan = || select(VLANS);
    let mode = prop_oneof![
        6 => Just(VlanMode::Trunk),
        1 => vlan().prop_map(VlanMode::Access),
        1 => vlan().prop_map(VlanMode::NativeTagged),
        1 => vlan().prop_map(VlanMode::NativeUntagged),
    ];
    let trunks = option::weighted(0.2, btree_set(vlan(), 0..3));
    (mode, trunks).prop_map(|(mode, trunks)| PortVlans { mode, trunks })
}
