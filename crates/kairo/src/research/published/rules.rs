//! The rules and tuples that rows of the circuit refer to by number.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use dbsp::utils::Tup3;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::SparseMask;
use shunt_pipeline::{Rule, RuleId};

use crate::{
    bound::TableKey,
    positions::{last_position, position},
};

use super::{
    actions::{is_clause, next_table},
    plan::TableEdges,
    state::word,
};

/// A rule as a row: priority, inverted age and number.
/// Rows are ordered by rank, lowest rank first.
pub(super) type RankedRule = Tup3<u16, u64, u32>;

/// A rule of a tuple: the tuple, the fingerprint of the values, and the rule.
pub(super) type TupleRow = Tup3<u32, u64, RankedRule>;

/// The rank and number of a table miss; every rule outranks a table miss.
pub(super) const MISS: (u16, u64, u32) = (0, 0, u32::MAX);

/// The rules of all tables by number, without clauses of conjunctions.
pub(crate) struct NumberedRules {
    /// The rules by number; `None` for a free number.
    all: Vec<Option<Arc<Rule>>>,
    /// The free numbers.
    free: Vec<u32>,
    /// The number of each rule.
    by_id: HashMap<RuleId, u32, FixedState>,
    /// The numbers of removed rules. Gates may still hold rows of removed rules.
    removed: Vec<u32>,
    /// The mask of each tuple; the list only grows.
    tuples: Vec<SparseMask>,
    /// The number of each mask.
    by_mask: HashMap<SparseMask, u32, FixedState>,
    hashes: FixedState,
}

impl NumberedRules {
    /// Creates an empty set; its hash tables use `hashes`.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::with_hasher(hashes.clone()),
            removed: Vec::new(),
            tuples: Vec::new(),
            by_mask: HashMap::with_hasher(hashes.clone()),
            hashes: hashes.clone(),
        }
    }

    /// Adds a rule and returns its number, unless the rule exists or is a clause.
    pub(super) fn insert(&mut self, rule: &Arc<Rule>) -> Option<u32> {
        if is_clause(rule) || self.by_id.contains_key(&rule.id) {
            return None;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            last_position(&self.all)
        });
        self.all[number as usize] = Some(Arc::clone(rule));
        self.by_id.insert(rule.id, number);
        Some(number)
    }

    /// Removes a rule, and returns its number if the rule existed.
    pub(super) fn remove(&mut self, id: RuleId) -> Option<u32> {
        let number = self.by_id.remove(&id)?;
        self.removed.push(number);
        Some(number)
    }

    /// Forgets removed rules.
    /// No gate may hold a row of a removed rule, and no later row may refer to one.
    pub(super) fn reclaim(&mut self) {
        for number in self.removed.drain(..) {
            self.all[number as usize] = None;
            self.free.push(number);
        }
    }

    /// Returns a rule by its number; a removed rule until it is reclaimed.
    pub(super) fn get(&self, number: u32) -> Option<&Arc<Rule>> {
        self.all.get(number as usize)?.as_ref()
    }

    /// Returns the numbers of all rules that are not removed.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_id.values().copied()
    }

    /// Returns the tables that the rules of each table lead to.
    pub(super) fn edges(&self) -> TableEdges {
        let mut edges = TableEdges::new();
        for rule in self.numbers().filter_map(|number| self.get(number)) {
            if let Some(next) = next_table(rule) {
                edges.entry((rule.bridge, rule.table)).or_default().insert(next);
            }
        }
        edges
    }

    /// Returns the table of a rule, and the row of the rule for the circuit.
    pub(super) fn row(&mut self, number: u32) -> Option<(TableKey, TupleRow)> {
        let rule = Arc::clone(self.get(number)?);
        let tuple = self.tuple(rule.matching.mask());
        let mut values = rule.matching.value().iter().copied();
        let fingerprint = self.fingerprint(tuple, |_| values.next().unwrap_or_default());
        let row = Tup3(rule.priority.number(), !rule.id.number(), number);
        Some(((rule.bridge, rule.table), Tup3(tuple, fingerprint, row)))
    }

    /// Returns the fingerprint of a packet under the mask of a tuple.
    pub(super) fn fingerprint_of(&self, tuple: u32, state: &[u64]) -> u64 {
        self.fingerprint(tuple, |index| word(state, index))
    }

    /// Returns whether a rule matches a packet in the form of a row.
    pub(super) fn matches(&self, number: u32, state: &[u64]) -> bool {
        self.get(number).is_some_and(|rule| {
            let mut matched_words = rule.matching.mask().iter().zip(rule.matching.value());
            matched_words.all(|((index, bits), value)| word(state, index) & bits == *value)
        })
    }

    /// Returns the number of a mask; adds it if it is new.
    fn tuple(&mut self, mask: &SparseMask) -> u32 {
        if let Some(number) = self.by_mask.get(mask) {
            return *number;
        }
        let number = position(self.tuples.len());
        self.tuples.push(mask.clone());
        self.by_mask.insert(mask.clone(), number);
        number
    }

    /// Returns a hash of the masked words of a rule or packet.
    fn fingerprint(&self, tuple: u32, mut word: impl FnMut(usize) -> u64) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_u32(tuple);
        let mask = self.tuples.get(tuple as usize).into_iter().flat_map(SparseMask::iter);
        mask.for_each(|(index, bits)| hasher.write_u64(word(index) & bits));
        hasher.finish()
    }
}
