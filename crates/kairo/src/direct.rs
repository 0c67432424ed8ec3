//! The direct engine: the region index, asked once for each delta.

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

/// Watches entries by their visits and reads. A change costs what it touches, not what is cached.
///
/// Entries that were translated at the version of a change or later know of it, and stay.
pub struct Direct {
    version: Version,
    index: RegionIndex,
    bound: ChangeBound,
    examined_max: usize,
    /// Entries taken out, or visits projected, in a step of tidying.
    maintenance_budget: usize,
    /// Why the entries of the last change went.
    causes: Vec<CauseRun>,
    /// Room for the names of what the next change ends: to ask for it then may cost more than to
    /// find them, as an allocator puts its house in order when it is asked for much at once.
    results: Vec<EntryId>,
}

/// Entries that results is kept for.
const RESULTS_CAPACITY: usize = 2048;

/// Entries taken out, or visits projected, in a step of tidying, unless it is said otherwise.
const TIDY_BUDGET: usize = 256;

/// Visits and entries that a change is looked for among, so that it takes microseconds.
const QUICK_EXAMINED_MAX: usize = 1024;

/// Entries that are gone and wait to be taken out, for which nobody need be woken.
const RETIRED_USUAL: usize = 1024;

/// Entries that are gone and still wait to be taken out, beyond which every new one takes out two.
const RETIRED_MAX: usize = 4096;

impl Direct {
    /// An engine without entries, at a version. The seed goes into every hash.
    #[must_use]
    pub fn new(version: Version, seed: u64) -> Self {
        let (index, bound) = (RegionIndex::new(seed), ChangeBound::new(DELTAS_MAX));
        let (causes, results) = (Vec::new(), Vec::with_capacity(RESULTS_CAPACITY));
        let (examined_max, maintenance_budget) = (EXAMINED_MAX, TIDY_BUDGET);
        Self { version, index, bound, examined_max, maintenance_budget, causes, results }
    }

    /// The same, which evicts all entries of the tables that a change of more rules than this
    /// touches.
    #[must_use]
    pub fn with_deltas_max(mut self, deltas_max: usize) -> Self {
        self.bound = ChangeBound::new(deltas_max);
        self
    }

    /// The same, which looks for one change among so many visits and entries, about: beyond that it
    /// evicts all entries of the tables of the rules that are left.
    #[must_use]
    pub const fn with_examined_max(mut self, examined_max: usize) -> Self {
        self.examined_max = examined_max;
        self
    }

    /// The same, where a rule looks at so many visits of a group one by one before it is searched for
    /// by common masks.
    #[must_use]
    pub fn with_scan_threshold(mut self, few: usize) -> Self {
        self.index = self.index.with_scan_threshold(few);
        self
    }

    /// The same, which takes out so many entries, or projects so many visits, in a step of tidying.
    #[must_use]
    pub const fn with_tidy_budget(mut self, maintenance_budget: usize) -> Self {
        self.maintenance_budget = maintenance_budget;
        self
    }

    /// Changes that were too much to be looked at one by one.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.bound.overflows()
    }

    /// How large its index is. Takes time linear in the number of groups.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        self.index.size()
    }

    /// About how many visits and entries a delta is looked for among, and more than `max` if they
    /// are more.
    fn cost(&self, delta: &Delta, max: usize) -> usize {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return self.index.cost_of_readers(*object),
            Delta::Rule(delta) => delta,
        };
        let decided = || self.index.cost_of_decided(rule, max);
        let overlapped = || self.index.cost_of_overlapped(rule, max);
        match change {
            RuleChange::Added => overlapped(),
            RuleChange::Removed(_) => decided(),
            RuleChange::Modified(_) => decided() + overlapped(),
        }
    }

    fn reserve_results(&mut self) {
        if self.results.capacity() < RESULTS_CAPACITY {
            self.results.reserve_exact(RESULTS_CAPACITY);
        }
    }

    /// Ends what a delta ends, which comes with so many `others`, rules that are gone at once among
    /// them. Answers with how many visits and entries it looked at, about.
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
            // What is gone at once decides nothing.
            RuleChange::Added if removed.contains(&rule.id) => 0,
            RuleChange::Added => self.index.evict_overlapped(rule, others, evicted),
            RuleChange::Removed(_) => {
                self.index.evict_decided(rule, DeciderChange::Removed, evicted)
            }
            RuleChange::Modified(_) => {
                let examined = self.index.evict_decided(rule, DeciderChange::Modified, evicted);
                // As a clause of a conjunction it did not decide what it matched.
                if removed.contains(&rule.id) {
                    return examined;
                }
                examined + self.index.evict_overlapped(rule, others, evicted)
            }
        }
    }

    /// Ends all entries of the tables of these rules.
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
        let mut examined = 0;
        deltas.iter().all(|delta| {
            examined += self.cost(delta, QUICK_EXAMINED_MAX - examined);
            examined <= QUICK_EXAMINED_MAX
        })
    }

    fn has_backlog(&self) -> bool {
        self.index.retired() > RETIRED_USUAL || self.index.has_unfilled_projections()
    }

    fn run_maintenance(&mut self) -> bool {
        self.reserve_results();
        self.index.run_maintenance(self.maintenance_budget)
    }
}
