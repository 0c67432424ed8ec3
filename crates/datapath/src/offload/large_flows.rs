//! Entries with large flows, which a full stage of the device evicts last.
//!
//! A full stage evicts entries for new flows, and most new flows are short. An entry with many more
//! hits than the mean is *large*, and is evicted last ([`Ltm::set_large`]). Large flows may pause
//! between bursts, so an entry stays large for [`LARGE_TIME`] after a reading found it large.
//! Measurement and replacement have separate periods, as in Wang and others, *Elixir: A
//! High-performance and Low-cost Approach to Managing Hardware/Software Hybrid Flow Tables
//! Considering Flow Burstiness* (NSDI 2022).
//!
//! [`Ltm::set_large`]: shunt_gigaflow::ltm::Ltm::set_large

use std::{collections::BTreeMap, time::Duration};

use shunt_gigaflow::ltm::LtmEntryRef;
use shunt_pipeline::Time;

/// The large entries, and sums over the hits of the current reading.
#[derive(Debug, Default)]
pub(super) struct LargeFlows {
    /// The time at which each large entry was last found to be large.
    found: BTreeMap<LtmEntryRef, Time>,
    /// Minimum number of packets per second of a large entry; zero: not known yet.
    least_rate: u64,
    /// The beginning of the current reading, and the time since the previous reading.
    began_at: Time,
    /// Time between two readings of the counters.
    interval: Duration,
    /// The number of entries with hits in the current reading, and the sum of rates.
    entries: u64,
    /// The sum of packets per second over these entries.
    rates: u64,
}

/// A large entry has at least this multiple of the mean number of hits.
const LARGE_FACTOR: u64 = 4;

/// Time for which an entry stays large after its rate became smaller.
const LARGE_TIME: Duration = Duration::from_secs(10);

/// Minimum duration of a reading from which rates are computed.
/// Pulls cause shorter readings.
const INTERVAL_MIN: Duration = Duration::from_millis(500);

impl LargeFlows {
    /// Begins a reading of the hit counters of the device.
    pub(super) fn begin(&mut self, now: Time) {
        self.interval = now.since(self.began_at);
        self.began_at = now;
        (self.entries, self.rates) = (0, 0);
    }

    /// Records the hits of an entry; returns whether the entry has become large.
    pub(super) fn note(&mut self, entry: LtmEntryRef, packets: u64, now: Time) -> bool {
        if self.interval < INTERVAL_MIN {
            return false;
        }
        let rate = u128::from(packets) * 1_000_000_000 / self.interval.as_nanos();
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.entries += 1;
        self.rates = self.rates.saturating_add(rate);
        let is_large = self.least_rate > 0 && rate >= self.least_rate;
        is_large && self.found.insert(entry, now).is_none()
    }

    /// Finishes a reading; returns entries that are no longer large.
    pub(super) fn finish(&mut self, now: Time) -> Vec<LtmEntryRef> {
        if let Some(mean) = self.rates.checked_div(self.entries) {
            self.least_rate = mean.saturating_mul(LARGE_FACTOR).max(1);
        }
        let mut ended = Vec::new();
        self.found.retain(|entry, found| {
            let is_large = now.since(*found) <= LARGE_TIME;
            if !is_large {
                ended.push(*entry);
            }
            is_large
        });
        ended
    }

    /// Forgets an entry that was removed.
    pub(super) fn forget(&mut self, entry: LtmEntryRef) {
        self.found.remove(&entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a reference to the LTM entry in a slot.
    fn entry(slot: u32) -> LtmEntryRef {
        LtmEntryRef { slot, generation: 0 }
    }

    /// Reads the hits of entries 0, 1, 2 and so on.
    /// Returns the entries that have become large, and those that are no longer large.
    fn read(flows: &mut LargeFlows, now: Time, packets: &[u64]) -> [Vec<u32>; 2] {
        flows.begin(now);
        let hits = (0..).zip(packets).filter(|(_, packets)| **packets > 0);
        let large = hits.filter(|(slot, packets)| flows.note(entry(*slot), **packets, now));
        let large = large.map(|(slot, _)| slot).collect();
        [large, flows.finish(now).iter().map(|entry| entry.slot).collect()]
    }

    #[test]
    fn entry_far_above_mean_hits_is_large() {
        let (mut flows, mut now) = (LargeFlows::default(), Time::ZERO.after(SECOND));
        let packets = [1000, 10, 10, 10, 10, 10, 10, 10, 10, 10];
        assert_eq!(read(&mut flows, now, &packets), [vec![], vec![]], "there is no mean yet");
        now = now.after(SECOND);
        assert_eq!(read(&mut flows, now, &packets), [vec![0], vec![]]);
        // A reading for a pull is too short to compute rates.
        now = now.after(SECOND / 100);
        assert_eq!(read(&mut flows, now, &[0, 500]), [vec![], vec![]]);
        // The entry stays large in a pause between bursts.
        for _ in 0..9 {
            now = now.after(SECOND);
            assert_eq!(read(&mut flows, now, &[0, 10, 10, 10]), [vec![], vec![]]);
        }
        now = now.after(SECOND * 2);
        assert_eq!(read(&mut flows, now, &[0, 10, 10, 10]), [vec![], vec![0]]);
    }

    #[test]
    fn equal_entries_are_not_large() {
        let (mut flows, mut now) = (LargeFlows::default(), Time::ZERO);
        for _ in 0..5 {
            now = now.after(SECOND);
            assert_eq!(read(&mut flows, now, &[700; 50]), [vec![], vec![]]);
        }
    }

    #[test]
    fn an_entry_that_ended_is_forgotten() {
        let (mut flows, mut now) = (LargeFlows::default(), Time::ZERO);
        for _ in 0..2 {
            now = now.after(SECOND);
            read(&mut flows, now, &[1000, 1, 1, 1, 1, 1, 1, 1]);
        }
        assert_eq!(flows.found.len(), 1);
        flows.forget(entry(0));
        assert!(flows.found.is_empty());
    }
}
