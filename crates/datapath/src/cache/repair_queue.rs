//! Entries that an advance took and that packets came to until then: they wait to be made anew, those
//! hit last first.
//!
//! An advance may take ten thousand, so that each is one push: they are sorted by how long ago they
//! were hit, into queues that double. What waits at all was hit within a second.

use std::{collections::VecDeque, time::Duration};

use shunt_pipeline::Time;

use super::EntryRef;

/// Entries by how long before their end they were hit.
#[derive(Debug, Default)]
pub(super) struct RepairQueue {
    /// Of queue *n*, those hit less than 2^n units before; the first has less than one. Each is in the
    /// order in which they fell, with the moment.
    by_age: [VecDeque<(EntryRef, Time)>; AGES],
    len: usize,
}

/// Queues: that of the last is about a second.
const AGES: usize = 11;

/// The unit of ages, as a number of bits of nanoseconds: about a millisecond.
const UNIT_BITS: u32 = 20;

impl RepairQueue {
    /// Number of entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Takes an entry that ends now and was last hit so long before; `false` if that is too long.
    pub(super) fn push(&mut self, entry: EntryRef, now: Time, age: Duration) -> bool {
        let units = age.as_nanos() >> UNIT_BITS;
        let queue = (u128::BITS - units.leading_zeros()) as usize;
        let Some(queue) = self.by_age.get_mut(queue) else { return false };
        queue.push_back((entry, now));
        self.len += 1;
        true
    }

    /// Gives the entry that was hit last, to within its queue.
    pub(super) fn pop_newest(&mut self) -> Option<EntryRef> {
        let popped = self.by_age.iter_mut().find_map(VecDeque::pop_front);
        self.popped(popped)
    }

    /// Gives the entry that was hit longest ago, to within its queue.
    pub(super) fn pop_oldest(&mut self) -> Option<EntryRef> {
        let popped = self.by_age.iter_mut().rev().find_map(VecDeque::pop_front);
        self.popped(popped)
    }

    /// Gives an entry that fell at `until` or before.
    pub(super) fn pop_evicted_by(&mut self, until: Time) -> Option<EntryRef> {
        let is_late = |(_, fell): &mut (EntryRef, Time)| *fell <= until;
        let mut queues = self.by_age.iter_mut();
        let popped = queues.find_map(|queue| queue.pop_front_if(is_late));
        self.popped(popped)
    }

    fn popped(&mut self, popped: Option<(EntryRef, Time)>) -> Option<EntryRef> {
        self.len -= usize::from(popped.is_some());
        popped.map(|(entry, _)| entry)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn entry(slot: u32) -> EntryRef {
        EntryRef { slot, generation: 0 }
    }

    proptest! {
        #[test]
        fn what_was_hit_last_comes_first_to_within_double_its_age(
            ages in prop::collection::vec(0..3_000_000_000_u64, 1..60),
            from_above in any::<bool>(),
        ) {
            let mut fallen = RepairQueue::default();
            let mut kept = 0;
            for (slot, age) in (0..).zip(&ages) {
                let is_kept = fallen.push(entry(slot), Time::ZERO, Duration::from_nanos(*age));
                prop_assert_eq!(is_kept, *age < 1 << (20 + 10));
                kept += usize::from(is_kept);
            }
            prop_assert_eq!(fallen.len(), kept);
            let mut popped = Vec::new();
            let pop = if from_above { RepairQueue::pop_oldest } else { RepairQueue::pop_newest };
            while let Some(entry) = pop(&mut fallen) {
                popped.push(ages[entry.slot as usize]);
            }
            prop_assert_eq!((popped.len(), fallen.len()), (kept, 0));
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
