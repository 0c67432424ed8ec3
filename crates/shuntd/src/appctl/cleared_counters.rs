//! The counters at the last command that cleared them.
//!
//! Later answers subtract these counters.
//!
//! The counters themselves never go back, because metrics and other clients read them too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use shunt_switch::{BridgeId, LearnedTotals, PacketThreadCounters};

/// The counters at the last command that cleared them.
#[derive(Default)]
pub(super) struct ClearedCounters(Mutex<CountersAtClear>);

/// The counters at the time of the last clear.
#[derive(Default)]
struct CountersAtClear {
    /// Counters of packet threads, by number of the thread.
    threads: BTreeMap<usize, PacketThreadCounters>,
    /// Totals of learned MAC addresses.
    ///
    /// The key is an id, because a name would also name a later bridge.
    macs: BTreeMap<BridgeId, LearnedTotals>,
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
    pub(super) fn clear_macs(&self, bridge: BridgeId, now: LearnedTotals) {
        self.lock().macs.insert(bridge, now);
    }

    /// Drops the totals of all other bridges, which were removed.
    ///
    /// The number of cleared totals stays bounded, and a later bridge may get a free id.
    pub(super) fn keep_bridges(&self, bridges: &BTreeSet<BridgeId>) {
        self.lock().macs.retain(|bridge, _| bridges.contains(bridge));
    }

    /// Returns the totals of learned MAC addresses since they were cleared.
    pub(super) fn of_macs(&self, bridge: BridgeId, now: LearnedTotals) -> LearnedTotals {
        self.lock().macs.get(&bridge).map_or(now, |cleared| now.since(*cleared))
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
        let [first, second] = [1, 2].map(BridgeId::new);
        counters.clear_macs(first, now(5));
        let since = counters.of_macs(first, now(6));
        assert_eq!((since.learned, since.moved), (1, 0));
        assert_eq!(counters.of_macs(second, now(6)), now(6));
        // The first bridge is removed, and a later bridge gets its id.
        counters.keep_bridges(&[second].into());
        assert_eq!(counters.of_macs(first, now(6)), now(6));
    }
}
