//! The ghost queue: the sub-traversals that were evicted recently, as in S3-FIFO.
//!
//! If a sub-traversal is installed again shortly after its eviction, its entry was useful.

use std::collections::VecDeque;

use hashbrown::HashSet;

use crate::adaptive::Capacity;

/// The identities of the last evicted sub-traversals.
#[derive(Debug)]
pub(super) struct GhostQueue {
    /// The identities, to look them up.
    known: HashSet<u64, foldhash::fast::FixedState>,
    /// The identities in the order of their evictions.
    /// Some evicted sub-traversals may be cached again.
    order: VecDeque<u64>,
    /// Maximum number of identities.
    count_max: usize,
}

impl GhostQueue {
    /// Returns a queue that keeps as many identities as the stages have entries.
    pub(super) fn new(capacity: Capacity, seed: u64) -> Self {
        let known = HashSet::with_hasher(foldhash::fast::FixedState::with_seed(seed));
        let count_max = capacity.stage_entries_max.saturating_mul(capacity.stages_count.into());
        Self { known, order: VecDeque::new(), count_max }
    }

    /// Adds the identity of a sub-traversal that was evicted.
    pub(super) fn note(&mut self, identity: u64) {
        if self.known.insert(identity) {
            self.order.push_back(identity);
        }
        if self.order.len() > self.count_max
            && let Some(first) = self.order.pop_front()
        {
            self.known.remove(&first);
        }
    }

    /// Returns whether a sub-traversal was evicted recently.
    pub(super) fn has(&self, identity: u64) -> bool {
        self.known.contains(&identity)
    }
}
