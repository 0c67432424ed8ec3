//! All tables of a daemon: what control changes, and what packet threads translate by.
//!
//! A change is written into the shared tables under the next version, which nobody sees until all
//! of it is in; then the version is published. Translations name the version that they see.
//! Long batches let go of the tables now and then, so that translations of older versions, which
//! packet threads wait for, go on meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use shunt_classifier::Version;
use shunt_flow::FlowKey;

use crate::{
    Action, BridgeId, BridgeSettings, Delta, FlowMod, FlowModError, NoSuchBridge, Object, PortInfo,
    RejectedMod, RemovedReason, Rule, RuleFilter, RuleId, TableTotals, Time, Traversal,
    apply::Batch,
    bridge::{Bridge, Bridges},
    expiry::Deadlines,
    translate,
};

/// All bridges of a daemon, with their tables and ports. Shared; every method takes `&self`.
pub struct Pipeline {
    seed: u64,
    published: AtomicU64,
    bridges: RwLock<Bridges>,
    control: Mutex<Control>,
}

/// What one change has to leave to the next.
struct Control {
    next_rule: RuleId,
    deadlines: Deadlines,
}

/// A published version, and what it changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version; the newest one so far if nothing changed.
    pub version: Version,
    /// What it changed, in the order in which it was done.
    pub deltas: Vec<Delta>,
}

/// Flow-mods that one hold of the tables lets in.
const MODS_PER_HOLD: usize = 64;

impl Pipeline {
    /// A daemon without bridges, at [`Version::ZERO`]. The seed goes into the tables' hashes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let control = Control { next_rule: RuleId::new(1), deadlines: Deadlines::default() };
        Self {
            seed,
            published: AtomicU64::new(Version::ZERO.number()),
            bridges: RwLock::new(Bridges::new()),
            control: Mutex::new(control),
        }
    }

    /// The newest published version.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::new(self.published.load(Ordering::Acquire))
    }

    /// Adds a bridge without ports and rules; if there is one of this number, changes its settings.
    pub fn add_bridge(&self, id: BridgeId, settings: BridgeSettings) -> Change {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut deltas = vec![Delta::Changed(Object::Bridge(id))];
        let mut bridges = self.bridges.write();
        let bridge = bridges.entry(id).or_insert_with(|| Bridge::new(self.seed));
        if bridge.settings(before).is_none() {
            bridge.begin(version);
            deltas.push(Delta::Changed(Object::Ports(id)));
        }
        bridge.set_settings(settings, version);
        drop(bridges);
        self.publish(control, version, deltas)
    }

    /// Removes a bridge with its ports and rules; if there is none, changes nothing.
    pub fn remove_bridge(&self, id: BridgeId) -> Change {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = Batch::new(version, Time::ZERO, control.next_rule);
        let mut bridges = self.bridges.write();
        let Some(bridge) = bridges.get_mut(&id).filter(|own| own.settings(before).is_some()) else {
            return Change { version: before, deltas: Vec::new() };
        };
        batch.remove_all(bridge, &RuleFilter::all(), RemovedReason::Delete);
        bridge.end(version);
        drop(bridges);
        let (mut deltas, _) = batch.finish();
        deltas.push(Delta::Changed(Object::Ports(id)));
        deltas.push(Delta::Changed(Object::Bridge(id)));
        self.publish(control, version, deltas)
    }

    /// Replaces the whole list of a bridge's ports.
    ///
    /// # Errors
    ///
    /// When there is no such bridge.
    pub fn set_ports(&self, id: BridgeId, ports: Vec<PortInfo>) -> Result<Change, NoSuchBridge> {
        self.change_bridge(id, Object::Ports(id), |bridge, version| {
            bridge.set_ports(ports, version);
        })
    }

    /// The ports of a bridge, by number.
    #[must_use]
    pub fn ports(&self, id: BridgeId) -> Option<Arc<[PortInfo]>> {
        let version = self.version();
        self.bridges.read().get(&id)?.ports(version).map(|ports| Arc::clone(ports.ports()))
    }

    /// Replaces the settings of a bridge. A limit below what a table holds removes no rule.
    ///
    /// # Errors
    ///
    /// When there is no such bridge.
    pub fn set_settings(
        &self,
        id: BridgeId,
        settings: BridgeSettings,
    ) -> Result<Change, NoSuchBridge> {
        self.change_bridge(id, Object::Bridge(id), |bridge, version| {
            bridge.set_settings(settings, version);
        })
    }

    /// The settings of a bridge.
    #[must_use]
    pub fn settings(&self, id: BridgeId) -> Option<BridgeSettings> {
        let version = self.version();
        self.bridges.read().get(&id)?.settings(version).map(|settings| (**settings).clone())
    }

    /// Applies flow-mods, in order, as one version: all of them, or none.
    ///
    /// # Errors
    ///
    /// The first flow-mod that is refused, and why. Then nothing was changed and no version was
    /// published.
    pub fn apply(&self, id: BridgeId, mods: &[FlowMod], now: Time) -> Result<Change, RejectedMod> {
        let mut control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = Batch::new(version, now, control.next_rule);
        for (hold, requests) in mods.chunks(MODS_PER_HOLD).enumerate() {
            let mut bridges = self.bridges.write();
            let found = bridges.get_mut(&id).filter(|own| own.settings(before).is_some());
            let Some(bridge) = found else {
                return Err(RejectedMod { index: 0, error: FlowModError::NoSuchBridge(id) });
            };
            for (index, request) in requests.iter().enumerate() {
                if let Err(error) = batch.apply(id, bridge, request) {
                    control.next_rule = batch.roll_back(bridge);
                    return Err(RejectedMod { index: hold * MODS_PER_HOLD + index, error });
                }
            }
        }
        let (deltas, next_rule) = batch.finish();
        control.next_rule = next_rule;
        Ok(self.publish(control, version, deltas))
    }

    /// Removes the rules whose idle or hard timeout has passed.
    ///
    /// The caller has pulled the counts of all threads before, so that no rule goes that was hit
    /// in time.
    pub fn expire(&self, now: Time) -> Change {
        let mut control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = Batch::new(version, now, control.next_rule);
        let expired = control.deadlines.expired(now);
        if !expired.is_empty() {
            let mut bridges = self.bridges.write();
            for (rule, reason) in expired {
                if let Some(bridge) = bridges.get_mut(&rule.bridge) {
                    batch.remove(bridge, rule, reason);
                }
            }
        }
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }

    /// Forgets what no version from `oldest` on sees: no translation names an older one any more.
    pub fn reclaim(&self, oldest: Version) {
        let _control = self.control.lock();
        let oldest = oldest.min(self.version());
        let mut bridges = self.bridges.write();
        bridges.values_mut().for_each(|bridge| bridge.reclaim(oldest));
        bridges.retain(|_, bridge| !bridge.is_gone());
    }

    /// The rules of a bridge that a filter lets through, by table and then by age.
    #[must_use]
    pub fn rules(&self, id: BridgeId, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        let version = self.version();
        let bridges = self.bridges.read();
        bridges.get(&id).map_or_else(Vec::new, |bridge| bridge.rules(filter, version))
    }

    /// What is counted of every table of a bridge, by number; empty without such a bridge.
    #[must_use]
    pub fn table_stats(&self, id: BridgeId) -> Vec<TableTotals> {
        self.bridges.read().get(&id).map_or_else(Vec::new, Bridge::table_stats)
    }

    /// Takes a packet through the tables of its bridge, as `version` sees them.
    ///
    /// The key names the bridge and the ingress port. `version` is published and not reclaimed.
    #[must_use]
    pub fn translate(&self, key: &FlowKey, version: Version) -> Traversal {
        translate::packet(&self.bridges.read(), key, version)
    }

    /// Runs the actions of a packet-out on a packet.
    ///
    /// The key names the bridge, and as ingress port the one that the packet-out names. An output
    /// to [`PortNo::TABLE`](shunt_flow::PortNo::TABLE) goes through the tables.
    #[must_use]
    pub fn translate_actions(
        &self,
        key: &FlowKey,
        actions: &[Action],
        version: Version,
    ) -> Traversal {
        translate::packet_out(&self.bridges.read(), key, actions, version)
    }

    /// Counts hits of a traversal: for the rule of every visit, and for its table (law 7).
    pub fn credit(&self, traversal: &Traversal, packets: u64, bytes: u64, used: Time) {
        let bridges = self.bridges.read();
        for visit in &traversal.visits {
            if let Some(rule) = &visit.rule {
                rule.stats.credit(packets, bytes, used);
            }
            if let Some(bridge) = bridges.get(&visit.bridge) {
                bridge.credit(visit.table, packets, visit.rule.is_some());
            }
        }
    }

    fn change_bridge(
        &self,
        id: BridgeId,
        object: Object,
        change: impl FnOnce(&mut Bridge, Version),
    ) -> Result<Change, NoSuchBridge> {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut bridges = self.bridges.write();
        let found = bridges.get_mut(&id).filter(|own| own.settings(before).is_some());
        change(found.ok_or(NoSuchBridge(id))?, version);
        drop(bridges);
        Ok(self.publish(control, version, vec![Delta::Changed(object)]))
    }

    /// Makes `version` the newest one, if it changed anything.
    fn publish(
        &self,
        mut control: MutexGuard<'_, Control>,
        version: Version,
        deltas: Vec<Delta>,
    ) -> Change {
        if deltas.is_empty() {
            return Change { version: self.version(), deltas };
        }
        control.deadlines.follow(&deltas);
        self.published.store(version.number(), Ordering::Release);
        Change { version, deltas }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        RuleChange,
        testing::{
            Twin, cases,
            generate::{self, BRIDGES},
        },
    };

    /// What there is to see of a rule.
    fn seen(rule: &Rule) -> impl Eq + std::fmt::Debug + use<> {
        let instructions = Arc::clone(&rule.instructions);
        (rule.table, rule.id, rule.revision, rule.matching.clone(), rule.cookie, instructions)
    }

    proptest! {
        #![proptest_config(cases(100))]

        #[test]
        fn flow_mods_do_what_they_do_to_a_list(
            world in generate::world(),
            ops in prop::collection::vec(generate::op(), 0..16),
        ) {
            let mut twin = Twin::new(&world);
            for op in &ops {
                twin.apply(op);
                for id in BRIDGES {
                    let mut expected = twin.world.bridges[&id].rules.clone();
                    expected.sort_by_key(|rule| (rule.table, rule.id));
                    let rules = twin.pipeline.rules(id, &RuleFilter::all());
                    prop_assert_eq!(
                        rules.iter().map(|rule| seen(rule)).collect::<Vec<_>>(),
                        expected.iter().map(|rule| seen(rule)).collect::<Vec<_>>()
                    );
                    let counted = twin.pipeline.table_stats(id);
                    prop_assert_eq!(
                        counted.iter().map(|table| table.rules_count).sum::<usize>(),
                        expected.len()
                    );
                }
            }
        }

        #[test]
        fn deltas_turn_the_rules_of_one_version_into_those_of_the_next(
            world in generate::world(),
            ops in prop::collection::vec(generate::op(), 0..16),
        ) {
            let mut twin = Twin::new(&world);
            let rules = |pipeline: &Pipeline| -> BTreeMap<_, _> {
                let rules = BRIDGES.map(|id| pipeline.rules(id, &RuleFilter::all()));
                rules.iter().flatten().map(|rule| (rule.id, seen(rule))).collect()
            };
            let mut followed = rules(&twin.pipeline);
            for op in &ops {
                let Some(change) = twin.apply(op) else { continue };
                for delta in change.deltas {
                    let Delta::Rule(delta) = delta else { continue };
                    let (id, now) = (delta.rule.id, seen(&delta.rule));
                    match delta.change {
                        RuleChange::Added => prop_assert!(followed.insert(id, now).is_none()),
                        RuleChange::Removed(_) => {
                            prop_assert_eq!(followed.remove(&id), Some(now));
                        }
                        RuleChange::Modified(old) => {
                            prop_assert_eq!(followed.insert(id, now), Some(seen(&old)));
                        }
                    }
                }
                prop_assert_eq!(&followed, &rules(&twin.pipeline));
            }
        }

        #[test]
        fn an_old_version_sees_what_it_saw(
            world in generate::world(),
            packets in prop::collection::vec(generate::packet(), 4),
            ops in prop::collection::vec(generate::op(), 1..8),
        ) {
            let mut twin = Twin::new(&world);
            let mut known = Vec::new();
            for op in &ops {
                let version = twin.pipeline.version();
                known.extend(packets.iter().map(|key| twin.pipeline.translate(key, version)));
                if twin.apply(op).is_none() && matches!(op, generate::Op::Reclaim) {
                    known.retain(|traversal| traversal.version == twin.pipeline.version());
                }
                for old in &known {
                    let again = twin.pipeline.translate(&old.key, old.version);
                    prop_assert_eq!(&again.actions, &old.actions);
                    prop_assert_eq!(again.error, old.error);
                }
            }
        }
    }
}
