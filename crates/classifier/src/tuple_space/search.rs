//! One lookup of a key, and the subtables that the lookup searches.
//!
//! A subtable is open if neither addresses nor a gate exclude it. Only open subtables are searched,
//! and the proof of each result is added to the mask. When the best rule is known,
//! [`Search::prove`] adds the proofs for all other subtables.

use shunt_flow::{FlowKey, FlowMask};

use super::{
    addresses::AddressWalks,
    blocks::{BLOCK_SLOTS, Block},
    gates::GateAnswers,
    subtable::{RuleChain, SubtableRule},
    table::{SearchSlot, TupleSpace},
};
use crate::{Matches, Priority, Rank, Version};

/// One lookup of one key.
pub(super) struct Search<'a, 'k, R> {
    /// The table that is searched.
    pub(super) table: &'a TupleSpace<R>,
    /// The key that is looked up.
    pub(super) key: &'k FlowKey,
    /// The trie walks for the key.
    pub(super) addresses: AddressWalks<'a, 'k>,
    /// The gates that were compared with the key already.
    gate_answers: GateAnswers,
}

impl<'a, 'k, R> Search<'a, 'k, R> {
    /// Creates the search of `table` for `key`.
    pub(super) fn new(table: &'a TupleSpace<R>, key: &'k FlowKey) -> Self {
        Self {
            table,
            key,
            addresses: table.addresses.walks(key),
            gate_answers: GateAnswers::default(),
        }
    }

    /// Returns the rule of the highest rank that a version sees and that matches.
    /// The bits that prove the result are added to `mask`.
    pub(super) fn best(
        mut self,
        version: Version,
        mut mask: Option<&mut FlowMask>,
    ) -> Option<&'a SubtableRule<R>> {
        let mut best: Option<&SubtableRule<R>> = None;
        let mut are_all_open = true;
        let order = &self.table.order;
        'blocks: for (slots, block) in order.chunks(BLOCK_SLOTS).zip(&self.table.blocks) {
            if best.is_some_and(|best| slots.first().is_none_or(|p| best.rank >= p.rank_max)) {
                break;
            }
            let open = self.open(block, slots.len());
            are_all_open &= open == all_slots(slots.len());
            for bit in SetBits(open) {
                let slot = &slots[bit];
                if best.is_some_and(|best| best.rank >= slot.rank_max) {
                    break 'blocks;
                }
                let chain = self.chain(slot, mask.as_deref_mut());
                let found = chain.and_then(|chain| chain.visible(version).next());
                best = best.into_iter().chain(found).max_by_key(|stored| stored.rank);
            }
        }
        if let Some(mask) = mask.filter(|_| !are_all_open) {
            let is_better = |slot: &SearchSlot| best.is_none_or(|best| best.rank < slot.rank_max);
            self.prove(0..order.partition_point(is_better), mask);
        }
        best
    }

    /// Returns the slots of a block that neither addresses nor a gate exclude.
    pub(super) fn open(&mut self, block: &Block, slots_count: usize) -> u64 {
        let Self { table, key, addresses, gate_answers } = self;
        let [source, target] = addresses.excluded(block);
        let mut open = !(source | target) & all_slots(slots_count);
        for (gate, members) in block.gates() {
            let is_open = || table.gates.is_open(*gate, key, &table.hashing);
            if open & members != 0 && !gate_answers.get_or_check(*gate, is_open) {
                open &= !members;
            }
        }
        open
    }

    /// Returns the rules of an open slot that match.
    /// The bits that prove the result are added to `mask`.
    fn chain(&self, slot: &SearchSlot, mask: Option<&mut FlowMask>) -> Option<&'a RuleChain<R>> {
        let subtable = &self.table.subtables[slot.subtable];
        match mask {
            Some(mask) => subtable.chain_masked(self.key, &self.table.hashing, mask),
            None => subtable.chain(self.key, &self.table.hashing),
        }
    }
}

/// Returns the set of the first `count` slots of a block; `count` is at least 1.
const fn all_slots(count: usize) -> u64 {
    u64::MAX >> (BLOCK_SLOTS - count)
}

/// All rules that match a key, highest rank first.
pub(super) struct TupleMatches<'a, 'k, R> {
    /// The lookup of the key.
    search: Search<'a, 'k, R>,
    /// The version of the rules that are visible.
    version: Version,
    /// Number of slots of the search order that were searched.
    searched_count: usize,
    /// Rules that match and were not returned yet, lowest rank first.
    pending: Vec<&'a SubtableRule<R>>,
}

impl<'a, 'k, R> TupleMatches<'a, 'k, R> {
    /// Creates an iterator that has compared no rule yet.
    pub(super) const fn new(search: Search<'a, 'k, R>, version: Version) -> Self {
        Self { search, version, searched_count: 0, pending: Vec::new() }
    }

    /// Searches the next subtable, and adds its matching rules to `pending`.
    fn check(&mut self, slot: &SearchSlot, mask: &mut FlowMask) {
        let block = &self.search.table.blocks[self.searched_count / BLOCK_SLOTS];
        let open = self.search.open(block, BLOCK_SLOTS);
        let is_open = open >> (self.searched_count % BLOCK_SLOTS) & 1 == 1;
        let chain = is_open.then(|| self.search.chain(slot, Some(mask))).flatten();
        for stored in chain.into_iter().flat_map(|chain| chain.visible(self.version)) {
            let position = self.pending.partition_point(|other| other.rank < stored.rank);
            self.pending.insert(position, stored);
        }
        self.searched_count += 1;
    }
}

impl<'a, R> Matches<'a, R> for TupleMatches<'a, '_, R> {
    fn priority_max(&self) -> Option<Priority> {
        let pending = self.pending.last().map(|stored| stored.rank);
        let slot = self.search.table.order.get(self.searched_count).map(|slot| slot.rank_max);
        pending.max(slot).map(|rank| rank.priority)
    }

    fn next_masked(&mut self, floor: Priority, mask: &mut FlowMask) -> Option<(Rank, &'a R)> {
        let order = &self.search.table.order;
        let start = self.searched_count;
        while let Some(slot) = order.get(self.searched_count)
            && slot.rank_max.priority >= floor
            && self.pending.last().is_none_or(|best| best.rank < slot.rank_max)
        {
            self.check(slot, mask);
        }
        self.search.prove(start..self.searched_count, mask);
        let next = self.pending.pop_if(|stored| stored.rank.priority >= floor)?;
        Some((next.rank, &next.rule))
    }
}

/// The positions of the bits of a word, lowest first.
pub(super) struct SetBits(pub(super) u64);

impl Iterator for SetBits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < BLOCK_SLOTS).then_some(bit)
    }
}
