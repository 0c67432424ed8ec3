//! Forecasts that wait for their translation on a packet thread.

use std::collections::VecDeque;

use shunt_foresight::{Forecast, ForecastRefusal};
use shunt_pipeline::InstallNo;

use super::ForecastAccount;

/// Two queues of forecasts: those of predictors, and announced flows.
///
/// Forecasts are taken from both queues in turn, so a flood of announced flows leaves half of the
/// translations to the predictors.
#[derive(Debug, Default)]
pub(crate) struct ForecastQueue {
    predicted: VecDeque<WaitingForecast>,
    announced: VecDeque<WaitingForecast>,
    /// True if the last taken forecast was one of a predictor.
    was_predicted: bool,
}

/// A forecast that waits.
#[derive(Debug)]
pub(crate) struct WaitingForecast {
    pub(crate) forecast: Forecast,
    /// The number of the last install before the forecast was received.
    pub(crate) last: InstallNo,
    pub(crate) account: ForecastAccount,
}

/// Maximum number of forecasts in each queue.
const WAITING_MAX: usize = 256;

impl ForecastQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.predicted.is_empty() && self.announced.is_empty()
    }

    /// Returns whether the queue of announced flows has room.
    pub(crate) fn takes_announced(&self) -> bool {
        self.announced.len() < WAITING_MAX
    }

    /// Adds a forecast; a full queue refuses the least confident forecast.
    ///
    /// Of equally confident forecasts, the new one is refused.
    pub(crate) fn push(&mut self, waiting: WaitingForecast) {
        let is_predicted = waiting.forecast.source.is_predictor();
        let queue = if is_predicted { &mut self.predicted } else { &mut self.announced };
        if queue.len() >= WAITING_MAX {
            let confidences = queue.iter().map(|own| own.forecast.confidence).enumerate();
            let least = confidences.min_by_key(|(_, confidence)| *confidence);
            let least = least.filter(|(_, confidence)| *confidence < waiting.forecast.confidence);
            let Some(displaced) = least.and_then(|(at, _)| queue.remove(at)) else {
                return waiting.account.refuse(ForecastRefusal::QueueFull);
            };
            displaced.account.refuse(ForecastRefusal::QueueFull);
        }
        queue.push_back(waiting);
    }

    /// Takes the next forecast.
    pub(crate) fn pop(&mut self) -> Option<WaitingForecast> {
        self.was_predicted = !self.was_predicted;
        if self.was_predicted {
            self.predicted.pop_front().or_else(|| self.announced.pop_front())
        } else {
            self.announced.pop_front().or_else(|| self.predicted.pop_front())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use shunt_flow::{FlowKey, SparseKey};
    use shunt_foresight::{Confidence, ForecastSource};

    use super::*;
    use crate::forecast::ForecastCounters;

    const SOURCE: ForecastSource = ForecastSource::Successor;

    fn push(queue: &mut ForecastQueue, counters: &Arc<ForecastCounters>, percent: u8) {
        let forecast = Forecast {
            key: SparseKey::from(&FlowKey::ZERO),
            known: None,
            confidence: Confidence::of_percent(percent),
            made: Duration::ZERO,
            valid_until: Duration::MAX,
            source: SOURCE,
        };
        let account = ForecastAccount::open(counters, SOURCE, None);
        queue.push(WaitingForecast { forecast, last: InstallNo::default(), account });
    }

    #[test]
    fn a_full_queue_refuses_the_least_confident_forecast() {
        let (mut queue, counters) = (ForecastQueue::default(), Arc::<ForecastCounters>::default());
        (0..WAITING_MAX - 1).for_each(|_| push(&mut queue, &counters, 75));
        for percent in [50, 90, 75, 25] {
            push(&mut queue, &counters, percent);
        }
        let refused = counters.of(SOURCE).counts().refused;
        assert_eq!(refused[ForecastRefusal::QueueFull as usize], 3);
        let waiting = std::iter::from_fn(|| queue.pop());
        let waiting: Vec<_> = waiting.map(|own| own.forecast.confidence.percent()).collect();
        // The forecast of 90 % took the place of that of 50 %.
        assert_eq!(waiting.len(), WAITING_MAX);
        assert_eq!(waiting.iter().filter(|percent| **percent == 75).count(), WAITING_MAX - 1);
        assert_eq!(waiting.last(), Some(&90));
    }
}
