//! Several predictors, each with a budget and a governor.

use std::{cmp::Reverse, time::Duration};

use crate::{
    event::{FlowEvent, NewFlow},
    forecast::{Forecast, ForecastSource},
    governor::{Governor, GovernorConfig, GovernorState, PauseReason, SlowPathTimes},
    outcome::OutcomeCounts,
    predictor::Predictor,
};

/// The predictors of a switch.
#[derive(Debug)]
pub struct Foresight {
    /// The predictors, each with its governor.
    predictors: Vec<GovernedPredictor>,
    /// The settings of all governors.
    config: GovernorConfig,
    /// The index of the first of equally confident predictors in the next call.
    first: usize,
    /// The mean time of the slow path for a miss, if it was measured.
    per_miss: Option<Duration>,
    /// Scratch: the indices of the predictors in the order of a call.
    order: Vec<usize>,
}

/// A predictor with the governor that may pause it.
#[derive(Debug)]
struct GovernedPredictor {
    /// The predictor that the governor may pause.
    predictor: Box<dyn Predictor>,
    /// The governor of the predictor.
    governor: Governor,
    /// Number of forecasts that were made.
    forecasts: u64,
    /// Time that the predictor took.
    spent: Duration,
}

/// The state of a predictor, for status output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictorStatus {
    /// The kind of the predictor.
    pub source: ForecastSource,
    /// The state of its governor, which decides whether the predictor makes forecasts.
    pub state: GovernorState,
    /// Number of pauses of the predictor so far.
    pub pauses: u64,
    /// The reason of the last pause; `None` before the first one.
    pub pause_reason: Option<PauseReason>,
    /// The mean time of the slow path for a miss, if it was measured.
    pub per_miss: Option<Duration>,
    /// Number of forecasts that the predictor made.
    pub forecasts: u64,
    /// Number of items in the memory of the predictor.
    pub items: usize,
    /// Time that the predictor took, if it was measured.
    pub spent: Duration,
    /// The outcomes of the forecasts of the predictor.
    pub counts: OutcomeCounts,
}

impl GovernedPredictor {
    /// Returns whether the predictor is not paused.
    ///
    /// A predictor without tokens learns too: after a gap it would not know which flow follows
    /// another.
    const fn is_learning(&self) -> bool {
        !matches!(self.governor.state(), GovernorState::Paused { .. })
    }

    /// Passes a new flow to the predictor, which is not paused.
    fn learn(&mut self, event: &FlowEvent<'_>, now: Duration) {
        self.predictor.observe(event, now);
        self.governor.see_flow();
    }

    /// Adds the time from `start` to `end`, and returns `end`.
    fn spend_time(&mut self, start: Duration, end: Duration) -> Duration {
        self.spent += end.saturating_sub(start);
        end
    }
}

impl Foresight {
    /// Creates a collection without predictors, with these settings of governors.
    #[must_use]
    pub const fn new(config: GovernorConfig) -> Self {
        Self { predictors: Vec::new(), config, first: 0, per_miss: None, order: Vec::new() }
    }

    /// Adds a predictor to those that run.
    pub fn add(&mut self, predictor: Box<dyn Predictor>) {
        let governor = Governor::new(self.config);
        let spent = Duration::ZERO;
        self.predictors.push(GovernedPredictor { predictor, governor, forecasts: 0, spent });
    }

    /// Passes an event to all predictors that are not paused.
    ///
    /// A change of rules is passed to paused predictors too.
    pub fn observe(&mut self, event: &FlowEvent<'_>, now: Duration) {
        for own in &mut self.predictors {
            if matches!(event, FlowEvent::RulesChanged(_)) {
                own.predictor.observe(event, now);
            } else if own.is_learning() {
                own.learn(event, now);
            }
        }
    }

    /// Passes new flows to all predictors that are not paused.
    ///
    /// Measures the time of each predictor. `clock` returns the time since a start of its choice.
    pub fn observe_flows(
        &mut self,
        flows: &[NewFlow],
        now: Duration,
        clock: impl Fn() -> Duration,
    ) {
        let mut start = clock();
        for own in self.predictors.iter_mut().filter(|own| own.is_learning()) {
            flows.iter().for_each(|flow| own.learn(&FlowEvent::Started(flow), now));
            start = own.spend_time(start, clock());
        }
    }

    /// Adds at most `budget` forecasts of the predictors to `forecasts`.
    ///
    /// The predictor with the most confident forecast makes its forecasts first. In each call,
    /// another one of equally confident predictors is the first. Predictors in a trial precede all
    /// others, so that each one is judged by its own forecasts. A trial has few tokens.
    pub fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        self.forecast_timed(now, budget, forecasts, || Duration::ZERO);
    }

    /// Works like [`Self::forecast`], and measures the time of each predictor.
    ///
    /// `clock` returns the time since a start of its choice.
    pub fn forecast_timed(
        &mut self,
        now: Duration,
        budget: usize,
        forecasts: &mut Vec<Forecast>,
        clock: impl Fn() -> Duration,
    ) {
        let (count, mut left) = (self.predictors.len(), budget);
        let mut order = std::mem::take(&mut self.order);
        order.extend((0..count).map(|step| (self.first + step) % count));
        order.sort_by_key(|index| {
            let own = &self.predictors[*index];
            let is_in_trial = own.governor.state() == GovernorState::Trial;
            Reverse((is_in_trial, own.predictor.confidence(now)))
        });
        let mut start = clock();
        for index in order.drain(..) {
            let own = &mut self.predictors[index];
            let allowance = own.governor.allowance(left);
            let before = forecasts.len();
            own.predictor.forecast(now, allowance, forecasts);
            let made = forecasts.len() - before;
            own.forecasts += made as u64;
            own.governor.spend(made as u64);
            start = own.spend_time(start, clock());
            left = left.saturating_sub(made);
        }
        self.order = order;
        self.first = (self.first + 1) % count.max(1);
    }

    /// Passes the outcomes of each predictor since the start to its governor.
    pub fn update(&mut self, now: Duration, counts: impl Fn(ForecastSource) -> OutcomeCounts) {
        for own in &mut self.predictors {
            let times = SlowPathTimes { predictor: own.spent, per_miss: self.per_miss };
            own.governor.set_times(times);
            own.governor.update(&counts(own.predictor.source()), now);
        }
    }

    /// Sets the mean time of the slow path for a miss, for the governors.
    pub const fn set_per_miss(&mut self, time: Option<Duration>) {
        self.per_miss = time;
    }

    /// Returns whether any predictor learns from new flows.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.predictors.iter().any(GovernedPredictor::is_learning)
    }

    /// Returns whether the collection has no predictor.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.predictors.is_empty()
    }

    /// Returns the time of the next forecast; `None` means after the next event.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let on = self.predictors.iter().filter(|own| own.governor.allowance(1) > 0);
        on.filter_map(|own| own.predictor.next_due()).min()
    }

    /// Returns the status of each predictor.
    pub fn status(&self) -> impl Iterator<Item = PredictorStatus> {
        self.predictors.iter().map(|own| PredictorStatus {
            source: own.predictor.source(),
            state: own.governor.state(),
            pauses: own.governor.pauses(),
            pause_reason: own.governor.pause_reason(),
            per_miss: self.per_miss,
            forecasts: own.forecasts,
            items: own.predictor.len(),
            spent: own.spent,
            counts: *own.governor.counts(),
        })
    }
}
