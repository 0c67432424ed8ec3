//! The metrics of forecasts.

use shunt_switch::ForecastStatus;

use super::text::MetricsText;

/// Returns the metrics of forecasts, by their origin.
pub(crate) fn forecast(status: &ForecastStatus) -> String {
    let mut text = MetricsText::default();
    text.family("shunt_forecast_speculative", "gauge", "Predicted flows without a hit so far.");
    text.value(&[], status.speculative);
    text.family("shunt_forecast_observed_total", "counter", "New flows that the predictors saw.");
    text.value(&[], status.observed);
    text.family(
        "shunt_forecast_not_observed_total",
        "counter",
        "New flows that did not fit the queue to the predictors.",
    );
    text.value(&[], status.not_observed);
    text.family(
        "shunt_forecast_outcomes_total",
        "counter",
        "Forecasts by their origin and outcome; a refused one has its reason.",
    );
    for own in &status.sources {
        let outcomes = [
            ("hit", own.hits),
            ("late", own.late),
            ("covered", own.covered),
            ("wrong", own.wrong),
            ("evicted", own.evicted),
        ];
        for (outcome, count) in outcomes.into_iter().chain(own.refused.iter().copied()) {
            text.value(&[("source", own.source), ("outcome", outcome)], count);
        }
    }
    text.family(
        "shunt_forecast_translations_total",
        "counter",
        "Translations made for forecasts, by origin.",
    );
    for own in &status.sources {
        text.value(&[("source", own.source)], own.translations);
    }
    text.family(
        "shunt_forecast_items",
        "gauge",
        "Items that a predictor remembers, summed over its threads.",
    );
    for own in &status.sources {
        text.value(&[("source", own.source)], own.items);
    }
    text.family(
        "shunt_forecast_pauses_total",
        "counter",
        "Number of times that a predictor was paused.",
    );
    for own in &status.sources {
        text.value(&[("source", own.source)], own.pauses);
    }
    text.into_text()
}
