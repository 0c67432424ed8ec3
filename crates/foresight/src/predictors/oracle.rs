//! The predictor `Oracle`: forecasts flows of a recorded trace, with a chosen accuracy.

use std::{collections::VecDeque, time::Duration};

use shunt_flow::{SparseKey, hash::split_mix};

use crate::{
    event::FlowEvent,
    forecast::{Confidence, Forecast, ForecastSource},
    predictor::Predictor,
};

/// Forecasts a chosen share of the flows of a trace.
///
/// The results of the oracle are an upper bound for other predictors.
#[derive(Debug)]
pub struct Oracle {
    /// The flows of the trace, by the time of their first packets.
    flows: VecDeque<(Duration, SparseKey)>,
    /// Time from a forecast to the arrival of its flow.
    lead: Duration,
    /// Time for which a forecast is valid.
    validity: Duration,
    /// Maximum number of forecasts that wait.
    capacity: usize,
}

impl Oracle {
    /// Creates an oracle that forecasts `percent` of the flows.
    ///
    /// Each forecast is made `lead` before its flow arrives, and is valid until `validity` after
    /// the arrival.
    #[must_use]
    pub fn new(
        mut flows: Vec<(Duration, SparseKey)>,
        percent: u8,
        lead: Duration,
        validity: Duration,
        seed: u64,
    ) -> Self {
        let mut state = seed;
        flows.retain(|_| split_mix(&mut state) % 100 < percent.into());
        flows.sort_by_key(|(time, _)| *time);
        Self { capacity: flows.len(), flows: flows.into(), lead, validity }
    }
}

impl Predictor for Oracle {
    fn source(&self) -> ForecastSource {
        ForecastSource::Oracle
    }

    fn observe(&mut self, _event: &FlowEvent<'_>, _now: Duration) {}

    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        let mut left = budget;
        while let Some((time, key)) = self.flows.pop_front_if(|(time, _)| *time <= now + self.lead)
        {
            let Some(rest) = left.checked_sub(1) else { continue };
            left = rest;
            forecasts.push(Forecast {
                key,
                known: None,
                confidence: Confidence::MAX,
                made: now,
                valid_until: (time + self.validity).max(now),
                source: ForecastSource::Oracle,
            });
        }
    }

    fn next_due(&self) -> Option<Duration> {
        self.flows.front().map(|(time, _)| time.saturating_sub(self.lead))
    }

    fn confidence(&self, now: Duration) -> Option<Confidence> {
        self.next_due().filter(|due| *due <= now).map(|_| Confidence::MAX)
    }

    fn len(&self) -> usize {
        self.flows.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
