//! What has made room lately: a piece that comes again was of use after all.

use std::collections::VecDeque;

use hashbrown::HashSet;

use crate::adaptive::Capacity;

/// The names of as many pieces as there is room for, of those that made room last.
#[derive(Debug)]
pub(super) struct Gone {
    known: HashSet<u64, foldhash::fast::FixedState>,
    /// In the order in which they went; some have come again.
    order: VecDeque<u64>,
    count_max: usize,
}

impl Gone {
    pub(super) fn new(capacity: Capacity, seed: u64) -> Self {
        let known = HashSet::with_hasher(foldhash::fast::FixedState::with_seed(seed));
        let count_max = capacity.stage_entries_max.saturating_mul(capacity.stages_count.into());
        Self { known, order: VecDeque::new(), count_max }
    }

    /// A piece has made room.
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

    /// Whether a piece has made room lately.
    pub(super) fn has(&self, identity: u64) -> bool {
        self.known.contains(&identity)
    }
}
