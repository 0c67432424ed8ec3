//! The direct engine: the region index, asked once for each delta.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use shunt_pipeline::{
    Delta, EntryId, Evictor, Installed, OwnerId, RuleChange, RuleDelta, RuleId, Traversal, Version,
};

use crate::{
    bound::{Bound, DELTAS_MAX},
    deltas::removed_rules,
    index::{IndexSize, RegionIndex},
};

/// Watches entries by their visits and reads. A change costs what it touches, not what is cached.
///
/// Entries that were translated at the version of a change or later know of it, and stay.
pub struct Direct {
    version: Version,
    index: RegionIndex,
    bound: Bound,
}

/// Entries taken out, or visits projected, in a step of tidying.
const TIDIED_AT_ONCE: usize = 256;

/// Entries that are gone and still wait to be taken out, beyond which every new one takes out two.
const LEAVING_MAX: usize = 4096;

impl Direct {
    /// An engine without entries, at a version.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self::with_deltas_max(version, DELTAS_MAX)
    }

    /// The same, which evicts all entries of the tables that a change of more rules than this
    /// touches.
    #[must_use]
    pub fn with_deltas_max(version: Version, deltas_max: usize) -> Self {
        Self { version, index: RegionIndex::default(), bound: Bound::new(deltas_max) }
    }

    /// Changes that were too much to be looked at one by one.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.bound.overflows()
    }

    /// How large its index is. Takes time linear in the number of entries.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        self.index.size()
    }

    fn end(&mut self, delta: &Delta, brief: &HashSet<RuleId, RandomState>, all: &mut Vec<EntryId>) {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return self.index.end_readers(*object, self.version, all),
            Delta::Rule(delta) => delta,
        };
        match change {
            // What is gone at once decides nothing.
            RuleChange::Added if brief.contains(&rule.id) => {}
            RuleChange::Added => self.index.end_overlapped(rule, all),
            RuleChange::Removed(_) => self.index.end_decided(rule, true, all),
            RuleChange::Modified(_) => {
                self.index.end_decided(rule, false, all);
                // As a clause of a conjunction it did not decide what it matched.
                self.index.end_overlapped(rule, all);
            }
        }
    }
}

impl Evictor for Direct {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.index.insert(entry, traversal);
        if self.index.leaving() > LEAVING_MAX {
            self.index.tidy(2);
        }
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.index.remove(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        self.version = version;
        let brief = removed_rules(deltas);
        let mut ended = Vec::new();
        let left = self.bound.flush(deltas, |table| self.index.end_visitors(table, &mut ended));
        left.iter().for_each(|delta| self.end(delta, &brief, &mut ended));
        ended
    }

    fn forget(&mut self, owner: OwnerId) {
        self.index.remove_owner(owner);
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn tidy(&mut self) -> bool {
        self.index.tidy(TIDIED_AT_ONCE)
    }
}
