//! The relational engine: the rows that it adds to the circuit, its queries, and its handling of
//! faults.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use dbsp::Error;
use shunt_pipeline::{
    Cause, CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

use super::{
    circuit::LinkCircuit,
    queries::FoundLink,
    relation::{LinkRelation, LinkStepRows},
    search::ChangeQuery,
};
use crate::{
    bound::{ChangeBound, DELTAS_MAX, EXAMINED_MAX, RemainingDeltas},
    deltas::{record_cause, removed_rules},
    research::{CircuitStats, lock::locked},
};

/// An eviction engine that finds entries by a circuit of the operators of dbsp.
///
/// The cost of a change depends on the affected entries. Entries that were translated at the
/// version of the change or later are not evicted: they include the change already.
pub struct Relational {
    version: Version,
    seed: u64,
    /// The circuit; `None` until it is built, and after a failure.
    circuit: Option<LinkCircuit>,
    relation: Arc<Mutex<LinkRelation>>,
    /// The rows for the next step of the circuit.
    rows: LinkStepRows,
    /// Slots of the entries with rows that wait for the next step.
    pending_slots: Vec<u32>,
    /// Number of entries with rows added or removed since the last merge of the traces.
    churned: usize,
    /// Entries that a failed circuit watched: the next change evicts them.
    lost: BTreeSet<EntryId>,
    /// The bound on the number of rules of a change.
    bound: ChangeBound,
    /// Approximate number of visits that the rules of a change may examine.
    examined_max: usize,
    /// Number of rows of a group that are examined before a fingerprint is looked up.
    scan_threshold: usize,
    /// The causes of the evictions of the last change.
    causes: Vec<CauseRun>,
    stats: CircuitStats,
}

/// Number of entries that one step adds.
/// A change with many rules before that runs the step earlier.
const INSTALLS_PER_STEP: usize = 128;

/// Number of retired entries that one call of `run_maintenance` removes.
const MAINTENANCE_BUDGET: usize = 256;

/// Default for the number of rows of a group that are examined one by one.
/// If a group has more rows, a fingerprint is looked up.
const SCAN_THRESHOLD: usize = 16;

/// Factor of the scan threshold for entries that wait for a step.
/// If waiting entries times deltas are at most this product, they are examined one by one.
const PENDING_PER_THRESHOLD: usize = 32;

/// The traces are merged when one entry in this number was added or removed.
/// At least [`CHURNED_MIN`] entries must have been added or removed.
///
/// A query searches every batch of a trace, so merged traces are searched faster.
const CHURN: usize = 4;
/// Minimum number of added or removed entries before traces are merged.
const CHURNED_MIN: usize = 1024;

/// Number of retired entries above which every step removes some of them.
const RETIRED_MAX: usize = 4096;

impl Relational {
    /// Creates an engine without entries at `version`, with the seed of all its hashes.
    #[must_use]
    pub fn new(version: Version, seed: u64) -> Self {
        Self {
            version,
            seed,
            circuit: None,
            relation: Arc::new(Mutex::new(LinkRelation::new(seed))),
            rows: LinkStepRows::default(),
            pending_slots: Vec::new(),
            churned: 0,
            lost: BTreeSet::new(),
            bound: ChangeBound::new(DELTAS_MAX),
            examined_max: EXAMINED_MAX,
            scan_threshold: SCAN_THRESHOLD,
            causes: Vec::new(),
            stats: CircuitStats::default(),
        }
    }

    /// Sets the greatest number of rules per change that are searched one by one.
    /// If a change has more rules, all entries that visit the tables of the rules are evicted.
    #[must_use]
    pub fn with_deltas_max(mut self, deltas_max: usize) -> Self {
        self.bound = ChangeBound::new(deltas_max);
        self
    }

    /// Sets the approximate number of visits that the rules of a change may examine.
    ///
    /// Beyond this number, the engine evicts all entries that visit a table of the changed rules.
    #[must_use]
    pub const fn with_examined_max(mut self, examined_max: usize) -> Self {
        self.examined_max = examined_max;
        self
    }

    /// Sets the greatest number of visits of a group that are examined one by one.
    /// If a group has more visits, a fingerprint is looked up.
    ///
    /// With zero, the engine always looks up the fingerprint.
    #[must_use]
    pub const fn with_scan_threshold(mut self, scan_threshold: usize) -> Self {
        self.scan_threshold = scan_threshold;
        self
    }

    /// Returns the counters of the engine and its circuits.
    #[must_use]
    pub const fn stats(&self) -> CircuitStats {
        CircuitStats { overflows: self.bound.overflows(), ..self.stats }
    }

    /// Runs a step with the collected rows.
    /// The step also retracts the rows of up to `retired_max` retired entries.
    ///
    /// Returns whether the step succeeded.
    fn step(&mut self, retired_max: usize) -> bool {
        let retired = self.retract(retired_max);
        self.churned += self.pending_slots.len() + retired.len();
        self.pending_slots.clear();
        self.stats.steps += 1;
        match self.step_circuit() {
            Ok(()) => {
                let mut relation = locked(&self.relation);
                retired.into_iter().for_each(|slot| drop(relation.entries.release(slot)));
                true
            }
            Err(reason) => {
                self.fail(&reason);
                false
            }
        }
    }

    /// Runs a step of the circuit, and builds the circuit first if there is none.
    fn step_circuit(&mut self) -> Result<(), String> {
        let Self { circuit, relation, rows, .. } = self;
        let circuit = match circuit {
            Some(circuit) => circuit,
            None => circuit.insert(describe_failure(catch_panic(|| LinkCircuit::build(relation)))?),
        };
        describe_failure(catch_panic(|| circuit.step(rows)))
    }

    /// Ends the circuit, which runs in a thread.
    ///
    /// The circuit has a tokio runtime, which must not end inside another runtime. A failed circuit
    /// may fail again when it ends.
    fn end_circuit(&mut self) {
        if let Some(circuit) = self.circuit.take() {
            let end = thread::Builder::new().name("kairo-end".to_owned());
            let _ = end.spawn(move || drop(circuit)).map(thread::JoinHandle::join);
        }
    }

    /// Starts a merge of the traces in the background, if one is due.
    /// A merge is due if enough entries were added or removed since the last one.
    fn merge(&mut self) {
        let due = (locked(&self.relation).entries.len() / CHURN).max(CHURNED_MIN);
        let Some(circuit) = &mut self.circuit else { return };
        if self.churned < due {
            return;
        }
        self.churned = 0;
        // The snapshots are dropped, because they would keep the old batches in memory beside the
        // merged ones.
        locked(&self.relation).traces = Default::default();
        if let Err(reason) = describe_failure(catch_panic(|| circuit.merge())) {
            self.fail(&reason);
        }
    }

    /// Adds retractions of the rows of up to `retired_max` retired entries.
    /// Returns the slots of the retracted entries.
    fn retract(&mut self, retired_max: usize) -> Vec<u32> {
        let mut relation = locked(&self.relation);
        let next = || relation.entries.next_retired();
        let slots: Vec<u32> = std::iter::from_fn(next).take(retired_max).collect();
        slots.iter().for_each(|slot| relation.push_entry(*slot, -1, &mut self.rows));
        slots
    }

    /// Handles a fault: all watched entries become lost, and none is watched.
    fn fail(&mut self, reason: &str) {
        self.stats.errors += 1;
        tracing::warn!(
            reason,
            "eviction engine: the dbsp circuit failed, so all cache entries \
             are evicted: please report this bug"
        );
        self.lost.extend(locked(&self.relation).entries.all().map(|(id, _)| id));
        self.end_circuit();
        self.relation = Arc::new(Mutex::new(LinkRelation::new(self.seed)));
        self.rows = LinkStepRows::default();
        self.pending_slots.clear();
    }

    /// Locks the relation of the links.
    #[cfg(test)]
    pub(crate) fn relation(&self) -> std::sync::MutexGuard<'_, LinkRelation> {
        locked(&self.relation)
    }

    /// Finds the entries that the deltas of a change may make stale.
    ///
    /// The result is an empty list if the search fails, and `None` if it examines more than
    /// `examined_max` visits.
    fn find(&mut self, query: &ChangeQuery<'_>, examined_max: usize) -> Option<Vec<FoundLink>> {
        if query.deltas.is_empty() {
            return Some(Vec::new());
        }
        let is_many = self.pending_slots.len() * query.deltas.len()
            > self.scan_threshold * PENDING_PER_THRESHOLD;
        let is_absent = self.circuit.is_some() && locked(&self.relation).traces.are_absent();
        if (is_many || is_absent) && !self.step(0) {
            return Some(Vec::new());
        }
        let mut found = Vec::new();
        let Self { relation, rows, pending_slots, .. } = self;
        let delta_queries = catch_panic(|| {
            let mut relation = locked(relation);
            relation.examine_pending(pending_slots, query, &mut found);
            relation.delta_queries(query, rows, &mut found)
        });
        let is_projected = !self.rows.projections.is_empty();
        if delta_queries.is_some() && is_projected && !self.step(0) {
            return Some(Vec::new());
        }
        let relation = &self.relation;
        let answered = delta_queries.and_then(|delta_queries| {
            catch_panic(|| locked(relation).answer(&delta_queries, examined_max, &mut found))
        });
        match answered {
            Some(true) => {}
            Some(false) => return None,
            None => {
                self.fail("a query of the circuit panicked");
                return Some(Vec::new());
            }
        }
        // Causes are recorded in the order of the deltas.
        if query.deltas.len() > 1 {
            found.sort_by_key(|found| found.position);
        }
        Some(found)
    }
}

/// Returns the result of `run`, or `None` if `run` panics, as dbsp may do.
fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Returns the result, or a text that describes the failure.
fn describe_failure<T>(made: Option<Result<T, Error>>) -> Result<T, String> {
    match made {
        Some(made) => made.map_err(|error| error.to_string()),
        None => Err("it panicked".to_owned()),
    }
}

impl Drop for Relational {
    fn drop(&mut self) {
        self.end_circuit();
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::testing::Fail for Relational {
    fn fail_after(&mut self, tables: usize) {
        locked(&self.relation).fault.fail_after(tables);
    }
}

impl Evictor for Relational {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.removed(entry);
        let (slot, retired) = {
            let mut relation = locked(&self.relation);
            let slot = relation.insert(entry, traversal, &mut self.rows);
            (slot, relation.entries.retired_count())
        };
        self.pending_slots.push(slot);
        if self.pending_slots.len() >= INSTALLS_PER_STEP {
            self.step(if retired > RETIRED_MAX { 2 * INSTALLS_PER_STEP } else { 0 });
        }
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.lost.remove(&entry);
        let mut relation = locked(&self.relation);
        if let Some(slot) = relation.entries.slot(entry) {
            relation.entries.unwatch(slot);
        }
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        self.causes.clear();
        let mut visitors = Vec::new();
        let mut evict_visitors = |relation: &Mutex<LinkRelation>, table| {
            let own = locked(relation).visitors(table);
            visitors.extend(own.into_iter().map(|slot| (table, slot)));
        };
        let relation = Arc::clone(&self.relation);
        let mut remaining =
            self.bound.flush_if_exceeded(deltas, |table| evict_visitors(&relation, table));
        let removed_rules_of_change = removed_rules(&remaining.deltas);
        let scan_threshold = self.scan_threshold;
        let query = ChangeQuery {
            deltas: &remaining.deltas,
            version,
            removed_rules_of_change: &removed_rules_of_change,
            scan_threshold,
        };
        let examined_max = if remaining.has_rules() { self.examined_max } else { usize::MAX };
        let found = self.find(&query, examined_max);
        let found = found.unwrap_or_else(|| {
            self.bound.flush_tables(deltas, |table| evict_visitors(&relation, table));
            remaining = RemainingDeltas::without_rules(deltas);
            let query = ChangeQuery {
                deltas: &remaining.deltas,
                version,
                removed_rules_of_change: &removed_rules_of_change,
                scan_threshold,
            };
            self.find(&query, usize::MAX).unwrap_or_default()
        });
        let query = ChangeQuery {
            deltas: &remaining.deltas,
            version,
            removed_rules_of_change: &removed_rules_of_change,
            scan_threshold,
        };
        let mut evicted: Vec<EntryId> = std::mem::take(&mut self.lost).into_iter().collect();
        record_cause(&mut self.causes, Cause::Fault, evicted.len());
        let relation = &mut *locked(&self.relation);
        for ((bridge, table), slot) in visitors {
            let ended = relation.entries.unwatch(slot);
            record_cause(
                &mut self.causes,
                Cause::Bound(bridge, table),
                usize::from(ended.is_some()),
            );
            evicted.extend(ended);
        }
        for (position, slot) in relation.ended(&found, &query) {
            if let Some(ended) = relation.entries.unwatch(slot) {
                evicted.push(ended);
                record_cause(&mut self.causes, remaining.cause(position as usize), 1);
            }
        }
        evicted
    }

    fn causes(&self) -> &[CauseRun] {
        &self.causes
    }

    fn forget(&mut self, owner: OwnerId) {
        self.lost.retain(|entry| entry.owner != owner);
        let entries = &mut locked(&self.relation).entries;
        for slot in entries.slots_of_owner(owner) {
            entries.unwatch(slot);
        }
    }

    fn run_maintenance(&mut self) -> bool {
        let has_backlog = |own: &Self| {
            !own.pending_slots.is_empty() || locked(&own.relation).entries.retired_count() > 0
        };
        if has_backlog(self) {
            self.step(MAINTENANCE_BUDGET);
            if has_backlog(self) {
                return true;
            }
        }
        let has_deferred_projections = locked(&self.relation).has_deferred_projections();
        if has_deferred_projections {
            locked(&self.relation).push_deferred_projection(&mut self.rows);
            self.step(0);
            return true;
        }
        self.merge();
        false
    }

    fn state(&self) -> EngineState {
        let (relations, bytes) = {
            let relation = locked(&self.relation);
            (relation.sizes(), relation.bytes())
        };
        EngineState {
            name: "relational",
            relations,
            bytes: Some(bytes),
            overflows: self.bound.overflows(),
            faults: self.stats.errors,
        }
    }

    fn len(&self) -> usize {
        locked(&self.relation).entries.len() + self.lost.len()
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FlowKey;
    use shunt_pipeline::testing::{CheckedPipeline, generate};

    use super::*;

    #[test]
    fn merged_traces_find_every_entry() {
        let checked = CheckedPipeline::new(&[]);
        let mut engine = Relational::new(checked.pipeline.version(), 1);
        let mut key = FlowKey::ZERO;
        key.set_bridge(generate::BRIDGES[0].number().into());
        let traversal = Arc::new(checked.translate(&key));
        let entry = |slot| EntryId { owner: OwnerId(0), slot, generation: 0 };
        let count = u32::try_from(2 * CHURNED_MIN).unwrap();
        for slot in 0..count {
            assert_eq!(engine.installed(entry(slot), &traversal), Installed::Recorded);
        }
        assert!(engine.churned >= CHURNED_MIN, "{}", engine.churned);
        while engine.run_maintenance() {}
        assert_eq!((engine.churned, engine.stats().errors), (0, 0), "a merge was requested");
        // The change is applied before the merge has ended.
        let change = checked.pipeline.remove_bridge(generate::BRIDGES[0]);
        let mut evicted = engine.apply(&change.deltas, change.version);
        evicted.sort_unstable();
        assert_eq!(evicted, (0..count).map(entry).collect::<Vec<_>>());
        assert_eq!(engine.stats().errors, 0);
    }

    #[test]
    fn estimated_memory_is_close_to_that_of_dbsp() {
        let checked = CheckedPipeline::new(&[]);
        let mut engine = Relational::new(checked.pipeline.version(), 1);
        let mut key = FlowKey::ZERO;
        key.set_bridge(generate::BRIDGES[0].number().into());
        let traversal = Arc::new(checked.translate(&key));
        for slot in 0..1000 {
            engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, &traversal);
        }
        while engine.run_maintenance() {}
        let relation = engine.relation();
        let (reported, own) = (relation.bytes(), relation.entries.bytes());
        let batches = relation.traces.bytes();
        assert!(
            batches > 0 && (batches..2 * batches).contains(&(reported - own)),
            "{reported} {own} {batches}"
        );
    }
}
