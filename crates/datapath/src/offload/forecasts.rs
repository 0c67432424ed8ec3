//! Forecasts in the device: entries for flows that are about to arrive.
//!
//! An entry of a forecast is *speculative* until the device has counted a packet for it.
//!
//! - A speculative entry expires at the time of its forecast, instead of after
//!   [`OffloadConfig::max_idle`](super::OffloadConfig::max_idle). A reading that began later must
//!   have found no hit.
//! - Speculative entries are evicted first when a stage is full.
//! - A forecast is refused if little room is left (`ROOM_DIVISOR`), or if the device does not count.
//!
//! The agent reports the outcome to the packet thread of the forecast ([`crate::forecast`]).

use std::collections::VecDeque;

use shunt_gigaflow::{ltm::LtmEntryRef, offload::OffloadDevice};
use shunt_pipeline::Time;

use super::{OffloadAgent, OffloadRefusal};
use crate::{
    cache::EntryRef,
    evict::owner::Owner,
    forecast::{DeviceForecast, DeviceOutcome, ROOM_DIVISOR},
    offload::ledger::Ledger,
};

/// The forecasts in a device that have no outcome yet.
#[derive(Debug, Default)]
pub(super) struct PendingForecasts {
    /// The forecasts without an outcome, oldest first.
    flows: VecDeque<PendingForecast>,
}

/// A forecast with entries.
#[derive(Debug)]
struct PendingForecast {
    /// The entries without a known hit, which decide the outcome.
    entries: Vec<LtmEntryRef>,
    /// True if other forecasts made these entries.
    ///
    /// All other forecasts were for the same flow, or for flows that share the entries.
    is_shared: bool,
    /// The agent's end of the forecast.
    forecast: DeviceForecast,
}

/// The state of all entries of a forecast together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntriesState {
    /// All entries were hit; the last of these hits was found at this time.
    Hit(Time),
    Unused,
    /// An entry of the forecast was removed.
    Gone,
}

/// Maximum number of forecasts without an outcome.
///
/// If there are more, the oldest counts as unused.
const PENDING_MAX: usize = 16_384;

/// Maximum number of forecasts that are removed to make room for one packet.
const REMOVED_AT_ONCE: usize = 16;

impl PendingForecasts {
    /// Adds a forecast with its new entries; a forecast without entries is unused.
    pub(super) fn add(&mut self, entries: Vec<LtmEntryRef>, forecast: DeviceForecast) {
        if !entries.is_empty() {
            self.push(PendingForecast { entries, is_shared: false, forecast });
        }
    }

    /// Adds an accepted forecast; a full list loses its oldest one.
    fn push(&mut self, mut flow: PendingForecast) {
        flow.forecast.accept();
        if self.flows.len() >= PENDING_MAX {
            self.flows.pop_front();
        }
        self.flows.push_back(flow);
    }
}

impl PendingForecast {
    /// Returns the state of the entries of the forecast in the device.
    fn state(&self, owner: &Owner, ledger: &Ledger) -> EntriesState {
        let mut found = Time::ZERO;
        let mut is_unused = false;
        for entry in &self.entries {
            if !owner.entries().is_live(EntryRef::from(*entry)) {
                return EntriesState::Gone;
            }
            match ledger.last_hit(*entry) {
                Some(used) => found = found.max(used),
                None => is_unused = true,
            }
        }
        if is_unused { EntriesState::Unused } else { EntriesState::Hit(found) }
    }

    /// Returns the entries without a hit that the forecast itself made.
    fn unused<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = LtmEntryRef> + 'a {
        let own: &[LtmEntryRef] = if self.is_shared { &[] } else { &self.entries };
        own.iter().copied().filter(|entry| ledger.last_hit(*entry).is_none())
    }
}

impl<T: OffloadDevice> OffloadAgent<T> {
    /// Returns whether entries for a forecast may be made; counts refusals for room.
    pub(super) fn admits_forecast(&mut self) -> bool {
        if !self.capabilities.counts {
            return false;
        }
        let has_room = self.ledger.has_room(ROOM_DIVISOR);
        if !has_room {
            *self.status.refused.entry(OffloadRefusal::NoRoom).or_default() += 1;
        }
        has_room
    }

    /// Handles a forecast of a flow that the entries of the last walk cover.
    ///
    /// If an entry is speculative, its first hit decides the outcome of this forecast, too.
    pub(super) fn cover_forecast(&mut self, mut forecast: DeviceForecast) {
        let unconfirmed = self.walk.entries().filter(|entry| self.ledger.is_speculative(*entry));
        let entries: Vec<_> = unconfirmed.collect();
        if entries.is_empty() {
            forecast.accept();
            return forecast.settle(DeviceOutcome::Covered);
        }
        self.forecasts.push(PendingForecast { entries, is_shared: true, forecast });
    }

    /// Removes speculative entries if a stage may be too full for a packet's entries.
    pub(super) fn make_room_for_packet(&mut self) {
        if self.forecasts.flows.is_empty() || self.ledger.has_room(usize::MAX) {
            return;
        }
        for _ in 0..REMOVED_AT_ONCE {
            let Some(oldest) = self.forecasts.flows.pop_front() else { break };
            self.to_remove.extend(oldest.unused(&self.ledger));
            if let EntriesState::Hit(found) = oldest.state(&self.owner, &self.ledger) {
                oldest.forecast.settle(DeviceOutcome::Hit(found));
            }
        }
        self.remove_pending();
    }

    /// Settles forecasts with a known outcome.
    ///
    /// If an entry of a forecast was removed, its other entries without a hit are removed, too.
    pub(super) fn settle_forecasts(&mut self) {
        for _ in 0..self.forecasts.flows.len() {
            let Some(flow) = self.forecasts.flows.pop_front() else { return };
            match flow.state(&self.owner, &self.ledger) {
                EntriesState::Hit(found) => flow.forecast.settle(DeviceOutcome::Hit(found)),
                EntriesState::Gone => self.to_remove.extend(flow.unused(&self.ledger)),
                EntriesState::Unused => self.forecasts.flows.push_back(flow),
            }
        }
    }
}
