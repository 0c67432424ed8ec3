//! All tables of a daemon: control changes them, and packet threads translate packets by them.
//!
//! A change is written into the shared tables under the next version. No translation sees that
//! version until the whole change is written; then the version is published. Translations name the
//! version that they see. Changes and reclaims of many rules release the lock on the tables
//! regularly, so packet threads can translate by older versions meanwhile.

mod contents;
mod holds;
mod learned;
mod sub_traversals;
pub(crate) mod training;
mod translations;

pub use contents::BridgeContents;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use shunt_classifier::Version;

use crate::{
    action::Action,
    bridges::{
        bridge::{VersionedBridge, VersionedBridges, in_order},
        output_counter::OutputCounter,
        port::PortInfo,
        settings::BridgeSettings,
    },
    continuations::continuation::Continuations,
    error::{NoSuchBridge, RejectedMod},
    groups::group::Group,
    id::{BridgeId, GroupId, MeterId, RuleId},
    learn::{learn_status::LearnStatus, learning::Learning},
    meters::meter::Meter,
    tables::{
        expiry::Deadlines,
        flow_mod::{FlowMod, FlowModError},
        rule::{Instructions, Rule},
        rule_filter::RuleFilter,
        table::TableTotals,
    },
    time::Time,
    traversals::traversal::Traversal,
    update::{batch::UpdateBatch, bundle::own, check::check_actions, modification::Modification},
    versions::delta::{Delta, Object, RemovedReason},
};

/// All bridges of a daemon, with their tables and ports.
///
/// The pipeline is shared: every method takes `&self`.
pub struct Pipeline {
    seed: u64,
    published: AtomicU64,
    /// The oldest version by which threads may still translate.
    oldest: AtomicU64,
    bridges: RwLock<VersionedBridges>,
    continuations: Continuations,
    control: Mutex<ControlState>,
    learn_status: LearnStatus,
    /// Rules with timeouts that packets have lowered, not queued again yet.
    lowered: Mutex<Vec<Arc<Rule>>>,
    /// Number of times that a change of many rules has released the lock.
    #[cfg(test)]
    releases: AtomicU64,
}

/// The tables, locked to credit hits: see [`Pipeline::crediting`].
pub struct Crediting<'a> {
    bridges: RwLockReadGuard<'a, VersionedBridges>,
    lowered: &'a Mutex<Vec<Arc<Rule>>>,
}

/// State of control, which changes of the tables update one after the other.
struct ControlState {
    next_rule: RuleId,
    deadlines: Deadlines,
}

/// A published version and its deltas.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version; the newest existing version if nothing changed.
    pub version: Version,
    /// The deltas of the version, in the order of the changes.
    pub deltas: Vec<Delta>,
}

impl Pipeline {
    /// Makes a daemon without bridges, at [`Version::ZERO`].
    ///
    /// `seed` is part of the hashes of the tables.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let control = ControlState { next_rule: RuleId::new(1), deadlines: Deadlines::default() };
        Self {
            seed,
            published: AtomicU64::new(Version::ZERO.number()),
            oldest: AtomicU64::new(Version::ZERO.number()),
            bridges: RwLock::new(VersionedBridges::new()),
            continuations: Continuations::new(seed),
            control: Mutex::new(control),
            learn_status: LearnStatus::default(),
            lowered: Mutex::default(),
            #[cfg(test)]
            releases: AtomicU64::new(0),
        }
    }

    /// Returns the newest published version.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::new(self.published.load(Ordering::Acquire))
    }

    /// Adds a bridge without ports and rules.
    ///
    /// If the bridge exists, the call only replaces its settings.
    pub fn add_bridge(&self, id: BridgeId, settings: BridgeSettings) -> Change {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut deltas = vec![Delta::Changed(Object::Bridge(id))];
        let mut bridges = self.bridges.write();
        let bridge = bridges.entry(id).or_insert_with(|| VersionedBridge::new(self.seed));
        if bridge.settings(before).is_none() {
            bridge.begin(version);
            deltas.push(Delta::Changed(Object::Ports(id)));
        }
        bridge.set_settings(settings, version);
        drop(bridges);
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
        let rules = self.rules(id, &RuleFilter::all()).into_iter();
        batch.queue_removals(rules.map(|rule| (rule, RemovedReason::Delete)).collect());
        self.change_rest(&mut batch, id);
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
        self.change_bridge(id, |bridge, version| bridge.replace_ports(id, ports, version))
    }

    /// Returns the ports of a bridge, by number.
    #[must_use]
    pub fn ports(&self, id: BridgeId) -> Option<Arc<[PortInfo]>> {
        let bridges = self.bridges.read();
        bridges.get(&id)?.ports(self.version()).map(|ports| Arc::clone(ports.ports()))
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
        self.change_bridge(id, |bridge, version| {
            bridge.set_settings(settings, version);
            vec![Delta::Changed(Object::Bridge(id))]
        })
    }

    /// Returns the settings of a bridge.
    #[must_use]
    pub fn settings(&self, id: BridgeId) -> Option<BridgeSettings> {
        let bridges = self.bridges.read();
        bridges.get(&id)?.settings(self.version()).map(|settings| (**settings).clone())
    }

    /// Returns the counters of the mirrors of a bridge.
    #[must_use]
    pub fn mirror_counters(&self, id: BridgeId) -> Vec<Arc<OutputCounter>> {
        let bridges = self.bridges.read();
        bridges.get(&id).map_or_else(Vec::new, |own| own.mirror_counters().cloned().collect())
    }

    /// Applies flow-mods, in order, as one version: all of them or none.
    ///
    /// # Errors
    ///
    /// As [`Self::modify`].
    pub fn apply(&self, id: BridgeId, mods: &[FlowMod], now: Time) -> Result<Change, RejectedMod> {
        self.change(id, mods, now, |batch, bridges, request| {
            Ok(batch.apply(id, own(bridges, id)?, request)?)
        })
    }

    /// Changes rules, groups and meters, in order, as one version: all or nothing.
    ///
    /// # Errors
    ///
    /// Returns the first request that was refused, and the reason. After an error, nothing has
    /// changed, and no version was published.
    pub fn modify(
        &self,
        id: BridgeId,
        mods: impl IntoIterator<Item = Modification>,
        now: Time,
    ) -> Result<Change, RejectedMod> {
        self.change(id, mods, now, |batch, bridges, request| {
            batch.modify(id, own(bridges, id)?, request)
        })
    }

    /// Checks that actions of a packet-out name existing groups and meters.
    ///
    /// Also checks that the switch supports the actions.
    ///
    /// # Errors
    ///
    /// Returns the reason for the first action that is refused.
    pub fn check_actions(&self, id: BridgeId, actions: &[Action]) -> Result<(), FlowModError> {
        let version = self.version();
        let bridges = self.bridges.read();
        bridges.get(&id).map_or(Ok(()), |bridge| check_actions(bridge, &[actions], version))
    }

    /// Returns the groups of a bridge, by number.
    #[must_use]
    pub fn groups(&self, id: BridgeId) -> Vec<Arc<Group>> {
        let version = self.version();
        let bridges = self.bridges.read();
        let groups = bridges.get(&id).into_iter().flat_map(|bridge| bridge.groups.iter(version));
        groups.map(|(_, group)| Arc::clone(group)).collect()
    }

    /// Returns the groups of all bridges.
    #[must_use]
    pub fn all_groups(&self) -> Vec<Arc<Group>> {
        let version = self.version();
        let bridges = self.bridges.read();
        let groups = bridges.values().flat_map(|bridge| bridge.groups.iter(version));
        groups.map(|(_, group)| Arc::clone(group)).collect()
    }

    /// Returns the meters of a bridge, by number.
    #[must_use]
    pub fn meters(&self, id: BridgeId) -> Vec<Arc<Meter>> {
        let version = self.version();
        let bridges = self.bridges.read();
        let meters = bridges.get(&id).into_iter().flat_map(|bridge| bridge.meters.iter(version));
        meters.map(|(_, meter)| Arc::clone(meter)).collect()
    }

    /// Returns the number of rules that name each group (`ref_count`).
    ///
    /// Groups that no rule names are left out. The cost is linear in the number of rules of the
    /// bridge.
    #[must_use]
    pub fn group_users(&self, id: BridgeId) -> BTreeMap<GroupId, u32> {
        self.users(id, Instructions::groups)
    }

    /// Returns the number of rules that pass each meter (`flow_count`).
    ///
    /// See [`Self::group_users`].
    #[must_use]
    pub fn meter_users(&self, id: BridgeId) -> BTreeMap<MeterId, u32> {
        self.users(id, Instructions::meters)
    }

    /// Applies learn requests of packets, in order, as one version.
    ///
    /// A request for an existing rule or address refreshes its timeout, without a new version.
    /// [`Self::learnings_refused`] counts the requests that a limit refuses, and those of removed
    /// learning rules.
    pub fn learn(&self, learnings: &[Learning], now: Time) -> Change {
        let mut control = self.control.lock();
        let before = self.version();
        let mut batch = UpdateBatch::new(before.next(), now, control.next_rule);
        self.requeue_lowered(&mut control.deadlines, before);
        let mut bridges = self.bridges.write();
        for learning in learnings {
            let learned = match learning {
                Learning::Rule(rule) => {
                    let found = bridges.get_mut(&rule.bridge);
                    let bridge = found.filter(|own| own.settings(before).is_some());
                    bridge.map_or(Ok(()), |bridge| batch.learn(bridge, rule))
                }
                Learning::Mac(sighting) => {
                    let bridge = bridges.get_mut(&sighting.bridge);
                    bridge.into_iter().for_each(|bridge| batch.learn_mac(bridge, sighting));
                    Ok(())
                }
                Learning::Multicast(sighting) => {
                    let bridge = bridges.get_mut(&sighting.bridge);
                    bridge.into_iter().for_each(|bridge| batch.learn_multicast(bridge, sighting));
                    Ok(())
                }
            };
            if learned.is_err() {
                self.learn_status.count_refused();
            }
        }
        drop(bridges);
        let (deltas, next_rule) = batch.finish();
        control.next_rule = next_rule;
        self.publish(control, before.next(), deltas)
    }

    /// Returns whether packets that arrive on a bridge can cause learn requests.
    ///
    /// True while the bridge has a rule or a bucket that learns, in a version that a thread may
    /// use. On a bridge with patch ports, the rules and buckets of all bridges count. While it
    /// returns false, packets of different flows may be translated in any order.
    #[must_use]
    pub fn learns(&self, bridge: BridgeId) -> bool {
        self.learn_status.learns(bridge)
    }

    /// Returns the number of learn requests that were refused.
    ///
    /// Reasons are the limit of a table, the limit of a `learn`, and a learning rule that was
    /// removed.
    #[must_use]
    pub fn learnings_refused(&self) -> u64 {
        self.learn_status.refused_count()
    }

    /// Removes the rules with an expired idle or hard timeout.
    ///
    /// Before the call, the caller collects the counters of all threads. So a rule that was hit in
    /// time stays.
    pub fn expire(&self, now: Time) -> Change {
        let mut control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = UpdateBatch::new(version, now, control.next_rule);
        self.requeue_lowered(&mut control.deadlines, before);
        let mut expired = BTreeMap::<_, Vec<_>>::new();
        for (rule, reason) in control.deadlines.expired(now) {
            expired.entry(rule.bridge).or_default().push((rule, reason));
        }
        for (id, rules) in expired {
            batch.queue_removals(rules);
            self.change_rest(&mut batch, id);
        }
        for (id, bridge) in &mut *self.bridges.write() {
            batch.expire_macs(*id, bridge);
            batch.expire_multicast(*id, bridge);
        }
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }

    /// Queues rules again after packets have lowered their timeouts.
    fn requeue_lowered(&self, deadlines: &mut Deadlines, version: Version) {
        let lowered = std::mem::take(&mut *self.lowered.lock());
        if lowered.is_empty() {
            return;
        }
        let mut bridges = self.bridges.write();
        for rule in lowered {
            let Some(bridge) = bridges.get_mut(&rule.bridge) else { continue };
            let found = bridge
                .table(rule.table)
                .and_then(|existing| existing.find_exact(&rule.matching, rule.priority, version));
            // The table may have a later revision of the rule. A rule with another id has timeouts
            // of its own.
            if let Some(current) = found.filter(|found| found.id == rule.id).cloned() {
                deadlines.requeue(&current);
                bridge.requeue(&current);
            }
        }
    }

    /// Returns whether all rules and objects of `version` still exist.
    ///
    /// A caller that has not reserved `version` checks this after it has translated several packets
    /// by it.
    #[must_use]
    pub fn is_retained(&self, version: Version) -> bool {
        let _bridges = self.bridges.read();
        version.number() >= self.oldest.load(Ordering::Relaxed)
    }

    /// Returns the rules of a bridge that match a filter, by table and then by age.
    #[must_use]
    pub fn rules(&self, id: BridgeId, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        let bridges = self.bridges.read();
        let version = self.version();
        let rules = bridges.get(&id).map(|bridge| bridge.unordered_rules(filter, version));
        drop(bridges);
        in_order(rules.unwrap_or_default())
    }

    /// Returns the counters of every table of a bridge, by number.
    ///
    /// Empty without such a bridge.
    #[must_use]
    pub fn table_stats(&self, id: BridgeId) -> Vec<TableTotals> {
        self.bridges.read().get(&id).map_or_else(Vec::new, VersionedBridge::table_stats)
    }

    /// Credits the hits of one traversal; see [`Crediting::credit`].
    ///
    /// A traversal without credits takes no lock, so a frame that the switch itself sends waits for
    /// no change of the tables.
    pub fn credit(&self, traversal: &Traversal, packets: u64, bytes: u64, used: Time) {
        if !traversal.credits_nothing() {
            self.crediting().credit(traversal, packets, bytes, used);
        }
    }

    /// Locks the tables to credit the hits of several traversals.
    ///
    /// Changes of the tables wait until the result is dropped.
    pub fn crediting(&self) -> Crediting<'_> {
        Crediting { bridges: self.bridges.read(), lowered: &self.lowered }
    }

    /// Locks the tables like [`Self::crediting`], but waits at most `wait`.
    ///
    /// `None` if a change of the tables holds the lock longer. A caller with other work tries again
    /// later.
    #[must_use]
    pub fn try_crediting(&self, wait: Duration) -> Option<Crediting<'_>> {
        let bridges = self.bridges.try_read_for(wait)?;
        Some(Crediting { bridges, lowered: &self.lowered })
    }

    /// Notes rules that may expire earlier than their queued deadline.
    ///
    /// Packets have lowered their timeouts.
    pub(crate) fn note_lowered(&self, rules: Vec<Arc<Rule>>) {
        if !rules.is_empty() {
            self.lowered.lock().extend(rules);
        }
    }

    fn users<K: Ord>(
        &self,
        id: BridgeId,
        named: impl Fn(&Instructions) -> BTreeSet<K>,
    ) -> BTreeMap<K, u32> {
        let version = self.version();
        let bridges = self.bridges.read();
        let mut users = BTreeMap::new();
        let rules = bridges
            .get(&id)
            .into_iter()
            .flat_map(|bridge| bridge.tables().flat_map(|(_, table)| table.rules(version)));
        for name in rules.flat_map(|rule| named(&rule.instructions)) {
            *users.entry(name).or_insert(0) += 1;
        }
        users
    }

    fn change_bridge(
        &self,
        id: BridgeId,
        change: impl FnOnce(&mut VersionedBridge, Version) -> Vec<Delta>,
    ) -> Result<Change, NoSuchBridge> {
        let control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut bridges = self.bridges.write();
        let found = bridges.get_mut(&id).filter(|own| own.settings(before).is_some());
        let deltas = change(found.ok_or(NoSuchBridge(id))?, version);
        drop(bridges);
        Ok(self.publish(control, version, deltas))
    }

    /// Publishes `version` if it changed anything.
    fn publish(
        &self,
        mut control: MutexGuard<'_, ControlState>,
        version: Version,
        deltas: Vec<Delta>,
    ) -> Change {
        if deltas.is_empty() {
            return Change { version: self.version(), deltas };
        }
        control.deadlines.follow(&deltas);
        self.learn_status.follow(&deltas, &self.bridges, version);
        self.published.store(version.number(), Ordering::Release);
        Change { version, deltas }
    }
}

impl Crediting<'_> {
    /// Credits hits of a traversal to its rules, tables, groups and mirrors.
    ///
    /// The groups are those that chose buckets. The hits also repeat the refreshes of the traversal
    /// (invariant 7).
    pub fn credit(&self, traversal: &Traversal, packets: u64, bytes: u64, used: Time) {
        for visit in traversal.lookups() {
            if let Some(rule) = &visit.rule {
                rule.stats.credit(packets, bytes, used);
            }
            if let Some(bridge) = self.bridges.get(&visit.bridge) {
                bridge.credit(visit.table, packets, visit.rule.is_some());
            }
        }
        for hit in &traversal.group_hits {
            hit.credit(packets, bytes);
        }
        for hit in &traversal.output_hits {
            hit.credit(packets, bytes);
        }
        for lowered in traversal.refreshes.iter().filter_map(|refresh| refresh.touch(used)) {
            self.lowered.lock().push(Arc::clone(lowered));
        }
    }
}

#[cfg(test)]
mod tests;
