//! Changes of bridges, their settings and their ports.
//!
//! A change of ports removes the learned entries of ports that are gone or have other VLANs, some
//! under each exclusive lock of the tables. The table of the new ports is built without the lock.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{Change, Pipeline, holds::CHANGES_PER_HOLD};
use crate::{
    bridges::{
        bridge::{PortTableParts, VersionedBridge},
        port::PortInfo,
        port_change::PortChange,
        settings::BridgeSettings,
    },
    error::NoSuchBridge,
    id::BridgeId,
    tables::rule_filter::RuleFilter,
    time::Time,
    update::batch::UpdateBatch,
    versions::delta::{Delta, Object, RemovedReason},
};

impl Pipeline {
    /// Adds a bridge without ports and rules.
    ///
    /// If the bridge exists, the call only replaces its settings.
    pub fn add_bridge(&self, id: BridgeId, settings: BridgeSettings) -> Change {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut deltas = vec![Delta::Changed(Object::Bridge(id))];
        {
            let mut bridges = self.bridges.write();
            let bridge = bridges.entry(id).or_insert_with(|| VersionedBridge::new(self.seed));
            if bridge.settings(before).is_none() {
                bridge.begin(version);
                deltas.push(Delta::Changed(Object::Ports(id)));
            }
        }
        self.replace_settings(id, settings, version);
        self.publish(control, version, deltas)
    }

    /// Removes a bridge with its ports and rules, if it exists.
    pub fn remove_bridge(&self, id: BridgeId) -> Change {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        if self.settings(id).is_none() {
            return Change { version: before, deltas: Vec::new() };
        }
        let mut batch = UpdateBatch::new(version, Time::ZERO, control.next_rule);
        let rules = self.rules_at(id, &RuleFilter::all(), before).into_iter();
        batch.queue_removals(rules.map(|rule| (rule, RemovedReason::Delete)).collect());
        self.change_rest(&mut batch, id);
        let groups =
            |bridge: &VersionedBridge, after| bridge.groups.page(after, version, CHANGES_PER_HOLD);
        self.sweep(id, groups, |bridge, group| bridge.groups.end(group, version));
        let meters =
            |bridge: &VersionedBridge, after| bridge.meters.page(after, version, CHANGES_PER_HOLD);
        self.sweep(id, meters, |bridge, meter| bridge.meters.end(meter, version));
        self.hold_until_done(id, |bridge| {
            bridge.macs.forget_some(version, CHANGES_PER_HOLD).is_empty()
        });
        self.hold_until_done(id, |bridge| {
            bridge.macs.remove_some_statics(version, CHANGES_PER_HOLD)
        });
        self.forget_multicast(id, version);
        self.hold(id, |bridge| bridge.end(version));
        let (mut deltas, _) = batch.finish();
        deltas.push(Delta::Changed(Object::Ports(id)));
        deltas.push(Delta::Changed(Object::Bridge(id)));
        self.publish(control, version, deltas)
    }

    /// Replaces all ports of a bridge.
    ///
    /// # Errors
    ///
    /// Fails if there is no such bridge.
    pub fn set_ports(&self, id: BridgeId, ports: Vec<PortInfo>) -> Result<Change, NoSuchBridge> {
        let ports = ports.into_iter().map(Arc::new).collect();
        self.set_port_table(id, |parts| parts.change_to(ports))
    }

    /// Replaces, adds or removes (`None`) some ports of a bridge, by number.
    ///
    /// The cost depends on these ports, unless the bridge has mirrors.
    ///
    /// # Errors
    ///
    /// Fails if there is no such bridge.
    pub fn change_ports(
        &self,
        id: BridgeId,
        changes: BTreeMap<PortNo, Option<PortInfo>>,
    ) -> Result<Change, NoSuchBridge> {
        self.set_port_table(id, |parts| parts.change(changes))
    }

    /// Replaces the table of the ports of a bridge by a new one from its parts.
    fn set_port_table(
        &self,
        id: BridgeId,
        make: impl FnOnce(PortTableParts) -> PortChange,
    ) -> Result<Change, NoSuchBridge> {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let parts = {
            let bridges = self.bridges.read();
            let found = bridges.get(&id).filter(|own| own.settings(before).is_some());
            found.ok_or(NoSuchBridge(id))?.port_table_parts(before)
        };
        let change = make(parts);
        let now = Arc::clone(change.now());
        self.hold(id, |bridge| bridge.set_port_table(now, version));
        self.clear_ports(id, &change, version);
        let deltas = change.objects(id).into_iter().map(Delta::Changed).collect();
        Ok(self.publish(control, version, deltas))
    }

    /// Replaces the settings of a bridge.
    ///
    /// A limit below the number of rules of a table removes no rule.
    ///
    /// # Errors
    ///
    /// Fails if there is no such bridge.
    pub fn set_settings(
        &self,
        id: BridgeId,
        settings: BridgeSettings,
    ) -> Result<Change, NoSuchBridge> {
        let control = self.control.lock();
        if self.settings(id).is_none() {
            return Err(NoSuchBridge(id));
        }
        let version = self.version().next();
        self.replace_settings(id, settings, version);
        Ok(self.publish(control, version, vec![Delta::Changed(Object::Bridge(id))]))
    }

    /// Replaces the settings of a bridge in a version that is not published.
    ///
    /// Every translation reads the settings. So the removal of addresses and groups above the new
    /// limits needs no deltas.
    fn replace_settings(&self, id: BridgeId, settings: BridgeSettings, version: Version) {
        if !settings.evicts() {
            // Dropped without a lock, because the orders may have many rules.
            drop(self.hold(id, VersionedBridge::take_evictable));
        }
        let (snooping, macs_max) = (settings.multicast, settings.macs_max.max(1));
        let change = self.hold(id, |bridge| bridge.set_settings(settings, version)).flatten();
        if let Some(change) = change {
            self.clear_ports(id, &change, version);
        }
        self.hold_until_done(id, |bridge| {
            bridge.macs.evict_some(macs_max, version, CHANGES_PER_HOLD)
        });
        match snooping {
            Some(snooping) => self.hold_until_done(id, |bridge| {
                let groups_max = snooping.groups_max.max(1);
                bridge.multicast.evict_some(groups_max, version, CHANGES_PER_HOLD)
            }),
            None => self.forget_multicast(id, version),
        }
    }

    /// Removes the learned entries of ports that a change clears.
    ///
    /// The cost depends on the entries of these ports.
    fn clear_ports(&self, id: BridgeId, change: &PortChange, version: Version) {
        if change.cleared().is_empty() {
            return;
        }
        self.hold_until_done(id, |bridge| {
            let mut left = CHANGES_PER_HOLD;
            let mut ports = change.cleared().iter();
            ports.all(|port| {
                bridge.macs.forget_port(*port, version, &mut left);
                bridge.macs.remove_statics_of(*port, version, &mut left);
                left > 0
            })
        });
        // The change leaves none of these ports in a key, so each step has other keys.
        self.hold_until_done(id, |bridge| {
            let table = &mut bridge.multicast;
            let keys = table.keys_of(change.cleared(), CHANGES_PER_HOLD);
            keys.iter().for_each(|key| change.apply_to_group(table, *key, version));
            keys.is_empty()
        });
    }

    /// Forgets the learned multicast groups of a bridge.
    fn forget_multicast(&self, id: BridgeId, version: Version) {
        self.sweep_multicast(id, |bridge, key| {
            bridge.multicast.retain_in(key, version, |_| false);
        });
    }
}
