//! One lookup: which subtables are asked.
//!
//! Blocks say which subtables are open: neither addresses nor a gate exclude them. Only those are
//! asked, and add to the mask what proves their answers. The proofs for the others are left to
//! [`Search::prove`], which knows then what the mask has already.

use shunt_flow::{FlowKey, FlowMask};

use super::{
    addresses::AddressWalks,
    blocks::{BLOCK_PLACES, Block},
    gates::Asked,
    subtable::{Chain, Held},
    table::{Place, TupleSpace},
};
use crate::{Matches, Priority, Rank, Version};

/// One lookup of one key.
pub(super) struct Search<'a, 'k, R> {
    pub(super) table: &'a TupleSpace<R>,
    pub(super) key: &'k FlowKey,
    pub(super) addresses: AddressWalks<'a, 'k>,
    asked: Asked,
}

impl<'a, 'k, R> Search<'a, 'k, R> {
    pub(super) fn new(table: &'a TupleSpace<R>, key: &'k FlowKey) -> Self {
        Self { table, key, addresses: table.addresses.walks(key), asked: Asked::default() }
    }

    /// The highest-ranking rule that a version sees. With a mask, adds bits that prove it.
    pub(super) fn best(
        mut self,
        version: Version,
        mut mask: Option<&mut FlowMask>,
    ) -> Option<&'a Held<R>> {
        let mut best: Option<&Held<R>> = None;
        let mut are_all_open = true;
        let order = &self.table.order;
        'blocks: for (places, block) in order.chunks(BLOCK_PLACES).zip(&self.table.blocks) {
            if best.is_some_and(|best| places.first().is_none_or(|p| best.rank >= p.rank_max)) {
                break;
            }
            let open = self.open(block, places.len());
            are_all_open &= open == all_places(places.len());
            for bit in Bits(open) {
                let place = &places[bit];
                if best.is_some_and(|best| best.rank >= place.rank_max) {
                    break 'blocks;
                }
                let chain = self.chain(place, mask.as_deref_mut());
                let found = chain.and_then(|chain| chain.visible(version).next());
                best = best.into_iter().chain(found).max_by_key(|held| held.rank);
            }
        }
        if let Some(mask) = mask.filter(|_| !are_all_open) {
            let is_better = |place: &Place| best.is_none_or(|best| best.rank < place.rank_max);
            self.prove(0..order.partition_point(is_better), mask);
        }
        best
    }

    /// The places of a block that neither addresses nor a gate exclude.
    pub(super) fn open(&mut self, block: &Block, places_count: usize) -> u64 {
        let Self { table, key, addresses, asked } = self;
        let [source, target] = addresses.excluded(block);
        let mut open = !(source | target) & all_places(places_count);
        for (gate, members) in block.gates() {
            let is_open = || table.gates.is_open(*gate, key, &table.hashing);
            if open & members != 0 && !asked.or_ask(*gate, is_open) {
                open &= !members;
            }
        }
        open
    }

    /// The rules of an open place that match. With a mask, adds the bits that prove what came of
    /// the place.
    fn chain(&self, place: &Place, mask: Option<&mut FlowMask>) -> Option<&'a Chain<R>> {
        let subtable = &self.table.subtables[place.subtable];
        match mask {
            Some(mask) => subtable.chain_masked(self.key, &self.table.hashing, mask),
            None => subtable.chain(self.key, &self.table.hashing),
        }
    }
}

/// The first places of a block, which has one at least.
const fn all_places(count: usize) -> u64 {
    u64::MAX >> (BLOCK_PLACES - count)
}

/// All rules that match a key, the highest-ranking first.
pub(super) struct TupleMatches<'a, 'k, R> {
    search: Search<'a, 'k, R>,
    version: Version,
    /// Position in the order of subtables up to which they have been asked.
    asked_count: usize,
    /// Rules that match and wait for their turn, the lowest-ranking first.
    waiting: Vec<&'a Held<R>>,
}

impl<'a, 'k, R> TupleMatches<'a, 'k, R> {
    pub(super) const fn new(search: Search<'a, 'k, R>, version: Version) -> Self {
        Self { search, version, asked_count: 0, waiting: Vec::new() }
    }

    /// Asks the next subtable.
    fn ask(&mut self, place: &Place, mask: &mut FlowMask) {
        let block = &self.search.table.blocks[self.asked_count / BLOCK_PLACES];
        let open = self.search.open(block, BLOCK_PLACES);
        let is_open = open >> (self.asked_count % BLOCK_PLACES) & 1 == 1;
        let chain = is_open.then(|| self.search.chain(place, Some(mask))).flatten();
        for held in chain.into_iter().flat_map(|chain| chain.visible(self.version)) {
            let position = self.waiting.partition_point(|other| other.rank < held.rank);
            self.waiting.insert(position, held);
        }
        self.asked_count += 1;
    }
}

impl<'a, R> Matches<'a, R> for TupleMatches<'a, '_, R> {
    fn priority_max(&self) -> Option<Priority> {
        let waiting = self.waiting.last().map(|held| held.rank);
        let place = self.search.table.order.get(self.asked_count).map(|place| place.rank_max);
        waiting.max(place).map(|rank| rank.priority)
    }

    fn next_masked(&mut self, floor: Priority, mask: &mut FlowMask) -> Option<(Rank, &'a R)> {
        let order = &self.search.table.order;
        let start = self.asked_count;
        while let Some(place) = order.get(self.asked_count)
            && place.rank_max.priority >= floor
            && self.waiting.last().is_none_or(|best| best.rank < place.rank_max)
        {
            self.ask(place, mask);
        }
        self.search.prove(start..self.asked_count, mask);
        let next = self.waiting.pop_if(|held| held.rank.priority >= floor)?;
        Some((next.rank, &next.rule))
    }
}

/// The positions of the bits of a word, the lowest first.
pub(super) struct Bits(pub(super) u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < BLOCK_PLACES).then_some(bit)
    }
}
