//! The status of forecasts, for `shuntctl forecast`.

use std::time::Duration;

use serde::Serialize;
use shunt_foresight::{ForecastRefusal, ForecastSource, GovernorState, OutcomeCounts};

use crate::threads::data_plane::DataPlane;

/// Counters of forecasts, by the origin of the forecasts.
#[derive(Clone, Debug, Serialize)]
pub struct ForecastStatus {
    /// New flows that were passed to the predictors.
    pub observed: u64,
    /// New flows that did not fit the queue to the predictors.
    pub not_observed: u64,
    /// Predicted flows that have entries but no hit yet.
    pub speculative: u64,
    /// Time of packet threads that the predictors took, in microseconds.
    ///
    /// The time of translations for forecasts is in [`ForecastSourceStatus::spent_us`].
    pub predictors_us: u64,
    /// Packets that missed all caches and were translated.
    pub upcalls: u64,
    /// Mean time of the slow path for a packet that missed, in nanoseconds.
    ///
    /// `None` before the first measurement.
    pub miss_ns: Option<u64>,
    /// Origins that have made forecasts, and running predictors.
    pub sources: Vec<ForecastSourceStatus>,
}

/// The forecasts of one origin: a predictor, preloads, or announcements.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForecastSourceStatus {
    /// Name of the predictor; or `preload`, or `announced`.
    pub source: &'static str,
    /// `on`, `paused`, `trial`, or `-` if the origin is not a predictor.
    ///
    /// Each packet thread has its own `reply` predictor. The state is `on` if it is on in any
    /// thread.
    pub state: &'static str,
    /// Number of times that the predictor was paused.
    pub pauses: u64,
    /// Number of flows or services that the predictor remembers.
    pub items: usize,
    /// Time of packet threads that the predictor took, in microseconds.
    ///
    /// The time of translations for its forecasts is in [`Self::spent_us`].
    pub predictor_us: u64,
    /// Forecasts that packet threads have received.
    pub received: u64,
    /// Forecasts for which a packet thread installed entries.
    pub installed: u64,
    /// Forecasts of which an entry was hit before it expired.
    pub hits: u64,
    /// Forecasts that arrived after their flow.
    pub late: u64,
    /// Forecasts of flows for which an entry existed already.
    pub covered: u64,
    /// Forecasts with an entry that expired without a hit.
    pub wrong: u64,
    /// Forecasts with an entry that was evicted without a hit.
    pub evicted: u64,
    /// Forecasts without a hit because the NIC forwards the flow.
    pub nic_covered: u64,
    /// Forecasts that were withheld: translated, but not installed.
    ///
    /// They are the control group of the installed forecasts.
    pub withheld: u64,
    /// Withheld forecasts of which the flow missed.
    pub arrived: u64,
    /// Withheld forecasts that ended without a miss.
    pub unneeded: u64,
    /// Share of withheld forecasts of which the flow missed, of all that have ended.
    pub arrived_share: Option<f64>,
    /// Estimated number of misses that the forecasts saved.
    ///
    /// An installed forecast saves as many misses as a withheld one had, and at most its own hits.
    pub saved_misses: u64,
    /// Refused forecasts, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Translations that were made for forecasts.
    pub translations: u64,
    /// Share of forecasts with a hit, of all forecasts with a known outcome.
    pub precision: Option<f64>,
    /// Share of new flows that did not miss because of a forecast.
    pub coverage: Option<f64>,
    /// Mean time from installation to first hit, in microseconds.
    pub lead_us: Option<u64>,
    /// Sum over hits of the time from installation to first hit, in microseconds.
    pub lead_sum_us: u64,
    /// Time that packet threads spent on the forecasts, in microseconds.
    pub spent_us: u64,
    /// Estimated time that packets saved by not waiting for translations,
    /// in microseconds.
    ///
    /// Each of the [`Self::saved_misses`] saves the mean time of a miss in the slow path.
    pub saved_us: Option<u64>,
    /// Cache entries of forecasts that expired or were evicted without a hit.
    pub unused_entries: u64,
}

impl ForecastStatus {
    /// Reads the status of the forecasts.
    pub(crate) fn of(plane: &DataPlane) -> Self {
        let foresight = plane.foresight();
        let (observed, not_observed) = foresight.observed();
        let upcalls = plane.counters().iter().map(|own| own.upcalls.get()).sum();
        let (predictors, per_miss) = (foresight.predictors(), foresight.per_miss());
        let sources = ForecastSource::ALL.iter().filter_map(|source| {
            let counts = foresight.counts(*source);
            let own = || predictors.iter().filter(|own| own.source == *source);
            let state = own().map(|own| own.state).min_by_key(|state| rank(*state));
            let name = state.map_or("-", state_name);
            (state.is_some() || counts.received > 0).then(|| ForecastSourceStatus {
                pauses: own().map(|own| own.pauses).sum(),
                items: own().map(|own| own.items).sum(),
                predictor_us: microseconds(own().map(|own| own.spent).sum()),
                saved_us: counts.saved(per_miss).map(microseconds),
                ..ForecastSourceStatus::new(*source, name, &counts, upcalls)
            })
        });
        let sources = sources.collect();
        let predictors_us = microseconds(foresight.predictor_time());
        let speculative = foresight.speculative();
        let miss_ns = per_miss.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Self { observed, not_observed, speculative, predictors_us, upcalls, miss_ns, sources }
    }
}

impl ForecastSourceStatus {
    /// Returns the status of a source. `upcalls` are all upcalls, for the coverage.
    fn new(
        source: ForecastSource,
        state: &'static str,
        counts: &OutcomeCounts,
        upcalls: u64,
    ) -> Self {
        let reasons = ForecastRefusal::ALL.into_iter().zip(counts.refused);
        let refused = reasons.filter(|(_, count)| *count > 0);
        Self {
            source: source.name(),
            state,
            pauses: 0,
            items: 0,
            predictor_us: 0,
            received: counts.received,
            installed: counts.installed,
            hits: counts.hits,
            late: counts.late,
            covered: counts.covered,
            wrong: counts.wrong,
            evicted: counts.evicted,
            nic_covered: counts.device_covered,
            withheld: counts.withheld,
            arrived: counts.arrived,
            unneeded: counts.unneeded,
            arrived_share: counts.arrived_share(),
            saved_misses: counts.saved_misses(),
            refused: refused.map(|(reason, count)| (reason.name(), count)).collect(),
            translations: counts.translations,
            precision: counts.precision(),
            coverage: counts.coverage(upcalls),
            lead_us: counts.mean_lead().map(microseconds),
            lead_sum_us: microseconds(counts.lead),
            spent_us: microseconds(counts.spent),
            saved_us: None,
            unused_entries: counts.unused_entries,
        }
    }
}

/// Returns a time in microseconds; 64 bits last for 584,000 years.
fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the rank of a state; the status shows the least rank of all threads.
const fn rank(state: GovernorState) -> u8 {
    match state {
        GovernorState::On => 0,
        GovernorState::Trial => 1,
        GovernorState::Paused { .. } => 2,
    }
}

/// Returns the word for the state of a predictor.
const fn state_name(state: GovernorState) -> &'static str {
    match state {
        GovernorState::On => "on",
        GovernorState::Paused { .. } => "paused",
        GovernorState::Trial => "trial",
    }
}
