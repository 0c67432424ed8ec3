//! The search order of subtables in blocks of 64, to exclude many subtables at once.
//!
//! Without blocks, a lookup would visit every subtable to compare its prefix length with the prefix
//! lengths of the address of the packet. For each prefix length, a block has the set of its 64
//! slots with that length, as the bits of one word. A prefix length that the address does not have
//! excludes all slots of its set at once. The lookup visits only the remaining slots. Gates exclude
//! slots in the same way.

use super::{addresses::FIELDS_COUNT, gates::GateId, table::SearchSlot};

/// Number of slots of a block.
pub(super) const BLOCK_SLOTS: usize = 64;

/// Up to 64 consecutive slots of the search order.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// For each address field, the slots of each prefix length.
    /// A slot with length 0 is in no set.
    lengths: [SlotSets<u8>; FIELDS_COUNT],
    /// The slots of each gate.
    gates: SlotSets<GateId>,
}

/// Sets of slots of a block, by a key that all slots of a set share.
/// No set is empty.
#[derive(Clone, Debug)]
struct SlotSets<K>(Vec<(K, u64)>);

/// Updates the blocks for a new slot of `order` at `position`.
pub(super) fn insert(blocks: &mut Vec<Block>, order: &[SearchSlot], position: usize) {
    if order.len() > blocks.len() * BLOCK_SLOTS {
        blocks.push(Block::default());
    }
    let mut at = position;
    for block in &mut blocks[position / BLOCK_SLOTS..] {
        block.shift_up(at % BLOCK_SLOTS);
        block.add(&order[at], at % BLOCK_SLOTS);
        at = (at / BLOCK_SLOTS + 1) * BLOCK_SLOTS;
    }
}

/// Updates the blocks for a slot that `order` has lost at `position`.
pub(super) fn remove(blocks: &mut Vec<Block>, order: &[SearchSlot], position: usize) {
    let mut at = position;
    for block in &mut blocks[position / BLOCK_SLOTS..] {
        block.shift_down(at % BLOCK_SLOTS);
        at = (at / BLOCK_SLOTS + 1) * BLOCK_SLOTS;
        if let Some(slot) = order.get(at - 1) {
            block.add(slot, BLOCK_SLOTS - 1);
        }
    }
    blocks.truncate(order.len().div_ceil(BLOCK_SLOTS));
}

impl Block {
    /// Returns the prefix lengths of a field, each with its slots.
    pub(super) fn lengths(&self, field: usize) -> &[(u8, u64)] {
        &self.lengths[field].0
    }

    /// Returns the gates, each with the slots of its subtables.
    pub(super) fn gates(&self) -> &[(GateId, u64)] {
        &self.gates.0
    }

    /// Adds the subtable of `slot` as member `bit` of the block.
    fn add(&mut self, slot: &SearchSlot, bit: usize) {
        for (field, length) in slot.prefix_lengths.used() {
            self.lengths[field].add(length, bit);
        }
        if let Some(gate) = slot.gate {
            self.gates.add(gate, bit);
        }
    }

    /// Makes room for a member at `bit`: it and all later members move up.
    fn shift_up(&mut self, bit: usize) {
        self.lengths.iter_mut().for_each(|sets| sets.shift_up(bit));
        self.gates.shift_up(bit);
    }

    /// Removes the member at `bit`: all later members move down.
    fn shift_down(&mut self, bit: usize) {
        self.lengths.iter_mut().for_each(|sets| sets.shift_down(bit));
        self.gates.shift_down(bit);
    }
}

impl<K: PartialEq> SlotSets<K> {
    /// Adds member `bit` to the set of `key`.
    fn add(&mut self, key: K, bit: usize) {
        match self.0.iter_mut().find(|(other, _)| *other == key) {
            Some((_, members)) => *members |= 1 << bit,
            None => self.0.push((key, 1 << bit)),
        }
    }

    /// Moves the members from `bit` on up by one; the last member is removed.
    fn shift_up(&mut self, bit: usize) {
        self.0.retain_mut(|(_, members)| {
            let low = *members & ((1 << bit) - 1);
            *members = (*members - low) << 1 | low;
            *members != 0
        });
    }

    /// Removes the member at `bit`, and moves the members above it down by one.
    fn shift_down(&mut self, bit: usize) {
        self.0.retain_mut(|(_, members)| {
            let low = *members & ((1 << bit) - 1);
            *members = (*members >> 1) & !((1 << bit) - 1) | low;
            *members != 0
        });
    }
}

impl<K> Default for SlotSets<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use foldhash::fast::FixedState;
    use proptest::{prelude::*, sample::Index};
    use shunt_flow::{FieldId, FlowMask, SparseMask};

    use super::*;
    use crate::{
        Priority, Rank,
        tuple_space::{addresses::PrefixLengths, gates::Gates, words::Hashing},
    };

    /// Returns slots with a few prefix lengths and a few gates.
    fn slots() -> Vec<SearchSlot> {
        let seed = FixedState::with_seed(1);
        let (hashing, mut gates) = (Hashing::new(&seed), Gates::new(&seed));
        let shapes = (0..4).flat_map(|port| (0..5).map(move |length| (port, length)));
        let slot = |(port, length): (u32, u32)| {
            let mut mask = FlowMask::EMPTY;
            mask.add_bits(FieldId::InPort, u128::from((1 << port) - 1_u32));
            mask.add_bits(FieldId::Ipv4Dst, u128::from(!(u32::MAX >> length)));
            let mask = SparseMask::from(&mask);
            SearchSlot {
                rank_max: Rank { priority: Priority::new(0), age: 0 },
                subtable: 0,
                prefix_lengths: PrefixLengths::of(&mask),
                gate: gates.acquire(&mask, &hashing),
            }
        };
        shapes.map(slot).collect()
    }

    proptest! {
        #[test]
        fn removed_slots_leave_other_sets_unchanged(
            ops in prop::collection::vec((0..20usize, any::<Index>(), 0..3u8), 1..400),
        ) {
            let slots = slots();
            let (mut order, mut blocks) = (Vec::new(), Vec::new());
            for (slot, index, kind) in ops {
                if kind == 0 && !order.is_empty() {
                    let position = index.index(order.len());
                    order.remove(position);
                    remove(&mut blocks, &order, position);
                } else {
                    let position = index.index(order.len() + 1);
                    order.insert(position, slots[slot]);
                    insert(&mut blocks, &order, position);
                }
            }
            prop_assert_eq!(blocks.len(), order.len().div_ceil(BLOCK_SLOTS));
            for (block, slots) in blocks.iter().zip(order.chunks(BLOCK_SLOTS)) {
                for (bit, slot) in slots.iter().enumerate() {
                    let of_place = |members: u64| members >> bit & 1 == 1;
                    let gates = block.gates().iter().filter(|(_, members)| of_place(*members));
                    prop_assert!(gates.map(|(gate, _)| *gate).eq(slot.gate));
                    let lengths = (0..FIELDS_COUNT).flat_map(|field| {
                        let stored = block.lengths(field).iter();
                        stored.filter(|(_, m)| of_place(*m)).map(move |(length, _)| (field, *length))
                    });
                    prop_assert!(lengths.eq(slot.prefix_lengths.used()));
                }
                let beyond = !(0..slots.len()).fold(0_u64, |members, bit| members | 1 << bit);
                let sets = (0..FIELDS_COUNT).flat_map(|field| block.lengths(field)).map(|set| set.1);
                let sets = sets.chain(block.gates().iter().map(|set| set.1));
                prop_assert!(sets.into_iter().all(|members| members & beyond == 0 && members != 0));
            }
        }
    }
}
