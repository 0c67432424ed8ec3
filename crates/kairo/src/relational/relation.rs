//! What rows of the circuit refer to, and how rows are made.

use std::hash::{BuildHasher, Hash, Hasher};

use dbsp::{
    ZWeight,
    utils::{Tup2, Tup3, Tup4},
};
use foldhash::fast::FixedState;
use shunt_flow::SparseMask;
use shunt_pipeline::{
    BridgeId, Delta, Rank, RuleChange, RuleDelta, RuleId, TableId, Traversal, Visit,
};

use super::groups::{Groups, Projection};
use crate::entries::Entries;

/// What a print or a name leads to: the rank of what decided, by its priority and its age backwards,
/// so that the lowest comes first; the slot of an entry, and the number of a visit.
pub(super) type LinkRow = Tup4<u16, u64, u32, u32>;

/// A question: the rank that what is found must be below, and its place among the deltas.
pub(super) type QuestionRow = Tup3<u16, u64, u32>;

/// What was found: the place of the delta that asked, and the slot of an entry.
pub(super) type FoundRow = Tup2<u32, u32>;

/// A row of an indexed Z-set.
type Weighted<K, V> = Tup2<K, Tup2<V, ZWeight>>;

/// Rows that wait for the next step, each with its weight.
#[derive(Default)]
pub(super) struct Rows {
    /// Visits, by group.
    pub(super) visits: Vec<Weighted<u32, LinkRow>>,
    /// Masks under which groups are projected, by group.
    pub(super) projections: Vec<Weighted<u32, u32>>,
    /// Entries by the names of what they depend on.
    pub(super) names: Vec<Weighted<u64, LinkRow>>,
    /// Questions, by print or name.
    pub(super) questions: Vec<Weighted<u64, QuestionRow>>,
}

/// Entries, groups, and what was found.
pub(crate) struct Relation {
    /// Each with the groups of its visits.
    pub(super) entries: Entries<Box<[u32]>>,
    pub(super) groups: Groups,
    pub(super) found: Vec<FoundRow>,
    hashes: FixedState,
    #[cfg(test)]
    pub(crate) fault: crate::faults::Fault,
}

/// Ranks below every rule and above every rule.
const LOWEST: (u16, u64) = (0, 0);
const HIGHEST: (u16, u64) = (u16::MAX, u64::MAX);

impl Rows {
    /// Whether an entry or a projection comes or goes with them.
    pub(super) const fn change_links(&self) -> bool {
        !self.visits.is_empty() || !self.projections.is_empty() || !self.names.is_empty()
    }

    fn ask(&mut self, print: u64, (priority, lateness): (u16, u64), place: u32) {
        self.questions.push(Tup2(print, Tup2(Tup3(priority, lateness, place), 1)));
    }
}

impl Relation {
    /// Of no entries. The seed goes into every hash.
    pub(super) fn new(seed: u64) -> Self {
        let hashes = FixedState::with_seed(seed);
        Self {
            entries: Entries::new(hashes.clone()),
            groups: Groups::new(&hashes),
            found: Vec::new(),
            hashes,
            #[cfg(test)]
            fault: crate::faults::Fault::default(),
        }
    }

    /// The groups of the visits of a traversal.
    pub(super) fn groups_for(&mut self, traversal: &Traversal) -> Box<[u32]> {
        let visits = traversal.visits.iter();
        let group = |visit: &Visit| self.groups.group_for((visit.bridge, visit.table), &visit.mask);
        visits.map(group).collect()
    }

    /// Pushes all rows of the entry in a slot.
    pub(super) fn push_entry(&self, slot: u32, weight: ZWeight, rows: &mut Rows) {
        let Some(held) = self.entries.get(slot) else { return };
        for ((visit, group), number) in held.traversal.visits.iter().zip(&held.links).zip(0..) {
            let (priority, lateness) = visit.rank().map_or(LOWEST, ordered);
            rows.visits.push(Tup2(*group, Tup2(Tup4(priority, lateness, slot, number), weight)));
        }
        let visits = held.traversal.visits.iter();
        let rules = visits.flat_map(|visit| visit.rule.iter().chain(&visit.clauses));
        let rules = rules.map(|rule| self.name_of_rule(rule.id));
        let names = rules.chain(held.traversal.reads.iter().map(|object| self.name_of(object)));
        let (priority, lateness) = LOWEST;
        let row = Tup4(priority, lateness, slot, 0);
        rows.names.extend(names.map(|name| Tup2(name, Tup2(row, weight))));
    }

    /// Pushes what a delta asks, and the projections that it needs. One that is gone at once asks
    /// nothing.
    pub(super) fn push_questions(
        &mut self,
        (delta, place): (&Delta, u32),
        is_brief: impl Fn(RuleId) -> bool,
        rows: &mut Rows,
    ) {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return rows.ask(self.name_of(object), HIGHEST, place),
            Delta::Rule(delta) => delta,
        };
        let is_added = matches!(change, RuleChange::Added);
        if !is_added {
            rows.ask(self.name_of_rule(rule.id), HIGHEST, place);
        }
        if matches!(change, RuleChange::Removed(_)) || is_brief(rule.id) {
            return;
        }
        let mut added = Vec::new();
        let table = (rule.bridge, rule.table);
        let searched = self.groups.search(table, rule.matching.mask(), &mut added);
        rows.projections.extend(added.into_iter().map(|(group, mask)| Tup2(group, Tup2(mask, 1))));
        let (own, values) = (rule.matching.mask().map(), rule.matching.value());
        let word = |word| values.get(own.count_below(word)).copied().unwrap_or_default();
        for projection in searched {
            rows.ask(self.print(projection, word), ordered(rule.rank()), place);
        }
    }

    /// The print of a visit under a mask that its group is projected under.
    pub(super) fn print_of_visit(&self, projection: Projection, row: &LinkRow) -> u64 {
        let Tup4(_, _, slot, number) = row;
        let held = self.entries.get(*slot);
        let visit = held.and_then(|held| held.traversal.visits.get(*number as usize));
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

    fn print(&self, (group, mask): Projection, word: impl Fn(usize) -> u64) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        (group, mask).hash(&mut hasher);
        let bits = self.groups.mask(mask).into_iter().flat_map(SparseMask::iter);
        bits.for_each(|(number, bits)| hasher.write_u64(word(number) & bits));
        of_somebody(hasher.finish())
    }

    fn name_of_rule(&self, rule: RuleId) -> u64 {
        self.name_of(&rule.number())
    }

    fn name_of(&self, object: &impl Hash) -> u64 {
        of_somebody(self.hashes.hash_one(object))
    }
}

/// A rank such that what is lower comes first.
const fn ordered(rank: Rank) -> (u16, u64) {
    (rank.priority.number(), !rank.age)
}

/// Zero is nobody's print and nobody's name.
const fn of_somebody(hash: u64) -> u64 {
    if hash == 0 { 1 } else { hash }
}
