//! TupleMerge: the rival of benches, and a second judge of lookups.
//!
//! Source: J. Daly et al., *TupleMerge: Fast Software Packet Processing for Online Packet
//! Classification*, 2019. A hash table has a tuple, which is a prefix length for each lane. A rule
//! is in a table of a shorter tuple than its own, so that few tables are enough. A list of rules
//! with one masked key has a limit. Beyond the limit a rule gets a table of a longer tuple.
//!
//! The remainder of [`NuevoMatch`](crate::NuevoMatch) has the same idea. The module shares no code
//! with the classifier, so that it can judge its results.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::{BestMatch, PriorityRule};

/// Number of rules from which on a list is full.
const LIST_RULES_MAX: usize = 10;

/// A classifier that searches hash tables of merged tuples.
#[derive(Debug)]
pub struct TupleMerge<const N: usize> {
    hasher: FixedState,
    tables: Vec<MergedTable<N>>,
}

/// The rules of one tuple.
#[derive(Debug)]
struct MergedTable<const N: usize> {
    /// The bits of each lane that select a list.
    tuple: [u32; N],
    /// The best priority and value of all rules.
    best: (u32, u32),
    /// The lists of rules, by masked key.
    lists: HashTable<MergedList<N>>,
}

/// The rules of one masked key, best first.
#[derive(Debug)]
struct MergedList<const N: usize> {
    /// The masked key that all rules of the list have.
    key: [u32; N],
    /// The rules in the order of priority and value.
    rules: Vec<PriorityRule<N>>,
}

impl<const N: usize> TupleMerge<N> {
    /// Builds a classifier of rules over lanes of these widths.
    #[must_use]
    pub fn new(widths: &[u8; N], rules: &[PriorityRule<N>]) -> Self {
        let mut own = Self { hasher: FixedState::with_seed(1), tables: Vec::new() };
        rules.iter().for_each(|rule| own.insert(widths, rule));
        own.tables.sort_by_key(|table| table.best);
        own
    }

    /// Returns the number of hash tables.
    #[must_use]
    pub const fn tables_count(&self) -> usize {
        self.tables.len()
    }

    /// Returns the rule that wins for a key.
    #[must_use]
    pub fn lookup(&self, key: &[u32; N]) -> Option<BestMatch> {
        let mut best = None;
        for table in &self.tables {
            if best.is_some_and(|best| best <= table.best) {
                break;
            }
            let Some(list) = table.find(&self.hasher, key) else { continue };
            let found = list.rules.iter().find(|rule| rule.matches(key)).map(order);
            best = best.into_iter().chain(found).min();
        }
        best.map(|(priority, value)| BestMatch { priority, value })
    }

    /// Adds a rule to the table with the most bits that fits, or to a new table.
    fn insert(&mut self, widths: &[u8; N], rule: &PriorityRule<N>) {
        let own = fixed_prefixes(widths, rule);
        let fits = |table: &MergedTable<N>| (0..N).all(|lane| table.tuple[lane] & !own[lane] == 0);
        let is_full = |table: &MergedTable<N>| {
            let list = table.find(&self.hasher, &rule.low);
            list.is_some_and(|list| list.rules.len() >= LIST_RULES_MAX)
        };
        let bits = |table: &MergedTable<N>| table.tuple.map(u32::count_ones).iter().sum::<u32>();
        let open = (0..self.tables.len())
            .filter(|at| fits(&self.tables[*at]) && !is_full(&self.tables[*at]))
            .max_by_key(|at| bits(&self.tables[*at]));
        let at = open.unwrap_or_else(|| {
            let merged = merged_tuple(widths, &own);
            let known = |tuple: [u32; N]| self.tables.iter().position(|own| own.tuple == tuple);
            let tuple = if known(merged).is_some() { own } else { merged };
            known(tuple).unwrap_or_else(|| {
                let lists = HashTable::new();
                self.tables.push(MergedTable { tuple, best: order(rule), lists });
                self.tables.len() - 1
            })
        });
        self.tables[at].insert(&self.hasher, rule);
    }
}

impl<const N: usize> MergedTable<N> {
    /// Returns the key under the mask of the table.
    #[inline]
    fn masked(&self, key: &[u32; N]) -> [u32; N] {
        std::array::from_fn(|lane| key[lane] & self.tuple[lane])
    }

    /// Returns the list with the masked key of `key`, or `None` if it is absent.
    #[inline]
    fn find(&self, hasher: &FixedState, key: &[u32; N]) -> Option<&MergedList<N>> {
        let masked = self.masked(key);
        self.lists.find(hasher.hash_one(masked), |list| list.key == masked)
    }

    /// Adds a rule to the list of its masked key, in the order of ranks.
    fn insert(&mut self, hasher: &FixedState, rule: &PriorityRule<N>) {
        let key = self.masked(&rule.low);
        let hash = hasher.hash_one(key);
        let same = |list: &MergedList<N>| list.key == key;
        let entry = self.lists.entry(hash, same, |list| hasher.hash_one(list.key));
        let mut entry = entry.or_insert_with(|| MergedList { key, rules: Vec::new() });
        let rules = &mut entry.get_mut().rules;
        let position = rules.partition_point(|other| order(other) <= order(rule));
        rules.insert(position, *rule);
        self.best = self.best.min(order(rule));
    }
}

/// Returns the rank of a rule.
const fn order<const N: usize>(rule: &PriorityRule<N>) -> (u32, u32) {
    (rule.priority(), rule.value())
}

/// Returns the leading bits of each lane that are equal in all keys of a rule.
fn fixed_prefixes<const N: usize>(widths: &[u8; N], rule: &PriorityRule<N>) -> [u32; N] {
    std::array::from_fn(|lane| {
        let unused = u32::BITS - u32::from(widths[lane]);
        let differ = (rule.low[lane] ^ rule.high[lane]) << unused;
        prefix(widths[lane], differ.leading_zeros())
    })
}

/// Returns the tuple of a new table for a rule.
///
/// Prefixes of addresses are cut to a multiple of four bits. A port or protocol is left out unless
/// the rule has one value.
fn merged_tuple<const N: usize>(widths: &[u8; N], own: &[u32; N]) -> [u32; N] {
    std::array::from_fn(|lane| {
        let (width, length) = (widths[lane], own[lane].count_ones());
        if width > 16 {
            prefix(width, length / 4 * 4)
        } else if length == u32::from(width) {
            own[lane]
        } else {
            0
        }
    })
}

/// Returns the first bits of a lane.
fn prefix(width: u8, length: u32) -> u32 {
    let max = u32::MAX.checked_shr(u32::BITS - u32::from(width)).unwrap_or(0);
    max & !max.checked_shr(length).unwrap_or(0)
}
