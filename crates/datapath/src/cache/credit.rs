//! Hits of cache entries that are not credited to rules yet.

use shunt_pipeline::{Crediting, Pipeline, Time, Traversal, TraversalCredit};

use super::entry::Reclaimed;

/// Hits that have not been credited to rules yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Number of packets that hit the entry.
    pub packets: u64,
    /// Bytes of the packets at ingress.
    pub bytes: u64,
    /// Time of the last hit.
    pub used: Time,
}

/// The hits of some slots, which were taken to credit them.
#[derive(Debug)]
pub struct TakenCredits {
    /// The slots with their hits, of which the first `count` are set.
    slots: [(u32, Credit); CREDITS_MAX],
    count: usize,
}

/// Maximum number of slots with hits that are credited together.
///
/// The loads of this many traversals overlap.
pub const CREDITS_MAX: usize = 64;

impl Credit {
    /// A credit without hits.
    const NONE: Self = Self { packets: 0, bytes: 0, used: Time::ZERO };

    /// Returns the credit of a traversal.
    pub(crate) const fn of(self, traversal: &Traversal) -> TraversalCredit<'_> {
        let Self { packets, bytes, used } = self;
        TraversalCredit { traversal, packets, bytes, used }
    }

    /// Credits the rules of a traversal.
    pub fn apply(self, tables: &Crediting<'_>, traversal: &Traversal) {
        tables.credit(traversal, self.packets, self.bytes, self.used);
    }
}

impl Reclaimed {
    /// Credits the last hits of the entry to its rules.
    pub fn apply_credit(&self, pipeline: &Pipeline) {
        if let Some(credit) = self.credit {
            credit.apply(&pipeline.crediting(), &self.traversal);
        }
    }
}

impl TakenCredits {
    /// The hits of no slot.
    pub(super) const NONE: Self = Self { slots: [(0, Credit::NONE); CREDITS_MAX], count: 0 };

    /// Adds the hits of a slot, of at most [`CREDITS_MAX`] slots.
    pub(super) fn push(&mut self, slot: u32, credit: Credit) {
        if let Some(free) = self.slots.get_mut(self.count) {
            *free = (slot, credit);
            self.count += 1;
        }
    }

    /// Returns the slots with their hits.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Credit)> + Clone {
        self.slots.iter().take(self.count).copied()
    }
}
