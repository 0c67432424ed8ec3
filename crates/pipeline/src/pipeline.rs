//! All tables of a daemon: what control changes, and what packet threads translate by.
//!
//! A change is written into the shared tables under the next version, which nobody sees until all
//! of it is in; then the version is published. Translations name the version that they see.
//! Long batches let go of the tables now and then, so that translations of older versions, which
//! packet threads wait for, go on meanwhile.

mod newest;
mod pieces;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use shunt_classifier::Version;
use shunt_flow::{FlowKey, Match, PortNo};

use crate::{
    action::Action,
    bridges::{
        bridge::{Bridge, Bridges},
        mac_table::MacEntry,
        port::PortInfo,
        settings::BridgeSettings,
    },
    continuations::continuation::{Continuation, Continuations},
    error::{NoSuchBridge, RejectedMod},
    groups::group::Group,
    id::{BridgeId, GroupId, MeterId, RuleId},
    learn::learning::Learning,
    meters::meter::Meter,
    tables::{
        expiry::Deadlines,
        flow_mod::{FlowMod, FlowModError},
        rule::{Instructions, Rule},
        rule_filter::RuleFilter,
        table::TableTotals,
    },
    time::Time,
    translate::{self, Tables},
    traversals::traversal::Traversal,
    update::{
        batch::Batch,
        bundle::own,
        check::check_actions,
        modification::{Modification, ModificationError},
    },
    versions::delta::{Delta, Object, RemovedReason},
};

/// All bridges of a daemon, with their tables and ports. Shared; every method takes `&self`.
pub struct Pipeline {
    seed: u64,
    published: AtomicU64,
    /// The oldest version that nothing is forgotten of.
    oldest: AtomicU64,
    bridges: RwLock<Bridges>,
    continuations: Continuations,
    control: Mutex<Control>,
    learns: AtomicBool,
    learnings_refused: AtomicU64,
    /// Rules that may expire earlier than their place among the deadlines says.
    lowered: Mutex<Vec<Arc<Rule>>>,
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

/// Requests that one hold of the tables lets in.
const MODS_PER_HOLD: usize = 64;

impl Pipeline {
    /// A daemon without bridges, at [`Version::ZERO`]. The seed goes into the tables' hashes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let control = Control { next_rule: RuleId::new(1), deadlines: Deadlines::default() };
        Self {
            seed,
            published: AtomicU64::new(Version::ZERO.number()),
            oldest: AtomicU64::new(Version::ZERO.number()),
            bridges: RwLock::new(Bridges::new()),
            continuations: Continuations::new(seed),
            control: Mutex::new(control),
            learns: AtomicBool::new(false),
            learnings_refused: AtomicU64::new(0),
            lowered: Mutex::default(),
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
        drop(bridge.take_orphans());
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
        self.change_bridge(id, |bridge, version| bridge.replace_ports(id, ports, version))
    }

    /// The ports of a bridge, by number.
    #[must_use]
    pub fn ports(&self, id: BridgeId) -> Option<Arc<[PortInfo]>> {
        let bridges = self.bridges.read();
        bridges.get(&id)?.ports(self.version()).map(|ports| Arc::clone(ports.ports()))
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
        self.change_bridge(id, |bridge, version| {
            bridge.set_settings(settings, version);
            vec![Delta::Changed(Object::Bridge(id))]
        })
    }

    /// The settings of a bridge.
    #[must_use]
    pub fn settings(&self, id: BridgeId) -> Option<BridgeSettings> {
        let bridges = self.bridges.read();
        bridges.get(&id)?.settings(self.version()).map(|settings| (**settings).clone())
    }

    /// Applies flow-mods, in order, as one version: all of them, or none. See [`Self::modify`].
    ///
    /// # Errors
    ///
    /// As [`Self::modify`].
    pub fn apply(&self, id: BridgeId, mods: &[FlowMod], now: Time) -> Result<Change, RejectedMod> {
        self.change(id, mods, now, |batch, bridges, request| {
            Ok(batch.apply(id, own(bridges, id)?, request)?)
        })
    }

    /// Changes rules, groups and meters, in order, as one version: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// The first request that is refused, and why. Then nothing was changed and no version was
    /// published.
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

    /// Makes sure that actions of a packet-out name groups and meters that a bridge has, and ask
    /// for what the switch can do.
    ///
    /// # Errors
    ///
    /// The first action that does not.
    pub fn check_actions(&self, id: BridgeId, actions: &[Action]) -> Result<(), FlowModError> {
        let version = self.version();
        let bridges = self.bridges.read();
        bridges.get(&id).map_or(Ok(()), |bridge| check_actions(bridge, &[actions], version))
    }

    /// The groups of a bridge, by number.
    #[must_use]
    pub fn groups(&self, id: BridgeId) -> Vec<Arc<Group>> {
        let version = self.version();
        let bridges = self.bridges.read();
        let groups = bridges.get(&id).into_iter().flat_map(|bridge| bridge.groups.iter(version));
        groups.map(|(_, group)| Arc::clone(group)).collect()
    }

    /// The meters of a bridge, by number.
    #[must_use]
    pub fn meters(&self, id: BridgeId) -> Vec<Arc<Meter>> {
        let version = self.version();
        let bridges = self.bridges.read();
        let meters = bridges.get(&id).into_iter().flat_map(|bridge| bridge.meters.iter(version));
        meters.map(|(_, meter)| Arc::clone(meter)).collect()
    }

    /// How many rules of a bridge name each group (`ref_count`); those that none names are left
    /// out. It looks at every rule.
    #[must_use]
    pub fn group_users(&self, id: BridgeId) -> BTreeMap<GroupId, u32> {
        self.users(id, Instructions::groups)
    }

    /// How many rules of a bridge pass each meter (`flow_count`); as [`Self::group_users`].
    #[must_use]
    pub fn meter_users(&self, id: BridgeId) -> BTreeMap<MeterId, u32> {
        self.users(id, Instructions::meters)
    }

    /// Learns what packets taught, in order, as one version. What is known already is refreshed,
    /// which changes nothing; what is refused, by a limit or because its rule is gone, is counted by
    /// [`Self::learnings_refused`].
    pub fn learn(&self, learnings: &[Learning], now: Time) -> Change {
        let mut control = self.control.lock();
        let before = self.version();
        let mut batch = Batch::new(before.next(), now, control.next_rule);
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
            };
            if learned.is_err() {
                self.learnings_refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(bridges);
        let (deltas, next_rule) = batch.finish();
        control.next_rule = next_rule;
        self.publish(control, before.next(), deltas)
    }

    /// The MAC addresses that NORMAL knows in a bridge, by VLAN.
    #[must_use]
    pub fn macs(&self, id: BridgeId) -> Vec<Arc<MacEntry>> {
        let bridges = self.bridges.read();
        let version = self.version();
        bridges.get(&id).map_or_else(Vec::new, |own| own.macs.iter(version).cloned().collect())
    }

    /// Forgets the MAC addresses of a bridge.
    pub fn flush_macs(&self, id: BridgeId) -> Change {
        let control = self.control.lock();
        let version = self.version().next();
        let mut batch = Batch::new(version, Time::ZERO, control.next_rule);
        if let Some(bridge) = self.bridges.write().get_mut(&id) {
            batch.flush_macs(id, bridge);
        }
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }

    /// Whether a packet can teach: some rule or bucket has learned, or does. Until then the order of packets of
    /// different flows does not matter.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.learns.load(Ordering::Relaxed)
    }

    /// How much of what packets taught was refused: by the limit of a table or of a `learn`, or
    /// because the rule that learns was gone.
    #[must_use]
    pub fn learnings_refused(&self) -> u64 {
        self.learnings_refused.load(Ordering::Relaxed)
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
        self.requeue_lowered(&mut control.deadlines, before);
        let expired = control.deadlines.expired(now);
        if !expired.is_empty() {
            let mut bridges = self.bridges.write();
            for (rule, reason) in expired {
                if let Some(bridge) = bridges.get_mut(&rule.bridge) {
                    batch.remove(bridge, rule, reason);
                }
            }
            bridges.values_mut().for_each(|bridge| batch.remove_orphans(bridge));
        }
        for (id, bridge) in &mut *self.bridges.write() {
            batch.expire_macs(*id, bridge);
        }
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }

    /// Finds new places among the deadlines for rules whose timeouts packets have lowered.
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
                .and_then(|held| held.find_exact(&rule.matching, rule.priority, version));
            // Another revision, perhaps; another rule in its place has timeouts of its own.
            if let Some(current) = found.filter(|found| found.id == rule.id).cloned() {
                deadlines.requeue(&current);
                bridge.requeue(&current);
            }
        }
    }

    /// Forgets what no version from `oldest` on sees: no translation names an older one any more.
    pub fn reclaim(&self, oldest: Version) {
        let _control = self.control.lock();
        let oldest = oldest.min(self.version());
        let mut bridges = self.bridges.write();
        self.oldest.fetch_max(oldest.number(), Ordering::Relaxed);
        bridges.values_mut().for_each(|bridge| bridge.reclaim(oldest));
        bridges.retain(|_, bridge| !bridge.is_gone());
    }

    /// Whether nothing is forgotten of what a version sees, so far: who stands at none of its own, and
    /// translates several times by one, asks afterwards.
    #[must_use]
    pub fn is_kept(&self, version: Version) -> bool {
        let _bridges = self.bridges.read();
        version.number() >= self.oldest.load(Ordering::Relaxed)
    }

    /// The rules of a bridge that a filter lets through, by table and then by age.
    #[must_use]
    pub fn rules(&self, id: BridgeId, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        let bridges = self.bridges.read();
        bridges.get(&id).map_or_else(Vec::new, |bridge| bridge.rules(filter, self.version()))
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
        translate::packet(self.tables(&self.bridges.read(), version), key)
    }

    /// Goes on with a packet where a traversal was cut, as `version` sees the tables.
    ///
    /// The key is that of the packet parsed again, by [`Continuation::enter`].
    #[must_use]
    pub fn resume(
        &self,
        key: &FlowKey,
        continuation: &Arc<Continuation>,
        version: Version,
    ) -> Traversal {
        translate::resume(self.tables(&self.bridges.read(), version), key, continuation)
    }

    /// Goes on with a packet that a controller sends back, as tables are now: with what its packet-in
    /// had for that ([`Punt::continuation`](crate::Punt::continuation)), and with the pipeline fields
    /// that the controller sends. The key is that of the frame alone.
    #[must_use]
    pub fn resume_paused(
        &self,
        frame: &FlowKey,
        continuation: &Continuation,
        metadata: &Match,
    ) -> Traversal {
        let frozen = continuation.frozen().resumed(metadata);
        let continuation = self.continuations.intern(frozen, None);
        let mut key = frame.clone();
        continuation.enter(&mut key);
        let bridges = self.bridges.read();
        translate::resume(self.tables(&bridges, self.version()), &key, &continuation)
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
        translate::packet_out(self.tables(&self.bridges.read(), version), key, actions)
    }

    /// Counts hits of a traversal: for the rule of every visit, for its table, and for the groups
    /// that chose buckets; and refreshes what it refreshes (law 7).
    pub fn credit(&self, traversal: &Traversal, packets: u64, bytes: u64, used: Time) {
        let bridges = self.bridges.read();
        for visit in traversal.lookups() {
            if let Some(rule) = &visit.rule {
                rule.stats.credit(packets, bytes, used);
            }
            if let Some(bridge) = bridges.get(&visit.bridge) {
                bridge.credit(visit.table, packets, visit.rule.is_some());
            }
        }
        for hit in &traversal.group_hits {
            hit.credit(packets, bytes);
        }
        for lowered in traversal.refreshes.iter().filter_map(|refresh| refresh.touch(used)) {
            self.lowered.lock().push(Arc::clone(lowered));
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

    /// Makes requests one version.
    pub(crate) fn change<T>(
        &self,
        id: BridgeId,
        requests: impl IntoIterator<Item = T>,
        now: Time,
        mut apply: impl FnMut(&mut Batch, &mut Bridges, T) -> Result<(), ModificationError>,
    ) -> Result<Change, RejectedMod> {
        let mut control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = Batch::new(version, now, control.next_rule);
        self.requeue_lowered(&mut control.deadlines, before);
        let mut requests = requests.into_iter().enumerate().peekable();
        loop {
            let mut bridges = self.bridges.write();
            let found = bridges.get(&id).filter(|own| own.settings(before).is_some());
            if found.is_none() {
                return Err(RejectedMod { index: 0, error: ModificationError::NoSuchBridge(id) });
            }
            for (index, request) in requests.by_ref().take(MODS_PER_HOLD) {
                if let Err(error) = apply(&mut batch, &mut bridges, request) {
                    if let Some(bridge) = bridges.get_mut(&id) {
                        control.next_rule = batch.roll_back(bridge);
                    }
                    return Err(RejectedMod { index, error });
                }
            }
            drop(bridges);
            if requests.peek().is_none() {
                break;
            }
        }
        let (deltas, next_rule) = batch.finish();
        control.next_rule = next_rule;
        Ok(self.publish(control, version, deltas))
    }

    /// Runs actions on a packet, as a version sees tables that are being changed.
    pub(crate) fn run_actions(
        &self,
        bridges: &Bridges,
        key: &FlowKey,
        actions: &[Action],
        version: Version,
    ) -> Traversal {
        translate::packet_out(self.tables(bridges, version), key, actions)
    }

    const fn tables<'a>(&'a self, bridges: &'a Bridges, version: Version) -> Tables<'a> {
        Tables { bridges, continuations: &self.continuations, version }
    }

    fn change_bridge(
        &self,
        id: BridgeId,
        change: impl FnOnce(&mut Bridge, Version) -> Vec<Delta>,
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
        if deltas.iter().any(|delta| self.is_teacher(delta, version)) {
            // Relaxed: who adopts the version has it from whoever published it.
            self.learns.store(true, Ordering::Relaxed);
        }
        self.published.store(version.number(), Ordering::Release);
        Change { version, deltas }
    }

    /// Whether a rule or a group came or changed that learns.
    fn is_teacher(&self, delta: &Delta, version: Version) -> bool {
        match delta {
            Delta::Rule(delta) => delta.rule.instructions.any(may_learn),
            Delta::Changed(Object::Group(bridge, group)) => {
                let bridges = self.bridges.read();
                let found = bridges.get(bridge).and_then(|own| own.groups.find(*group, version));
                let mut buckets = found.into_iter().flat_map(|group| &group.buckets);
                // Of all that teaches, a bucket runs outputs alone, and these are in no clone.
                buckets.any(|bucket| bucket.actions.iter().any(outputs_normally))
            }
            Delta::Changed(_) => false,
        }
    }
}

/// Whether packets may teach by an action: by `learn`, or by NORMAL, which a field or the member of
/// a bundle can name too.
fn may_learn(action: &Action) -> bool {
    match action {
        Action::Learn(_) | Action::OutputField { .. } => true,
        Action::Bundle(bundle) => bundle.members.contains(&PortNo::NORMAL),
        action => outputs_normally(action),
    }
}

const fn outputs_normally(action: &Action) -> bool {
    matches!(action, Action::Output { port: PortNo::NORMAL, .. })
}

#[cfg(test)]
mod tests;
