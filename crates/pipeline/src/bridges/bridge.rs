//! One bridge: its settings, ports and tables, at every retained version.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{
    mac_table::MacTable, mirror::Mirror, mirror_table::MirrorTable,
    multicast_table::MulticastTable, output_counter::OutputCounter, port::PortInfo,
    port_table::PortTable, settings::BridgeSettings,
};
use crate::{
    continuations::liveness::Liveness,
    groups::group::Group,
    id::{BridgeId, Cookie, GroupId, MeterId, TableId},
    learn::learn_index::LearnIndex,
    meters::meter::Meter,
    tables::{
        evictable::Evictable,
        flow_mod::TableSelector,
        interner::Interner,
        rule::Rule,
        rule_filter::RuleFilter,
        table::{RuleTable, TableStats, TableTotals},
    },
    versions::{delta::Delta, versioned::Versioned, versioned_map::VersionedMap},
};

/// All bridges of a daemon.
pub(crate) type VersionedBridges = BTreeMap<BridgeId, VersionedBridge>;

/// A bridge; it exists in the versions in which it has settings.
pub(crate) struct VersionedBridge {
    seed: u64,
    settings: Versioned<BridgeSettings>,
    ports: Versioned<PortTable>,
    /// The counters of the mirrors by their names.
    mirror_counters: BTreeMap<String, Arc<OutputCounter>>,
    pub(crate) groups: VersionedMap<GroupId, Group>,
    pub(crate) meters: VersionedMap<MeterId, Meter>,
    tables: BTreeMap<TableId, RuleTable>,
    stats: Box<[TableStats]>,
    learn_index: LearnIndex,
    pub(crate) liveness: Liveness,
    /// The eviction order of tables that were full once, while the bridge evicts rules.
    evictable: BTreeMap<TableId, Evictable>,
    pub(crate) macs: MacTable,
    pub(crate) multicast: MulticastTable,
    /// Masks and instructions that rules share.
    pub(crate) interner: Interner,
}

impl VersionedBridge {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            settings: Versioned::new(),
            ports: Versioned::new(),
            mirror_counters: BTreeMap::new(),
            groups: VersionedMap::new(),
            meters: VersionedMap::new(),
            tables: BTreeMap::new(),
            stats: Box::default(),
            learn_index: LearnIndex::new(seed),
            liveness: Liveness::new(),
            evictable: BTreeMap::new(),
            macs: MacTable::default(),
            multicast: MulticastTable::default(),
            interner: Interner::new(seed),
        }
    }

    pub(crate) fn settings(&self, version: Version) -> Option<&Arc<BridgeSettings>> {
        self.settings.at(version)
    }

    pub(crate) fn set_settings(&mut self, settings: BridgeSettings, version: Version) {
        if !settings.evicts() {
            self.evictable.clear();
        }
        let before = self.settings.at(version).map(|before| before.mirrors.as_slice());
        let has_new_mirrors = before.unwrap_or_default() != settings.mirrors;
        if has_new_mirrors {
            let old = std::mem::take(&mut self.mirror_counters);
            self.mirror_counters = counters(&settings, old);
        }
        // Every translation reads the settings, so the removal of groups needs no deltas.
        match settings.multicast {
            Some(snooping) => drop(self.multicast.limit(snooping.groups_max.max(1), version)),
            None => drop(self.multicast.retain(version, |_| false)),
        }
        self.settings.set(Arc::new(settings), version);
        // A new bridge has no ports yet.
        if has_new_mirrors
            && let Some(ports) = self.ports.at(version).map(|own| own.ports().to_vec())
        {
            self.set_ports(ports, version);
        }
    }

    /// Returns the counters of the mirrors.
    pub(crate) fn mirror_counters(&self) -> impl Iterator<Item = &Arc<OutputCounter>> {
        self.mirror_counters.values()
    }

    /// Returns the ports; `None` if the bridge does not exist.
    pub(crate) fn ports(&self, version: Version) -> Option<&PortTable> {
        self.ports.at(version).map(AsRef::as_ref)
    }

    /// Replaces the ports of the bridge with number `id`, and returns the deltas.
    pub(crate) fn replace_ports(
        &mut self,
        id: BridgeId,
        ports: Vec<PortInfo>,
        version: Version,
    ) -> Vec<Delta> {
        let before = self.ports.at(version).cloned();
        self.set_ports(ports, version);
        let (before, now) = (before.as_deref(), self.ports.at(version));
        let objects = now.map(|now| now.changed_from(before, id)).unwrap_or_default();
        objects.into_iter().map(Delta::Changed).collect()
    }

    fn set_ports(&mut self, ports: Vec<PortInfo>, version: Version) {
        let mirrors = self.settings.at(version).map(|own| own.mirrors.as_slice());
        let ports = PortTable::new(ports, |ports| {
            MirrorTable::new(mirrors.unwrap_or_default(), &self.mirror_counters, ports)
        });
        let before = self.ports.at(version).cloned();
        // Removes the addresses and groups of a port that has other VLANs, is in another bond, or
        // is reserved for a mirror. A translation that reads the address or group reads the port
        // and the bridge too, so the removal needs no delta.
        let is_changed = |number: PortNo| {
            let before = before.as_ref().and_then(|before| before.find(number));
            let is_same = |now: &PortInfo| {
                before.is_some_and(|before| {
                    before.vlans == now.vlans && before.bond_name() == now.bond_name()
                })
            };
            !ports.find(number).is_some_and(is_same) || ports.mirrors.is_output(number)
        };
        self.macs.forget_if(version, |entry| is_changed(entry.port));
        // When a port leaves a bond, the entries move to a remaining member, which reaches the same
        // hosts.
        let successor = |number: PortNo| {
            let bond = before.as_ref()?.find(number)?.bond_name()?;
            let is_in_bond = |port: &PortInfo| port.bond_name() == Some(bond);
            if ports.find(number).is_some_and(is_in_bond) {
                return None;
            }
            let mut all = ports.ports().iter();
            let rest = all.find(|port| is_in_bond(port) && !is_changed(port.number));
            rest.map(|port| port.number)
        };
        self.multicast.move_ports(version, successor);
        self.multicast.retain(version, |entry| !is_changed(entry.port));
        self.ports.set(Arc::new(ports), version);
    }

    /// Undoes the changes of `version`, which is not published, to port settings.
    pub(crate) fn undo_ports(&mut self, version: Version) {
        self.ports.undo(version);
    }

    /// Creates the bridge without ports, with counters at zero.
    pub(crate) fn begin(&mut self, version: Version) {
        self.stats = table_ids().map(|_| TableStats::default()).collect();
        self.set_ports(Vec::new(), version);
    }

    /// Ends the bridge; the caller removes its rules.
    pub(crate) fn end(&mut self, version: Version) {
        self.settings.end(version);
        self.mirror_counters.clear();
        self.ports.end(version);
        self.groups.end_all(version);
        self.meters.end_all(version);
        self.macs.forget_if(version, |_| true);
        self.multicast.retain(version, |_| false);
    }

    /// Returns a table that holds rules or has held some.
    pub(crate) fn table(&self, table: TableId) -> Option<&RuleTable> {
        self.tables.get(&table)
    }

    /// Returns a table for changes of its learned index.
    pub(crate) fn table_mut(&mut self, table: TableId) -> Option<&mut RuleTable> {
        self.tables.get_mut(&table)
    }

    pub(crate) fn insert(&mut self, rule: Arc<Rule>, added: Version) {
        let seed = self.seed;
        self.learn_index.count_in(&rule, added);
        self.liveness.add_rule(&rule, added);
        if let Some(evictable) = self.evictable.get_mut(&rule.table) {
            evictable.insert(&rule);
        }
        let instructions = Arc::clone(&rule.instructions);
        let table = self.tables.entry(rule.table).or_insert_with(|| RuleTable::new(seed));
        table.insert(rule, added);
        for table in self.learn_index.add_learner(&instructions) {
            let rules = self.tables.get(&table).into_iter().flat_map(|table| table.rules(added));
            rules.for_each(|rule| self.learn_index.count_in(rule, added));
        }
    }

    pub(crate) fn remove(&mut self, rule: &Rule, removed: Version) {
        if let Some(table) = self.tables.get_mut(&rule.table) {
            table.remove(rule, removed);
        }
        if let Some(evictable) = self.evictable.get_mut(&rule.table) {
            evictable.remove(rule.id);
        }
        self.learn_index.count_out(rule, removed);
        self.learn_index.remove_learner(&rule.instructions);
    }

    /// Returns the rules of a table in the order of their eviction.
    pub(crate) fn evictable(&mut self, table: TableId, version: Version) -> &mut Evictable {
        let rules =
            self.tables.get(&table).into_iter().flat_map(|existing| existing.rules(version));
        self.evictable.entry(table).or_insert_with(|| Evictable::of(rules))
    }

    /// Queues a rule again that may expire earlier than before.
    pub(crate) fn requeue(&mut self, rule: &Arc<Rule>) {
        if let Some(evictable) = self.evictable.get_mut(&rule.table) {
            evictable.requeue(rule);
        }
    }

    /// Returns the index of fields that the learning rules write.
    pub(crate) const fn learn_index(&self) -> &LearnIndex {
        &self.learn_index
    }

    /// Returns the tables and cookies of learned rules that have lost their last owner.
    pub(crate) fn take_orphans(&mut self) -> Vec<(TableId, Cookie)> {
        self.learn_index.take_orphans()
    }

    /// Returns the number of rules of a table with a cookie.
    pub(crate) fn cookie_count(&self, table: TableId, cookie: Cookie, version: Version) -> usize {
        self.learn_index.count(table, cookie, version).unwrap_or_else(|| {
            // A `learn` of a packet-out: its table is not counted, so the rules are scanned.
            let rules = self.table(table).into_iter().flat_map(|table| table.rules(version));
            rules.filter(|rule| rule.cookie == cookie).count()
        })
    }

    /// Returns the rules that a filter selects, by table and then by age.
    pub(crate) fn rules(&self, filter: &RuleFilter, version: Version) -> Vec<Arc<Rule>> {
        in_order(self.unordered_rules(filter, version))
    }

    /// Returns the rules that a filter selects, in any order.
    ///
    /// Sorting a hundred thousand rules takes longer than their selection, so a caller with a lock
    /// releases it before [`in_order`].
    pub(crate) fn unordered_rules(&self, filter: &RuleFilter, version: Version) -> Vec<Arc<Rule>> {
        let tables = self.tables().filter(|(id, _)| match filter.table {
            TableSelector::One(table) => *id == table,
            TableSelector::All => true,
        });
        let within = tables.flat_map(|(_, table)| table.rules_within(&filter.matching, version));
        within.filter(|rule| filter.admits(rule)).cloned().collect()
    }

    /// Returns the rules for which `is` is true, by table and then by age.
    pub(crate) fn rules_with(
        &self,
        version: Version,
        is: impl Fn(&Rule) -> bool,
    ) -> Vec<Arc<Rule>> {
        let rules = self.tables.values().flat_map(|table| table.rules(version));
        in_order(rules.filter(|rule| is(rule)).cloned().collect())
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TableId, &RuleTable)> {
        self.tables.iter().map(|(id, table)| (*id, table))
    }

    pub(crate) fn credit(&self, table: TableId, packets: u64, matched: bool) {
        if let Some(stats) = self.stats.get(table.index()) {
            stats.credit(packets, matched);
        }
    }

    pub(crate) fn table_stats(&self) -> Vec<TableTotals> {
        let rules_count = |id| self.table(id).map_or(0, RuleTable::rules_count);
        let totals = |(id, stats): (TableId, &TableStats)| stats.totals(id, rules_count(id));
        table_ids().zip(&self.stats).map(totals).collect()
    }

    /// Drops rules that only versions before `oldest` see.
    ///
    /// Drops at most `removals_max` rules; returns whether no such rule is left.
    pub(crate) fn reclaim_rules(&mut self, oldest: Version, removals_max: usize) -> bool {
        let mut left = removals_max;
        for table in self.tables.values_mut() {
            left -= table.reclaim(oldest, left);
            if left == 0 {
                return false;
            }
        }
        true
    }

    /// Drops groups, meters and other objects that only versions before `oldest` see.
    pub(crate) fn reclaim_others(&mut self, oldest: Version) {
        self.settings.reclaim(oldest);
        self.ports.reclaim(oldest);
        self.groups.reclaim(oldest);
        self.meters.reclaim(oldest);
        self.learn_index.reclaim(oldest);
        self.macs.reclaim(oldest);
        self.multicast.reclaim(oldest);
        self.liveness.reclaim(oldest);
    }

    /// Takes the shared masks and instructions; the caller must put them back.
    ///
    /// Only changes use masks and instructions, and one change runs at a time.
    pub(crate) fn take_interner(&mut self) -> Interner {
        std::mem::replace(&mut self.interner, Interner::new(self.seed))
    }

    /// Returns whether no version sees the bridge or any of its objects.
    pub(crate) fn is_gone(&self) -> bool {
        self.settings.is_empty()
            && self.groups.is_empty()
            && self.meters.is_empty()
            && self.macs.is_empty()
            && self.multicast.is_empty()
            && self.tables.values().all(RuleTable::is_empty)
    }
}

/// Returns a counter for each mirror, taken from `old` if it has one of this name.
fn counters(
    settings: &BridgeSettings,
    mut old: BTreeMap<String, Arc<OutputCounter>>,
) -> BTreeMap<String, Arc<OutputCounter>> {
    let mut kept = BTreeMap::new();
    for Mirror { name, .. } in &settings.mirrors {
        kept.entry(name.clone()).or_insert_with(|| {
            old.remove(name).unwrap_or_else(|| Arc::new(OutputCounter::new(name)))
        });
    }
    kept
}

/// Sorts rules by table and then by age.
pub(crate) fn in_order(mut rules: Vec<Arc<Rule>>) -> Vec<Arc<Rule>> {
    rules.sort_by_key(|rule| (rule.table, rule.id));
    rules
}

fn table_ids() -> impl Iterator<Item = TableId> {
    (0..TableId::COUNT).filter_map(TableId::new)
}
