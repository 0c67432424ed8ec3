//! Proofs for the subtables that were excluded without a search.
//!
//! Leading bits of an address, or a gate before the addresses, exclude a subtable without a search.
//! The choice of the proof decides how many packets share a cache entry, and how many masks a cache
//! has to search. The proofs of excluded subtables are added after the proofs of searched
//! subtables, so most of them need no new bits. All other proofs are added in the order of the
//! subtables. A stage before the addresses is preferred, because it has few values, and other
//! subtables need the same bits. If no stage before the addresses excludes the subtable, the proof
//! uses the address that adds fewer bits.

use std::ops::Range;

use shunt_flow::FlowMask;

use super::{
    blocks::{BLOCK_SLOTS, Block},
    search::{Search, SetBits},
};

impl<R> Search<'_, '_, R> {
    /// Adds proofs for the closed subtables in these slots.
    pub(super) fn prove(&mut self, slots: Range<usize>, mask: &mut FlowMask) {
        let table = self.table;
        let first = slots.start / BLOCK_SLOTS;
        let blocks = table.blocks.iter().zip(table.order.chunks(BLOCK_SLOTS)).enumerate();
        let end = slots.end.div_ceil(BLOCK_SLOTS);
        for (index, (block, order)) in blocks.take(end).skip(first) {
            let closed = members(&slots, index) & !self.open(block, order.len());
            let mut rest = closed & !self.proved(block, mask);
            while let Some(bit) = SetBits(rest).next() {
                rest &= !(1 << bit);
                let stages = table.subtables[order[bit].subtable].stages();
                if let Some(part) = stages.lacking_before_addresses(self.key, &table.hashing) {
                    part.add_to(mask);
                } else {
                    self.addresses.prove(block, 1 << bit, mask);
                    rest &= !self.proved(block, mask);
                }
            }
        }
    }

    /// Returns the slots that the address bits of a mask exclude.
    fn proved(&mut self, block: &Block, mask: &FlowMask) -> u64 {
        let counts = self.addresses.counts_in(mask);
        self.addresses.excluded_by(block, counts)
    }
}

/// Returns the slots of a block that are in a range.
fn members(range: &Range<usize>, block: usize) -> u64 {
    let bit = |slot: usize| slot.saturating_sub(block * BLOCK_SLOTS).min(BLOCK_SLOTS);
    let from = |slot| u32::try_from(bit(slot)).ok().and_then(|bit| u64::MAX.checked_shl(bit));
    from(range.start).unwrap_or(0) & !from(range.end).unwrap_or(0)
}
