//! The tail of a translation: the first visit that does more than lead to another table, and all
//! after it.
//!
//! While the tail is recorded, the mask of the translation has only its bits.

use shunt_flow::SparseMask;

use super::{reads::TailReads, scratch::Scratch};

/// The state of the record of the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailState {
    /// The tail is not recorded.
    Off,
    /// All visits so far only led to another table.
    Awaited,
    /// The tail began at the visit with this index.
    Begun(usize),
}

impl TailState {
    /// Begins the tail, if it is awaited.
    pub(super) fn begin(&mut self, scratch: &mut Scratch) {
        if *self == Self::Awaited {
            *self = Self::Begun(scratch.visits.len());
            let Scratch { mask, mask_before, reads, .. } = scratch;
            std::mem::swap(mask, mask_before);
            reads.begin_tail();
        }
    }

    /// Merges the mask of the tail into that of the translation.
    pub(super) fn join(&mut self, scratch: &mut Scratch) {
        if let Self::Begun(_) = std::mem::replace(self, Self::Off) {
            let Scratch { mask, mask_before, .. } = scratch;
            std::mem::swap(mask, mask_before);
            mask.add_all(mask_before);
            mask_before.clear();
        }
    }

    /// Takes the record: its first visit, its consulted bits, and its reads.
    pub(super) fn take(&mut self, scratch: &mut Scratch) -> Option<(usize, SparseMask, TailReads)> {
        let Self::Begun(visit) = *self else { return None };
        let Scratch { mask, masks, reads, .. } = scratch;
        let (mask, tail) = (masks.of(mask), reads.tail());
        self.join(scratch);
        Some((visit, mask, tail?))
    }
}
