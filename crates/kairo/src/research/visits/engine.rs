//! The visits engine: the rows that it adds to the circuit, and its handling of faults.

use std::{collections::BTreeSet, mem, sync::Arc};

use dbsp::utils::Tup2;
use shunt_pipeline::{
    Cause, CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

use super::{circuit, error::StepError, relation::VisitRelation};
use crate::{
    bound::{ChangeBound, DELTAS_MAX, EXAMINED_MAX, RemainingDeltas},
    deltas::record_cause,
    index::{IndexSize, state},
    research::CircuitStats,
};

/// An eviction engine that finds entries by a circuit over their visits.
///
/// The cost of a change depends on the affected entries, and not on the size of the cache. Entries
/// that were translated at the version of the change or later are not evicted: they include the
/// change already.
pub struct Visits {
    version: Version,
    seed: u64,
    /// The relation over visits, with the rows of the next step.
    relation: Box<VisitRelation>,
    /// Entries that a failed circuit watched: the next change evicts them.
    lost: BTreeSet<EntryId>,
    /// The bound on the number of rules of a change.
    bound: ChangeBound,
    /// Approximate number of visits and entries that a change may examine.
    examined_max: usize,
    /// The causes of the evictions of the last change.
    causes: Vec<CauseRun>,
    stats: CircuitStats,
}

/// Number of visits that a call of `run_maintenance` adds to a projection.
const MAINTENANCE_BUDGET: usize = 256;

/// Number of retired entries that a call of `run_maintenance` reclaims.
///
/// A change waits for this step, so few entries keep it short.
const RECLAIMED_PER_STEP: usize = 32;

/// Number of retired entries above which each install reclaims two of them.
const RETIRED_MAX: usize = 4096;

impl Visits {
    /// Creates an engine without entries at `version`, with the seed of all its hashes.
    #[must_use]
    pub fn new(version: Version, seed: u64) -> Self {
        Self {
            version,
            seed,
            relation: Box::new(VisitRelation::new(seed)),
            lost: BTreeSet::new(),
            bound: ChangeBound::new(DELTAS_MAX),
            examined_max: EXAMINED_MAX,
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

    /// Sets the approximate number of visits and entries that a change may examine.
    ///
    /// Beyond this number, the engine evicts all entries that visit a table of the remaining rules.
    #[must_use]
    pub const fn with_examined_max(mut self, examined_max: usize) -> Self {
        self.examined_max = examined_max;
        self
    }

    /// Returns the counters of the engine and its circuits.
    #[must_use]
    pub const fn stats(&self) -> CircuitStats {
        CircuitStats { overflows: self.bound.overflows(), ..self.stats }
    }

    /// Returns the size of the region index, in time linear in the number of groups.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        self.relation.index.size()
    }

    /// Runs a step with the collected rows.
    /// The step also retracts up to `retired_max` retired entries.
    fn step(&mut self, retired_max: usize) {
        let retired = self.retract(retired_max);
        self.stats.steps += 1;
        match circuit::step(&mut self.relation) {
            Ok(()) => retired.into_iter().for_each(|slot| self.relation.index.release(slot)),
            Err(error) => self.fail(&error),
        }
    }

    /// Adds retractions of up to `retired_max` retired entries.
    /// Returns the slots of the retracted entries.
    fn retract(&mut self, retired_max: usize) -> Vec<u32> {
        let VisitRelation { index, rows, .. } = &mut *self.relation;
        let next = || index.next_retired();
        let slots: Vec<u32> = std::iter::from_fn(next).take(retired_max).collect();
        rows.entries.extend(slots.iter().map(|slot| Tup2(*slot, -1)));
        slots
    }

    /// Handles a failed step: all watched entries become lost, and none is watched.
    fn fail(&mut self, error: &StepError) {
        self.stats.errors += 1;
        tracing::warn!(reason = %error, "eviction engine: the dbsp circuit failed, so all cache \
                                         entries are evicted: please report this bug");
        let relation = mem::replace(&mut *self.relation, VisitRelation::new(self.seed));
        self.lost.extend(relation.index.watched_ids().chain(relation.evicted.iter().copied()));
    }

    /// Evicts all entries that visit a table of the rules of `deltas`.
    fn evict_tables(&mut self, deltas: &[Delta], evicted: &mut Vec<EntryId>) {
        let Self { relation, bound, causes, .. } = self;
        bound.flush_tables(deltas, |(bridge, table)| {
            let before = evicted.len();
            relation.index.evict_visitors((bridge, table), evicted);
            record_cause(causes, Cause::Bound(bridge, table), evicted.len() - before);
        });
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::testing::Fail for Visits {
    fn fail_after(&mut self, places: usize) {
        self.relation.fault.fail_after(places);
    }
}

impl Evictor for Visits {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.lost.remove(&entry);
        let slot = self.relation.index.insert_unlinked(entry, traversal);
        self.relation.rows.entries.push(Tup2(slot, 1));
        self.relation.reserve_results();
        let is_late = self.relation.index.retired() > RETIRED_MAX;
        self.step(if is_late { 2 } else { 0 });
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.lost.remove(&entry);
        self.relation.index.remove(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        self.causes.clear();
        let mut evicted: Vec<EntryId> = mem::take(&mut self.lost).into_iter().collect();
        record_cause(&mut self.causes, Cause::Fault, evicted.len());
        let remaining = if self.bound.is_exceeded_by(deltas) {
            self.evict_tables(deltas, &mut evicted);
            RemainingDeltas::without_rules(deltas)
        } else {
            RemainingDeltas::all(deltas)
        };
        self.relation.begin(&remaining.deltas, version, self.examined_max);
        self.step(0);
        // After a fault the circuit has no output, and `lost` has all entries.
        let lost = mem::take(&mut self.lost);
        record_cause(&mut self.causes, Cause::Fault, lost.len());
        evicted.extend(lost);
        let by_circuit = self.relation.finish();
        if evicted.is_empty() {
            evicted = by_circuit;
        } else {
            evicted.extend(by_circuit);
        }
        for (position, count) in self.relation.evicted_by.drain(..) {
            record_cause(&mut self.causes, remaining.cause(position as usize), count);
        }
        let first_unsearched = self.relation.first_unsearched.take();
        if let Some(unsearched) =
            first_unsearched.and_then(|position| remaining.deltas.get(position as usize..))
        {
            self.evict_tables(unsearched, &mut evicted);
        }
        evicted
    }

    fn causes(&self) -> &[CauseRun] {
        &self.causes
    }

    fn forget(&mut self, owner: OwnerId) {
        self.lost.retain(|entry| entry.owner != owner);
        self.relation.index.remove_owner(owner);
    }

    fn is_quick(&self, deltas: &[Delta]) -> bool {
        self.relation.index.is_quick(deltas)
    }

    fn has_backlog(&self) -> bool {
        self.relation.index.has_much_backlog()
    }

    fn run_maintenance(&mut self) -> bool {
        self.relation.reserve_results();
        let is_full = self.relation.index.fill_projections(MAINTENANCE_BUDGET) == 0;
        if !is_full && self.relation.index.retired() > 0 {
            self.step(RECLAIMED_PER_STEP);
        }
        self.relation.index.has_backlog()
    }

    fn state(&self) -> EngineState {
        let own = state("visits", &self.size(), self.bound.overflows());
        EngineState { faults: self.stats.errors, ..own }
    }

    fn len(&self) -> usize {
        self.relation.index.len() + self.lost.len()
    }
}
