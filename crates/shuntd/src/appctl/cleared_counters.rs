//! The counters at the last command that cleared them.
//!
//! Later answers subtract these counters.
//!
//! The counters themselves never go back, because metrics and other clients read them too.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use shunt_switch::{LearnedTotals, PacketThreadCounters};

/// The counters at the last command that cleared them.
#[derive(Default)]
pub(super) struct ClearedCounters(Mutex<CountersAtClear>);

/// The counters at the time of the last clear.
#[derive(Default)]
struct CountersAtClear {
    /// Counters of packet threads, by number of the thread.
    threads: BTreeMap<usize, PacketThreadCounters>,
    /// Totals of learned MAC addresses, by name of the bridge.
    macs: BTreeMap<String, LearnedTotals>,
}

impl ClearedCounters {
    /// Clears the counters of a packet thread.
    ///
    /// `now` are the present counters.
    pub(super) fn clear_thread(&self, thread: usize, now: PacketThreadCounters) {
        self.lock().threads.insert(thread, now);
    }

    /// Returns the counters of a packet thread since they were cleared.
    pub(super) fn of_thread(
        &self,
        thread: usize,
        now: &PacketThreadCounters,
    ) -> PacketThreadCounters {
        self.lock().threads.get(&thread).map_or(*now, |cleared| now.since(cleared))
    }

    /// Clears the totals of learned MAC addresses of a bridge.
    ///
    /// `now` are the present totals.
    pub(super) fn clear_macs(&self, bridge: &str, now: LearnedTotals) {
        self.lock().macs.insert(bridge.to_owned(), now);
    }

    /// Returns the totals of learned MAC addresses since they were cleared.
    pub(super) fn of_macs(&self, bridge: &str, now: LearnedTotals) -> LearnedTotals {
        self.lock().macs.get(bridge).map_or(now, |cleared| now.since(*cleared))
    }

    /// Locks the counters, also after a panic, which leaves them consistent.
    fn lock(&self) -> MutexGuard<'_, CountersAtClear> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_counters_start_from_zero() {
        let counters = ClearedCounters::default();
        let now = |received| PacketThreadCounters {
            received,
            upcalls: 7,
            entries: 3,
            masks: 2,
            ..PacketThreadCounters::default()
        };
        assert_eq!(counters.of_thread(0, &now(5)), now(5));
        counters.clear_thread(0, now(5));
        let since = counters.of_thread(0, &now(9));
        assert_eq!((since.received, since.upcalls), (4, 0));
        assert_eq!((since.entries, since.masks), (3, 2), "these are no counters");
        assert_eq!(counters.of_thread(1, &now(9)), now(9), "another thread");
    }

    #[test]
    fn totals_of_new_bridge_are_whole() {
        let counters = ClearedCounters::default();
        let now = |learned| LearnedTotals { learned, moved: 1, ..LearnedTotals::default() };
        counters.clear_macs("br0", now(5));
        let since = counters.of_macs("br0", now(6));
        assert_eq!((since.learned, since.moved), (1, 0));
        assert_eq!(counters.of_macs("br1", now(6)), now(6));
        // A bridge with this name was deleted and added again.
        assert_eq!(counters.of_macs("br0", now(2)), now(2));
    }
}
