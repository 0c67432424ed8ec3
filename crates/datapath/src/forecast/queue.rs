//! Forecasts that wait for their translation on a packet thread.

use std::collections::{BTreeMap, BTreeSet};

use shunt_foresight::{Confidence, Forecast, ForecastRefusal};
use shunt_pipeline::InstallNo;

use super::ForecastAccount;

/// Two queues of forecasts: those of predictors, and announced flows.
///
/// Forecasts are taken from both queues in turn, so a flood of announced flows leaves half of the
/// translations to the predictors.
#[derive(Debug, Default)]
pub(crate) struct ForecastQueue {
    /// The waiting forecasts of predictors.
    predicted: BoundedQueue,
    /// The waiting flows that were announced.
    announced: BoundedQueue,
    /// True if the last taken forecast was one of a predictor.
    was_predicted: bool,
}

/// A forecast that waits for its translation.
#[derive(Debug)]
pub(crate) struct WaitingForecast {
    /// The forecast that waits for a translation.
    pub(crate) forecast: Forecast,
    /// The number of the last install before the forecast was received.
    pub(crate) last: InstallNo,
    /// The counters for its outcome.
    pub(crate) account: ForecastAccount,
}

/// A queue of [`WAITING_MAX`] forecasts, which finds the least confident one.
#[derive(Debug, Default)]
struct BoundedQueue {
    /// The forecasts by their position, in the order of their arrival.
    by_position: BTreeMap<u64, WaitingForecast>,
    /// The confidence and the position of each forecast.
    by_confidence: BTreeSet<(Confidence, u64)>,
    /// The position of the next forecast.
    next: u64,
}

/// Maximum number of forecasts in each queue.
const WAITING_MAX: usize = 256;

impl ForecastQueue {
    /// Returns whether both queues are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.predicted.is_empty() && self.announced.is_empty()
    }

    /// Returns whether the queue of announced flows has room.
    pub(crate) fn takes_announced(&self) -> bool {
        !self.announced.is_full()
    }

    /// Adds a forecast; a full queue refuses the least confident forecast.
    ///
    /// Of equally confident forecasts, the new one is refused.
    pub(crate) fn push(&mut self, waiting: WaitingForecast) {
        let is_predicted = waiting.forecast.source.is_predictor();
        let queue = if is_predicted { &mut self.predicted } else { &mut self.announced };
        if queue.is_full() {
            let Some(displaced) = queue.pop_less_confident(waiting.forecast.confidence) else {
                return waiting.account.refuse(ForecastRefusal::QueueFull);
            };
            displaced.account.refuse(ForecastRefusal::QueueFull);
        }
        queue.push_back(waiting);
    }

    /// Takes the forecast that is translated next.
    pub(crate) fn pop(&mut self) -> Option<WaitingForecast> {
        self.was_predicted = !self.was_predicted;
        if self.was_predicted {
            self.predicted.pop_front().or_else(|| self.announced.pop_front())
        } else {
            self.announced.pop_front().or_else(|| self.predicted.pop_front())
        }
    }
}

impl BoundedQueue {
    /// Returns whether no forecast waits.
    fn is_empty(&self) -> bool {
        self.by_position.is_empty()
    }

    /// Returns whether the maximum number of forecasts waits.
    fn is_full(&self) -> bool {
        self.by_position.len() >= WAITING_MAX
    }

    /// Adds a forecast as the newest one.
    fn push_back(&mut self, waiting: WaitingForecast) {
        self.by_confidence.insert((waiting.forecast.confidence, self.next));
        self.by_position.insert(self.next, waiting);
        self.next += 1;
    }

    /// Removes the forecast that waited longest.
    fn pop_front(&mut self) -> Option<WaitingForecast> {
        let (position, first) = self.by_position.pop_first()?;
        self.by_confidence.remove(&(first.forecast.confidence, position));
        Some(first)
    }

    /// Takes the least confident forecast, if it is less confident than `confidence`.
    ///
    /// Of equally confident forecasts, the oldest is taken.
    fn pop_less_confident(&mut self, confidence: Confidence) -> Option<WaitingForecast> {
        let (least, position) = *self.by_confidence.first()?;
        if least >= confidence {
            return None;
        }
        self.by_confidence.pop_first();
        self.by_position.remove(&position)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc, time::Duration};

    use shunt_flow::{FlowKey, SparseKey};
    use shunt_foresight::ForecastSource;

    use super::*;
    use crate::forecast::ForecastCounters;

    /// The predictor of all forecasts.
    const SOURCE: ForecastSource = ForecastSource::Successor;

    /// Adds a forecast with a confidence in percent.
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

    /// The model scans a plain queue for the least confident forecast.
    #[test]
    fn the_queue_equals_a_scanned_queue() {
        let (mut queue, counters) = (ForecastQueue::default(), Arc::<ForecastCounters>::default());
        let (mut model, mut random) = (VecDeque::<u8>::new(), 1_u64);
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [percent, choice, ..] = random.to_be_bytes();
            let percent = percent % 101;
            // Most forecasts find a full queue, and both indexes lose entries in the middle.
            if choice < 32 {
                let first = queue.pop().map(|own| own.forecast.confidence.percent());
                assert_eq!(first, model.pop_front(), "{step}");
                continue;
            }
            push(&mut queue, &counters, percent);
            if model.len() >= WAITING_MAX {
                let (at, least) =
                    model.iter().copied().enumerate().min_by_key(|own| own.1).unwrap();
                if least >= percent {
                    continue;
                }
                model.remove(at);
            }
            model.push_back(percent);
        }
        let rest = std::iter::from_fn(|| queue.pop());
        let rest: Vec<_> = rest.map(|own| own.forecast.confidence.percent()).collect();
        assert_eq!(model, rest);
        assert!(queue.predicted.by_confidence.is_empty());
    }
}
