//! One bridge: its settings, ports and tables, at every version that is still alive.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::{FlowKey, FlowMask};

use crate::{
    BridgeId, BridgeSettings, PortInfo, Rule, RuleFilter, TableId, TableSelector, TableTotals,
    history::History,
    port_table::PortTable,
    table::{Table, TableStats},
};

/// All bridges of a daemon.
pub(crate) type Bridges = BTreeMap<BridgeId, Bridge>;

/// A bridge; it exists at the versions at which it has settings.
pub(crate) struct Bridge {
    seed: u64,
    settings: History<BridgeSettings>,
    ports: History<PortTable>,
    tables: BTreeMap<TableId, Table>,
    stats: Box<[TableStats]>,
}

impl Bridge {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            settings: History::new(),
            ports: History::new(),
            tables: BTreeMap::new(),
            stats: Box::default(),
        }
    }

    pub(crate) fn settings(&self, version: Version) -> Option<&Arc<BridgeSettings>> {
        self.settings.at(version)
    }

    pub(crate) fn set_settings(&mut self, settings: BridgeSettings, version: Version) {
        self.settings.set(Arc::new(settings), version);
    }

    /// The ports; `None` where the bridge does not exist.
    pub(crate) fn ports(&self, version: Version) -> Option<&PortTable> {
        self.ports.at(version).map(AsRef::as_ref)
    }

    pub(crate) fn set_ports(&mut self, ports: Vec<PortInfo>, version: Version) {
        self.ports.set(Arc::new(PortTable::new(ports)), version);
    }

    /// Begins the bridge's life, without ports; counters begin at zero.
    pub(crate) fn begin(&mut self, version: Version) {
        self.stats = table_ids().map(|_| TableStats::default()).collect();
        self.set_ports(Vec::new(), version);
    }

    /// Ends the bridge's life; its rules are removed by themselves.
    pub(crate) fn end(&mut self, version: Version) {
        self.settings.end(version);
        self.ports.end(version);
    }

    /// A table that holds rules or has held some.
    pub(crate) fn table(&self, table: TableId) -> Option<&Table> {
        self.tables.get(&table)
    }

    pub(crate) fn insert(&mut self, rule: Arc<Rule>, added: Version) {
        let seed = self.seed;
        let table = self.tables.entry(rule.table).or_insert_with(|| Table::new(seed));
        table.insert(rule, added);
    }

    pub(crate) fn remove(&mut self, rule: &Rule, removed: Version) {
        if let Some(table) = self.tables.get_mut(&rule.table) {
            table.remove(rule, removed);
        }
    }

    pub(crate) fn lookup(
        &self,
        table: TableId,
        key: &FlowKey,
        version: Version,
        mask: &mut FlowMask,
    ) -> Option<&Arc<Rule>> {
        self.table(table)?.lookup(key, version, mask)
    }

    /// The rules that a filter lets through, by table and then by age.
    pub(crate) fn rules(&self, filter: &RuleFilter, version: Version) -> Vec<Arc<Rule>> {
        let range = match filter.table {
            TableSelector::One(table) => table..=table,
            TableSelector::All => TableId::FIRST..=TableId::MAX,
        };
        let mut chosen: Vec<_> = self
            .tables
            .range(range)
            .flat_map(|(_, table)| table.rules(version))
            .filter(|rule| filter.admits(rule))
            .cloned()
            .collect();
        chosen.sort_by_key(|rule| (rule.table, rule.id));
        chosen
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TableId, &Table)> {
        self.tables.iter().map(|(id, table)| (*id, table))
    }

    pub(crate) fn credit(&self, table: TableId, packets: u64, matched: bool) {
        if let Some(stats) = self.stats.get(table.index()) {
            stats.credit(packets, matched);
        }
    }

    pub(crate) fn table_stats(&self) -> Vec<TableTotals> {
        let rules_count = |id| self.table(id).map_or(0, Table::rules_count);
        let totals = |(id, stats): (TableId, &TableStats)| stats.totals(id, rules_count(id));
        table_ids().zip(&self.stats).map(totals).collect()
    }

    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.settings.reclaim(oldest);
        self.ports.reclaim(oldest);
        self.tables.values_mut().for_each(|table| table.reclaim(oldest));
    }

    /// Whether no version sees anything of the bridge.
    pub(crate) fn is_gone(&self) -> bool {
        self.settings.is_empty() && self.tables.values().all(Table::is_empty)
    }
}

fn table_ids() -> impl Iterator<Item = TableId> {
    (0..TableId::COUNT).filter_map(TableId::new)
}
