//! The metrics of forecasts.

use shunt_switch::{ForecastSourceStatus, ForecastStatus};

use super::text::{MetricsText, seconds};

/// A metric of each forecast origin: name, type, help text and value.
type SourceMetric = (&'static str, &'static str, &'static str, fn(&ForecastSourceStatus) -> u64);

/// Counters of each forecast origin.
const COUNTS: &[SourceMetric] = &[
    (
        "shunt_forecast_received_total",
        "counter",
        "Forecasts that packet threads took, by origin.",
        |own| own.received,
    ),
    (
        "shunt_forecast_installed_total",
        "counter",
        "Forecasts that became cache entries, by origin.",
        |own| own.installed,
    ),
    (
        "shunt_forecast_unused_entries_total",
        "counter",
        "Cache entries of forecasts that expired or were evicted without a hit, by origin.",
        |own| own.unused_entries,
    ),
    (
        "shunt_forecast_translations_total",
        "counter",
        "Translations made for forecasts, by origin.",
        |own| own.translations,
    ),
    (
        "shunt_forecast_withheld_total",
        "counter",
        "Forecasts that were withheld, as a control group of the installed ones, by predictor.",
        |own| own.withheld,
    ),
    (
        "shunt_forecast_withheld_arrived_total",
        "counter",
        "Withheld forecasts of which the flow missed, by predictor.",
        |own| own.arrived,
    ),
    (
        "shunt_forecast_items",
        "gauge",
        "Items that a predictor remembers, summed over its threads.",
        |own| own.items as u64,
    ),
    (
        "shunt_forecast_pauses_total",
        "counter",
        "Number of times that a predictor was paused.",
        |own| own.pauses,
    ),
];

/// Times of each forecast origin, in microseconds.
const TIMES: &[SourceMetric] = &[
    (
        "shunt_forecast_predictor_seconds_total",
        "counter",
        "Time that packet threads spent on predictors, without translations, by predictor.",
        |own| own.predictor_us,
    ),
    (
        "shunt_forecast_lead_seconds_total",
        "counter",
        "Time from the installation of entries to their first hits, summed over hits.",
        |own| own.lead_sum_us,
    ),
    (
        "shunt_forecast_spent_seconds_total",
        "counter",
        "Time that packet threads spent on forecasts, by origin.",
        |own| own.spent_us,
    ),
    (
        "shunt_forecast_saved_seconds_total",
        "counter",
        "Estimated waiting time that forecasts saved: saved misses times the mean time of a miss.",
        |own| own.saved_us.unwrap_or_default(),
    ),
];

/// Returns the metrics of forecasts, by origin.
pub(crate) fn forecast(status: &ForecastStatus) -> String {
    let mut text = MetricsText::default();
    text.family(
        "shunt_forecast_speculative",
        "gauge",
        "Forecasts with cache entries that no packet has hit so far.",
    );
    text.value(&[], status.speculative);
    text.family(
        "shunt_forecast_observed_total",
        "counter",
        "New flows that were passed to the predictors.",
    );
    text.value(&[], status.observed);
    text.family(
        "shunt_forecast_not_observed_total",
        "counter",
        "New flows that did not fit the queue to the predictors.",
    );
    text.value(&[], status.not_observed);
    outcomes(&mut text, status);
    for (name, kind, help, value) in COUNTS {
        text.family(name, kind, help);
        for own in &status.sources {
            text.value(&[("source", own.source)], value(own));
        }
    }
    for (name, kind, help, value) in TIMES {
        text.family(name, kind, help);
        for own in &status.sources {
            text.value(&[("source", own.source)], seconds(value(own).saturating_mul(1000)));
        }
    }
    text.into_text()
}

/// Adds the outcomes of forecasts, and the states of predictors.
fn outcomes(text: &mut MetricsText, status: &ForecastStatus) {
    text.family(
        "shunt_forecast_outcomes_total",
        "counter",
        "Forecasts by origin and outcome, and refused forecasts by reason.",
    );
    for own in &status.sources {
        let outcomes = [
            ("hit", own.hits),
            ("late", own.late),
            ("covered", own.covered),
            ("wrong", own.wrong),
            ("evicted", own.evicted),
            ("nic_covered", own.nic_covered),
        ];
        for (outcome, count) in outcomes.into_iter().chain(own.refused.iter().copied()) {
            text.value(&[("source", own.source), ("outcome", outcome)], count);
        }
    }
    text.family(
        "shunt_forecast_state",
        "gauge",
        "Always 1; the label has the state of a predictor: on, trial or paused.",
    );
    for own in status.sources.iter().filter(|own| own.state != "-") {
        text.value(&[("source", own.source), ("state", own.state)], 1);
    }
}
