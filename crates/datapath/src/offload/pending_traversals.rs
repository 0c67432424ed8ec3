//! Traversals with new entries that the device has not confirmed yet.

use hashbrown::HashMap;
use shunt_pipeline::Time;

/// Traversals that are not confirmed yet.
#[derive(Debug, Default)]
pub(super) struct PendingTraversals {
    /// The traversals by number.
    open: HashMap<u64, PendingTraversal, foldhash::fast::FixedState>,
    /// Number of traversals that were added so far.
    count: u64,
}

/// A traversal with entries that are not in the device yet.
#[derive(Clone, Copy, Debug)]
struct PendingTraversal {
    /// Time at which the packet missed.
    missed: Time,
    /// Number of entries that are not in the device yet.
    left: usize,
}

impl PendingTraversals {
    /// Adds a traversal with `count` new entries; returns its number.
    pub(super) fn begin(&mut self, missed: Time, entries_count: usize) -> u64 {
        self.count += 1;
        if entries_count > 0 {
            self.open.insert(self.count, PendingTraversal { missed, left: entries_count });
        }
        self.count
    }

    /// Records the confirmation of an entry.
    /// Returns the time of the miss if it was the last entry of the traversal.
    pub(super) fn confirm(&mut self, traversal_no: u64) -> Option<Time> {
        let open = self.open.get_mut(&traversal_no)?;
        open.left = open.left.saturating_sub(1);
        if open.left > 0 {
            return None;
        }
        self.open.remove(&traversal_no).map(|open| open.missed)
    }

    /// Forgets a traversal with an entry that will never be confirmed.
    pub(super) fn abandon(&mut self, traversal_no: u64) {
        self.open.remove(&traversal_no);
    }
}
