//! The order in which learned entries expire: MAC addresses, multicast groups and router ports.
//!
//! A queue has each entry once, by a time at which it was seen. A packet refreshes its entry
//! without an update of the queue, so the entry may have been seen later. Expiry takes entries from
//! the old end, and queues a refreshed one again. So it visits no entry that was queued as young,
//! and each refreshed entry once in an ageing time.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

/// Learned entries by the time at which they were seen.
pub(crate) struct ExpiryQueue<K> {
    /// The learned entries, in the order in which they expire.
    queue: BTreeSet<(Time, K)>,
    /// The time under which each entry is in `queue`.
    times: BTreeMap<K, Time>,
}

/// The result of a step of expiry.
pub(crate) struct ExpiredEntries<K> {
    /// The keys of entries that have changed.
    pub(crate) changed: Vec<K>,
    /// True if no old entry is left.
    pub(crate) is_complete: bool,
}

impl<K> Default for ExpiryQueue<K> {
    fn default() -> Self {
        Self { queue: BTreeSet::new(), times: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> ExpiryQueue<K> {
    /// Queues an entry; one that is queued keeps its place, or moves to an earlier one.
    pub(crate) fn insert(&mut self, key: K, seen: Time) {
        if self.times.get(&key).is_none_or(|queued| seen < *queued) {
            self.remove(key);
            self.times.insert(key, seen);
            self.queue.insert((seen, key));
        }
    }

    /// Removes an entry, if it is queued.
    pub(crate) fn remove(&mut self, key: K) {
        if let Some(seen) = self.times.remove(&key) {
            self.queue.remove(&(seen, key));
        }
    }

    /// Takes out the entry that was queued with the oldest time, if that time is old.
    pub(crate) fn pop_old(&mut self, is_old: impl Fn(Time) -> bool) -> Option<K> {
        let (seen, key) = *self.queue.first()?;
        if !is_old(seen) {
            return None;
        }
        self.remove(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the time after some seconds.
    fn at(second: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(second))
    }

    #[test]
    fn the_oldest_entry_expires_first() {
        let mut queue = ExpiryQueue::default();
        for (key, second) in [('a', 4), ('b', 1), ('c', 2), ('d', 9), ('b', 8), ('a', 3)] {
            queue.insert(key, at(second));
        }
        queue.remove('c');
        let mut take = || queue.pop_old(|seen| seen < at(5));
        assert_eq!([take(), take(), take()], [Some('b'), Some('a'), None]);
        queue.insert('b', at(4));
        assert_eq!(queue.pop_old(|seen| seen < at(5)), Some('b'));
    }
}
