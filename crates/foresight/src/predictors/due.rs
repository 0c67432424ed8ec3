//! A queue of forecasts that a predictor made and that are not yet taken.

use std::{collections::VecDeque, time::Duration};

use crate::forecast::Forecast;

/// A bounded queue of forecasts. A full queue drops the oldest forecast.
#[derive(Debug)]
pub(crate) struct DueForecasts {
    queue: VecDeque<Forecast>,
    capacity: usize,
}

impl DueForecasts {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::new(), capacity }
    }

    pub(crate) fn push(&mut self, forecast: Forecast) {
        if self.queue.len() >= self.capacity {
            self.queue.pop_front();
        }
        self.queue.push_back(forecast);
    }

    /// Moves the newest `budget` forecasts to `forecasts`, and drops the others.
    pub(crate) fn take(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        let dropped = self.queue.len().saturating_sub(budget);
        let newest = self.queue.drain(..).skip(dropped);
        forecasts.extend(newest.filter(|forecast| forecast.is_valid(now)));
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.queue.front().map(|forecast| forecast.made)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }
}
