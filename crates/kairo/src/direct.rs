//! The direct engine: the region index, asked once for each delta.

use std::sync::Arc;

use shunt_pipeline::{
    Cause, CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, RuleChange,
    RuleDelta, Traversal, Version,
};

use crate::{
    bound::{Bound, DELTAS_MAX, LOOKS_MAX},
    deltas::{Brief, note_cause, removed_rules},
    index::{Fate, IndexSize, RegionIndex, state},
};

/// Watches entries by their visits and reads. A change costs what it touches, not what is cached.
///
/// Entries that were translated at the version of a change or later know of it, and stay.
pub struct Direct {
    version: Version,
    index: RegionIndex,
    bound: Bound,
    looks_max: usize,
    /// Entries taken out, or visits projected, in a step of tidying.
    tidied_at_once: usize,
    /// Why the entries of the last change went.
    causes: Vec<CauseRun>,
    /// Room for the names of what the next change ends: to ask for it then may cost more than to
    /// find them, as an allocator puts its house in order when it is asked for much at once.
    room: Vec<EntryId>,
}

/// Entries that room is kept for.
const ROOM: usize = 2048;

/// Entries taken out, or visits projected, in a step of tidying, unless it is said otherwise.
const TIDIED_AT_ONCE: usize = 256;

/// Visits and entries that a change is looked for among, so that it takes microseconds.
const LOOKS_AT_ONCE: usize = 1024;

/// Entries that are gone and wait to be taken out, for which nobody need be woken.
const LEAVING_USUAL: usize = 1024;

/// Entries that are gone and still wait to be taken out, beyond which every new one takes out two.
const LEAVING_MAX: usize = 4096;

impl Direct {
    /// An engine without entries, at a version. The seed goes into every hash.
    #[must_use]
    pub fn new(version: Version, seed: u64) -> Self {
        let (index, bound) = (RegionIndex::new(seed), Bound::new(DELTAS_MAX));
        let (causes, room) = (Vec::new(), Vec::with_capacity(ROOM));
        let (looks_max, tidied_at_once) = (LOOKS_MAX, TIDIED_AT_ONCE);
        Self { version, index, bound, looks_max, tidied_at_once, causes, room }
    }

    /// The same, which evicts all entries of the tables that a change of more rules than this
    /// touches.
    #[must_use]
    pub fn with_deltas_max(mut self, deltas_max: usize) -> Self {
        self.bound = Bound::new(deltas_max);
        self
    }

    /// The same, which looks for one change among so many visits and entries, about: beyond that it
    /// evicts all entries of the tables of the rules that are left.
    #[must_use]
    pub const fn with_looks_max(mut self, looks_max: usize) -> Self {
        self.looks_max = looks_max;
        self
    }

    /// The same, where a rule looks at so many visits of a group one by one before it is searched for
    /// by common masks.
    #[must_use]
    pub fn with_few(mut self, few: usize) -> Self {
        self.index = self.index.with_few(few);
        self
    }

    /// The same, which takes out so many entries, or projects so many visits, in a step of tidying.
    #[must_use]
    pub const fn with_tidied_at_once(mut self, tidied_at_once: usize) -> Self {
        self.tidied_at_once = tidied_at_once;
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

    fn make_room(&mut self) {
        if self.room.capacity() < ROOM {
            self.room.reserve_exact(ROOM);
        }
    }

    /// Ends what a delta ends, which comes with so many `others`, rules that are gone at once among
    /// them. Answers with how many visits and entries it looked at, about.
    fn end(
        &mut self,
        delta: &Delta,
        (others, brief): (usize, &Brief),
        all: &mut Vec<EntryId>,
    ) -> usize {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return self.index.end_readers(*object, self.version, all),
            Delta::Rule(delta) => delta,
        };
        match change {
            // What is gone at once decides nothing.
            RuleChange::Added if brief.contains(&rule.id) => 0,
            RuleChange::Added => self.index.end_overlapped(rule, others, all),
            RuleChange::Removed(_) => self.index.end_decided(rule, Fate::Gone, all),
            RuleChange::Modified(_) => {
                let looks = self.index.end_decided(rule, Fate::Changed, all);
                // As a clause of a conjunction it did not decide what it matched.
                if brief.contains(&rule.id) {
                    return looks;
                }
                looks + self.index.end_overlapped(rule, others, all)
            }
        }
    }

    /// Ends all entries of the tables of these rules.
    fn flush(&mut self, deltas: &[Delta], ended: &mut Vec<EntryId>) {
        let Self { index, bound, causes, .. } = self;
        bound.flush_tables(deltas, |(bridge, table)| {
            let before = ended.len();
            index.end_visitors((bridge, table), ended);
            note_cause(causes, Cause::Bound(bridge, table), ended.len() - before);
        });
    }
}

impl Evictor for Direct {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.index.insert(entry, traversal);
        self.make_room();
        if self.index.leaving() > LEAVING_MAX {
            self.index.take_out(2);
        }
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.index.remove(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        self.version = self.version.max(version);
        let brief = removed_rules(deltas);
        self.causes.clear();
        let mut ended = std::mem::take(&mut self.room);
        let mut is_flushed = self.bound.is_passed_by(deltas);
        if is_flushed {
            self.flush(deltas, &mut ended);
        }
        let mut looks = 0;
        for (number, delta) in deltas.iter().enumerate() {
            let is_rule = matches!(delta, Delta::Rule(_));
            if is_rule && !is_flushed && looks > self.looks_max {
                is_flushed = true;
                self.flush(&deltas[number..], &mut ended);
            }
            if is_rule && is_flushed {
                continue;
            }
            let before = ended.len();
            looks += self.end(delta, (deltas.len() - 1, &brief), &mut ended);
            note_cause(&mut self.causes, Cause::Delta(number), ended.len() - before);
        }
        ended
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
        let mut looks = 0;
        deltas.iter().all(|delta| {
            looks += self.cost(delta, LOOKS_AT_ONCE - looks);
            looks <= LOOKS_AT_ONCE
        })
    }

    fn is_untidy(&self) -> bool {
        self.index.leaving() > LEAVING_USUAL || self.index.is_lacking()
    }

    fn tidy(&mut self) -> bool {
        self.make_room();
        self.index.tidy(self.tidied_at_once)
    }
}
