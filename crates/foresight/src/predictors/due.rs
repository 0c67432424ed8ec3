//! A queue of forecasts that a predictor made and that are not yet taken.

use std::{collections::VecDeque, time::Duration};

use crate::forecast::{Confidence, Forecast};

/// A bounded queue of forecasts. A full queue drops the oldest forecast.
#[derive(Debug)]
pub(crate) struct DueForecasts {
    /// The forecasts that are due, oldest first.
    queue: VecDeque<Forecast>,
    /// Maximum number of forecasts.
    capacity: usize,
}

impl DueForecasts {
    /// Creates an empty queue.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::new(), capacity }
    }

    /// Appends a forecast; a full queue loses its oldest.
    pub(crate) fn push(&mut self, forecast: Forecast) {
        if self.queue.len() >= self.capacity {
            self.queue.pop_front();
        }
        self.queue.push_back(forecast);
    }

    /// Moves the `budget` most confident forecasts to `forecasts`.
    ///
    /// Drops all other forecasts that are due. Of equally confident forecasts, the newest ones are
    /// moved.
    pub(crate) fn take(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        if budget == 0 {
            return self.queue.clear();
        }
        self.queue.retain(|forecast| forecast.is_valid(now));
        if self.queue.len() <= budget {
            forecasts.extend(self.queue.drain(..));
            return;
        }
        self.queue.make_contiguous().sort_by_key(|forecast| forecast.confidence);
        forecasts.extend(self.queue.drain(..).rev().take(budget));
    }

    /// Moves at most `budget` forecasts of at least this confidence to `forecasts`.
    ///
    /// Drops the others of this confidence, and keeps the less confident forecasts.
    pub(crate) fn take_from(
        &mut self,
        least: Confidence,
        now: Duration,
        budget: usize,
        forecasts: &mut Vec<Forecast>,
    ) {
        let (more, less) = self.queue.drain(..).partition(|own| own.confidence >= least);
        self.queue = more;
        self.take(now, budget, forecasts);
        self.queue = less;
    }

    /// Returns the greatest confidence of the forecasts.
    pub(crate) fn confidence(&self) -> Option<Confidence> {
        self.queue.iter().map(|forecast| forecast.confidence).max()
    }

    /// Returns the time of the earliest forecast.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.queue.front().map(|forecast| forecast.made)
    }

    /// Returns the number of forecasts.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the maximum number of forecasts.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::{FlowKey, SparseKey};

    use super::*;
    use crate::forecast::ForecastSource;

    /// Returns a queue of forecasts with these confidences, one made each second.
    fn queue_of(percents: &[u8]) -> DueForecasts {
        let mut due = DueForecasts::new(16);
        for (percent, second) in percents.iter().zip(0..) {
            due.push(Forecast {
                key: SparseKey::from(&FlowKey::ZERO),
                known: None,
                confidence: Confidence::of_percent(*percent),
                made: Duration::from_secs(second),
                valid_until: Duration::from_secs(60),
                source: ForecastSource::Successor,
            });
        }
        due
    }

    /// Returns confidences and times of forecasts.
    fn confidences_and_times(forecasts: &[Forecast]) -> Vec<(u8, u64)> {
        forecasts.iter().map(|own| (own.confidence.percent(), own.made.as_secs())).collect()
    }

    #[test]
    fn a_short_budget_takes_the_most_confident_forecasts() {
        let (mut due, mut taken) = (queue_of(&[90, 50, 75, 50, 25]), Vec::new());
        assert_eq!(due.confidence(), Some(Confidence::of_percent(90)));
        due.take(Duration::ZERO, 3, &mut taken);
        assert_eq!(
            confidences_and_times(&taken),
            [(90, 0), (75, 2), (50, 3)],
            "the newer one of two equal ones"
        );
        assert_eq!((due.len(), due.confidence()), (0, None));
        queue_of(&[50, 90]).take(Duration::ZERO, 2, &mut taken);
        assert_eq!(
            confidences_and_times(&taken[3..]),
            [(50, 0), (90, 1)],
            "the budget is not short"
        );
    }

    #[test]
    fn less_confident_forecasts_wait_for_others() {
        let (mut due, mut taken) = (queue_of(&[50, 75, 50, 90]), Vec::new());
        due.take_from(Confidence::of_percent(60), Duration::ZERO, 3, &mut taken);
        assert_eq!(confidences_and_times(&taken), [(75, 1), (90, 3)]);
        due.take(Duration::ZERO, 1, &mut taken);
        assert_eq!(confidences_and_times(&taken[2..]), [(50, 2)]);
    }
}
