//! Speculative entries: entries of forecasts until their first hit.
//!
//! A hit changes nothing here. [`Speculation::settle_next`] reads the packet count of one forecast's
//! entries after the other, so a hit is noticed some iterations later. Until then the count keeps the
//! entry from being evicted as unused.

use std::{collections::VecDeque, time::Duration};

use shunt_flow::SparseKey;
use shunt_foresight::ForecastSource;
use shunt_pipeline::Time;

use crate::{
    cache::{Entries, EntryRef},
    evict::owner::Owner,
};

/// The speculative entries of a packet thread, and the origins of entries.
#[derive(Debug, Default)]
pub(crate) struct Speculation {
    flows: VecDeque<SpeculativeFlow>,
    /// The origin of the entry of each slot.
    origins: Vec<Option<EntryOrigin>>,
}

/// A forecast with entries.
#[derive(Debug)]
pub(crate) struct SpeculativeFlow {
    /// The entries that were made for it; in a chain it may use others too.
    pub(crate) entries: Box<[EntryRef]>,
    pub(crate) source: ForecastSource,
    /// The key of the flow.
    pub(crate) key: SparseKey,
    pub(crate) installed: Time,
    /// Time at which entries without a hit expire.
    pub(crate) expires: Time,
}

#[derive(Clone, Copy, Debug)]
struct EntryOrigin {
    generation: u32,
    source: ForecastSource,
}

/// A forecast that is no longer speculative.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) flow: SpeculativeFlow,
    pub(crate) settlement: Settlement,
}

/// The outcome of an installed forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// All of its entries were hit, the last one after this time.
    Hit(Duration),
    /// An entry without a hit expired.
    Wrong,
    /// An entry without a hit was evicted.
    Evicted,
}

/// The state of the entries of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Hit(Time),
    Unused,
    Dead,
}

impl Speculation {
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Adds a forecast with new entries.
    pub(crate) fn add(&mut self, flow: SpeculativeFlow) {
        for entry in &flow.entries {
            let slot = entry.slot as usize;
            if self.origins.len() <= slot {
                self.origins.resize(slot + 1, None);
            }
            let (generation, source) = (entry.generation, flow.source);
            self.origins[slot] = Some(EntryOrigin { generation, source });
        }
        self.flows.push_back(flow);
    }

    /// Returns the origin of an entry; `None` if a packet caused it.
    pub(crate) fn origin_of(&self, entry: EntryRef) -> Option<ForecastSource> {
        let origin = self.origins.get(entry.slot as usize).copied().flatten()?;
        (origin.generation == entry.generation).then_some(origin.source)
    }

    /// Returns whether an entry is speculative, and so has its own idle time.
    pub(crate) fn is_speculative(&self, entries: &Entries, entry: EntryRef) -> bool {
        self.origin_of(entry).is_some() && entries.totals(entry.slot).packets == 0
    }

    /// Examines the next forecast; returns it if its outcome is known.
    pub(crate) fn settle_next(&mut self, owner: &mut Owner, now: Time) -> Option<Settled> {
        let flow = self.flows.pop_front()?;
        let settlement = match flow.state(owner.entries()) {
            EntryState::Hit(used) => Some(Settlement::Hit(used.since(flow.installed))),
            EntryState::Dead => flow.expire_unused(owner).then_some(Settlement::Evicted),
            EntryState::Unused if now > flow.expires => {
                flow.expire_unused(owner).then_some(Settlement::Wrong)
            }
            EntryState::Unused => None,
        };
        match settlement {
            Some(settlement) => Some(Settled { flow, settlement }),
            None => {
                self.flows.push_back(flow);
                None
            }
        }
    }

    /// Evicts the unused entries of one forecast, to make room.
    ///
    /// `None` if there is no forecast, or the ring to the eviction thread is full.
    pub(crate) fn evict_next(&mut self, owner: &mut Owner) -> Option<Settled> {
        let flow = self.flows.pop_front()?;
        if let EntryState::Hit(used) = flow.state(owner.entries()) {
            let settlement = Settlement::Hit(used.since(flow.installed));
            return Some(Settled { flow, settlement });
        }
        if flow.expire_unused(owner) {
            return Some(Settled { flow, settlement: Settlement::Evicted });
        }
        self.flows.push_front(flow);
        None
    }
}

impl SpeculativeFlow {
    fn state(&self, entries: &Entries) -> EntryState {
        let mut state = EntryState::Hit(self.installed);
        for entry in &self.entries {
            if !entries.is_live(*entry) {
                return EntryState::Dead;
            }
            let totals = entries.totals(entry.slot);
            state = match state {
                EntryState::Hit(used) if totals.packets > 0 => {
                    EntryState::Hit(used.max(totals.used))
                }
                _ => EntryState::Unused,
            };
        }
        state
    }

    /// Expires the entries without a hit. Returns `false` if a report does not fit.
    fn expire_unused(&self, owner: &mut Owner) -> bool {
        for entry in &self.entries {
            let entries = owner.entries();
            let is_unused = entries.is_live(*entry) && entries.totals(entry.slot).packets == 0;
            if is_unused && !owner.expire(*entry) {
                return false;
            }
        }
        true
    }
}
