//! The published engine: it controls when rules and packets enter the circuit, and which gates are
//! open.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
};

use foldhash::fast::FixedState;
use shunt_pipeline::{
    BridgeId, Delta, EntryId, Evictor, Installed, Object, OwnerId, Pipeline, Rule, RuleChange,
    RuleDelta, RuleFilter, Time, Traversal, Version,
};

use crate::{bound::TableKey, research::lock::locked};

use super::{
    actions::{is_clause, next_table},
    circuit::{TableCircuit, TableStepRows, Tuples},
    packets::TrackedPackets,
    plan::CircuitPlan,
    rules::NumberedRules,
    settings::{PublishedSettings, PublishedStats},
    shared_tables::SharedTables,
};

/// An eviction engine with the published design of Kairo.
///
/// A circuit copies the tables, and computes the matches of the packets that made entries.
///
/// The engine is a baseline, and not for use in a switch: like the published design, it leaves
/// stale entries.
///
/// - *A packet is not its region.* A packet to 10.1.2.3 makes an entry for 10.0.0.0/8. The entry is
///   not evicted when a rule for 10.1.99.0/24 is added, and is then wrong for 10.1.99.7.
/// - *A waiting packet misses a change.* A packet that waits for its batch is not in the tables
///   when a rule changes. The packet matches the new rule when it enters the tables. The entry of
///   this packet was made by the old rule, and is not evicted.
/// - *A sub-traversal entry outlives its list.* The circuit knows an LTM entry by the packet that
///   made it. The packet is deleted when another of its entries expires. From then on the LTM entry
///   is no longer watched, although other flows may still use it.
///
/// The circuit does not model groups, ports, conjunctions, and the packets that
/// [`PublishedStats::untracked`] counts. For a change of what the circuit does not model, the
/// engine evicts all entries of a table or object, usually more than the stale entries.
pub struct PublishedKairo {
    version: Version,
    /// The limits and modes of the engine.
    settings: PublishedSettings,
    /// The clock that measures the waits of packets and gates.
    clock: Box<dyn FnMut() -> Time + Send>,
    /// The circuit; `None` until it is built, and after a failure.
    circuit: Option<TableCircuit>,
    plan: CircuitPlan,
    /// True when a rule leads to a table that the plan has no edge to.
    is_outdated: bool,
    /// The state that the circuit also uses.
    shared: Arc<Mutex<SharedTables>>,
    packets: TrackedPackets,
    /// The rows for the next step of the circuit.
    rows: TableStepRows,
    /// The time since which a packet waits or a gate holds rows.
    waits_since: Option<Time>,
    /// Entries that a failed circuit watched: the next change evicts them.
    lost: BTreeSet<EntryId>,
    stats: PublishedStats,
}

/// Number of packets that one step loads into a new circuit.
const RELOADED_AT_ONCE: usize = 4096;

/// The tables and objects that a version changed.
#[derive(Default)]
struct VersionChanges {
    /// Tables with changed rules.
    tables: BTreeSet<TableKey>,
    /// Tables with changed clauses of conjunctions.
    clauses: BTreeSet<TableKey>,
    /// The objects that the version changed.
    objects: Vec<Object>,
}

impl PublishedKairo {
    /// Creates an engine without entries, with the rules of these bridges.
    ///
    /// The newest version has these rules.
    ///
    /// The caller must apply every later version, of all bridges.
    #[must_use]
    pub fn new(
        pipeline: &Pipeline,
        bridges: &[BridgeId],
        settings: PublishedSettings,
        clock: impl FnMut() -> Time + Send + 'static,
    ) -> Self {
        let hashes = FixedState::with_seed(settings.seed);
        let mut rules = NumberedRules::new(&hashes);
        for rule in bridges.iter().flat_map(|bridge| pipeline.rules(*bridge, &RuleFilter::all())) {
            rules.insert(&rule);
        }
        Self {
            version: pipeline.version(),
            settings,
            clock: Box::new(clock),
            circuit: None,
            plan: CircuitPlan::default(),
            is_outdated: false,
            shared: Arc::new(Mutex::new(SharedTables::new(rules))),
            packets: TrackedPackets::new(&hashes),
            rows: TableStepRows::default(),
            waits_since: None,
            lost: BTreeSet::new(),
            stats: PublishedStats::default(),
        }
    }

    /// Records that a packet made these entries, one per sub-traversal, in order.
    ///
    /// An entry that is watched already still belongs to the packet that made it.
    pub fn installed_sub_traversals(
        &mut self,
        sub_traversals: &[(EntryId, Arc<Traversal>)],
    ) -> Installed {
        if sub_traversals.iter().any(|(_, traversal)| traversal.version < self.version) {
            return Installed::Late;
        }
        for (entry, _) in sub_traversals {
            self.lost.remove(entry);
        }
        self.packets.insert(sub_traversals);
        self.wait();
        self.release_batch();
        Installed::Recorded
    }

    /// Returns the counters and the current sizes of the engine.
    #[must_use]
    pub fn stats(&self) -> PublishedStats {
        PublishedStats {
            tables: self.plan.nodes.len(),
            held: self.shared().held(),
            waiting: self.packets.waiting(),
            untracked: self.packets.untracked(),
            ..self.stats
        }
    }

    /// Locks the tables that the circuits share.
    pub(crate) fn shared(&self) -> MutexGuard<'_, SharedTables> {
        locked(&self.shared)
    }

    /// Starts the timer of waiting packets and held rows, unless it runs.
    fn wait(&mut self) {
        if self.waits_since.is_none() {
            self.waits_since = Some((self.clock)());
        }
    }

    /// Returns whether the timer of waiting packets and held rows has expired.
    fn is_due(&mut self) -> bool {
        let (Some(since), Some(longest)) = (self.waits_since, self.settings.propagation) else {
            return false;
        };
        (self.clock)().since(since) >= longest
    }

    /// Opens the gates if a batch is complete.
    fn release_batch(&mut self) {
        if self.packets.waiting() >= self.settings.batch.max(1) {
            self.release();
        }
    }

    /// Opens all gates, and runs steps that load and delete the waiting packets.
    fn release(&mut self) {
        self.waits_since = None;
        if self.circuit.is_none() || self.is_outdated || self.packets.lack_table(&self.plan) {
            self.rebuild();
        } else {
            self.shared().open();
            self.load(usize::MAX);
            self.step();
        }
        self.shared().rules.reclaim();
    }

    /// Builds a circuit for the current rules, and loads all packets into it.
    fn rebuild(&mut self) {
        self.circuit = None;
        self.packets.restart();
        self.rows = TableStepRows::default();
        self.is_outdated = false;
        let mut tuples = Tuples::new();
        {
            let shared = &mut *locked(&self.shared);
            self.plan = CircuitPlan::new(
                &self.packets.bridges(),
                &shared.rules.edges(),
                self.settings.layers,
            );
            shared.open();
            shared.held = vec![0; self.plan.nodes.len()];
            let numbers: Vec<u32> = shared.rules.numbers().collect();
            for (table_key, row) in numbers.into_iter().filter_map(|own| shared.rules.row(own)) {
                if !self.plan.copies(table_key).is_empty() {
                    tuples.entry(table_key).or_default().insert(row.0);
                    self.rows.push_rule(table_key, row, 1);
                }
            }
        }
        if self.plan.nodes.is_empty() {
            return;
        }
        self.stats.circuits += 1;
        match TableCircuit::build(&self.shared, &self.plan, tuples) {
            Ok(circuit) => self.circuit = Some(circuit),
            Err(error) => return self.fail(&error.to_string()),
        }
        self.step();
        while self.circuit.is_some() && self.load(RELOADED_AT_ONCE) {
            self.step();
        }
    }

    /// Adds up to `packets_max` waiting packets to the next step.
    /// Returns whether a packet was waiting.
    fn load(&mut self, packets_max: usize) -> bool {
        let mut count = 0;
        while count < packets_max {
            let (packet, weight) = if let Some(packet) = self.packets.next_in(&self.plan) {
                (packet, 1)
            } else if let Some(packet) = self.packets.next_out() {
                (packet, -1)
            } else {
                break;
            };
            self.rows.push_packet(packet.0, packet.1, weight);
            count += 1;
        }
        count > 0
    }

    /// Runs a step of the circuit with the collected rows.
    fn step(&mut self) {
        let Some(mut circuit) = self.circuit.take() else { return };
        self.stats.steps += 1;
        match circuit.step(&mut self.rows) {
            Ok(()) => self.circuit = Some(circuit),
            Err(error) => {
                drop(circuit);
                self.fail(&error.to_string());
            }
        }
    }

    /// Handles a failed step: all watched entries become lost, and none is watched.
    fn fail(&mut self, reason: &str) {
        self.stats.errors += 1;
        tracing::warn!(
            reason,
            "eviction engine: the dbsp circuit failed, so all cache entries \
             are evicted: please report this bug"
        );
        self.lost.extend(self.packets.entries());
        let hashes = FixedState::with_seed(self.settings.seed);
        let rules = std::mem::replace(&mut self.shared().rules, NumberedRules::new(&hashes));
        self.shared = Arc::new(Mutex::new(SharedTables::new(rules)));
        self.packets = TrackedPackets::new(&hashes);
        self.rows = TableStepRows::default();
        self.plan = CircuitPlan::default();
    }

    /// Adds the changed rules of a version to the next step.
    /// Returns the tables and objects that the version changed.
    fn add_changes(&mut self, deltas: &[Delta]) -> VersionChanges {
        let mut touched = VersionChanges::default();
        for delta in deltas {
            let RuleDelta { rule, change } = match delta {
                Delta::Changed(object) => {
                    touched.objects.push(*object);
                    continue;
                }
                Delta::Rule(delta) => delta,
            };
            let table_key = (rule.bridge, rule.table);
            touched.tables.insert(table_key);
            let mut has_clause = is_clause(rule);
            match change {
                RuleChange::Added => self.add(rule),
                RuleChange::Removed(_) => self.remove_rule(rule),
                RuleChange::Modified(before) => {
                    has_clause |= is_clause(before);
                    self.remove_rule(rule);
                    self.add(rule);
                }
            }
            if has_clause {
                touched.clauses.insert(table_key);
            }
        }
        touched
    }

    /// Adds a rule to the tables of the circuit.
    fn add(&mut self, rule: &Arc<Rule>) {
        let rules = &mut locked(&self.shared).rules;
        let row = rules.insert(rule).and_then(|number| rules.row(number));
        if let Some((table_key, row)) = row {
            self.rows.push_rule(table_key, row, 1);
            self.is_outdated |=
                next_table(rule).is_some_and(|next| !self.plan.has_edge(table_key, next));
        }
    }

    /// Removes a rule from the circuits.
    fn remove_rule(&mut self, rule: &Rule) {
        let rules = &mut locked(&self.shared).rules;
        let row = rules.remove(rule.id).and_then(|number| rules.row(number));
        if let Some((table_key, row)) = row {
            self.rows.push_rule(table_key, row, -1);
        }
    }

    /// Runs a step for changed rules, with open gates before the last of the tables.
    ///
    /// Returns the stale packets, each with the position of the table where its match changed.
    fn step_rules(&mut self, tables: &BTreeSet<TableKey>) -> Vec<(u64, u32)> {
        let copies = tables.iter().flat_map(|table_key| self.plan.copies(*table_key));
        let Some(last) = copies.max().copied().filter(|_| self.circuit.is_some()) else {
            self.rows = TableStepRows::default();
            return Vec::new();
        };
        let end = if self.settings.has_gates { last } else { u32::MAX };
        self.shared().open_below(end);
        self.step();
        let stale = std::mem::take(&mut self.shared().stale);
        if self.shared().held() > 0 {
            self.wait();
        }
        stale
    }
}

impl Evictor for PublishedKairo {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.packets.remove(entry);
        self.installed_sub_traversals(&[(entry, Arc::clone(traversal))])
    }

    fn removed(&mut self, entry: EntryId) {
        self.lost.remove(&entry);
        if self.packets.remove(entry) {
            self.wait();
            self.release_batch();
        }
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        if self.is_due() {
            self.release();
        }
        let touched = self.add_changes(deltas);
        let stale = self.step_rules(&touched.tables);
        let mut evicted: Vec<EntryId> = std::mem::take(&mut self.lost).into_iter().collect();
        for (packet, position) in stale {
            self.packets.end_at(packet, position, &mut evicted);
        }
        self.packets.end_beside(&touched.tables, &mut evicted);
        self.packets.evict_visitors(&touched.clauses, &mut evicted);
        for object in touched.objects {
            self.packets.evict_readers(object, version, &mut evicted);
        }
        if self.packets.waiting() > 0 {
            self.wait();
        }
        evicted
    }

    fn forget(&mut self, owner: OwnerId) {
        self.lost.retain(|entry| entry.owner != owner);
        self.packets.forget(owner);
        if self.packets.waiting() > 0 {
            self.wait();
        }
    }

    /// Opens the gates if the timer has expired or a batch is complete.
    fn run_maintenance(&mut self) -> bool {
        if self.is_due() {
            self.release();
        }
        self.release_batch();
        false
    }

    fn len(&self) -> usize {
        self.packets.len() + self.lost.len()
    }
}
