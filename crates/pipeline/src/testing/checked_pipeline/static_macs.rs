//! Static MAC addresses in the pipeline and in the oracle.

use super::CheckedPipeline;
use crate::{
    bridges::mac_table::static_macs::{ReplacedMac, StaticMac},
    id::BridgeId,
    pipeline::Change,
    testing::{BridgeModel, oracle::belongs},
    time::Time,
};

impl BridgeModel {
    /// Returns whether an address of a VLAN is static.
    pub(in crate::testing) fn is_static(&self, place: (u16, [u8; 6])) -> bool {
        self.macs.contains_key(&place) && self.statics.contains(&place)
    }

    /// Returns whether the bridge can have a static address.
    fn may_have_static(&self, StaticMac { vlan, mac, port }: StaticMac) -> bool {
        let port = self.ports.iter().find(|own| own.number == port);
        let can_have = port.is_some_and(|own| belongs(own, vlan) && !self.is_mirror_output(own));
        can_have && mac[0].is_multiple_of(2)
    }
}

impl CheckedPipeline {
    /// Adds a static address to the pipeline and the model.
    ///
    /// # Panics
    ///
    /// If only one of them refuses it, or if the replaced entries differ.
    pub(super) fn add_static_mac(&mut self, id: BridgeId, added: StaticMac) -> Option<Change> {
        let StaticMac { vlan, mac, port } = added;
        let applied = self.pipeline.add_static_mac(id, added, Time::ZERO);
        let number = self.model.mac_moves + 1;
        let bridge = self.model.bridges.get_mut(&id)?;
        assert_eq!(applied.is_ok(), bridge.may_have_static(added), "{added:?}");
        let (change, replaced) = applied.ok()?;
        let place = (vlan, mac);
        let (held, is_static) = (bridge.macs.get(&place).map(|own| own.0), bridge.is_static(place));
        let is_kept = is_static && held == Some(port);
        let held = held.filter(|_| !is_kept);
        assert_eq!(replaced, held.map(|port| ReplacedMac { port, is_static }), "{added:?}");
        if !is_kept {
            self.model.mac_moves = number;
            bridge.macs.insert(place, (port, number));
            bridge.statics.insert(place);
            bridge.announced.remove(&place);
        }
        Some(change).filter(|change| !change.deltas.is_empty())
    }

    /// Removes a static address from the pipeline and the model.
    ///
    /// # Panics
    ///
    /// If only one of them has the address.
    pub(super) fn remove_static_mac(
        &mut self,
        id: BridgeId,
        vlan: u16,
        mac: [u8; 6],
    ) -> Option<Change> {
        let applied = self.pipeline.remove_static_mac(id, vlan, mac);
        let (bridge, place) = (self.model.bridges.get_mut(&id)?, (vlan, mac));
        assert_eq!(applied.is_ok(), bridge.is_static(place), "{mac:02x?} in VLAN {vlan}");
        let change = applied.ok()?;
        bridge.macs.remove(&place);
        bridge.statics.remove(&place);
        Some(change)
    }
}
