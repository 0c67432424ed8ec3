//! An estimate of the work of a change, before any search.
//!
//! A thread that makes a change also applies it if the change is quick. Other changes wait for the
//! eviction thread.

use shunt_pipeline::{Delta, RuleChange, RuleDelta};

use super::region_index::RegionIndex;

/// Maximum number of visits and entries that a quick change examines.
/// A quick change takes microseconds.
const QUICK_EXAMINED_MAX: usize = 1024;

/// Maximum number of retired entries without much deferred work.
const RETIRED_USUAL: usize = 1024;

impl RegionIndex {
    /// Returns whether the searches for `deltas` take microseconds.
    pub(crate) fn is_quick(&self, deltas: &[Delta]) -> bool {
        let mut examined = 0;
        deltas.iter().all(|delta| {
            examined += self.cost(delta, QUICK_EXAMINED_MAX - examined);
            examined <= QUICK_EXAMINED_MAX
        })
    }

    /// Returns whether enough work is deferred to wake a thread for it.
    pub(crate) fn has_much_backlog(&self) -> bool {
        self.retired() > RETIRED_USUAL || self.has_unfilled_projections()
    }

    /// Returns an estimate of the visits and entries that a search examines.
    ///
    /// If the estimate is more than `max`, any number above `max` is returned.
    fn cost(&self, delta: &Delta, max: usize) -> usize {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return self.cost_of_readers(*object),
            Delta::Rule(delta) => delta,
        };
        let decided = || self.cost_of_decided(rule, max);
        let overlapped = || self.cost_of_overlapped(rule, max);
        match change {
            RuleChange::Added => overlapped(),
            RuleChange::Removed(_) => decided(),
            RuleChange::Modified(_) => decided() + overlapped(),
        }
    }
}
