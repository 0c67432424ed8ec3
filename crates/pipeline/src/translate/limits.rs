//! Limits of one translation: nesting depth, table lookups, recirculations.
//!
//! Rules choose how deep resubmits, clones, groups and patch ports nest, so each of these is counted
//! and bounded. A continuation contains the counters, so they are summed up along a chain of
//! recirculations.

use crate::traversals::{sub_traversal::LimitUse, traversal::TraversalError};

/// The most nested resubmits to the same or a lower table, buckets and patch ports.
const DEPTH_MAX: u16 = 64;
/// The most table lookups of a translation after the first lookup.
const RESUBMITS_MAX: u16 = 4096;
/// The most times that a packet is parsed again, as in Open vSwitch.
const RECIRCULATIONS_MAX: u8 = 6;
/// The most datapath actions of one traversal.
pub(super) const ACTIONS_MAX: usize = 1 << 16;
/// The most learn requests, and the most refreshes, of one packet.
pub(super) const LEARN_REQUESTS_MAX: usize = 1024;

/// The depth, lookups and recirculations of a translation so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LimitCounters {
    /// Nesting depth: resubmits to the same or a lower table, buckets and patch ports.
    depth: u16,
    /// Number of lookups after the first.
    resubmits: u16,
    /// Number of times that the packet was parsed again.
    recirculations: u8,
}

impl LimitCounters {
    /// Counts one more lookup, which nests one level deeper if `deepens`.
    pub(super) const fn count_lookup(&mut self, deepens: bool) -> Result<(), TraversalError> {
        if self.depth >= DEPTH_MAX {
            return Err(TraversalError::TooDeep(DEPTH_MAX));
        }
        if self.resubmits >= RESUBMITS_MAX {
            return Err(TraversalError::TooManyResubmits(RESUBMITS_MAX));
        }
        self.resubmits += 1;
        self.depth += deepens as u16;
        Ok(())
    }

    /// Counts one more lookup, with the `conj_id` of a conjunction.
    pub(super) const fn count_conjunction(&mut self) -> Result<(), TraversalError> {
        if self.resubmits >= RESUBMITS_MAX {
            return Err(TraversalError::TooManyResubmits(RESUBMITS_MAX));
        }
        self.resubmits += 1;
        Ok(())
    }

    /// Returns the counters after one more recirculation.
    pub(super) const fn recirculated(self) -> Result<Self, TraversalError> {
        let recirculations = self.recirculations + 1;
        if recirculations > RECIRCULATIONS_MAX {
            return Err(TraversalError::TooManyRecirculations(RECIRCULATIONS_MAX));
        }
        Ok(Self { recirculations, ..self })
    }

    /// Returns how deep the translation is nested.
    pub(super) const fn depth(self) -> u16 {
        self.depth
    }

    /// Returns to an earlier nesting depth.
    pub(super) const fn return_to(&mut self, depth: u16) {
        self.depth = depth;
    }

    /// Returns the number of lookups after the first lookup.
    pub(super) fn lookups_count(self) -> usize {
        usize::from(self.resubmits)
    }

    /// Returns whether the packet was parsed again.
    pub(super) const fn has_recirculated(self) -> bool {
        self.recirculations > 0
    }

    /// Returns counters at zero, with the same nesting depth.
    pub(super) const fn restarted(self) -> Self {
        Self { depth: self.depth, resubmits: 0, recirculations: 0 }
    }
}

impl LimitUse {
    /// Returns whether `parts` sub-traversals stay within the limits of a translation.
    ///
    /// Each sub-traversal uses at most as much as `self`.
    #[must_use]
    pub const fn fits(&self, parts: usize) -> bool {
        self.lookups.saturating_add(1).saturating_mul(parts) <= RESUBMITS_MAX as usize
            && self.actions.saturating_mul(parts) <= ACTIONS_MAX
            && self.refreshes.saturating_mul(parts) <= LEARN_REQUESTS_MAX
    }
}
