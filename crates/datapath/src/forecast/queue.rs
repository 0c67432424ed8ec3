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

    /// Adds a forecast, or refuses it if the queue is full.
    pub(crate) fn push(&mut self, waiting: WaitingForecast) {
        let is_predicted = waiting.forecast.source.is_predictor();
        let queue = if is_predicted { &mut self.predicted } else { &mut self.announced };
        if queue.len() < WAITING_MAX {
            queue.push_back(waiting);
        } else {
            waiting.account.refuse(ForecastRefusal::QueueFull);
        }
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
