//! The entries and groups to which rows of the circuit refer, and the creation of rows.

use std::hash::{BuildHasher, Hash, Hasher};

use dbsp::{
    ZWeight,
    utils::{Tup2, Tup5},
};
use foldhash::fast::FixedState;
use shunt_flow::SparseMask;
use shunt_pipeline::{EntryId, Object, Rank, RuleId, Traversal, Visit};

use super::{
    groups::{GroupRows, ProjectedGroups, ProjectionId, row_count},
    queries::{LOWEST, LinkTraces, OrderedRank},
};
use crate::{
    bound::TableKey,
    entries::{EntryRecord, WatchedEntries},
};

/// A row for a visit or a read of an entry.
///
/// The numbers are priority, inverted age, slot, slot generation and number of the visit.
///
/// The first two are the rank of the rule that decided the visit, so that the lowest rank is first.
pub(super) type LinkRow = Tup5<u16, u64, u32, u32, u32>;

/// A row of an indexed Z-set of dbsp, with its weight.
type WeightedRow<K, V> = Tup2<K, Tup2<V, ZWeight>>;

/// Rows for the next step of the circuit, each with its weight.
#[derive(Default)]
pub(super) struct LinkStepRows {
    /// Visits, by the number of their group.
    pub(super) visits: Vec<WeightedRow<u32, LinkRow>>,
    /// The masks under which groups are projected, by the number of the group.
    pub(super) projections: Vec<WeightedRow<u32, u32>>,
    /// Visits by the keys of the rules that decided them.
    /// The list also has entries by the keys of the objects that they read.
    pub(super) names: Vec<WeightedRow<u64, LinkRow>>,
}

/// The relation: entries, groups, and snapshots of the traces of the circuit.
pub(crate) struct LinkRelation {
    pub(super) entries: WatchedEntries<EntryGroups>,
    pub(super) groups: ProjectedGroups,
    pub(super) traces: LinkTraces,
    /// The projections, by group and mask, that `run_maintenance` adds later.
    unprojected: Vec<(u32, SparseMask)>,
    /// The newest generation of a slot.
    slot_generations: u32,
    /// Number of rows by key, in the circuit or waiting for a step.
    names: ZWeight,
    hashes: FixedState,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fault: crate::testing::FaultTimer,
}

/// The groups of an entry, from which its rows are made.
pub(super) struct EntryGroups {
    /// The group of each visit of the entry.
    groups: Box<[u32]>,
    /// A number that distinguishes the entries that used one slot.
    pub(super) slot_generation: u32,
}

/// The kind of a key, hashed with the key so that kinds do not collide.
#[derive(Hash)]
enum LinkKeyKind {
    Fingerprint,
    Rule,
    Object,
}

/// Number of bytes of a row in a batch.
const ROW_BYTES: usize = size_of::<LinkRow>() + size_of::<ZWeight>();
/// Number of bytes of a fingerprint key in a batch, with the offset of its rows.
const FINGERPRINT_BYTES: usize = size_of::<u64>() + size_of::<usize>();

/// Maximum number of projections that are deferred.
const DEFERRED_MAX: usize = 1024;

impl LinkRelation {
    /// Creates a relation without entries, with the seed of all its hashes.
    pub(super) fn new(seed: u64) -> Self {
        let hashes = FixedState::with_seed(seed);
        Self {
            entries: WatchedEntries::new(hashes.clone()),
            groups: ProjectedGroups::new(&hashes),
            traces: LinkTraces::default(),
            unprojected: Vec::new(),
            slot_generations: 0,
            names: 0,
            hashes,
            #[cfg(any(test, feature = "testing"))]
            fault: crate::testing::FaultTimer::default(),
        }
    }

    /// Watches an entry, adds its rows, and returns its slot.
    pub(super) fn insert(
        &mut self,
        id: EntryId,
        traversal: &std::sync::Arc<Traversal>,
        rows: &mut LinkStepRows,
    ) -> u32 {
        let visits = traversal.visits.iter();
        let group = |visit: &Visit| self.groups.group_for((visit.bridge, visit.table), &visit.mask);
        let groups = visits.map(group).collect();
        self.slot_generations = self.slot_generations.wrapping_add(1);
        let links = EntryGroups { groups, slot_generation: self.slot_generations };
        let slot = self.entries.insert(id, traversal, |_| links);
        self.push_entry(slot, 1, rows);
        slot
    }

    /// Adds all rows of the entry in a slot to `rows`, with this weight.
    pub(super) fn push_entry(&mut self, slot: u32, weight: ZWeight, rows: &mut LinkStepRows) {
        let Some(record) = self.entries.get(slot) else { return };
        let (EntryGroups { groups, slot_generation }, visits) =
            (&record.links, &record.traversal.visits);
        let row = |(priority, lateness), number| {
            Tup2(Tup5(priority, lateness, slot, *slot_generation, number), weight)
        };
        let names_before = rows.names.len();
        for ((visit, group), number) in visits.iter().zip(groups).zip(0..) {
            let rank = visit.rank().map_or(LOWEST, ordered_rank);
            rows.visits.push(Tup2(*group, row(rank, number)));
            self.groups.add_weight(*group, weight);
            let rules = visit.rule.iter().chain(&visit.clauses);
            let names = rules.map(|rule| self.rule_key(rule.id));
            rows.names.extend(names.map(|name| Tup2(name, row(LOWEST, number))));
        }
        let objects = record.traversal.reads.iter().map(|object| self.object_key(object));
        rows.names.extend(objects.map(|name| Tup2(name, row(LOWEST, 0))));
        self.names +=
            rows.names[names_before..].iter().map(|Tup2(_, Tup2(_, own))| own).sum::<ZWeight>();
    }

    /// Returns the sizes of the relations in memory and in the circuit, by name.
    pub(super) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let GroupRows { groups, visits, projections, fingerprints } = self.groups.rows();
        vec![
            ("entries", self.entries.len()),
            ("visits", visits),
            ("names", row_count(self.names)),
            ("groups", groups),
            ("projections", projections),
            ("prints", fingerprints),
            ("tombstones", self.entries.retired_count()),
        ]
    }

    /// Returns the approximate number of bytes on the heap.
    ///
    /// The estimate assumes that all rows are in one batch and that each fingerprint has one row.
    /// The estimate omits retracted rows in batches that are not merged, and the memory of the
    /// merge.
    pub(super) fn bytes(&self) -> usize {
        let GroupRows { visits, fingerprints, .. } = self.groups.rows();
        let rows = (visits + row_count(self.names) + fingerprints) * ROW_BYTES;
        let links = visits * size_of::<u32>();
        self.entries.bytes() + links + rows + fingerprints * FINGERPRINT_BYTES
    }

    /// Returns a watched entry, if it has the slot generation of a row.
    pub(super) fn watched(
        &self,
        slot: u32,
        slot_generation: u32,
    ) -> Option<&EntryRecord<EntryGroups>> {
        self.entries.watched(slot).filter(|record| record.links.slot_generation == slot_generation)
    }

    /// Defers the projection of a group under a mask to `run_maintenance`.
    pub(super) fn defer_projection(&mut self, group: u32, mask: SparseMask) {
        let is_noted = self.unprojected.iter().any(|(own, other)| *own == group && *other == mask);
        if !is_noted && self.unprojected.len() < DEFERRED_MAX {
            self.unprojected.push((group, mask));
        }
    }

    /// Returns whether a projection is deferred to `run_maintenance`.
    pub(super) const fn has_deferred_projections(&self) -> bool {
        !self.unprojected.is_empty()
    }

    /// Adds the rows of one deferred projection to `rows`.
    pub(super) fn push_deferred_projection(&mut self, rows: &mut LinkStepRows) {
        if let Some((group, mask)) = self.unprojected.pop() {
            self.push_projection(group, &mask, rows);
        }
    }

    /// Adds a projection of a group, and returns it; `None` if the group has no room.
    pub(super) fn push_projection(
        &mut self,
        group: u32,
        mask: &SparseMask,
        rows: &mut LinkStepRows,
    ) -> Option<ProjectionId> {
        let projection = self.groups.project(group, mask)?;
        rows.projections.push(Tup2(projection.0, Tup2(projection.1, 1)));
        Some(projection)
    }

    /// Returns the fingerprint of a visit under the mask of a projection.
    pub(super) fn fingerprint_of_visit(&self, projection: ProjectionId, row: &LinkRow) -> u64 {
        let record = self.entries.get(row.2);
        let visit = record.and_then(|record| record.traversal.visits.get(row.4 as usize));
        self.fingerprint(projection, |word| visit.map_or(0, |visit| visit.key.word(word)))
    }

    /// Returns the slots of the entries that visit a table.
    pub(super) fn visitors(&self, table: TableKey) -> Vec<u32> {
        let slots = self.entries.all().map(|(_, slot)| slot);
        let visits = |slot: &u32| {
            self.entries.watched(*slot).is_some_and(|record| {
                record.traversal.visits.iter().any(|visit| (visit.bridge, visit.table) == table)
            })
        };
        slots.filter(visits).collect()
    }

    /// Returns the fingerprint of a key under the mask of a projection.
    pub(super) fn fingerprint(
        &self,
        (group, mask): ProjectionId,
        word: impl Fn(usize) -> u64,
    ) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        (LinkKeyKind::Fingerprint, group, mask).hash(&mut hasher);
        let bits = self.groups.mask(mask).into_iter().flat_map(SparseMask::iter);
        bits.for_each(|(number, bits)| hasher.write_u64(word(number) & bits));
        hasher.finish()
    }

    /// Returns the key of a rule in the relation.
    pub(super) fn rule_key(&self, rule: RuleId) -> u64 {
        self.hashes.hash_one((LinkKeyKind::Rule, rule.number()))
    }

    /// Returns the key of an object in the relation.
    pub(super) fn object_key(&self, object: &Object) -> u64 {
        self.hashes.hash_one((LinkKeyKind::Object, object))
    }
}

/// Returns a rank in a form that sorts the lowest rank first.
pub(super) const fn ordered_rank(rank: Rank) -> OrderedRank {
    (rank.priority.number(), !rank.age)
}
