//! One bridge: its settings, ports and tables, at every retained version.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::{Lifetime, Version};
use shunt_flow::{Match, PortNo};

use super::{
    mac_table::MacTable, mirror::Mirror, mirror_table::MirrorTable,
    multicast_table::MulticastTable, output_counter::OutputCounter, port::PortInfo,
    port_change::PortChange, port_table::PortTable, settings::BridgeSettings,
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
        table::{RuleTable, TableScan, TableStats, TableTotals},
    },
    versions::{versioned::Versioned, versioned_map::VersionedMap},
};

/// All bridges of a daemon.
pub(crate) type VersionedBridges = BTreeMap<BridgeId, VersionedBridge>;

/// A bridge; it exists in the versions in which it has settings.
pub(crate) struct VersionedBridge {
    /// The start value of the random numbers of this bridge.
    seed: u64,
    /// The settings in each version with the bridge.
    settings: Versioned<BridgeSettings>,
    ports: Versioned<PortTable>,
    /// The counters of the mirrors by their names.
    mirror_counters: BTreeMap<String, Arc<OutputCounter>>,
    pub(crate) groups: VersionedMap<GroupId, Group>,
    pub(crate) meters: VersionedMap<MeterId, Meter>,
    tables: BTreeMap<TableId, RuleTable>,
    /// The counters of each table, by number.
    stats: Box<[TableStats]>,
    /// The tables and cookies that `learn` actions write.
    learn_index: LearnIndex,
    pub(crate) liveness: Liveness,
    /// The eviction order of tables that were full once, while the bridge evicts rules.
    evictable: BTreeMap<TableId, Evictable>,
    pub(crate) macs: MacTable,
    pub(crate) multicast: MulticastTable,
    /// Masks and instructions that rules share.
    pub(crate) interner: Interner,
}

/// The position of a scan of the rules of a bridge.
#[derive(Clone, Copy, Default)]
pub(crate) struct RuleScan {
    /// The table that the scan continues in.
    table: TableId,
    /// The position in the table.
    position: TableScan,
}

/// The parts of a bridge from which its table of ports is built.
///
/// A caller builds the table without the lock of the bridges.
pub(crate) struct PortTableParts {
    /// The ports before; `None` for a new bridge.
    before: Option<Arc<PortTable>>,
    /// The settings; `None` if the bridge does not exist.
    settings: Option<Arc<BridgeSettings>>,
    mirror_counters: BTreeMap<String, Arc<OutputCounter>>,
}

impl PortTableParts {
    /// Builds the table of these ports, and compares it with the previous ports.
    pub(crate) fn change_to(self, ports: Vec<Arc<PortInfo>>) -> PortChange {
        let table = PortTable::new(ports, |ports| self.mirrors(ports));
        PortChange::new(self.before, Arc::new(table))
    }

    /// Builds the table in which some ports are replaced, added or removed (`None`).
    pub(crate) fn change(self, changes: BTreeMap<PortNo, Option<PortInfo>>) -> PortChange {
        let mirrors = |ports: &[Arc<PortInfo>]| self.mirrors(ports);
        let table = match &self.before {
            Some(before) => before.with_changes(changes, mirrors),
            None => {
                PortTable::new(changes.into_values().flatten().map(Arc::new).collect(), mirrors)
            }
        };
        PortChange::new(self.before, Arc::new(table))
    }

    /// Returns the mirrors of the bridge for these ports.
    fn mirrors(&self, ports: &[Arc<PortInfo>]) -> MirrorTable {
        let mirrors = self.settings.as_ref().map_or(&[][..], |own| own.mirrors.as_slice());
        MirrorTable::new(mirrors, &self.mirror_counters, ports)
    }
}

impl VersionedBridge {
    /// Returns a bridge without settings, ports and rules.
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

    /// Returns the settings that a version sees.
    pub(crate) fn settings(&self, version: Version) -> Option<&Arc<BridgeSettings>> {
        self.settings.at(version)
    }

    /// Replaces the settings. Returns the change of ports that other mirrors cause.
    pub(crate) fn set_settings(
        &mut self,
        settings: BridgeSettings,
        version: Version,
    ) -> Option<PortChange> {
        let before = self.settings.at(version).map(|before| before.mirrors.as_slice());
        let has_new_mirrors = before.unwrap_or_default() != settings.mirrors;
        if has_new_mirrors {
            let old = std::mem::take(&mut self.mirror_counters);
            self.mirror_counters = counters(&settings, old);
        }
        self.settings.set(Arc::new(settings), version);
        if !has_new_mirrors {
            return None;
        }
        // A new bridge has no ports yet.
        let ports = self.ports.at(version)?.ports().to_vec();
        Some(self.replace_ports(ports, version))
    }

    /// Returns the packets and bytes that each mirror has copied.
    pub(crate) fn mirror_counters(&self) -> impl Iterator<Item = &Arc<OutputCounter>> {
        self.mirror_counters.values()
    }

    /// Returns the ports; `None` if the bridge does not exist.
    pub(crate) fn ports(&self, version: Version) -> Option<&PortTable> {
        self.ports.at(version).map(AsRef::as_ref)
    }

    /// Returns the parts from which the next table of ports is built.
    pub(crate) fn port_table_parts(&self, version: Version) -> PortTableParts {
        PortTableParts {
            before: self.ports.at(version).cloned(),
            settings: self.settings.at(version).cloned(),
            mirror_counters: self.mirror_counters.clone(),
        }
    }

    /// Sets the table of ports.
    pub(crate) fn set_port_table(&mut self, ports: Arc<PortTable>, version: Version) {
        self.ports.set(ports, version);
    }

    /// Replaces the ports; the caller applies the change to learned entries.
    fn replace_ports(&mut self, ports: Vec<Arc<PortInfo>>, version: Version) -> PortChange {
        let change = self.port_table_parts(version).change_to(ports);
        self.set_port_table(Arc::clone(change.now()), version);
        change
    }

    /// Replaces one port; the caller applies the change to learned entries.
    pub(crate) fn replace_port(&mut self, port: PortInfo, version: Version) -> PortChange {
        let changes = BTreeMap::from([(port.number, Some(port))]);
        let change = self.port_table_parts(version).change(changes);
        self.set_port_table(Arc::clone(change.now()), version);
        change
    }

    /// Undoes the changes of `version`, which is not published, to port settings.
    pub(crate) fn undo_ports(&mut self, version: Version) {
        self.ports.undo(version);
    }

    /// Creates the bridge without ports, with counters at zero.
    pub(crate) fn begin(&mut self, version: Version) {
        self.stats = table_ids().map(|_| TableStats::default()).collect();
        self.replace_ports(Vec::new(), version);
    }

    /// Ends the settings, mirrors and ports of a removed bridge.
    ///
    /// The caller removes its rules, groups, meters and learned entries.
    pub(crate) fn end(&mut self, version: Version) {
        self.settings.end(version);
        self.mirror_counters.clear();
        self.ports.end(version);
    }

    /// Returns a table that holds rules or has held some.
    pub(crate) fn table(&self, table: TableId) -> Option<&RuleTable> {
        self.tables.get(&table)
    }

    /// Returns a table for changes of its learned index.
    pub(crate) fn table_mut(&mut self, table: TableId) -> Option<&mut RuleTable> {
        self.tables.get_mut(&table)
    }

    /// Adds a rule from a version on.
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
        for table in self.learn_index.add_learner(&instructions, added) {
            self.count_rules(table, added);
        }
    }

    /// Counts the rules of a table by their cookies, from `version` on.
    ///
    /// Only the first call for a table visits its rules.
    pub(crate) fn begin_count(&mut self, table: TableId, version: Version) {
        if self.learn_index.begin_count(table, version) {
            self.count_rules(table, version);
        }
    }

    /// Counts the `learn` actions of a table's rules.
    fn count_rules(&mut self, table: TableId, version: Version) {
        let rules = self.tables.get(&table).into_iter().flat_map(|table| table.rules(version));
        rules.for_each(|rule| self.learn_index.count_in(rule, version));
    }

    /// Removes a rule from a version on.
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
    ///
    /// Returns `None` before [`Self::set_evictable`].
    pub(crate) fn evictable(&mut self, table: TableId) -> Option<&mut Evictable> {
        self.evictable.get_mut(&table)
    }

    /// Sets the order in which the rules of a table are evicted.
    pub(crate) fn set_evictable(&mut self, table: TableId, evictable: Evictable) {
        self.evictable.insert(table, evictable);
    }

    /// Takes the orders in which rules are evicted, because the bridge evicts none.
    pub(crate) fn take_evictable(&mut self) -> BTreeMap<TableId, Evictable> {
        std::mem::take(&mut self.evictable)
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
            // The first `learn` of a packet-out with a limit: the table is counted from its request
            // on (`Self::begin_count`), and the rules are scanned until then.
            let rules = self.table(table).into_iter().flat_map(|table| table.rules(version));
            rules.filter(|rule| rule.cookie == cookie).count()
        })
    }

    /// Continues a scan of the rules of some tables.
    ///
    /// The rules have the match `matching` or a narrower one. See [`RuleTable::scan_some`].
    pub(crate) fn scan_some<'a>(
        &'a self,
        scan: &mut RuleScan,
        tables: TableSelector,
        matching: &Match,
        left: &mut usize,
        mut visit: impl FnMut(Lifetime, &'a Arc<Rule>),
    ) -> bool {
        for (id, table) in self.tables.range(scan.table..) {
            if scan.table != *id {
                *scan = RuleScan { table: *id, position: TableScan::default() };
            }
            let is_selected = match tables {
                TableSelector::One(table) => *id == table,
                TableSelector::All => true,
            };
            if is_selected && !table.scan_some(&mut scan.position, matching, left, &mut visit) {
                return false;
            }
        }
        true
    }

    /// Returns the tables that have had rules.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (TableId, &RuleTable)> {
        self.tables.iter().map(|(id, table)| (*id, table))
    }

    /// Counts looked up packets of a table.
    pub(crate) fn credit(&self, table: TableId, packets: u64, matched: bool) {
        if let Some(stats) = self.stats.get(table.index()) {
            stats.credit(packets, matched);
        }
    }

    /// Returns the number of rules, lookups and matches of every table.
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
    ///
    /// Visits at most `left` groups, meters, counts and learned entries, and reduces `left` by their
    /// number. Returns whether no such object is left.
    pub(crate) fn reclaim_others(&mut self, oldest: Version, left: &mut usize) -> bool {
        self.settings.reclaim(oldest);
        self.ports.reclaim(oldest);
        self.liveness.reclaim(oldest);
        self.groups.reclaim(oldest, left)
            && self.meters.reclaim(oldest, left)
            && self.learn_index.reclaim(oldest, left)
            && self.macs.reclaim(oldest, left)
            && self.multicast.reclaim(oldest, left)
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

/// Returns the ids of all tables.
fn table_ids() -> impl Iterator<Item = TableId> {
    (0..TableId::COUNT).filter_map(TableId::new)
}
