//! Numbers of bridges and datapath ports, and their safe reuse.
//!
//! Packets, cache entries and running translations contain these numbers. So a returned number is
//! not reused until every packet thread has adopted a version without it, and older versions are
//! reclaimed. Numbers that were never used are taken first, then the number that was returned
//! first. So a late packet of a removed bridge does not reach a new bridge.

use std::collections::VecDeque;

use shunt_classifier::Version;

/// A pool of the numbers from 1 to a maximum.
pub(crate) struct NumberPool {
    /// Lowest number that was never used.
    fresh: u32,
    /// The highest number of the pool.
    max: u32,
    /// Returned numbers that may be reused, oldest first.
    rested: VecDeque<u32>,
    /// Returned numbers that may not be reused yet,
    /// each with the first version without it.
    ///
    /// The versions in the queue increase.
    resting: VecDeque<(Version, u32)>,
}

impl NumberPool {
    /// Returns a pool of the numbers from 1 to `max`.
    pub(crate) const fn new(max: u32) -> Self {
        Self { fresh: 1, max, rested: VecDeque::new(), resting: VecDeque::new() }
    }

    /// Takes a free number; `None` if no number is free.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.fresh > self.max {
            return self.rested.pop_front();
        }
        self.fresh += 1;
        Some(self.fresh - 1)
    }

    /// Returns whether no number is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.fresh > self.max && self.rested.is_empty()
    }

    /// Returns a number to the pool; `version` is the first version without it.
    pub(crate) fn give_back(&mut self, number: u32, version: Version) {
        let last = self.resting.back().map_or(version, |(last, _)| *last);
        self.resting.push_back((version.max(last), number));
    }

    /// Records that all state older than version `oldest` is reclaimed.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        while let Some((version, number)) = self.resting.front()
            && *version <= oldest
        {
            self.rested.push_back(*number);
            self.resting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn returned_numbers_are_reused_indefinitely() {
        let mut numbers = NumberPool::new(65_535);
        for round in 0..200_000_u64 {
            let number = numbers.take().unwrap();
            assert!((1..=65_535).contains(&number));
            numbers.give_back(number, Version::new(round));
            numbers.reclaim(Version::new(round));
        }
    }

    #[test]
    fn every_number_is_given_out_once() {
        let mut numbers = NumberPool::new(10);
        let mut taken = BTreeSet::new();
        while let Some(number) = numbers.take() {
            assert!(taken.insert(number));
        }
        assert!(taken.iter().copied().eq(1..=10));
    }

    #[test]
    fn number_is_reused_after_state_is_reclaimed() {
        let mut numbers = NumberPool::new(2);
        let (first, second) = (numbers.take().unwrap(), numbers.take().unwrap());
        numbers.give_back(second, Version::new(7));
        numbers.give_back(first, Version::new(9));
        numbers.reclaim(Version::new(6));
        assert_eq!(numbers.take(), None);
        numbers.reclaim(Version::new(8));
        assert_eq!((numbers.take(), numbers.take()), (Some(second), None));
        numbers.reclaim(Version::new(9));
        assert_eq!((numbers.take(), numbers.take()), (Some(first), None));
    }

    #[test]
    fn the_longest_unused_number_is_reused_first() {
        let mut numbers = NumberPool::new(3);
        let taken: Vec<u32> = (0..3).filter_map(|_| numbers.take()).collect();
        for number in taken.iter().rev() {
            numbers.give_back(*number, Version::ZERO);
        }
        numbers.reclaim(Version::ZERO);
        assert_eq!((0..3).filter_map(|_| numbers.take()).collect::<Vec<_>>(), [3, 2, 1]);
    }
}
