//! Hash tables of rules by the bits that the rules fix, as in TupleMerge.
//!
//! A table has a *tuple*: some bits of the lanes. Rules are found by the hash of their values in
//! the bits of the tuple. A table can hold every rule that fixes all bits of the tuple. A new table
//! gets fewer bits than its first rule fixes, so that it can hold more rules. A rule gets a new
//! table only if its list in the existing tables would become long. The number of tables is
//! bounded, because an attacker may choose rules with many tuples.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::list::RuleList;
use crate::{
    blocks::{BlockRun, RuleArena},
    rule::PriorityRule,
    schema::lane_max,
};

/// Maximum number of tables, including the list of rules that fix no bits.
const TABLES_MAX: usize = 64;

/// Length of a list from which on a new rule gets a table of more bits.
const LIST_RULES: usize = 16;

/// Number of bits of which the prefix of a lane in a new tuple is a multiple.
const ROUNDING: u32 = 4;

/// One hash table, with its tuple.
#[derive(Clone, Debug)]
pub(super) struct TupleTable<const N: usize> {
    /// The bits of each lane that select a list.
    tuple: [u32; N],
    /// The lists of rules, by masked key.
    lists: HashTable<TupleList<N>>,
    /// Number of rules in all lists.
    rules: usize,
    /// The best rank of all rules that the table had since it was empty.
    best: u64,
}

/// The rules that have one masked key.
#[derive(Clone, Debug)]
struct TupleList<const N: usize> {
    /// The masked key that all rules of the list have.
    key: [u32; N],
    list: RuleList,
}

impl<const N: usize> TupleTable<N> {
    /// Returns the hash table of a tuple, without rules.
    fn new(tuple: [u32; N]) -> Self {
        Self { tuple, lists: HashTable::new(), rules: 0, best: u64::MAX }
    }

    /// Returns a lower bound for the ranks of the rules of the table.
    #[inline]
    pub(super) fn best(&self) -> u64 {
        self.best
    }

    /// Returns the list of the rules that may match a key.
    #[inline]
    pub(super) fn find(&self, hasher: &FixedState, key: &[u32; N]) -> Option<&RuleList> {
        let masked = self.masked(key);
        let hash = hasher.hash_one(masked);
        self.lists.find(hash, |list| list.key == masked).map(|found| &found.list)
    }

    /// Returns the bits of a key that the tuple fixes.
    #[inline]
    fn masked(&self, key: &[u32; N]) -> [u32; N] {
        std::array::from_fn(|lane| key[lane] & self.tuple[lane])
    }

    /// Returns whether the fixed bits of a rule include all bits of the tuple.
    fn can_hold(&self, fixed: &[u32; N]) -> bool {
        (0..N).all(|lane| self.tuple[lane] & !fixed[lane] == 0)
    }

    /// Returns the number of bits that the tuple compares.
    fn bits(&self) -> u32 {
        self.tuple.iter().map(|bits| bits.count_ones()).sum()
    }

    /// Inserts a rule; returns false if its bucket has no room.
    fn insert(
        &mut self,
        hasher: &FixedState,
        rule: &PriorityRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let key = self.masked(&rule.low);
        let hash = hasher.hash_one(key);
        let entry =
            self.lists.entry(hash, |list| list.key == key, |list| hasher.hash_one(list.key));
        let mut entry = entry.or_insert_with(|| TupleList { key, list: RuleList::default() });
        if !entry.get_mut().list.insert(rule, arena) {
            return false;
        }
        self.rules += 1;
        self.best = self.best.min(rule.rank());
        true
    }

    /// Removes a rule; returns whether the table had it.
    fn remove(
        &mut self,
        hasher: &FixedState,
        rule: &PriorityRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let key = self.masked(&rule.low);
        let hash = hasher.hash_one(key);
        let Ok(mut entry) = self.lists.find_entry(hash, |list| list.key == key) else {
            return false;
        };
        if !entry.get_mut().list.remove(rule, arena) {
            return false;
        }
        if entry.get().list.len() == 0 {
            entry.remove();
        }
        self.rules -= 1;
        if self.rules == 0 {
            self.best = u64::MAX;
        }
        true
    }
}

/// All hash tables, in the order of their best ranks.
#[derive(Clone, Debug)]
pub(super) struct TupleTables<const N: usize> {
    hasher: FixedState,
    /// Number of bits of each lane.
    widths: [u8; N],
    /// The hash tables, the one with the best rank first.
    tables: Vec<TupleTable<N>>,
}

impl<const N: usize> TupleTables<N> {
    /// Returns a set of no hash tables. `widths` are the bits of the lanes.
    pub(super) fn new(seed: u64, widths: [u8; N]) -> Self {
        Self { hasher: FixedState::with_seed(seed), widths, tables: Vec::new() }
    }

    /// Returns an empty set of tables with the same seed.
    pub(super) fn without_rules(&self) -> Self {
        Self { hasher: self.hasher.clone(), widths: self.widths, tables: Vec::new() }
    }

    /// Returns the hash function of the tables.
    pub(super) fn hasher(&self) -> &FixedState {
        &self.hasher
    }

    /// Returns the tables in the order of their best ranks.
    pub(super) fn tables(&self) -> &[TupleTable<N>] {
        &self.tables
    }

    /// Returns the number of bytes of the tables, without blocks.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.tables.iter().map(|table| table.lists.allocation_size());
        let runs = self.tables.iter().flat_map(|table| &table.lists);
        let runs = runs.map(|list| size_of_val(list.list.runs()));
        lists.sum::<usize>() + runs.sum::<usize>() + size_of_val(&self.tables[..])
    }

    /// Adds a rule, and returns whether the arena had room.
    pub(super) fn insert(&mut self, rule: &PriorityRule<N>, arena: &mut RuleArena<N>) -> bool {
        let fixed = self.fixed_bits(rule);
        let holders = (0..self.tables.len()).filter(|at| self.tables[*at].can_hold(&fixed));
        let at = match holders.max_by_key(|at| self.tables[*at].bits()) {
            Some(at) if !self.needs_more_bits(at, rule, &fixed) => at,
            _ => {
                let has_room = self.tables.len() + 1 < TABLES_MAX;
                let tuple = if has_room { self.new_tuple(&fixed) } else { [0; N] };
                let same = self.tables.iter().position(|table| table.tuple == tuple);
                same.unwrap_or_else(|| {
                    self.tables.push(TupleTable::new(tuple));
                    self.tables.len() - 1
                })
            }
        };
        let is_inserted = self.tables[at].insert(&self.hasher, rule, arena);
        self.tables.sort_by_key(TupleTable::best);
        is_inserted
    }

    /// Removes a rule, and returns whether a table had it.
    pub(super) fn remove(&mut self, rule: &PriorityRule<N>, arena: &mut RuleArena<N>) -> bool {
        let fixed = self.fixed_bits(rule);
        let Some(at) = self
            .tables
            .iter_mut()
            .position(|table| table.can_hold(&fixed) && table.remove(&self.hasher, rule, arena))
        else {
            return false;
        };
        if self.tables[at].rules == 0 {
            self.tables.remove(at);
        }
        true
    }

    /// Returns the runs of all lists.
    pub(super) fn runs(&self) -> impl Iterator<Item = BlockRun> {
        let lists = self.tables.iter().flat_map(|table| &table.lists);
        lists.flat_map(|list| list.list.runs()).copied()
    }

    /// Calls `each` with every rule of the tables.
    pub(super) fn for_each(&self, arena: &RuleArena<N>, mut each: impl FnMut(PriorityRule<N>)) {
        for list in self.tables.iter().flat_map(|table| &table.lists) {
            list.list.for_each(arena, &mut each);
        }
    }

    /// Returns whether a rule should get a table of more bits than the table at `at`.
    fn needs_more_bits(&self, at: usize, rule: &PriorityRule<N>, fixed: &[u32; N]) -> bool {
        let can_divide = self.new_tuple(fixed) != self.tables[at].tuple;
        let list = self.tables[at].find(&self.hasher, &rule.low);
        can_divide
            && self.tables.len() + 1 < TABLES_MAX
            && list.is_some_and(|list| list.len() >= LIST_RULES)
    }

    /// Returns the tuple of a new table for a rule.
    fn new_tuple(&self, fixed: &[u32; N]) -> [u32; N] {
        rounded_tuple(&self.widths, fixed)
    }

    /// Returns the bits of each lane that a rule fixes.
    fn fixed_bits(&self, rule: &PriorityRule<N>) -> [u32; N] {
        fixed_bits(&self.widths, rule)
    }
}

/// Returns the tuple that a new table for a rule gets.
pub(crate) fn table_tuple<const N: usize>(widths: &[u8; N], rule: &PriorityRule<N>) -> [u32; N] {
    rounded_tuple(widths, &fixed_bits(widths, rule))
}

/// Returns the bits of each lane that a rule fixes.
fn fixed_bits<const N: usize>(widths: &[u8; N], rule: &PriorityRule<N>) -> [u32; N] {
    std::array::from_fn(|lane| rule.fixed_bits(lane) & lane_max(widths[lane]))
}

/// Returns the tuple of a new table for a rule: fewer bits than the rule fixes.
///
/// Of a lane of up to 16 bits, the tuple has all bits or none.
fn rounded_tuple<const N: usize>(widths: &[u8; N], fixed: &[u32; N]) -> [u32; N] {
    std::array::from_fn(|lane| {
        let width = u32::from(widths[lane]);
        let max = lane_max(widths[lane]);
        let is_exact = fixed[lane] & max == max;
        if width <= 16 || is_exact {
            return if is_exact { max } else { 0 };
        }
        let leading = (fixed[lane] << (u32::BITS - width)).leading_ones().min(width);
        let kept = leading / ROUNDING * ROUNDING;
        max & !max.checked_shr(kept).unwrap_or(0)
    })
}
