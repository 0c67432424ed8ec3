//! What rows of the circuit refer to, and how rows are made.

use std::hash::{BuildHasher, Hash, Hasher};

use dbsp::{
    ZWeight,
    utils::{Tup2, Tup5},
};
use foldhash::fast::FixedState;
use shunt_flow::SparseMask;
use shunt_pipeline::{BridgeId, EntryId, Object, Rank, RuleId, TableId, Traversal, Visit};

use super::{
    groups::{GroupRows, Groups, Projection, counted},
    questions::{LOWEST, Ordered, Traces},
};
use crate::entries::{Entries, Held};

/// What a group, a print or a name leads to: the rank of what decided, by its priority and its age
/// backwards, so that the lowest comes first; the slot of an entry, which of all that had it, and the
/// number of a visit.
pub(super) type LinkRow = Tup5<u16, u64, u32, u32, u32>;

/// A row of an indexed Z-set.
type Weighted<K, V> = Tup2<K, Tup2<V, ZWeight>>;

/// Rows that wait for the next step, each with its weight.
#[derive(Default)]
pub(super) struct Rows {
    /// Visits, by group.
    pub(super) visits: Vec<Weighted<u32, LinkRow>>,
    /// Masks under which groups are projected, by group.
    pub(super) projections: Vec<Weighted<u32, u32>>,
    /// Visits by the names of rules that decided them, and entries by those of what they read.
    pub(super) names: Vec<Weighted<u64, LinkRow>>,
}

/// Entries, groups, and what the circuit makes of them.
pub(crate) struct Relation {
    pub(super) entries: Entries<Links>,
    pub(super) groups: Groups,
    pub(super) traces: Traces,
    /// Masks under which groups are to be projected when nobody waits.
    lacking: Vec<(u32, SparseMask)>,
    births: u32,
    /// Rows of names that the circuit has, or that wait.
    names: ZWeight,
    hashes: FixedState,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fault: crate::testing::Fault,
}

/// Where an entry is.
pub(super) struct Links {
    /// The groups of its visits.
    groups: Box<[u32]>,
    /// Which of all entries that had its slot it is.
    pub(super) birth: u32,
}

/// What a key of links is the hash of: of two kinds, the same bytes are not the same.
#[derive(Hash)]
enum Kind {
    Print,
    Rule,
    Object,
}

/// What a row takes in a batch, and the key of a print with the place of its rows.
const ROW_BYTES: usize = size_of::<LinkRow>() + size_of::<ZWeight>();
const PRINT_BYTES: usize = size_of::<u64>() + size_of::<usize>();

/// Projections that wait.
const LACKING_MAX: usize = 1024;

impl Relation {
    /// Of no entries. The seed goes into every hash.
    pub(super) fn new(seed: u64) -> Self {
        let hashes = FixedState::with_seed(seed);
        Self {
            entries: Entries::new(hashes.clone()),
            groups: Groups::new(&hashes),
            traces: Traces::default(),
            lacking: Vec::new(),
            births: 0,
            names: 0,
            hashes,
            #[cfg(any(test, feature = "testing"))]
            fault: crate::testing::Fault::default(),
        }
    }

    /// Watches an entry, and pushes its rows. Answers with its slot.
    pub(super) fn insert(
        &mut self,
        id: EntryId,
        traversal: &std::sync::Arc<Traversal>,
        rows: &mut Rows,
    ) -> u32 {
        let visits = traversal.visits.iter();
        let group = |visit: &Visit| self.groups.group_for((visit.bridge, visit.table), &visit.mask);
        let groups = visits.map(group).collect();
        self.births = self.births.wrapping_add(1);
        let links = Links { groups, birth: self.births };
        let slot = self.entries.insert(id, traversal, |_| links);
        self.push_entry(slot, 1, rows);
        slot
    }

    /// Pushes all rows of the entry in a slot.
    pub(super) fn push_entry(&mut self, slot: u32, weight: ZWeight, rows: &mut Rows) {
        let Some(held) = self.entries.get(slot) else { return };
        let (Links { groups, birth }, visits) = (&held.links, &held.traversal.visits);
        let row = |(priority, lateness), number| {
            Tup2(Tup5(priority, lateness, slot, *birth, number), weight)
        };
        let names_before = rows.names.len();
        for ((visit, group), number) in visits.iter().zip(groups).zip(0..) {
            let rank = visit.rank().map_or(LOWEST, ordered);
            rows.visits.push(Tup2(*group, row(rank, number)));
            self.groups.weigh(*group, weight);
            let rules = visit.rule.iter().chain(&visit.clauses);
            let names = rules.map(|rule| self.name_of_rule(rule.id));
            rows.names.extend(names.map(|name| Tup2(name, row(LOWEST, number))));
        }
        let objects = held.traversal.reads.iter().map(|object| self.name_of(object));
        rows.names.extend(objects.map(|name| Tup2(name, row(LOWEST, 0))));
        self.names +=
            rows.names[names_before..].iter().map(|Tup2(_, Tup2(_, own))| own).sum::<ZWeight>();
    }

    /// What it keeps and what the circuit does, by relation.
    pub(super) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let GroupRows { groups, visits, projections, prints } = self.groups.rows();
        vec![
            ("entries", self.entries.len()),
            ("visits", visits),
            ("names", counted(self.names)),
            ("groups", groups),
            ("projections", projections),
            ("prints", prints),
            ("tombstones", self.entries.dead_count()),
        ]
    }

    /// Bytes on the heap, about: rows are taken to lie in one batch, and each print to have one row.
    /// What the circuit has of rows that were taken back, until its batches are merged, and what it
    /// takes to merge them, is not in it.
    pub(super) fn bytes(&self) -> usize {
        let GroupRows { visits, prints, .. } = self.groups.rows();
        let rows = (visits + counted(self.names) + prints) * ROW_BYTES;
        let links = visits * size_of::<u32>();
        self.entries.bytes() + links + rows + prints * PRINT_BYTES
    }

    /// An entry that is watched, if it is the one of its slot that a row was made for.
    pub(super) fn watched(&self, slot: u32, birth: u32) -> Option<&Held<Links>> {
        self.entries.watched(slot).filter(|held| held.links.birth == birth)
    }

    /// Projects a group under a mask when nobody waits.
    pub(super) fn note_lacking(&mut self, group: u32, mask: SparseMask) {
        let is_noted = self.lacking.iter().any(|(own, known)| *own == group && *known == mask);
        if !is_noted && self.lacking.len() < LACKING_MAX {
            self.lacking.push((group, mask));
        }
    }

    /// Whether some group is to be projected.
    pub(super) const fn is_lacking(&self) -> bool {
        !self.lacking.is_empty()
    }

    /// Pushes one of the projections that wait.
    pub(super) fn push_lacking(&mut self, rows: &mut Rows) {
        if let Some((group, mask)) = self.lacking.pop() {
            self.push_projection(group, &mask, rows);
        }
    }

    /// Pushes a projection of a group. Answers with it, unless there is no room.
    pub(super) fn push_projection(
        &mut self,
        group: u32,
        mask: &SparseMask,
        rows: &mut Rows,
    ) -> Option<Projection> {
        let projection = self.groups.project(group, mask)?;
        rows.projections.push(Tup2(projection.0, Tup2(projection.1, 1)));
        Some(projection)
    }

    /// The print of a visit under a mask that its group is projected under.
    pub(super) fn print_of_visit(&self, projection: Projection, row: &LinkRow) -> u64 {
        let held = self.entries.get(row.2);
        let visit = held.and_then(|held| held.traversal.visits.get(row.4 as usize));
        self.print(projection, |word| visit.map_or(0, |visit| visit.key.word(word)))
    }

    /// The slots of entries that visit a table.
    pub(super) fn visitors(&self, place: (BridgeId, TableId)) -> Vec<u32> {
        let slots = self.entries.all().map(|(_, slot)| slot);
        let visits = |slot: &u32| {
            self.entries.watched(*slot).is_some_and(|held| {
                held.traversal.visits.iter().any(|visit| (visit.bridge, visit.table) == place)
            })
        };
        slots.filter(visits).collect()
    }

    /// The print of a key under a mask that a group is projected under.
    pub(super) fn print(&self, (group, mask): Projection, word: impl Fn(usize) -> u64) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        (Kind::Print, group, mask).hash(&mut hasher);
        let bits = self.groups.mask(mask).into_iter().flat_map(SparseMask::iter);
        bits.for_each(|(number, bits)| hasher.write_u64(word(number) & bits));
        hasher.finish()
    }

    pub(super) fn name_of_rule(&self, rule: RuleId) -> u64 {
        self.hashes.hash_one((Kind::Rule, rule.number()))
    }

    pub(super) fn name_of(&self, object: &Object) -> u64 {
        self.hashes.hash_one((Kind::Object, object))
    }
}

/// A rank such that what is lower comes first.
pub(super) const fn ordered(rank: Rank) -> Ordered {
    (rank.priority.number(), !rank.age)
}
