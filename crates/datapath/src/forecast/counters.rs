//! Counters of forecasts, by their origin.

use std::time::Duration;

use parking_lot::Mutex;
use shunt_foresight::{ForecastRefusal, ForecastSource, OutcomeCounts, PredictorStatus};

use crate::metrics::Counter;

/// The counters of one packet thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ForecastCounters {
    sources: [SourceCounters; ForecastSource::COUNT],
    /// New flows that were passed to the predictors.
    pub observed: Counter,
    /// New flows that did not fit the queue to the predictors.
    pub observations_dropped: Counter,
    /// Forecasts with speculative entries.
    pub speculative: Counter,
    /// The predictors of the packet thread.
    ///
    /// The thread skips an update while this is locked.
    pub predictors: Mutex<Vec<PredictorStatus>>,
}

/// The counters of the forecasts of one origin; see [`OutcomeCounts`].
#[derive(Debug, Default)]
pub struct SourceCounters {
    pub(crate) received: Counter,
    pub(crate) installed: Counter,
    pub(crate) hits: Counter,
    pub(crate) late: Counter,
    pub(crate) covered: Counter,
    pub(crate) wrong: Counter,
    pub(crate) evicted: Counter,
    pub(crate) refused: [Counter; ForecastRefusal::COUNT],
    pub(crate) translations: Counter,
    pub(crate) lead_ns: Counter,
    pub(crate) spent_ns: Counter,
    pub(crate) unused_entries: Counter,
    /// Refused because the ring was full; the sender writes it.
    pub(crate) queue_full: Counter,
}

impl ForecastCounters {
    /// Returns the counters of an origin.
    #[must_use]
    pub const fn of(&self, source: ForecastSource) -> &SourceCounters {
        &self.sources[source as usize]
    }
}

impl SourceCounters {
    pub(crate) fn refuse(&self, reason: ForecastRefusal) {
        self.refused[reason as usize].add(1);
    }

    /// Counts the time of a translation.
    pub(crate) fn spend(&self, time: Duration) {
        // 64 bits of nanoseconds last for 584 years.
        self.spent_ns.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> OutcomeCounts {
        let mut refused = [0; ForecastRefusal::COUNT];
        for (count, own) in refused.iter_mut().zip(&self.refused) {
            *count = own.get();
        }
        refused[ForecastRefusal::QueueFull as usize] += self.queue_full.get();
        OutcomeCounts {
            received: self.received.get() + self.queue_full.get(),
            installed: self.installed.get(),
            hits: self.hits.get(),
            late: self.late.get(),
            covered: self.covered.get(),
            wrong: self.wrong.get(),
            evicted: self.evicted.get(),
            refused,
            translations: self.translations.get(),
            lead: Duration::from_nanos(self.lead_ns.get()),
            spent: Duration::from_nanos(self.spent_ns.get()),
            unused_entries: self.unused_entries.get(),
        }
    }
}
