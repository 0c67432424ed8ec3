//! Counters of forecasts, by origin.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use shunt_foresight::{ForecastRefusal, ForecastSource, OutcomeCounts, PredictorStatus};

use super::ForecastTicket;
use crate::metrics::Counter;

/// The counters of one packet thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ForecastCounters {
    /// The counters of each origin of forecasts.
    sources: [SourceCounters; ForecastSource::COUNT],
    /// New flows that were queued for the predictors.
    pub observed: Counter,
    /// New flows for which the queue to the predictors was full.
    pub observations_dropped: Counter,
    /// Number of forecasts with speculative entries.
    pub speculative: Counter,
    /// Nanoseconds that the predictors took to learn from new flows and to make
    /// forecasts.
    ///
    /// The translations of these forecasts are counted by origin, in [`OutcomeCounts::spent`].
    pub predictor_ns: Counter,
    /// Misses of which the time was measured.
    pub measured_misses: Counter,
    /// Nanoseconds that the slow path took for these misses.
    pub measured_miss_ns: Counter,
    /// The predictors of the packet thread.
    ///
    /// The thread skips an update while a reader holds the lock.
    pub predictors: Mutex<Vec<PredictorStatus>>,
}

/// The counters of the forecasts of one origin; see [`OutcomeCounts`].
#[derive(Debug, Default)]
pub struct SourceCounters {
    /// Forecasts that the packet thread received.
    received: SharedCounter,
    /// Forecasts that became cache entries.
    installed: SharedCounter,
    /// Installed entries that a packet hit before they expired.
    hits: SharedCounter,
    /// Forecasts that were received after their flow had arrived.
    late: SharedCounter,
    /// Forecasts of flows that an older entry covered.
    covered: SharedCounter,
    /// Installed entries that expired without a hit.
    wrong: SharedCounter,
    /// Entries evicted without a hit.
    evicted: SharedCounter,
    /// Entries without a hit of flows that an offload device forwards.
    device_covered: SharedCounter,
    /// Forecasts that were withheld, as a control group.
    withheld: SharedCounter,
    /// Withheld forecasts of which the flow missed.
    arrived: SharedCounter,
    /// Withheld forecasts that ended without a miss.
    unneeded: SharedCounter,
    /// Refused forecasts, by reason.
    refused: [SharedCounter; ForecastRefusal::COUNT],
    /// Translations that were made for forecasts.
    translations: SharedCounter,
    /// Nanoseconds from installation to the first hit, summed over hits.
    lead_ns: SharedCounter,
    /// Nanoseconds of the packet thread that forecasts took.
    spent_ns: SharedCounter,
    /// Cache entries of forecasts that were wrong or evicted.
    unused_entries: SharedCounter,
}

/// A counter to which several threads add.
///
/// The packet thread that translates a forecast may not be that of the predictor.
#[derive(Debug, Default)]
pub(super) struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds to a counter that only one thread writes.
    pub(super) fn add(&self, count: u64) {
        // Release: partner of the Acquire in `get`. A reader of this count also sees earlier counts
        // of the same thread.
        self.0.fetch_add(count, Ordering::Release);
    }

    /// Reads the counter, on any thread.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds a duration in nanoseconds.
    fn add_time(&self, time: Duration) {
        self.add(nanoseconds(time));
    }
}

/// Returns a time in nanoseconds; 64 bits suffice for 584 years.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The counters to which the outcome of a forecast will be added.
#[derive(Clone, Debug)]
pub(crate) struct ForecastAccount {
    /// The counters of the packet thread with the predictor.
    counters: Arc<ForecastCounters>,
    /// The origin of the forecast.
    pub(crate) source: ForecastSource,
    /// The preload of the flow; `None` without a preload.
    pub(crate) ticket: Option<Arc<ForecastTicket>>,
}

/// The outcome of an installed forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForecastOutcome {
    /// All entries of the forecast were hit, the last entry after this time.
    Hit(Duration),
    /// The offload device forwards the flow by other entries: no hit in software.
    DeviceCovered,
    /// An entry without a hit expired.
    Wrong,
    /// An entry without a hit was evicted.
    Evicted,
}

impl ForecastCounters {
    /// Returns the counters of an origin.
    #[must_use]
    pub const fn of(&self, source: ForecastSource) -> &SourceCounters {
        &self.sources[source as usize]
    }

    /// Counts a miss for which the slow path took this time.
    pub(crate) fn add_miss(&self, time: Duration) {
        self.measured_misses.add(1);
        self.measured_miss_ns.add(nanoseconds(time));
    }

    /// Returns the mean time of the slow path for a miss, if it was measured.
    pub(crate) fn per_miss(&self) -> Option<Duration> {
        let mean = self.measured_miss_ns.get().checked_div(self.measured_misses.get());
        mean.map(Duration::from_nanos)
    }
}

impl SourceCounters {
    /// Counts forecasts for which a queue was full.
    pub(super) fn refuse_unsent(&self, count: u64) {
        self.received.add(count);
        self.refused[ForecastRefusal::QueueFull as usize].add(count);
    }

    /// Returns how many forecasts of this source had each outcome until now.
    #[must_use]
    pub fn counts(&self) -> OutcomeCounts {
        let mut refused = [0; ForecastRefusal::COUNT];
        for (count, own) in refused.iter_mut().zip(&self.refused) {
            *count = own.get();
        }
        OutcomeCounts {
            received: self.received.get(),
            installed: self.installed.get(),
            hits: self.hits.get(),
            late: self.late.get(),
            covered: self.covered.get(),
            wrong: self.wrong.get(),
            evicted: self.evicted.get(),
            device_covered: self.device_covered.get(),
            withheld: self.withheld.get(),
            arrived: self.arrived.get(),
            unneeded: self.unneeded.get(),
            refused,
            translations: self.translations.get(),
            lead: Duration::from_nanos(self.lead_ns.get()),
            spent: Duration::from_nanos(self.spent_ns.get()),
            unused_entries: self.unused_entries.get(),
        }
    }
}

impl ForecastAccount {
    /// Creates the account of a forecast that a packet thread takes.
    pub(crate) fn open(
        counters: &Arc<ForecastCounters>,
        source: ForecastSource,
        ticket: Option<Arc<ForecastTicket>>,
    ) -> Self {
        let account = Self { counters: Arc::clone(counters), source, ticket };
        account.source_counters().received.add(1);
        account
    }

    /// Returns the counters of the origin of the forecast.
    fn source_counters(&self) -> &SourceCounters {
        self.counters.of(self.source)
    }

    /// Counts the forecast as refused.
    pub(crate) fn refuse(&self, reason: ForecastRefusal) {
        self.source_counters().refused[reason as usize].add(1);
        self.ticket.iter().for_each(|ticket| ticket.refuse(reason));
    }

    /// Counts a flow that a live entry covers.
    /// `is_late` is true if a packet caused this entry after the forecast was received.
    pub(crate) fn cover(&self, is_late: bool) {
        let outcome =
            if is_late { &self.source_counters().late } else { &self.source_counters().covered };
        outcome.add(1);
        self.ticket.iter().for_each(|ticket| ticket.cover());
    }

    /// Counts the forecast as installed.
    pub(crate) fn install(&self) {
        self.source_counters().installed.add(1);
        self.ticket.iter().for_each(|ticket| ticket.install());
    }

    /// Counts the forecast as withheld.
    pub(crate) fn withhold(&self) {
        self.source_counters().withheld.add(1);
    }

    /// Counts the end of a withheld forecast; `has_missed` is true if its flow missed.
    pub(crate) fn end_withheld(&self, has_missed: bool) {
        let own = self.source_counters();
        let outcome = if has_missed { &own.arrived } else { &own.unneeded };
        outcome.add(1);
    }

    /// Counts translations of the forecast.
    pub(crate) fn translate(&self, translations: u64) {
        self.source_counters().translations.add(translations);
    }

    /// Adds the time of a translation.
    pub(crate) fn spend(&self, time: Duration) {
        self.source_counters().spent_ns.add_time(time);
    }

    /// Counts the outcome of an installed forecast, which got `made` new entries.
    pub(crate) fn settle(&self, settlement: ForecastOutcome, made: usize) {
        let own = self.source_counters();
        match settlement {
            ForecastOutcome::Hit(lead) => {
                own.hits.add(1);
                own.lead_ns.add_time(lead);
            }
            ForecastOutcome::DeviceCovered => own.device_covered.add(1),
            ForecastOutcome::Wrong => own.wrong.add(1),
            ForecastOutcome::Evicted => own.evicted.add(1),
        }
        if matches!(settlement, ForecastOutcome::Wrong | ForecastOutcome::Evicted) {
            own.unused_entries.add(made as u64);
        }
    }
}
