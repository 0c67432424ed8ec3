//! The index itself: what is inserted and ended, found and put off.

use std::sync::Arc;

use foldhash::fast::FixedState;
use shunt_flow::Match;
use shunt_pipeline::{
    BridgeId, EngineState, EntryId, Object, OwnerId, Rule, TableId, Traversal, Version, Visit,
};

use super::{
    asked::Asked,
    places::Places,
    readers::Readers,
    row::{Row, Visited},
};
use crate::{
    entries::{Entries, Held},
    region::{AskedWord, is_decided},
};

/// Which entries depend on which rules and objects.
pub struct RegionIndex {
    entries: Entries<Links>,
    places: Places,
    readers: Readers,
    /// Visits in groups, one for each rule that decided it.
    rows: usize,
    /// Slots that a search has found.
    found: Vec<u32>,
    /// Visits that it looks at.
    candidates: Vec<Visited>,
}

/// Where the visits and the reads of an entry are.
struct Links {
    /// Its visits that are in groups, by group and position there.
    rows: Box<[(u32, u32)]>,
    /// The set of objects that it reads.
    reads: u32,
}

/// What has happened to a rule that decided something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is gone.
    Gone,
    /// It does something else now, and has another revision.
    Changed,
}

/// How large a [`RegionIndex`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSize {
    /// Entries that are watched.
    pub entries: usize,
    /// Entries that are not watched any more and wait to be taken out.
    pub leaving: usize,
    /// Visits of all these, one for each rule that decided it.
    pub visits: usize,
    /// Groups with visits, over all tables.
    pub groups: usize,
    /// Common masks that groups are held by.
    pub projections: usize,
    /// Places of visits in chains: by the rule that decided, and by each common mask.
    pub chained: usize,
    /// Sets of objects that entries read.
    pub read_sets: usize,
    /// Bytes on the heap, about; traversals are shared with their owners, and not counted.
    pub bytes: usize,
}

/// What an engine with an index of this size says of itself.
pub(crate) fn state(name: &'static str, size: &IndexSize, overflows: u64) -> EngineState {
    let relations = vec![
        ("entries", size.entries),
        ("visits", size.visits),
        ("groups", size.groups),
        ("projections", size.projections),
        ("chained", size.chained),
        ("read sets", size.read_sets),
        ("tombstones", size.leaving),
    ];
    EngineState { name, relations, bytes: Some(size.bytes), overflows, faults: 0 }
}

/// Rows that projections for new masks are given before each search, for each rule that its change
/// has; the rest is looked through. So a thousand rules of a new mask do not look through a large
/// group a thousand times. The first rule of a mask, if it comes alone, waits for none of it.
const FILLED_FOR_A_RULE: usize = 1024;

/// Rules of a change that count for that.
const RULES_COUNTED: usize = 64;

/// Visits that are looked at side by side: what is read of them stays in the nearest cache.
const LOOKED_AT_TOGETHER: usize = 64;

impl RegionIndex {
    /// An index without entries. The seed goes into every hash, so that who sends packets cannot
    /// choose which of them collide, and a run can be repeated.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hashes = FixedState::with_seed(seed);
        Self {
            places: Places::new(&hashes),
            readers: Readers::new(&hashes),
            entries: Entries::new(hashes),
            rows: 0,
            found: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// The same, where a rule looks at so many visits of a group one by one before it is searched for
    /// by common masks. What is found is the same.
    #[must_use]
    pub fn with_few(mut self, few: usize) -> Self {
        self.places = self.places.with_few(few);
        self
    }

    /// Watches an entry, in the place of one with its name.
    ///
    /// Takes constant time for each visit and read.
    pub fn insert(&mut self, id: EntryId, traversal: &Arc<Traversal>) {
        let slot = self.hold(id, traversal);
        self.link(slot, 0..visits_count(traversal));
    }

    /// Watches an entry, in the place of one with its name; but of its visits only those that
    /// [`Self::link`] names. Answers with its slot.
    pub(crate) fn hold(&mut self, id: EntryId, traversal: &Arc<Traversal>) -> u32 {
        self.remove(id);
        let mut reads = |slot| self.readers.insert(&traversal.reads, slot);
        let links = |slot| Links { rows: Box::default(), reads: reads(slot) };
        self.entries.insert(id, traversal, links)
    }

    /// Takes visits of an entry in, which are not in yet.
    pub(crate) fn link(&mut self, slot: u32, visits: impl Iterator<Item = u32>) {
        let Some(held) = self.entries.get_mut(slot) else { return };
        let mut rows = Vec::from(std::mem::take(&mut held.links.rows));
        rows.reserve_exact(held.traversal.visits.len());
        for number in visits {
            let Some(visit) = held.traversal.visits.get(number as usize) else { continue };
            let own = Row::all(slot, number, visit);
            let before = rows.len();
            rows.extend(own.map(|row| self.places.insert(row, visit)));
            self.rows += rows.len() - before;
        }
        held.links.rows = rows.into();
    }

    /// Takes the visits of an entry out.
    pub(crate) fn unlink(&mut self, slot: u32) {
        let Some(held) = self.entries.get_mut(slot) else { return };
        let rows = std::mem::take(&mut held.links.rows);
        self.rows -= rows.len();
        for (group, position) in rows {
            self.places.remove(group, position);
        }
    }

    /// Watches an entry no longer. Takes constant time.
    pub fn remove(&mut self, id: EntryId) {
        if let Some(slot) = self.entries.slot(id) {
            self.entries.end(slot);
        }
    }

    /// Watches no entry of an owner any longer.
    pub fn remove_owner(&mut self, owner: OwnerId) {
        for slot in self.entries.of_owner(owner) {
            self.entries.end(slot);
        }
    }

    /// Ends the entries with a visit that a rule decided, as it was before. Answers with how many
    /// visits were looked at.
    pub fn end_decided(&mut self, rule: &Rule, fate: Fate, ended: &mut Vec<EntryId>) -> usize {
        let mut found = std::mem::take(&mut self.found);
        let groups = self.places.decided_by(rule.id);
        let mut looks = 0;
        match fate {
            Fate::Gone => found.extend(groups.flat_map(|group| group.entries_decided_by(rule))),
            Fate::Changed => {
                let is_stale = |row: &Row| {
                    let is_older = |own: &Rule| own.revision != rule.revision;
                    self.visit(row.visited()).is_some_and(|visit| is_decided(visit, rule, is_older))
                };
                let rows = groups.flat_map(|group| group.decided_by(rule));
                let rows = rows.inspect(|_| looks += 1);
                found.extend(rows.filter(is_stale).map(|row| row.entry));
            }
        }
        let looks = looks.max(found.len());
        self.end(found, ended);
        looks
    }

    /// Ends the entries with a visit that a rule outranks and whose region it overlaps. It comes with
    /// so many `others` in one change: the more, the more is done so that the next is found faster.
    /// Answers with how many visits were looked at, about.
    pub fn end_overlapped(
        &mut self,
        rule: &Rule,
        others: usize,
        ended: &mut Vec<EntryId>,
    ) -> usize {
        let (place, matching) = ((rule.bridge, rule.table), &rule.matching);
        let mask = matching.mask();
        let is_put_off = others == 0 && self.places.remember(place, mask, rule.rank());
        if !is_put_off && self.places.prepare(place, mask, rule.rank()) {
            self.places.fill(FILLED_FOR_A_RULE * (1 + others).min(RULES_COUNTED));
        }
        let (asked, mut found) = (Asked::of(rule), std::mem::take(&mut self.found));
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut looks = 0;
        for (group, way) in self.places.search(place, mask) {
            let before = candidates.len();
            let search = group.candidates(way, &asked, self.places.hashes(), &mut candidates);
            looks += 1 + search.looks;
            if search.is_known {
                found.extend(candidates.drain(before..).map(|row| row.entry));
            }
        }
        for together in candidates.chunks(LOOKED_AT_TOGETHER) {
            self.find_overlapped(together, matching, &mut found);
        }
        candidates.clear();
        self.candidates = candidates;
        self.end(found, ended);
        looks
    }

    /// About how many visits [`Self::end_decided`] looks at, and more than `max` if they are more.
    pub(crate) fn cost_of_decided(&self, rule: &Rule, max: usize) -> usize {
        let groups = self.places.decided_by(rule.id);
        groups.flat_map(|group| group.entries_decided_by(rule)).take(max + 1).count()
    }

    /// The same of [`Self::end_overlapped`].
    pub(crate) fn cost_of_overlapped(&self, rule: &Rule, max: usize) -> usize {
        let (place, asked) = ((rule.bridge, rule.table), Asked::of(rule));
        let mut cost = 0;
        for (group, way) in self.places.search(place, rule.matching.mask()) {
            let Some(left) = max.checked_sub(cost) else { break };
            cost += 1 + group.cost(way, &asked, self.places.hashes(), left);
            if !group.is_whole() && !group.outranks_few(way, rule.rank()) {
                // What projections lack is given to them first.
                cost += FILLED_FOR_A_RULE;
            }
        }
        cost
    }

    /// The same of [`Self::end_readers`].
    pub(crate) fn cost_of_readers(&self, object: Object) -> usize {
        self.readers.count(object)
    }

    /// Ends the entries that read an object and were translated before a version. Answers with how
    /// many entries were looked at.
    pub fn end_readers(
        &mut self,
        object: Object,
        before: Version,
        ended: &mut Vec<EntryId>,
    ) -> usize {
        let is_older = |slot: &u32| {
            self.entries.watched(*slot).is_some_and(|held| held.traversal.version < before)
        };
        let found = self.readers.of(object).filter(is_older).collect();
        self.end(found, ended);
        self.readers.count(object)
    }

    /// Ends the entries that visit a table.
    pub fn end_visitors(&mut self, place: (BridgeId, TableId), ended: &mut Vec<EntryId>) {
        let found = self.places.of(place).flat_map(|group| group.entries()).collect();
        self.end(found, ended);
    }

    /// The traversal of an entry that is watched.
    #[must_use]
    pub fn traversal(&self, id: EntryId) -> Option<&Arc<Traversal>> {
        Some(&self.entries.watched(self.entries.slot(id)?)?.traversal)
    }

    /// Does some of the work that was put off: at most `budget` entries are taken out, or rows
    /// projected. Answers whether there is more.
    pub fn tidy(&mut self, budget: usize) -> bool {
        let left = self.fill(budget);
        self.take_out(left);
        self.is_untidy()
    }

    /// Takes out so many entries that are not watched any more.
    pub(crate) fn take_out(&mut self, count: usize) {
        for _ in 0..count {
            let Some(slot) = self.next_leaving() else { break };
            self.unlink(slot);
            self.release(slot);
        }
    }

    /// Whether some projection is missing, or lacks visits.
    pub(crate) const fn is_lacking(&self) -> bool {
        self.places.is_lacking()
    }

    /// Whether [`Self::tidy`] has something to do.
    pub(crate) fn is_untidy(&self) -> bool {
        self.is_lacking() || self.leaving() > 0
    }

    /// Makes projections for masks that came alone, and puts rows into those that lack them, at most
    /// so many. Answers with what is left of `budget`.
    pub(crate) fn fill(&mut self, budget: usize) -> usize {
        let left = self.places.prepare_for_alone(budget);
        self.places.fill(left)
    }

    /// The slot of the next entry that is not watched any more, to be [released](Self::release).
    pub(crate) fn next_leaving(&mut self) -> Option<u32> {
        self.entries.next_dead()
    }

    /// How many visits the entry in a slot has.
    #[cfg(feature = "dbsp")]
    pub(crate) fn visits_count(&self, slot: u32) -> u32 {
        self.entries.get(slot).map_or(0, |held| visits_count(&held.traversal))
    }

    /// Forgets an entry that is not watched any more, and whose visits are not in.
    pub(crate) fn release(&mut self, slot: u32) {
        if let Some(held) = self.entries.release(slot) {
            debug_assert!(held.links.rows.is_empty(), "a row refers to an entry that is there");
            self.readers.remove(held.links.reads, slot);
        }
    }

    /// The names of all entries that are watched.
    #[cfg(feature = "dbsp")]
    pub(crate) fn names(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.entries.all().map(|(id, _)| id)
    }

    /// Entries that are watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that are not watched any more and wait to be taken out.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.entries.dead_count()
    }

    /// How large it is. Takes time linear in the number of groups.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        let links = self.rows * size_of::<(u32, u32)>();
        IndexSize {
            entries: self.entries.len(),
            leaving: self.entries.dead_count(),
            visits: self.rows,
            groups: self.places.len(),
            projections: self.places.projections(),
            chained: self.places.chained(),
            read_sets: self.readers.len(),
            bytes: self.entries.bytes() + links + self.places.bytes() + self.readers.bytes(),
        }
    }

    fn end(&mut self, mut found: Vec<u32>, ended: &mut Vec<EntryId>) {
        ended.extend(found.drain(..).filter_map(|slot| self.entries.end(slot)));
        self.found = found;
    }

    /// The visit of a row, unless its entry is not watched any more.
    fn visit(&self, row: Visited) -> Option<&Visit> {
        visit_of(self.entries.watched(row.entry)?, row)
    }

    /// Finds the visits of these whose region a match overlaps, by the slots of their entries.
    ///
    /// What is compared lies behind five pointers, each somewhere else in memory. They are followed
    /// for all visits side by side, as memory answers many questions in the time of one; so a word is
    /// compared for all of them before the next.
    fn find_overlapped(&self, rows: &[Visited], matching: &Match, found: &mut Vec<u32>) {
        let held = |row: &Visited| Some((*row, self.entries.watched(row.entry)?));
        let held: Vec<_> = rows.iter().filter_map(held).collect();
        let visits = held
            .iter()
            .filter_map(|(row, held)| Some((row.entry, &*held.traversal, visit_of(held, *row)?)));
        let mut visits: Vec<_> = visits.collect();
        for asked in AskedWord::all(matching) {
            visits.retain(|(_, own, visit)| asked.overlaps(own, visit));
        }
        found.extend(visits.iter().map(|(entry, ..)| *entry));
    }
}

fn visit_of(held: &Held<Links>, row: Visited) -> Option<&Visit> {
    held.traversal.visits.get(row.visit as usize)
}

pub(crate) fn visits_count(traversal: &Traversal) -> u32 {
    u32::try_from(traversal.visits.len()).unwrap_or(u32::MAX)
}
