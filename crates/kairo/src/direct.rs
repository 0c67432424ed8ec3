//! The direct engine: one search of the region index per delta.

use std::sync::Arc;

use shunt_pipeline::{
    Cause, CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, RuleChange,
    RuleDelta, Traversal, Version,
};

use crate::{
    bound::{ChangeBound, DELTAS_MAX, EXAMINED_MAX},
    deltas::{RemovedRules, record_cause, removed_rules},
    index::{DeciderChange, IndexSize, RegionIndex, state},
};

/// An eviction engine that finds entries by their visits and reads.
///
/// The cost of a change depends on the affected entries, and not on the size of the cache. Entries
/// that were translated at the version of the change or later are not evicted: they include the
/// change already.
pub struct Direct {
    version: Version,
    index: RegionIndex,
    /// The bound on the number of rules of a change.
    bound: ChangeBound,
    /// Approximate number of visits that the rules of a change may examine.
    examined_max: usize,
    /// Greatest amount of work per call of [`Evictor::run_maintenance`].
    /// One unit is a reclaimed entry, or a visit that is added to a projection.
    maintenance_budget: usize,
    /// The causes of the evictions of the last change.
    causes: Vec<CauseRun>,
    /// A buffer for the entries that the next change evicts.
    ///
    /// The buffer is allocated before the change: an allocation of this size may take longer than
    /// the search, because the allocator first consolidates its free lists.
    results: Vec<EntryId>,
}

/// Number of entries for which the result buffer has room.
const RESULTS_CAPACITY: usize = 2048;

/// Default for the amount of work per call of [`Evictor::run_maintenance`].
/// One unit is a reclaimed entry, or a visit that is added to a projection.
const MAINTENANCE_BUDGET: usize = 256;

/// Number of retired entries above which each install reclaims two of them.
const RETIRED_MAX: usize = 4096;

impl Direct {
    /// Creates an engine without entries at `version`, with the seed of all its hashes.
    #[must_use]
    pub fn new(version: Version, seed: u64) -> Self {
        let (index, bound) = (RegionIndex::new(seed), ChangeBound::new(DELTAS_MAX));
        let (causes, results) = (Vec::new(), Vec::with_capacity(RESULTS_CAPACITY));
        let (examined_max, maintenance_budget) = (EXAMINED_MAX, MAINTENANCE_BUDGET);
        Self { version, index, bound, examined_max, maintenance_budget, causes, results }
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

    /// Sets the greatest number of visits of a group that are examined one by one.
    /// If a group has more visits, a projection of the group is searched.
    #[must_use]
    pub fn with_scan_threshold(mut self, few: usize) -> Self {
        self.index = self.index.with_scan_threshold(few);
        self
    }

    /// Sets the amount of work per call of [`Evictor::run_maintenance`].
    /// One unit is a reclaimed entry, or a visit that is added to a projection.
    #[must_use]
    pub const fn with_maintenance_budget(mut self, maintenance_budget: usize) -> Self {
        self.maintenance_budget = maintenance_budget;
        self
    }

    /// Returns the number of changes that exceeded a bound and evicted whole tables.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.bound.overflows()
    }

    /// Returns the size of the region index, in time linear in the number of groups.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        self.index.size()
    }

    /// Reserves memory for the result of the next change.
    fn reserve_results(&mut self) {
        if self.results.capacity() < RESULTS_CAPACITY {
            self.results.reserve_exact(RESULTS_CAPACITY);
        }
    }

    /// Evicts the entries that `delta` makes stale.
    /// Returns the approximate number of examined visits.
    ///
    /// `others` is the number of other deltas in the change, and `removed` has the rules that the
    /// change removes.
    fn evict(
        &mut self,
        delta: &Delta,
        others: usize,
        removed: &RemovedRules,
        evicted: &mut Vec<EntryId>,
    ) -> usize {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => {
                return self.index.evict_readers(*object, self.version, evicted);
            }
            Delta::Rule(delta) => delta,
        };
        match change {
            // A rule that the same change removes again decides no lookup.
            RuleChange::Added if removed.contains(&rule.id) => 0,
            RuleChange::Added => self.index.evict_overlapped(rule, others, evicted),
            RuleChange::Removed(_) => {
                self.index.evict_decided(rule, DeciderChange::Removed, evicted)
            }
            RuleChange::Modified(_) => {
                let examined = self.index.evict_decided(rule, DeciderChange::Modified, evicted);
                // The rule may have been a clause of a conjunction, and other clauses then decided
                // the same lookups.
                if removed.contains(&rule.id) {
                    return examined;
                }
                examined + self.index.evict_overlapped(rule, others, evicted)
            }
        }
    }

    /// Evicts all entries that visit a table of the rules of `deltas`.
    fn evict_tables(&mut self, deltas: &[Delta], evicted: &mut Vec<EntryId>) {
        let Self { index, bound, causes, .. } = self;
        bound.flush_tables(deltas, |(bridge, table)| {
            let before = evicted.len();
            index.evict_visitors((bridge, table), evicted);
            record_cause(causes, Cause::Bound(bridge, table), evicted.len() - before);
        });
    }
}

impl Evictor for Direct {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.index.insert(entry, traversal);
        self.reserve_results();
        if self.index.retired() > RETIRED_MAX {
            self.index.reclaim(2);
        }
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.index.remove(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        self.version = self.version.max(version);
        let removed = removed_rules(deltas);
        self.causes.clear();
        let mut evicted = std::mem::take(&mut self.results);
        let mut is_flushed = self.bound.is_exceeded_by(deltas);
        if is_flushed {
            self.evict_tables(deltas, &mut evicted);
        }
        let mut examined = 0;
        for (number, delta) in deltas.iter().enumerate() {
            let is_rule = matches!(delta, Delta::Rule(_));
            if is_rule && !is_flushed && examined > self.examined_max {
                is_flushed = true;
                self.evict_tables(&deltas[number..], &mut evicted);
            }
            if is_rule && is_flushed {
                continue;
            }
            let before = evicted.len();
            examined += self.evict(delta, deltas.len() - 1, &removed, &mut evicted);
            record_cause(&mut self.causes, Cause::Delta(number), evicted.len() - before);
        }
        evicted
    }

    fn causes(&self) -> &[CauseRun] {
        &self.causes
    }

    fn forget(&mut self, owner: OwnerId) {
        self.index.remove_owner(owner);
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn state(&self) -> EngineState {
        state("direct", &self.size(), self.overflows())
    }

    fn is_quick(&self, deltas: &[Delta]) -> bool {
        self.index.is_quick(deltas)
    }

    fn has_backlog(&self) -> bool {
        self.index.has_much_backlog()
    }

    fn run_maintenance(&mut self) -> bool {
        self.reserve_results();
        self.index.run_maintenance(self.maintenance_budget)
    }
}
