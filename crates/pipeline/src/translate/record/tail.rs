//! The tail of a translation: all visits from the first visit on that does more than lead to
//! another table.
//!
//! While the tail is recorded, the mask of the translation has only the bits of the tail.

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
    /// Begins the tail, if all visits so far have only led to another table.
    pub(super) fn begin(&mut self, scratch: &mut Scratch) {
        if *self == Self::Awaited {
            *self = Self::Begun(scratch.visits.len());
            let Scratch { mask, mask_before, reads, .. } = scratch;
            std::mem::swap(mask, mask_before);
            reads.begin_tail();
        }
    }

    /// Merges the mask of the tail with the mask before the tail.
    pub(super) fn join(&mut self, scratch: &mut Scratch) {
        if let Self::Begun(_) = std::mem::replace(self, Self::Off) {
            let Scratch { mask, mask_before, .. } = scratch;
            std::mem::swap(mask, mask_before);
            mask.add_all(mask_before);
            mask_before.clear();
        }
    }

    /// Takes the record of the tail: the first visit, consulted bits, and reads.
    pub(super) fn take(&mut self, scratch: &mut Scratch) -> Option<(usize, SparseMask, TailReads)> {
        let Self::Begun(visit) = *self else { return None };
        let Scratch { mask, masks, reads, .. } = scratch;
        let (mask, tail) = (masks.of(mask), reads.tail());
        self.join(scratch);
        Some((visit, mask, tail?))
    }
}
