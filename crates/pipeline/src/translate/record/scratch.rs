//! The buffers of a translation, which each thread reuses.

use std::cell::Cell;

use shunt_flow::{FlowMask, SparseMask};

use super::{foreign_bits::ForeignBits, growing_mask::GrowingMask, reads::Reads};
use crate::traversals::traversal::Visit;

/// The buffers of a translation, which are empty between two translations.
pub(super) struct Scratch {
    /// The bits of the packet as it arrived that were consulted.
    pub(super) mask: Box<GrowingMask>,
    /// The value of `mask` when the tail began; `mask` then has the bits of the tail.
    pub(super) mask_before: Box<GrowingMask>,
    /// The bits that were rewritten since the packet arrived.
    pub(super) written: GrowingMask,
    /// The frames of the visits with running actions, each nested in the frame before.
    ///
    /// The frame of the current lookup, and frames for reuse, follow.
    pub(super) frames: Vec<VisitFrame>,
    /// Number of frames with running actions.
    pub(super) depth: usize,
    /// All visits so far; a visit has an empty mask until it ends.
    pub(super) visits: Vec<Visit>,
    /// The shared mask without bits.
    pub(super) empty: SparseMask,
    /// The last masks, which equal masks share.
    pub(super) masks: RecentMasks,
    /// The objects that were read.
    pub(super) reads: Reads,
}

/// A visit that has not ended.
#[derive(Default)]
pub(super) struct VisitFrame {
    /// Index of the visit in [`Scratch::visits`].
    pub(super) visit: usize,
    /// The consulted bits of the packet, as the packet entered the table.
    pub(super) mask: GrowingMask,
    /// The bits that were rewritten since the packet entered the table.
    pub(super) written: GrowingMask,
    /// The bits of the key that are not those of the packet.
    pub(super) foreign: ForeignBits,
}

/// The sparse masks of recent visits, by hash.
///
/// Lookups in one table consult the same few sets of bits for most packets. So stored traversals
/// share these masks.
pub(super) struct RecentMasks(Box<[Option<SparseMask>]>);

thread_local! {
    /// The buffers of this thread; absent during a translation.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The most visits for which the buffers of a thread keep capacity.
const VISITS_KEPT: usize = 256;
/// Number of recent masks that a thread keeps.
const MASKS_KEPT: usize = 512;

impl Scratch {
    /// Takes the buffers of this thread; makes new buffers if they are in use.
    pub(super) fn of_thread() -> Box<Self> {
        SCRATCH.take().unwrap_or_else(|| Box::new(Self::new()))
    }

    /// Keeps these buffers, which are empty, for the next translation of this thread.
    pub(super) fn return_to_thread(mut self: Box<Self>) {
        self.visits.shrink_to(VISITS_KEPT);
        SCRATCH.set(Some(self));
    }

    /// Returns empty buffers.
    fn new() -> Self {
        let empty = SparseMask::from(&FlowMask::EMPTY);
        Self {
            mask: Box::new(GrowingMask::EMPTY),
            mask_before: Box::new(GrowingMask::EMPTY),
            written: GrowingMask::EMPTY,
            frames: Vec::new(),
            depth: 0,
            visits: Vec::new(),
            empty,
            masks: RecentMasks::new(),
            reads: Reads::default(),
        }
    }

    /// Returns the frame of the next visit.
    pub(super) fn next(&mut self) -> &mut VisitFrame {
        if self.frames.len() == self.depth {
            self.frames.push(VisitFrame::default());
        }
        &mut self.frames[self.depth]
    }

    /// Returns the innermost visit with running actions.
    pub(super) fn innermost(&mut self) -> Option<&mut VisitFrame> {
        let last = self.depth.checked_sub(1)?;
        self.frames.get_mut(last)
    }
}

impl RecentMasks {
    /// Returns a table that remembers no masks.
    fn new() -> Self {
        Self(vec![None; MASKS_KEPT].into_boxed_slice())
    }

    /// Returns a sparse mask, shared with the mask `last` if both are equal.
    pub(super) fn shared(
        &mut self,
        last: &mut Option<SparseMask>,
        mask: &GrowingMask,
    ) -> SparseMask {
        match last {
            Some(last) if mask.is(last) => last.clone(),
            last => last.insert(self.of(mask)).clone(),
        }
    }

    /// Returns a sparse mask, shared with a recent mask that is equal.
    #[expect(clippy::cast_possible_truncation, reason = "the cast takes the low bits of a hash")]
    pub(super) fn of(&mut self, mask: &GrowingMask) -> SparseMask {
        match &mut self.0[mask.hash() as usize % MASKS_KEPT] {
            Some(kept) if mask.is(kept) => kept.clone(),
            slot => slot.insert(mask.sparse()).clone(),
        }
    }
}

/// Returns the mask that `fill` makes, shared with an equal recent mask.
pub(in crate::translate) fn mask_of(fill: impl FnOnce(&mut GrowingMask)) -> SparseMask {
    let mut scratch = Scratch::of_thread();
    let Scratch { mask, masks, .. } = &mut *scratch;
    fill(mask);
    let made = masks.of(mask);
    mask.clear();
    scratch.return_to_thread();
    made
}
