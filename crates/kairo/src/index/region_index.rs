//! The region index: installs, searches, evictions and deferred work.

use std::sync::Arc;

use foldhash::fast::FixedState;
use shunt_flow::Match;
use shunt_pipeline::{EngineState, EntryId, Object, OwnerId, Rule, Traversal, Version, Visit};

use super::{
    readers::Readers,
    row::{GroupRow, VisitRef},
    rule_query::RuleQuery,
    visit_groups::VisitGroups,
};
use crate::{
    bound::TableKey,
    entries::{EntryRecord, WatchedEntries},
    region::{MatchWord, is_decided},
};

/// An index of cache entries by the rules and objects that each entry depends on.
pub struct RegionIndex {
    entries: WatchedEntries<EntryLinks>,
    groups: VisitGroups,
    readers: Readers,
    /// Number of rows in all groups: one per visit and rule that decided the visit.
    rows: usize,
    /// A buffer for the slots of the entries that a search found.
    found: Vec<u32>,
    /// A buffer for the visits that a search compares bit by bit.
    candidates: Vec<VisitRef>,
}

/// The positions in the index of the visits and reads of an entry.
struct EntryLinks {
    /// The rows of the visits of the entry: numbers of groups, and positions in them.
    rows: Box<[(u32, u32)]>,
    /// The number of the set of objects that the entry reads.
    reads: u32,
}

/// The kind of change of a rule that decided visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeciderChange {
    /// The change removed the rule.
    Removed,
    /// The change modified the actions of the rule, which has a new revision.
    Modified,
}

/// The size of a [`RegionIndex`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSize {
    /// Number of watched entries.
    pub entries: usize,
    /// Number of retired entries that wait to be reclaimed.
    pub retired: usize,
    /// Number of rows: one per visit of these entries and rule that decided the visit.
    pub visits: usize,
    /// Number of groups with visits, summed over all tables.
    pub groups: usize,
    /// Number of projections, summed over all groups.
    pub projections: usize,
    /// Number of rows by rule, plus the number of positions in projections.
    /// A row has one position in each projection of its group.
    pub chained: usize,
    /// Number of sets of objects that entries read.
    pub read_sets: usize,
    /// Approximate number of bytes on the heap.
    /// Traversals are not counted, because the index shares them with the caches.
    pub bytes: usize,
}

/// Returns the status of an engine with an index of this size.
pub(crate) fn state(name: &'static str, size: &IndexSize, overflows: u64) -> EngineState {
    let relations = vec![
        ("entries", size.entries),
        ("visits", size.visits),
        ("groups", size.groups),
        ("projections", size.projections),
        ("chained", size.chained),
        ("read sets", size.read_sets),
        ("tombstones", size.retired),
    ];
    EngineState { name, relations, bytes: Some(size.bytes), overflows, faults: 0 }
}

/// Number of rows added to projections before a search, per rule of a change.
///
/// All other rows of the group are scanned. If no rows were added, a thousand rules of a new mask
/// would scan a large group a thousand times. For a rule that is alone in its change and the first
/// with its mask, no rows are added.
const PROJECTED_ROWS_PER_RULE: usize = 1024;

/// Maximum number of rules that [`PROJECTED_ROWS_PER_RULE`] is multiplied by.
const RULES_COUNTED: usize = 64;

/// Number of visits that are compared together.
/// The memory of the visits then stays in the L1 cache.
const EXAMINED_TOGETHER: usize = 64;

impl RegionIndex {
    /// Creates an index without entries.
    ///
    /// `seed` is the seed of every hash. A sender of packets cannot choose keys that collide, and a
    /// run with the same seed can be repeated.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hashes = FixedState::with_seed(seed);
        Self {
            groups: VisitGroups::new(&hashes),
            readers: Readers::new(&hashes),
            entries: WatchedEntries::new(hashes),
            rows: 0,
            found: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// Sets the greatest number of visits of a group that are examined one by one.
    /// If a group has more visits, a projection of the group is searched.
    ///
    /// The threshold changes the time of a search, and not its result.
    #[must_use]
    pub fn with_scan_threshold(mut self, scan_threshold: usize) -> Self {
        self.groups = self.groups.with_scan_threshold(scan_threshold);
        self
    }

    /// Watches an entry, which replaces an entry with the same id.
    ///
    /// The time is constant for each visit and read of the entry.
    pub fn insert(&mut self, id: EntryId, traversal: &Arc<Traversal>) {
        let slot = self.insert_unlinked(id, traversal);
        self.link(slot);
    }

    /// Watches an entry without its visits, and returns the slot of the entry.
    /// [`Self::link`] adds the visits later.
    pub(crate) fn insert_unlinked(&mut self, id: EntryId, traversal: &Arc<Traversal>) -> u32 {
        self.remove(id);
        let mut reads = |slot| self.readers.insert(&traversal.reads, slot);
        let links = |slot| EntryLinks { rows: Box::default(), reads: reads(slot) };
        self.entries.insert(id, traversal, links)
    }

    /// Adds all visits of an entry to the index; they must not be linked yet.
    pub(crate) fn link(&mut self, slot: u32) {
        let Some(record) = self.entries.get_mut(slot) else { return };
        let visits = &record.traversal.visits;
        let mut rows = Vec::with_capacity(visits.len());
        for (visit, number) in visits.iter().zip(0..) {
            let own = GroupRow::all(slot, number, visit);
            rows.extend(own.map(|row| self.groups.insert(row, visit)));
        }
        self.rows += rows.len();
        record.links.rows = rows.into();
    }

    /// Removes all visits of an entry from the index.
    pub(crate) fn unlink(&mut self, slot: u32) {
        let Some(record) = self.entries.get_mut(slot) else { return };
        let rows = std::mem::take(&mut record.links.rows);
        self.rows -= rows.len();
        for (group, position) in rows {
            self.groups.remove(group, position);
        }
    }

    /// Retires an entry in constant time.
    pub fn remove(&mut self, id: EntryId) {
        if let Some(slot) = self.entries.slot(id) {
            self.entries.unwatch(slot);
        }
    }

    /// Retires all entries of an owner.
    pub fn remove_owner(&mut self, owner: OwnerId) {
        for slot in self.entries.slots_of_owner(owner) {
            self.entries.unwatch(slot);
        }
    }

    /// Evicts the entries with a visit that `rule` decided before its change.
    ///
    /// Returns the number of examined visits.
    pub fn evict_decided(
        &mut self,
        rule: &Rule,
        change: DeciderChange,
        evicted: &mut Vec<EntryId>,
    ) -> usize {
        let mut found = std::mem::take(&mut self.found);
        let groups = self.groups.decided_by(rule.id);
        let mut examined = 0;
        match change {
            DeciderChange::Removed => {
                found.extend(groups.flat_map(|group| group.entries_decided_by(rule)));
            }
            DeciderChange::Modified => {
                let is_stale = |row: &GroupRow| {
                    let is_older = |own: &Rule| own.revision != rule.revision;
                    self.visit(row.visit_ref())
                        .is_some_and(|visit| is_decided(visit, rule, is_older))
                };
                let rows = groups.flat_map(|group| group.decided_by(rule));
                let rows = rows.inspect(|_| examined += 1);
                found.extend(rows.filter(is_stale).map(|row| row.entry));
            }
        }
        let examined = examined.max(found.len());
        self.unwatch_found(found, evicted);
        examined
    }

    /// Evicts the entries with a visit that `rule` outranks and overlaps.
    ///
    /// `others` is the number of other deltas in the change. With more deltas, more rows are
    /// projected first, so that the next rules are searched faster (see `prepare_search`). Returns
    /// the approximate number of examined visits.
    pub fn evict_overlapped(
        &mut self,
        rule: &Rule,
        others: usize,
        evicted: &mut Vec<EntryId>,
    ) -> usize {
        self.prepare_search(rule, others);
        self.evict_found(rule, evicted)
    }

    /// Prepares the groups of the table for a search with the mask of `rule`.
    ///
    /// If `rule` is alone in its change and the first with its mask, the mask is only recorded, and
    /// [`Self::run_maintenance`] adds the projections later. In all other cases the missing
    /// projections are added now, with a bounded number of rows.
    fn prepare_search(&mut self, rule: &Rule, others: usize) {
        let (table, mask) = ((rule.bridge, rule.table), rule.matching.mask());
        let is_deferred = others == 0 && self.groups.defer_preparation(table, mask, rule.rank());
        if !is_deferred && self.groups.prepare(table, mask, rule.rank()) {
            self.groups.fill_projections(PROJECTED_ROWS_PER_RULE * (1 + others).min(RULES_COUNTED));
        }
    }

    /// Evicts the entries of the visits that `rule` outranks and overlaps.
    fn evict_found(&mut self, rule: &Rule, evicted: &mut Vec<EntryId>) -> usize {
        let (table, matching) = ((rule.bridge, rule.table), &rule.matching);
        let (query, mut found) = (RuleQuery::of(rule), std::mem::take(&mut self.found));
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut examined = 0;
        for (group, plan) in self.groups.search(table, matching.mask()) {
            let before = candidates.len();
            let search = group.candidates(plan, &query, self.groups.hashes(), &mut candidates);
            examined += 1 + search.examined;
            if search.is_exact {
                found.extend(candidates.drain(before..).map(|row| row.entry));
            }
        }
        for together in candidates.chunks(EXAMINED_TOGETHER) {
            self.compare_overlapped(together, matching, &mut found);
        }
        candidates.clear();
        self.candidates = candidates;
        self.unwatch_found(found, evicted);
        examined
    }

    /// Returns about how many visits [`Self::evict_decided`] examines.
    /// If the number is more than `max`, any number above `max` is returned.
    pub(crate) fn cost_of_decided(&self, rule: &Rule, max: usize) -> usize {
        let groups = self.groups.decided_by(rule.id);
        groups.flat_map(|group| group.entries_decided_by(rule)).take(max + 1).count()
    }

    /// Returns about how many visits [`Self::evict_overlapped`] examines.
    /// If the number is more than `max`, any number above `max` is returned.
    pub(crate) fn cost_of_overlapped(&self, rule: &Rule, max: usize) -> usize {
        let (table, query) = ((rule.bridge, rule.table), RuleQuery::of(rule));
        let mut cost = 0;
        for (group, plan) in self.groups.search(table, rule.matching.mask()) {
            let Some(left) = max.checked_sub(cost) else { break };
            cost += 1 + group.cost(plan, &query, self.groups.hashes(), left);
            if !group.is_filled() && !group.is_rank_scan_cheaper(plan, rule.rank()) {
                // Before the search, rows are added to projections.
                cost += PROJECTED_ROWS_PER_RULE;
            }
        }
        cost
    }

    /// Returns the number of entries that [`Self::evict_readers`] examines.
    pub(crate) fn cost_of_readers(&self, object: Object) -> usize {
        self.readers.count(object)
    }

    /// Evicts the entries that read an object and were translated before a version.
    ///
    /// Returns the number of examined entries.
    pub fn evict_readers(
        &mut self,
        object: Object,
        before: Version,
        evicted: &mut Vec<EntryId>,
    ) -> usize {
        let is_older = |slot: &u32| {
            self.entries.watched(*slot).is_some_and(|record| record.traversal.version < before)
        };
        let found = self.readers.of(object).filter(is_older).collect();
        self.unwatch_found(found, evicted);
        self.readers.count(object)
    }

    /// Evicts the entries that visit a table.
    pub fn evict_visitors(&mut self, table: TableKey, evicted: &mut Vec<EntryId>) {
        let found = self.groups.of(table).flat_map(|group| group.entries()).collect();
        self.unwatch_found(found, evicted);
    }

    /// Returns the traversal of a watched entry.
    #[must_use]
    pub fn traversal(&self, id: EntryId) -> Option<&Arc<Traversal>> {
        Some(&self.entries.watched(self.entries.slot(id)?)?.traversal)
    }

    /// Does a part of the deferred work, and returns whether more work is left.
    ///
    /// At most `budget` rows are added to projections. With the unused budget, retired entries are
    /// reclaimed.
    pub fn run_maintenance(&mut self, budget: usize) -> bool {
        let left = self.fill_projections(budget);
        self.reclaim(left);
        self.has_backlog()
    }

    /// Reclaims up to `count` retired entries.
    pub(crate) fn reclaim(&mut self, count: usize) {
        for _ in 0..count {
            let Some(slot) = self.next_retired() else { break };
            self.unlink(slot);
            self.release(slot);
        }
    }

    /// Returns whether a projection is deferred, or does not have all rows.
    pub(crate) const fn has_unfilled_projections(&self) -> bool {
        self.groups.has_unfilled_projections()
    }

    /// Returns whether [`Self::run_maintenance`] has work.
    pub(crate) fn has_backlog(&self) -> bool {
        self.has_unfilled_projections() || self.retired() > 0
    }

    /// Adds deferred projections, and at most `budget` rows to projections.
    /// Returns the unused budget.
    pub(crate) fn fill_projections(&mut self, budget: usize) -> usize {
        let left = self.groups.prepare_deferred(budget);
        self.groups.fill_projections(left)
    }

    /// Returns the slot of the next retired entry, to [release](Self::release).
    pub(crate) fn next_retired(&mut self) -> Option<u32> {
        self.entries.next_retired()
    }

    /// Reclaims a retired entry. The visits of the entry must be unlinked already.
    pub(crate) fn release(&mut self, slot: u32) {
        if let Some(record) = self.entries.release(slot) {
            debug_assert!(
                record.links.rows.is_empty(),
                "the visits of a reclaimed entry were unlinked"
            );
            self.readers.remove(record.links.reads, slot);
        }
    }

    /// Returns the ids of all watched entries.
    #[cfg(feature = "dbsp")]
    pub(crate) fn watched_ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.entries.all().map(|(id, _)| id)
    }

    /// Returns the number of watched entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no entry is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of retired entries that wait to be reclaimed.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.entries.retired_count()
    }

    /// Returns the size of the index, in time linear in the number of groups.
    #[must_use]
    pub fn size(&self) -> IndexSize {
        let links = self.rows * size_of::<(u32, u32)>();
        IndexSize {
            entries: self.entries.len(),
            retired: self.entries.retired_count(),
            visits: self.rows,
            groups: self.groups.len(),
            projections: self.groups.projections(),
            chained: self.groups.chained(),
            read_sets: self.readers.len(),
            bytes: self.entries.bytes() + links + self.groups.bytes() + self.readers.bytes(),
        }
    }

    /// Moves the found entries out of the index, into `evicted`.
    fn unwatch_found(&mut self, mut found: Vec<u32>, evicted: &mut Vec<EntryId>) {
        evicted.extend(found.drain(..).filter_map(|slot| self.entries.unwatch(slot)));
        self.found = found;
    }

    /// Returns the visit that `row` refers to, unless its entry is retired.
    fn visit(&self, row: VisitRef) -> Option<&Visit> {
        visit_of(self.entries.watched(row.entry)?, row)
    }

    /// Adds the entries of the visits that a match overlaps to `found`.
    ///
    /// A visit is overlapped if a packet of its region matches `matching`.
    ///
    /// Each comparison follows five pointers into different memory. Memory serves many requests in
    /// the time of one, so the pointers of all visits are followed together. Therefore a word is
    /// compared for all visits before the next word.
    fn compare_overlapped(&self, rows: &[VisitRef], matching: &Match, found: &mut Vec<u32>) {
        let record_of = |row: &VisitRef| Some((*row, self.entries.watched(row.entry)?));
        let records: Vec<_> = rows.iter().filter_map(record_of).collect();
        let visits = records.iter().filter_map(|(row, record)| {
            Some((row.entry, &*record.traversal, visit_of(record, *row)?))
        });
        let mut visits: Vec<_> = visits.collect();
        for match_word in MatchWord::all(matching) {
            visits.retain(|(_, own, visit)| match_word.overlaps(own, visit));
        }
        found.extend(visits.iter().map(|(entry, ..)| *entry));
    }
}

/// Returns the visit of a traversal that an index row names.
fn visit_of(record: &EntryRecord<EntryLinks>, row: VisitRef) -> Option<&Visit> {
    record.traversal.visits.get(row.visit as usize)
}
