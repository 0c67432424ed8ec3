//! An entry of the ledger, and its state.

use std::{sync::Arc, time::Duration};

use shunt_flow::Match;
use shunt_gigaflow::{
    ltm::{LtmEntryRef, LtmRule, Tag},
    offload::Counters,
    partition::StageId,
};
use shunt_pipeline::{Time, Traversal};

use crate::forecast::EntryForecast;

/// An entry that the device is intended to hold, or may still hold.
#[derive(Debug)]
pub(in crate::offload) struct OffloadEntry {
    /// The entry of the owner.
    pub(in crate::offload) entry: LtmEntryRef,
    /// The stage of the device that holds the entry.
    pub(in crate::offload) stage: StageId,
    /// The rule of the entry.
    pub(in crate::offload) rule: Arc<LtmRule>,
    /// The traversal that decides if the entry is stale.
    pub(in crate::offload) traversal: Arc<Traversal>,
    /// The traversal that the entry was created for.
    pub(in crate::offload) traversal_no: u64,
    /// The state of the entry in the device.
    pub(super) state: State,
    /// Set if the entry must be removed.
    pub(super) unwanted: Option<EntryToRemove>,
    /// The counters of the device at the last reading.
    pub(super) counted: Counters,
    /// Hits that the device counted before it lost its state.
    pub(super) counted_before: Counters,
    /// Time of the last reading that found a hit, or of the confirmation.
    pub(super) used: Time,
    /// The forecast for which the entry was made; `None` if a packet caused it.
    pub(in crate::offload) forecast: Option<EntryForecast>,
}

/// The state of an entry in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Inserting,
    Held,
    Removing,
    /// The device was lost before it responded to the insertion.
    /// So the presence of the entry in the device is unknown.
    Unknown,
    Refused,
}

/// An entry to remove, with the time since which the entry is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryToRemove {
    /// The time since which the entry is stale; `None` if it is valid.
    pub(super) stale_since: Option<Time>,
}

/// The key of an entry in the device, which holds at most one entry for each key.
pub(super) type EntryKey = (StageId, Tag, u16, Match);

impl OffloadEntry {
    /// Returns the time of the last known hit.
    pub(in crate::offload) const fn used(&self) -> Time {
        self.used
    }

    /// Returns whether a reading that began at `read` proves that the entry is idle.
    ///
    /// A speculative entry is idle after the time of its forecast, and every other entry after
    /// `max_idle`.
    pub(super) fn is_idle(&self, read: Time, max_idle: Duration) -> bool {
        match self.forecast {
            Some(forecast) if self.totals().packets == 0 => read > forecast.expires,
            _ => read.since(self.used) >= max_idle,
        }
    }

    /// Returns the counts of this entry and of its earlier insertions.
    pub(super) fn totals(&self) -> Counters {
        let (before, own) = (self.counted_before, self.counted);
        Counters { packets: before.packets + own.packets, bytes: before.bytes + own.bytes }
    }
}

/// Returns the key by which the device identifies an entry.
pub(super) fn key(offloaded: &OffloadEntry) -> EntryKey {
    let rule = &offloaded.rule;
    (offloaded.stage, rule.tag, rule.length, rule.matching.clone())
}
