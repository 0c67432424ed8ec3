//! The pieces of a chain, by the slots of their entries, and the order in which those of each stage
//! were used.
//!
//! A piece has no owner. Flows that share it do not know of each other, and it goes when nobody has
//! used it for long, when it is stale, or when its place is needed.
//!
//! The order is kept lazily: a hit writes the time into its entry and nothing here. Whoever looks for
//! the piece that was used longest ago first puts those behind that were used since they were placed.

use shunt_pipeline::Time;

use super::{LtmEntryRef, LtmRule, Origin, origin::Place};
use crate::{outline::Name, partition::StageId};

/// A piece of a stage.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) rule: LtmRule,
    pub(super) generation: u32,
    pub(super) stage: StageId,
    /// What policies compare.
    pub(super) name: Name,
    /// The partition that made it.
    pub(super) origin: Origin,
    /// The table that it begins with.
    pub(super) place: Place,
    /// How many flows found it there when they were installed.
    pub(super) shares: u32,
    /// When it was made; numbers count up.
    pub(super) made: u64,
    /// When it had been used last as it got its place in the order.
    pub(super) placed: Time,
}

/// Whether pieces have been of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Not since they were made, as far as is known.
    New,
    Used,
}

impl Rank {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::New => Self::Used,
            Self::Used => Self::New,
        }
    }
}

/// All pieces, and the order of those of each stage.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// By the slots of their entries.
    slots: Vec<Slot>,
    /// Two for each stage: one for each rank.
    orders: Vec<Order>,
}

#[derive(Debug)]
struct Slot {
    piece: Option<Piece>,
    rank: Rank,
    older: u32,
    newer: u32,
}

/// The ends of a list of pieces.
#[derive(Clone, Copy, Debug)]
struct Order {
    oldest: u32,
    newest: u32,
    count: usize,
}

const NONE: u32 = u32::MAX;

impl Pieces {
    pub(super) fn new(stages_count: u8) -> Self {
        let order = Order { oldest: NONE, newest: NONE, count: 0 };
        Self { orders: vec![order; 2 * usize::from(stages_count)], ..Self::default() }
    }

    /// Number of pieces of a stage and rank.
    pub(super) fn count(&self, stage: StageId, rank: Rank) -> usize {
        self.orders.get(order_of(stage, rank)).map_or(0, |order| order.count)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Piece> {
        self.slots.get(slot as usize)?.piece.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Piece> {
        self.slots.get_mut(slot as usize)?.piece.as_mut()
    }

    /// One flow more found a piece there.
    pub(super) fn share(&mut self, slot: u32) {
        if let Some(piece) = self.get_mut(slot) {
            piece.shares += 1;
        }
    }

    /// The name of the entry of the piece in a slot.
    #[inline]
    pub(super) fn named(&self, slot: u32) -> Option<LtmEntryRef> {
        self.get(slot).map(|piece| LtmEntryRef { slot, generation: piece.generation })
    }

    /// All pieces.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LtmEntryRef, &Piece)> {
        (0..).zip(&self.slots).filter_map(|(slot, held)| {
            let piece = held.piece.as_ref()?;
            Some((LtmEntryRef { slot, generation: piece.generation }, piece))
        })
    }

    /// Puts a piece into its slot, which is empty.
    pub(super) fn insert(&mut self, slot: u32, piece: Piece, rank: Rank) {
        let stage = piece.stage;
        while self.slots.len() <= slot as usize {
            self.slots.push(Slot { piece: None, rank, older: NONE, newer: NONE });
        }
        self.slots[slot as usize].piece = Some(piece);
        self.append(stage, rank, slot);
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Piece> {
        let piece = self.slots.get_mut(slot as usize)?.piece.take()?;
        self.unlink(piece.stage, slot);
        Some(piece)
    }

    /// A piece is the last of this rank; it was used at `placed`.
    pub(super) fn put_last(&mut self, slot: u32, placed: Time, rank: Rank) {
        let Some(piece) = self.get_mut(slot) else { return };
        piece.placed = placed;
        let stage = piece.stage;
        self.unlink(stage, slot);
        self.append(stage, rank, slot);
    }

    /// The pieces of a stage and rank in order, those that were used longest ago first.
    pub(super) fn oldest(&self, stage: StageId, rank: Rank) -> impl Iterator<Item = (u32, &Piece)> {
        let mut next = self.orders.get(order_of(stage, rank)).map_or(NONE, |order| order.oldest);
        std::iter::from_fn(move || {
            let slot = next;
            let held = self.slots.get(slot as usize)?;
            next = held.newer;
            Some((slot, held.piece.as_ref()?))
        })
    }

    fn append(&mut self, stage: StageId, rank: Rank, slot: u32) {
        let order = &mut self.orders[order_of(stage, rank)];
        let before = std::mem::replace(&mut order.newest, slot);
        order.count += 1;
        match self.slots.get_mut(before as usize) {
            Some(before) => before.newer = slot,
            None => order.oldest = slot,
        }
        let held = &mut self.slots[slot as usize];
        (held.rank, held.older, held.newer) = (rank, before, NONE);
    }

    fn unlink(&mut self, stage: StageId, slot: u32) {
        let Slot { rank, older, newer, .. } = self.slots[slot as usize];
        let order = &mut self.orders[order_of(stage, rank)];
        order.count -= 1;
        match self.slots.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => order.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => order.newest = older,
        }
    }
}

const fn order_of(stage: StageId, rank: Rank) -> usize {
    2 * stage.index() + rank as usize
}
