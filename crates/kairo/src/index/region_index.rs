//! The index itself: what is inserted and ended, found and put off.

use std::sync::Arc;

use foldhash::fast::RandomState;
use shunt_flow::{Match, SparseKey, layout::word};
use shunt_pipeline::{
    BridgeId, EntryId, Object, OwnerId, Rule, TableId, Traversal, Version, Visit,
};

use super::{
    places::{Band, Places},
    readers::Readers,
    row::Row,
};
use crate::entries::{Entries, Held};

/// Which entries depend on which rules and objects.
#[derive(Default)]
pub struct RegionIndex {
    entries: Entries<Links>,
    places: Places,
    readers: Readers,
    hashes: RandomState,
    /// Slots that a search has found.
    found: Vec<u32>,
}

/// Where the visits and the reads of an entry are.
struct Links {
    /// Its visits that are in groups, by group and position there.
    rows: Box<[(u32, u32)]>,
    /// The set of objects that it reads.
    reads: u32,
}

/// How large a [`RegionIndex`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSize {
    /// Entries that are watched.
    pub entries: usize,
    /// Entries that are not watched any more and wait to be taken out.
    pub leaving: usize,
    /// Groups with visits, over all tables.
    pub groups: usize,
    /// Bytes on the heap, about; traversals are shared with their owners, and not counted.
    pub bytes: usize,
}

const TRANSPORT: usize = word::TRANSPORT as usize;
/// The bits of transport ports in their word.
const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;

/// Rows that projections for new masks are given before each search; the rest is looked through. So
/// a thousand rules of a new mask do not look through a large group a thousand times, and none of
/// them waits for all of it.
const FILLED_AT_ONCE: usize = 4096;

impl RegionIndex {
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
        let slot = self.entries.reserve();
        let reads = self.readers.insert(&traversal.reads, slot);
        self.entries.put(slot, Held::new(id, traversal, Links { rows: Box::default(), reads }));
        slot
    }

    /// Takes visits of an entry in, which are not in yet.
    pub(crate) fn link(&mut self, slot: u32, visits: impl Iterator<Item = u32>) {
        let Some(held) = self.entries.get_mut(slot) else { return };
        let mut rows = Vec::from(std::mem::take(&mut held.links.rows));
        rows.reserve_exact(held.traversal.visits.len());
        for number in visits {
            let Some(visit) = held.traversal.visits.get(number as usize) else { continue };
            let own = Row::all(slot, number, visit);
            rows.extend(own.map(|row| self.places.insert(row, visit, &self.hashes)));
        }
        held.links.rows = rows.into();
    }

    /// Takes the visits of an entry out.
    pub(crate) fn unlink(&mut self, slot: u32) {
        let Some(held) = self.entries.get_mut(slot) else { return };
        for (group, position) in std::mem::take(&mut held.links.rows) {
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
        for _ in 0..left {
            let Some(slot) = self.next_leaving() else { break };
            self.unlink(slot);
            self.release(slot);
        }
        self.is_untidy()
    }

    /// Whether [`Self::tidy`] has something to do.
    pub(crate) fn is_untidy(&self) -> bool {
        self.places.is_lacking() || self.leaving() > 0
    }

    /// Puts at most so many rows into projections that lack them. Answers with what is left of
    /// `budget`.
    pub(crate) fn fill(&mut self, budget: usize) -> usize {
        let nothing = SparseKey::from(&shunt_flow::FlowKey::ZERO);
        let entries = &self.entries;
        let key = |row: Row| {
            let visit = entries.get(row.entry).and_then(|held| visit_of(held, row));
            visit.map_or(&nothing, |visit| &visit.key)
        };
        self.places.fill(budget, &self.hashes, key)
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

    /// How large it is. Takes time linear in the number of entries.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        IndexSize {
            entries: self.entries.len(),
            leaving: self.entries.dead_count(),
            groups: self.places.len(),
            bytes: self.entries.bytes(|links| size_of_val(&*links.rows))
                + self.places.bytes()
                + self.readers.bytes(),
        }
    }

    fn end(&mut self, mut found: Vec<u32>, ended: &mut Vec<EntryId>) {
        ended.extend(found.drain(..).filter_map(|slot| self.entries.end(slot)));
        self.found = found;
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

fn visit_of(held: &Held<Links>, row: Row) -> Option<&Visit> {
    held.traversal.visits.get(row.visit as usize)
}

pub(crate) fn visits_count(traversal: &Traversal) -> u32 {
    u32::try_from(traversal.visits.len()).unwrap_or(u32::MAX)
}

fn is_by_revision(visit: &Visit, rule: &Rule) -> bool {
    let mut own = visit.rule.iter().chain(&visit.clauses);
    own.any(|own| (own.id, own.revision) == (rule.id, rule.revision))
}
