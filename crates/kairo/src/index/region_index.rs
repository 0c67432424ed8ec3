//! The index itself: what is inserted and ended, found and put off.

use std::sync::Arc;

use foldhash::fast::RandomState;
use shunt_flow::{Match, SparseKey, layout::word};
use shunt_pipeline::{EntryId, Object, OwnerId, Rule, RuleId, Traversal, Version, Visit};

use super::{
    entries::{Entries, Held},
    places::{Band, Places},
    readers::Readers,
    row::{MISS, Row},
};

/// Which entries depend on which rules and objects.
#[derive(Default)]
pub struct RegionIndex {
    entries: Entries,
    places: Places,
    readers: Readers,
    hashes: RandomState,
    /// Slots that a search has found.
    found: Vec<u32>,
}

/// How large a [`RegionIndex`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSize {
    /// Entries that are watched.
    pub entries: usize,
    /// Entries that are not watched any more and wait to be taken out.
    pub leaving: usize,
    /// Groups of visits, over all tables.
    pub groups: usize,
    /// Bytes on the heap, about; traversals are shared with their owners, and not counted.
    pub bytes: usize,
}

const TRANSPORT: usize = word::TRANSPORT as usize;
/// The bits of transport ports in their word.
const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;

/// Rows that a projection for a new mask is given before it is first searched; the rest follows.
const FILLED_AT_ONCE: usize = 2048;

impl RegionIndex {
    /// Watches an entry, in the place of one with its name.
    ///
    /// Takes constant time for each visit and read.
    pub fn insert(&mut self, id: EntryId, traversal: &Arc<Traversal>) {
        self.remove(id);
        let entry = self.entries.reserve();
        let mut rows = Vec::with_capacity(traversal.visits.len());
        for (visit, number) in traversal.visits.iter().zip(0..) {
            let rank = visit.rank().unwrap_or(MISS);
            let place = (visit.bridge, visit.table);
            let group = self.places.group_for(place, &visit.mask, Band::of(rank));
            for rule in deciders(visit) {
                let row = Row { entry, visit: number, rank, rule };
                let at = self.places.group_mut(group).insert(row, &visit.key, &self.hashes);
                rows.push((group, at));
            }
        }
        let reads = self.readers.insert(&traversal.reads, entry);
        self.entries.put(entry, Held::new(id, traversal, rows, reads));
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

    /// Ends the entries with a visit that a rule of this name decided, unless by this very revision.
    pub fn end_decided(&mut self, rule: &Rule, is_gone: bool, ended: &mut Vec<EntryId>) {
        let (place, band) = ((rule.bridge, rule.table), Band::of(rule.rank()));
        let is_stale = |row: &Row| {
            is_gone || self.visit(*row).is_some_and(|visit| !is_by_revision(visit, rule))
        };
        let groups = self.places.of_band(place, band);
        let rows = groups.flat_map(|group| group.decided_by(rule.id, &self.hashes));
        let found = rows.filter(is_stale).map(|row| row.entry).collect();
        self.end(found, ended);
    }

    /// Ends the entries with a visit that a rule outranks and whose region it overlaps.
    pub fn end_overlapped(&mut self, rule: &Rule, ended: &mut Vec<EntryId>) {
        let (place, rank, matching) = ((rule.bridge, rule.table), rule.rank(), &rule.matching);
        self.places.prepare(place, matching.mask());
        if self.places.is_lacking() {
            self.fill(FILLED_AT_ONCE);
            self.places.prepare(place, matching.mask());
        }
        let mut found = std::mem::take(&mut self.found);
        for (group, way) in self.places.search(place, matching.mask(), Band::of(rank)) {
            group.candidates(way, rule, &self.hashes, |row| {
                if self.is_overlapped(row, matching) {
                    found.push(row.entry);
                }
            });
        }
        self.end(found, ended);
    }

    /// Ends the entries that read an object and were translated before a version.
    pub fn end_readers(&mut self, object: Object, before: Version, ended: &mut Vec<EntryId>) {
        let is_older = |slot: &u32| {
            self.entries.watched(*slot).is_some_and(|held| held.traversal.version < before)
        };
        let found = self.readers.of(object).filter(is_older).collect();
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
        for _ in 0..left {
            let Some((slot, held)) = self.entries.take_dead() else { break };
            for (group, position) in &held.rows {
                self.places.group_mut(*group).remove(*position);
            }
            self.readers.remove(held.reads, slot);
            self.entries.release(slot);
        }
        self.places.is_lacking() || self.entries.dead_count() > 0
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

    /// How large it is. Takes time linear in the number of entries.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        IndexSize {
            entries: self.entries.len(),
            leaving: self.entries.dead_count(),
            groups: self.places.len(),
            bytes: self.entries.bytes() + self.places.bytes() + self.readers.bytes(),
        }
    }

    fn end(&mut self, mut found: Vec<u32>, ended: &mut Vec<EntryId>) {
        ended.extend(found.drain(..).filter_map(|slot| self.entries.end(slot)));
        self.found = found;
    }

    fn fill(&mut self, budget: usize) -> usize {
        let nothing = SparseKey::from(&shunt_flow::FlowKey::ZERO);
        let entries = &self.entries;
        let key = |row: Row| {
            let visit = entries.get(row.entry).and_then(|held| visit_of(held, row));
            visit.map_or(&nothing, |visit| &visit.key)
        };
        self.places.fill(budget, &self.hashes, key)
    }

    /// The visit of a row, unless its entry is not watched any more.
    fn visit(&self, row: Row) -> Option<&Visit> {
        visit_of(self.entries.watched(row.entry)?, row)
    }

    /// Whether a rule matches some packet of the entry's, as it enters the table.
    ///
    /// An entry fixes there what its mask holds of the packet that came in, and whatever was written
    /// before: that is a function of what was consulted. What differs from the packet as it came in
    /// was written; but not ports that are zero, which a fragment is looked up without.
    fn is_overlapped(&self, row: Row, matching: &Match) -> bool {
        let Some(held) = self.entries.watched(row.entry) else { return false };
        let Some(visit) = visit_of(held, row) else { return false };
        let Traversal { key, mask, .. } = &*held.traversal;
        matching.mask().iter().zip(matching.value()).all(|((word, bits), value)| {
            let own = visit.key.word(word);
            let differing = (own ^ value) & bits;
            let written = || {
                let has_no_ports = word == TRANSPORT && own & PORTS_BITS == 0;
                (own ^ key.word(word)) & if has_no_ports { !PORTS_BITS } else { u64::MAX }
            };
            let fixed = || visit.mask.word(word) | mask.word(word) | written();
            differing == 0 || differing & fixed() == 0
        })
    }
}

fn visit_of(held: &Held, row: Row) -> Option<&Visit> {
    held.traversal.visits.get(row.visit as usize)
}

/// The rules that decided a visit, each for a row of its own.
fn deciders(visit: &Visit) -> impl Iterator<Item = Option<RuleId>> + '_ {
    let rules = visit.rule.iter().chain(&visit.clauses).map(|rule| Some(rule.id));
    let is_miss = visit.rule.is_none() && visit.clauses.is_empty();
    rules.chain(is_miss.then_some(None))
}

fn is_by_revision(visit: &Visit, rule: &Rule) -> bool {
    let mut own = visit.rule.iter().chain(&visit.clauses);
    own.any(|own| (own.id, own.revision) == (rule.id, rule.revision))
}
