//! The tables that packets fill: MAC addresses, and multicast groups with router ports.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{Change, Pipeline, holds::CHANGES_PER_HOLD, scans::VISITS_PER_HOLD};
use crate::{
    bridges::{
        bridge::VersionedBridge,
        learned_totals::LearnedTotals,
        mac_table::{
            MacEntry,
            static_macs::{ReplacedMac, StaticMac, StaticMacError},
        },
        multicast_table::{MulticastEntry, MulticastKey, in_order},
    },
    id::BridgeId,
    time::Time,
    update::batch::UpdateBatch,
};

impl Pipeline {
    /// Returns the learned and static MAC addresses of a bridge, by VLAN.
    #[must_use]
    pub fn macs(&self, id: BridgeId) -> Vec<Arc<MacEntry>> {
        let retained = self.retain_newest();
        let page = |bridge: &VersionedBridge, after| {
            bridge.macs.page(after, retained.version(), VISITS_PER_HOLD)
        };
        self.pages(id, page).into_iter().map(|(_, entry)| entry).collect()
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

    /// Returns the number of static MAC addresses in the MAC table of a bridge.
    #[must_use]
    pub fn static_macs_count(&self, id: BridgeId) -> usize {
        self.bridges.read().get(&id).map_or(0, |own| own.macs.statics_count())
    }

    /// Adds a static MAC address to a bridge, and returns the entry that it replaces.
    ///
    /// An address that is static on the port already stays, and nothing is replaced.
    ///
    /// # Errors
    ///
    /// If the bridge or the port does not exist, if the port cannot have the address, or if all
    /// places of the table have static addresses. Then nothing changes.
    pub fn add_static_mac(
        &self,
        id: BridgeId,
        added: StaticMac,
        now: Time,
    ) -> Result<(Change, Option<ReplacedMac>), StaticMacError> {
        let control = self.control.lock();
        let version = self.version().next();
        let mut batch = UpdateBatch::new(version, now, control.next_rule);
        let replaced = self
            .hold(id, |bridge| batch.add_static_mac(id, bridge, added))
            .ok_or(StaticMacError::NoSuchBridge)??;
        let (deltas, _) = batch.finish();
        Ok((self.publish(control, version, deltas), replaced))
    }

    /// Adds static MAC addresses in one version, and returns the refused addresses.
    ///
    /// A refused address does not affect the other addresses.
    pub fn add_static_macs(
        &self,
        id: BridgeId,
        added: &[StaticMac],
        now: Time,
    ) -> (Change, Vec<(StaticMac, StaticMacError)>) {
        let control = self.control.lock();
        let version = self.version().next();
        let mut batch = UpdateBatch::new(version, now, control.next_rule);
        let mut refused = Vec::new();
        for some in added.chunks(CHANGES_PER_HOLD) {
            let add = |bridge: &mut VersionedBridge| {
                let refusal = |own: &StaticMac| {
                    let error = batch.add_static_mac(id, bridge, *own).err()?;
                    Some((*own, error))
                };
                refused.extend(some.iter().filter_map(refusal));
            };
            if self.hold(id, add).is_none() {
                refused.extend(some.iter().map(|own| (*own, StaticMacError::NoSuchBridge)));
            }
        }
        let (deltas, _) = batch.finish();
        (self.publish(control, version, deltas), refused)
    }

    /// Removes a static MAC address of a bridge.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or does not have this static address. Then nothing changes.
    pub fn remove_static_mac(
        &self,
        id: BridgeId,
        vlan: u16,
        mac: [u8; 6],
    ) -> Result<Change, StaticMacError> {
        let control = self.control.lock();
        let version = self.version().next();
        let mut batch = UpdateBatch::new(version, Time::ZERO, control.next_rule);
        self.hold(id, |bridge| batch.remove_static_mac(id, bridge, (vlan, mac)))
            .ok_or(StaticMacError::NoSuchBridge)??;
        let (deltas, _) = batch.finish();
        Ok(self.publish(control, version, deltas))
    }

    /// Removes all learned MAC addresses of a bridge. Static ones stay.
    pub fn flush_macs(&self, id: BridgeId) -> Change {
        self.flush(|batch| {
            let flush =
                |bridge: &mut VersionedBridge| batch.flush_macs(id, bridge, CHANGES_PER_HOLD);
            self.hold_until_done(id, flush);
        })
    }

    /// Returns the multicast table of a bridge.
    ///
    /// First come the groups, by their last report, then the router ports.
    ///
    /// Empty without multicast snooping.
    #[must_use]
    pub fn multicast(&self, id: BridgeId) -> Vec<MulticastEntry> {
        let retained = self.retain_newest();
        let page = |bridge: &VersionedBridge, after| {
            bridge.multicast.page(after, retained.version(), VISITS_PER_HOLD)
        };
        let rows = self.pages(id, page);
        in_order(rows.iter().map(|(key, ports)| ports.entries(*key)).collect())
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
        self.flush(|batch| {
            self.sweep_multicast(id, |bridge, key| batch.forget_multicast(id, bridge, key));
        })
    }

    /// Removes the MAC addresses, multicast groups and router entries that a port has.
    pub fn flush_port(&self, id: BridgeId, port: PortNo) -> Change {
        self.flush(|batch| {
            let flush =
                |bridge: &mut VersionedBridge| batch.flush_port(id, bridge, port, CHANGES_PER_HOLD);
            self.hold_until_done(id, flush);
        })
    }

    /// Applies a change to each multicast group, and to the router ports of each VLAN.
    ///
    /// The caller holds the lock of control.
    pub(super) fn sweep_multicast(
        &self,
        id: BridgeId,
        change: impl FnMut(&mut VersionedBridge, MulticastKey),
    ) {
        let version = self.version().next();
        let page = |bridge: &VersionedBridge, after| {
            bridge.multicast.page(after, version, CHANGES_PER_HOLD)
        };
        self.sweep(id, page, change);
    }

    /// Removes learned addresses in a new version.
    fn flush(&self, flush: impl FnOnce(&mut UpdateBatch)) -> Change {
        let control = self.control.lock();
        let version = self.version().next();
        let mut batch = UpdateBatch::new(version, Time::ZERO, control.next_rule);
        flush(&mut batch);
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }
}
