//! Speculative entries: entries of forecasts until their first hit.
//!
//! A hit only counts the packet. [`Speculation::settle_next`] reads the packet counts of one
//! forecast's entries after another, so a hit is noticed some iterations later. An entry with a
//! packet count is not evicted as unused meanwhile.
//!
//! A forecast may also have entries in an offload device, where packets hit without reaching the
//! thread. When the entries in software end without a hit, the forecast is *awaited*: the agent of
//! the device reports its outcome a little later.
//!
//! A forecast with an entry in the device keeps its entries in software, because the device may
//! lose its own. Without a hit, the entries in software end when they expire, when room is needed,
//! or at the first hit in the device.

use std::collections::VecDeque;

use shunt_flow::SparseKey;
use shunt_foresight::ForecastSource;
use shunt_pipeline::Time;

use super::{
    ForecastAccount, ForecastOutcome,
    device::{DeviceOutcome, DeviceWatch},
};
use crate::{
    cache::{Entries, EntryRef},
    evict::owner::Owner,
};

/// The speculative entries of a packet thread, and the origins of entries.
#[derive(Debug, Default)]
pub(crate) struct Speculation {
    /// The forecasts with speculative entries.
    flows: VecDeque<SpeculativeFlow>,
    /// Forecasts without entries in software that wait for the outcome in the device.
    awaited: VecDeque<AwaitedFlow>,
    /// The origin of the entry of each slot.
    origins: Vec<Option<EntryOrigin>>,
}

/// A forecast with speculative entries.
#[derive(Debug)]
pub(crate) struct SpeculativeFlow {
    /// The entries that were made for the forecast.
    /// In a chain, the flow may also use older entries.
    pub(crate) entries: Box<[EntryRef]>,
    /// Number of entries that were made for the forecast.
    pub(crate) made: usize,
    /// The counters for the outcome.
    pub(crate) account: ForecastAccount,
    /// The key of the flow.
    pub(crate) key: SparseKey,
    /// Time of the installation.
    pub(crate) installed: Time,
    /// Time at which entries without a hit expire.
    pub(crate) expires: Time,
    /// The outcome in the offload device, if there is one.
    pub(crate) device: Option<DeviceWatch>,
}

/// A flow without an outcome until the device reports its hits.
#[derive(Debug)]
struct AwaitedFlow {
    /// The forecast, without entries in software.
    flow: SpeculativeFlow,
    /// The outcome if the device reports no hit.
    otherwise: ForecastOutcome,
}

/// The forecast source of a speculative entry, with the installation time.
#[derive(Clone, Copy, Debug)]
struct EntryOrigin {
    /// The generation of the slot at the installation.
    generation: u32,
    /// The origin of the forecast.
    source: ForecastSource,
    /// Time at which the entry was installed.
    installed: Time,
}

/// A forecast with a known outcome.
#[derive(Debug)]
pub(crate) struct SettledForecast {
    /// The flow of the forecast.
    pub(crate) flow: SpeculativeFlow,
    /// The outcome of the forecast.
    pub(crate) settlement: ForecastOutcome,
}

/// The state of all entries of a forecast together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Hit(Time),
    Unused,
    Dead,
}

/// Maximum number of awaited forecasts.
///
/// If there are more, the oldest is settled without the device.
const AWAITED_MAX: usize = 16_384;

impl Speculation {
    /// Returns the number of forecasts with entries.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of awaited forecasts.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Returns the origin of the forecast that is evicted next.
    pub(crate) fn next_source(&self) -> Option<ForecastSource> {
        self.flows.front().map(|flow| flow.account.source)
    }

    /// Adds a forecast with new entries.
    pub(crate) fn add(&mut self, flow: SpeculativeFlow) {
        for entry in &flow.entries {
            let slot = entry.slot as usize;
            if self.origins.len() <= slot {
                self.origins.resize(slot + 1, None);
            }
            let (generation, installed) = (entry.generation, flow.installed);
            let source = flow.account.source;
            self.origins[slot] = Some(EntryOrigin { generation, source, installed });
        }
        self.flows.push_back(flow);
    }

    /// Returns the origin of an entry; `None` if a packet caused it.
    pub(crate) fn origin_of(&self, entry: EntryRef) -> Option<ForecastSource> {
        self.origin(entry).map(|own| own.source)
    }

    /// Returns the install time of a forecast's entry; `None` if a packet caused it.
    pub(crate) fn installed_at(&self, entry: EntryRef) -> Option<Time> {
        self.origin(entry).map(|own| own.installed)
    }

    /// Returns the origin of a speculative entry.
    fn origin(&self, entry: EntryRef) -> Option<EntryOrigin> {
        let origin = self.origins.get(entry.slot as usize).copied().flatten()?;
        (origin.generation == entry.generation).then_some(origin)
    }

    /// Returns whether an entry is speculative: a forecast made it, and it has no hit.
    pub(crate) fn is_speculative(&self, entries: &Entries, entry: EntryRef) -> bool {
        self.origin_of(entry).is_some() && entries.totals(entry.slot).packets == 0
    }

    /// Examines the next forecast; returns it if its outcome is known.
    ///
    /// Entries of a settled forecast without a hit are dead, and keep their actions until they are
    /// reclaimed.
    pub(crate) fn settle_next(&mut self, owner: &mut Owner, now: Time) -> Option<SettledForecast> {
        let flow = self.flows.pop_front()?;
        match flow.settlement(owner.entries(), now) {
            Some(settlement) => self.end(flow, settlement, owner),
            None => {
                self.flows.push_back(flow);
                None
            }
        }
    }

    /// Examines the next awaited forecast; returns it if its outcome is known.
    pub(crate) fn settle_awaited(&mut self) -> Option<SettledForecast> {
        let AwaitedFlow { flow, otherwise } = self.awaited.pop_front()?;
        let settlement = match flow.device_outcome() {
            Some(DeviceOutcome::Hit(used)) => ForecastOutcome::Hit(used.since(flow.installed)),
            Some(DeviceOutcome::Covered) => ForecastOutcome::DeviceCovered,
            Some(DeviceOutcome::Unused) => otherwise,
            None if self.awaited.len() >= AWAITED_MAX => otherwise,
            None => {
                self.awaited.push_back(AwaitedFlow { flow, otherwise });
                return None;
            }
        };
        Some(SettledForecast { flow, settlement })
    }

    /// Evicts the unused entries of one forecast, to make room.
    ///
    /// Returns the forecast if it is settled.
    ///
    /// # Errors
    ///
    /// Fails if there is no forecast, or if the ring to the eviction thread is full.
    pub(crate) fn evict_next(
        &mut self,
        owner: &mut Owner,
    ) -> Result<Option<SettledForecast>, NotEvicted> {
        let flow = self.flows.pop_front().ok_or(NotEvicted)?;
        let settlement = flow.settlement(owner.entries(), Time::ZERO);
        let before = self.flows.len();
        let settlement = settlement.unwrap_or_else(|| flow.covered_or(ForecastOutcome::Evicted));
        let settled = self.end(flow, settlement, owner);
        if self.flows.len() > before { Err(NotEvicted) } else { Ok(settled) }
    }

    /// Ends a forecast, and expires its entries without a hit.
    ///
    /// The forecast stays if a report does not fit, and is awaited if packets may still hit in the
    /// device.
    fn end(
        &mut self,
        mut flow: SpeculativeFlow,
        settlement: ForecastOutcome,
        owner: &mut Owner,
    ) -> Option<SettledForecast> {
        let is_whole = flow.entries.iter().all(|entry| owner.entries().is_live(*entry));
        if !flow.expire_unused(owner) {
            self.flows.push_front(flow);
            return None;
        }
        if !is_whole {
            // Other entries may have taken the slots of entries that died before.
            flow.entries = Box::default();
        }
        let is_unused = matches!(settlement, ForecastOutcome::Wrong | ForecastOutcome::Evicted);
        if is_unused && flow.device.is_some() && flow.device_outcome().is_none() {
            // When the outcome is known, the slots will have other entries.
            flow.entries = Box::default();
            self.awaited.push_back(AwaitedFlow { flow, otherwise: settlement });
            return None;
        }
        Some(SettledForecast { flow, settlement })
    }
}

/// No forecast could be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotEvicted;

impl SpeculativeFlow {
    /// Returns the outcome, if it is known at `now`.
    fn settlement(&self, entries: &Entries, now: Time) -> Option<ForecastOutcome> {
        let unused = match (self.state(entries), self.device_outcome()) {
            (EntryState::Hit(used), _) | (_, Some(DeviceOutcome::Hit(used))) => {
                return Some(ForecastOutcome::Hit(used.since(self.installed)));
            }
            (EntryState::Dead, _) => ForecastOutcome::Evicted,
            (EntryState::Unused, _) if now > self.expires => ForecastOutcome::Wrong,
            (EntryState::Unused, _) => return None,
        };
        Some(self.covered_or(unused))
    }

    /// Returns the outcome of a flow without a hit.
    /// The outcome is `unused`, unless entries of the device cover the flow.
    fn covered_or(&self, unused: ForecastOutcome) -> ForecastOutcome {
        let is_covered = self.device_outcome() == Some(DeviceOutcome::Covered);
        if is_covered { ForecastOutcome::DeviceCovered } else { unused }
    }

    /// Returns the outcome in the offload device, once it is known.
    fn device_outcome(&self) -> Option<DeviceOutcome> {
        self.device.as_ref().and_then(DeviceWatch::outcome)
    }

    /// Returns the state of the entries of the forecast in the cache.
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

    /// Expires the entries without a hit; returns `false` if a report does not fit.
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
