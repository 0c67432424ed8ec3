//! The queue of evicted entries to re-translate, most recently hit first.
//!
//! One invalidation may evict ten thousand entries, so each must cost a single push. The queue
//! therefore sorts entries only roughly: into buckets by the time since the last hit, each bucket
//! twice as long as the previous bucket. Entries without a hit in the last second are refused.

use std::{collections::VecDeque, time::Duration};

use shunt_pipeline::Time;

use super::EntryRef;

/// Evicted entries by the time between their last hit and their eviction.
#[derive(Debug, Default)]
pub(super) struct RepairQueue {
    /// Bucket *n* holds entries hit less than 2^n units before their eviction.
    ///
    /// Each bucket is in the order of evictions, with the time of each eviction.
    by_age: [VecDeque<(EntryRef, Time)>; AGES],
    /// Number of entries in all buckets.
    len: usize,
}

/// Number of buckets; the last bucket ends at about a second.
const AGES: usize = 11;

/// The unit of ages is 2^20 ns, about a millisecond.
const UNIT_BITS: u32 = 20;

impl RepairQueue {
    /// Returns the number of entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry evicted `age` after its last hit; false if `age` is too long.
    pub(super) fn push(&mut self, entry: EntryRef, now: Time, age: Duration) -> bool {
        let units = age.as_nanos() >> UNIT_BITS;
        let bucket = (u128::BITS - units.leading_zeros()) as usize;
        let Some(queue) = self.by_age.get_mut(bucket) else { return false };
        queue.push_back((entry, now));
        self.len += 1;
        true
    }

    /// Removes a most recently hit entry, to the precision of its bucket.
    pub(super) fn pop_newest(&mut self) -> Option<EntryRef> {
        let popped = self.by_age.iter_mut().find_map(VecDeque::pop_front);
        self.note_popped(popped)
    }

    /// Removes a least recently hit entry, to the precision of its bucket.
    pub(super) fn pop_oldest(&mut self) -> Option<EntryRef> {
        let popped = self.by_age.iter_mut().rev().find_map(VecDeque::pop_front);
        self.note_popped(popped)
    }

    /// Removes an entry that was evicted at `until` or before.
    pub(super) fn pop_evicted_by(&mut self, until: Time) -> Option<EntryRef> {
        let is_late = |(_, evicted): &mut (EntryRef, Time)| *evicted <= until;
        let mut queues = self.by_age.iter_mut();
        let popped = queues.find_map(|queue| queue.pop_front_if(is_late));
        self.note_popped(popped)
    }

    /// Counts an entry that left the queue.
    fn note_popped(&mut self, popped: Option<(EntryRef, Time)>) -> Option<EntryRef> {
        self.len -= usize::from(popped.is_some());
        popped.map(|(entry, _)| entry)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a reference to the entry in a slot.
    const fn entry(slot: u32) -> EntryRef {
        EntryRef { slot, generation: 0 }
    }

    proptest! {
        #[test]
        fn recent_hits_precede_within_factor_two(
            ages in prop::collection::vec(0..3_000_000_000_u64, 1..60),
            from_above in any::<bool>(),
        ) {
            let mut queue = RepairQueue::default();
            let mut kept = 0;
            for (slot, age) in (0..).zip(&ages) {
                let is_kept = queue.push(entry(slot), Time::ZERO, Duration::from_nanos(*age));
                prop_assert_eq!(is_kept, *age < 1 << (20 + 10));
                kept += usize::from(is_kept);
            }
            prop_assert_eq!(queue.len(), kept);
            let mut popped = Vec::new();
            let pop = if from_above { RepairQueue::pop_oldest } else { RepairQueue::pop_newest };
            while let Some(entry) = pop(&mut queue) {
                popped.push(ages[entry.slot as usize]);
            }
            prop_assert_eq!((popped.len(), queue.len()), (kept, 0));
            if from_above {
                popped.reverse();
            }
            let unit = 1 << UNIT_BITS;
            for pair in popped.windows(2) {
                prop_assert!(pair[0] < 2 * pair[1].max(unit), "{pair:?}");
            }
        }
    }
}
