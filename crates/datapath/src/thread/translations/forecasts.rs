//! Translates forecasts (flows that are about to arrive) while no packet waits.
//!
//! [`crate::forecast`] describes the rules for forecasts. The translation of forecasts runs after
//! the upcall queues. While packets wait, or a receive queue returned a full burst, the task only
//! settles forecasts that were installed before.

use std::sync::Arc;

use shunt_flow::{FlowKey, PortNo, layout::word};
use shunt_foresight::{Forecast, ForecastRefusal, ForecastSource};
use shunt_pipeline::Time;

use crate::{
    cache::{EntryRef, index::Upcall},
    forecast::{
        ControlChoice, EntryForecast, FlowObservation, ForecastAccount, ForecastOutcome, Preloaded,
        SettledForecast, SpeculativeFlow, ThreadForecasts, WaitingForecast,
    },
    offload::OffloadCandidates,
    thread::{PacketThread, receive::RxPorts},
};

/// Maximum number of installed forecasts examined in an iteration.
///
/// Each examined forecast is likely to miss the CPU caches, and arriving packets wait meanwhile.
const SETTLED_PER_ITERATION: usize = 16;

/// Maximum number of forecasts evicted at once to free the slots of their entries.
const EVICTED_AT_ONCE: usize = 16;

impl PacketThread {
    /// Takes new forecasts, before packets of this iteration install entries.
    pub(in crate::thread) fn take_forecasts(&mut self) {
        if let Some(own) = &mut self.forecasts {
            if std::mem::take(&mut self.rx_ports.is_changed) {
                let ports = self.rx_ports.list.iter();
                let ports = ports.map(|own| (u64::from(own.bridge.number()), own.number));
                own.inbox.set_ports(ports.collect());
            }
            own.take_incoming(self.now, self.caches.owner.last_install());
        }
    }

    /// Settles installed forecasts, runs predictors, and translates new forecasts.
    ///
    /// Returns whether there was work. `is_busy` means that packets wait, or may wait.
    pub(in crate::thread) fn run_forecasts(&mut self, is_busy: bool) -> bool {
        if self.forecasts.as_ref().is_none_or(|own| own.is_idle(self.now)) {
            return false;
        }
        let Some(mut own) = self.forecasts.take() else { return false };
        let is_settled = self.settle(&mut own);
        if !is_busy {
            own.run_predictors(self.now, self.caches.owner.last_install());
        }
        let mut count = 0;
        while !is_busy
            && self.translations_left > 0
            && count < own.config.per_iteration
            && self.candidates.as_ref().is_none_or(OffloadCandidates::has_room_for_forecast)
            && let Some(waiting) = own.waiting.pop()
        {
            let (account, start) = (waiting.account.clone(), own.stopwatch.now());
            self.preload(&mut own, waiting);
            account.spend(own.stopwatch.since(start));
            count += 1;
        }
        own.counters.speculative.set(own.speculation.len() as u64);
        own.report(self.now);
        self.forecasts = Some(own);
        count > 0 || is_settled
    }

    /// Translates a forecast, and installs its entries.
    fn preload(&mut self, own: &mut ThreadForecasts, waiting: WaitingForecast) {
        let WaitingForecast { forecast, last, account } = waiting;
        let end = Time::ZERO.after(forecast.valid_until);
        if end < self.now {
            return account.refuse(ForecastRefusal::Expired);
        }
        let key = FlowKey::from(&forecast.key);
        if key.words().iter().take(usize::from(word::BRIDGE)).any(|word| *word != 0) {
            return account.refuse(ForecastRefusal::HiddenState);
        }
        if !self.rx_ports.is_ingress(key.bridge(), key.in_port()) {
            return own.routes.send((key.bridge(), key.in_port()), forecast, account);
        }
        if own.speculation.len() >= own.config.speculative_max {
            let is_predicted =
                own.speculation.next_source().is_some_and(ForecastSource::is_predictor);
            // A new announced flow does not evict an older announced flow.
            if !forecast.source.is_predictor() && !is_predicted {
                return account.refuse(ForecastRefusal::ForecastsFull);
            }
            self.evict_speculative(own, 1);
        }
        let (pipeline, version) = (&self.pipeline, self.caches.owner.version());
        let upcall = Upcall { pipeline, key: &key, start: None, version, now: self.now };
        let preloaded = self.caches.preload(upcall, forecast.known.as_ref(), last);
        let spent = match preloaded {
            Preloaded::Covered { entry, is_new } => {
                // An entry of another forecast does not prove that packets of this flow arrived.
                let is_late = is_new && own.speculation.origin_of(entry).is_none();
                account.cover(is_late);
                1
            }
            Preloaded::Refused { reason, translations } => {
                account.refuse(reason);
                account.translate(translations);
                translations.max(1)
            }
            Preloaded::Installed { entries, translations } => {
                account.translate(translations);
                let expires = self.expiry(own, &forecast);
                if !self.withhold(own, &key, &account, &entries, expires) {
                    self.add_speculative(own, forecast, &key, account, entries);
                }
                translations
            }
        };
        // A count beyond `usize` uses up the whole budget.
        let spent = usize::try_from(spent).unwrap_or(usize::MAX);
        self.translations_left = self.translations_left.saturating_sub(spent);
    }

    /// Returns the time at which new entries of a forecast expire without a hit.
    fn expiry(&self, own: &ThreadForecasts, forecast: &Forecast) -> Time {
        let end = Time::ZERO.after(forecast.valid_until);
        let idle = self.now.after(own.config.idle);
        if forecast.source.is_predictor() { idle.min(end) } else { end }
    }

    /// Withholds some forecasts: removes their new entries, which no packet has used.
    ///
    /// Returns whether the forecast is withheld. The entries are known only after they were
    /// installed, as those of a refused forecast are.
    fn withhold(
        &mut self,
        own: &mut ThreadForecasts,
        key: &FlowKey,
        account: &ForecastAccount,
        entries: &[EntryRef],
        expires: Time,
    ) -> bool {
        let flow = match entries {
            // The entry of a chain covers only a part of the traversal.
            [entry] if self.caches.link(*entry).is_none() => {
                let traversal = self.caches.owner.entries().traversal(entry.slot);
                own.control.hash(key, traversal.map(|own| &own.mask))
            }
            _ => own.control.hash(key, None),
        };
        let choice = own.control.choose(account.source, flow);
        if choice == ControlChoice::Install {
            return false;
        }
        let mut removed = 0;
        for entry in entries {
            removed += usize::from(self.caches.owner.expire(*entry));
        }
        if removed == 0 {
            // The ring to the eviction thread is full, so the entries stay.
            return false;
        }
        match choice {
            ControlChoice::Withhold => own.control.add(flow, account.clone(), expires),
            ControlChoice::AlreadyWithheld | ControlChoice::Install => account.cover(false),
        }
        true
    }

    /// Offers an installed forecast to the offload device; tracks its entries.
    fn add_speculative(
        &mut self,
        own: &mut ThreadForecasts,
        forecast: Forecast,
        key: &FlowKey,
        account: ForecastAccount,
        entries: Box<[EntryRef]>,
    ) {
        let expires = self.expiry(own, &forecast);
        let Forecast { key: flow, source, .. } = forecast;
        let device = self.candidates.as_mut().map(|candidates| {
            let entry = EntryForecast { source, expires };
            candidates.offer_forecast(key, self.now, entry, account.ticket.clone())
        });
        // After the offer, so that a reader that sees the installed flow also sees its offer to the
        // device.
        account.install();
        own.speculation.add(SpeculativeFlow {
            made: entries.len(),
            entries,
            account,
            key: flow,
            installed: self.now,
            expires,
            device,
        });
    }

    /// Examines some installed forecasts; returns whether the outcome of one is known.
    fn settle(&mut self, own: &mut ThreadForecasts) -> bool {
        let mut is_settled = false;
        for _ in 0..SETTLED_PER_ITERATION.min(own.speculation.len()) {
            if let Some(settled) = own.speculation.settle_next(&mut self.caches.owner, self.now) {
                self.count_settled(own, &settled);
                is_settled = true;
            }
        }
        for _ in 0..SETTLED_PER_ITERATION.min(own.speculation.awaited()) {
            if let Some(settled) = own.speculation.settle_awaited() {
                self.count_settled(own, &settled);
                is_settled = true;
            }
        }
        for _ in 0..SETTLED_PER_ITERATION.min(own.control.len()) {
            is_settled |= own.control.settle_next(self.now);
        }
        is_settled
    }

    /// Evicts unused entries of up to `count` forecasts.
    fn evict_speculative(&mut self, own: &mut ThreadForecasts, count: usize) {
        for _ in 0..count {
            let Ok(settled) = own.speculation.evict_next(&mut self.caches.owner) else { return };
            settled.iter().for_each(|settled| self.count_settled(own, settled));
        }
    }

    /// Evicts speculative entries if a miss would find no free slot.
    pub(in crate::thread) fn make_room_for_miss(&mut self) {
        if self.forecasts.is_some() && self.caches.is_short_of_room() {
            self.make_room();
        }
    }

    /// Evicts speculative entries while the cache is crowded.
    ///
    /// In a crowded cache, entries with traffic expire sooner.
    pub(in crate::thread) fn make_room_if_crowded(&mut self) {
        if self.forecasts.is_some() && self.caches.is_crowded() {
            self.make_room();
        }
    }

    /// Evicts some speculative entries, to make room for other entries.
    fn make_room(&mut self) {
        let Some(mut own) = self.forecasts.take() else { return };
        self.evict_speculative(&mut own, EVICTED_AT_ONCE);
        self.forecasts = Some(own);
    }

    /// Counts the outcome of a forecast; predictors learn from a flow that arrived.
    fn count_settled(&self, own: &mut ThreadForecasts, settled: &SettledForecast) {
        let SettledForecast { flow, settlement } = settled;
        flow.account.settle(*settlement, flow.made);
        if matches!(settlement, ForecastOutcome::Hit(_)) && own.is_learning() {
            let entries = self.caches.owner.entries();
            let actions = || flow.entries.iter().map(|entry| entries.actions(entry.slot));
            own.observe(FlowObservation {
                key: flow.key.clone(),
                egress: self.port_bindings.egress_of(actions()),
                actions: actions().map(Arc::clone).collect(),
                forecast: Some(flow.account.source),
            });
        }
    }
}

impl RxPorts {
    /// Returns whether this thread receives packets from a port of a bridge.
    fn is_ingress(&self, bridge: u64, number: PortNo) -> bool {
        let mut ports = self.list.iter();
        ports.any(|own| own.number == number && u64::from(own.bridge.number()) == bridge)
    }
}
