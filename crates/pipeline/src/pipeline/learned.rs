//! The tables that packets fill: MAC addresses, and multicast groups with router ports.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{Change, Pipeline};
use crate::{
    bridges::{
        bridge::VersionedBridge,
        learned_totals::LearnedTotals,
        mac_table::MacEntry,
        multicast_table::{MulticastEntry, MulticastKey},
    },
    id::BridgeId,
    time::Time,
    update::batch::UpdateBatch,
};

impl Pipeline {
    /// Returns the MAC addresses that NORMAL has learned in a bridge, by VLAN.
    #[must_use]
    pub fn macs(&self, id: BridgeId) -> Vec<Arc<MacEntry>> {
        let bridges = self.bridges.read();
        let version = self.version();
        bridges.get(&id).map_or_else(Vec::new, |own| own.macs.iter(version).cloned().collect())
    }

    /// Returns the number of MAC addresses in the MAC table of a bridge.
    #[must_use]
    pub fn macs_count(&self, id: BridgeId) -> usize {
        self.bridges.read().get(&id).map_or(0, |own| own.macs.len())
    }

    /// Returns the totals of the changes of the MAC table of a bridge.
    #[must_use]
    pub fn mac_totals(&self, id: BridgeId) -> LearnedTotals {
        self.bridges.read().get(&id).map(|own| own.macs.totals()).unwrap_or_default()
    }

    /// Removes all learned MAC addresses of a bridge.
    pub fn flush_macs(&self, id: BridgeId) -> Change {
        self.flush(id, |batch, bridge| batch.flush_macs(id, bridge))
    }

    /// Returns the multicast table of a bridge.
    ///
    /// First come the groups, by their last report, then the router ports.
    ///
    /// Empty without multicast snooping.
    #[must_use]
    pub fn multicast(&self, id: BridgeId) -> Vec<MulticastEntry> {
        let bridges = self.bridges.read();
        let version = self.version();
        bridges.get(&id).map_or_else(Vec::new, |own| own.multicast.entries(version))
    }

    /// Returns the totals of the changes of the multicast table of a bridge.
    ///
    /// Each port of a group, and each port with a multicast router, is an entry.
    #[must_use]
    pub fn multicast_totals(&self, id: BridgeId) -> LearnedTotals {
        self.bridges.read().get(&id).map(|own| own.multicast.totals()).unwrap_or_default()
    }

    /// Returns the router ports of a VLAN, as a retained version sees them.
    #[must_use]
    pub fn router_ports(&self, id: BridgeId, vlan: u16, version: Version) -> Vec<PortNo> {
        let (bridges, key) = (self.bridges.read(), MulticastKey::Routers(vlan));
        let routers = bridges.get(&id).and_then(|own| own.multicast.find(key, version));
        routers.map_or_else(Vec::new, |own| own.numbers().collect())
    }

    /// Removes all multicast groups and router ports of a bridge.
    pub fn flush_multicast(&self, id: BridgeId) -> Change {
        self.flush(id, |batch, bridge| batch.flush_multicast(id, bridge))
    }

    fn flush(
        &self,
        id: BridgeId,
        flush: impl FnOnce(&mut UpdateBatch, &mut VersionedBridge),
    ) -> Change {
        let control = self.control.lock();
        let version = self.version().next();
        let mut batch = UpdateBatch::new(version, Time::ZERO, control.next_rule);
        if let Some(bridge) = self.bridges.write().get_mut(&id) {
            flush(&mut batch, bridge);
        }
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }
}
