//! The forecasts of a packet thread, and the ring by which other threads announce flows.
//!
//! Predictors run on the packet thread, after the packets of an iteration have left. So the
//! forecast of a predictor waits for no other thread, and no thread is woken for a new flow.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_foresight::{
    FlowEvent, Forecast, ForecastRefusal, ForecastSource, Foresight, NewFlow, SiblingSets,
};
use shunt_pipeline::{InstallNo, Time};

use super::{
    ControlGroup, FlowObservation, ForecastAccount, ForecastCounters, ForecastInbox, ForecastQueue,
    ForecastRoutes, ForecastTicket, Speculation, Stopwatch, WaitingForecast, counters::nanoseconds,
};
use crate::{evict::link::Link, thread::ControlEnds};

/// Settings of the forecasts of a packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastConfig {
    /// Maximum number of forecasts that a thread handles in an iteration.
    pub per_iteration: usize,
    /// Time without a hit after which a speculative entry expires.
    pub idle: Duration,
    /// Maximum number of forecasts with speculative entries.
    pub speculative_max: usize,
    /// The random input that chooses the withheld forecasts.
    pub seed: u64,
}

impl Default for ForecastConfig {
    fn default() -> Self {
        Self { per_iteration: 8, idle: Duration::from_secs(5), speculative_max: 16_384, seed: 0 }
    }
}

/// The packet thread's end, with the predictors of the thread.
#[derive(Debug)]
pub struct ThreadForecasts {
    /// The settings of forecasts.
    pub(crate) config: ForecastConfig,
    /// The predictors and their governors.
    predictors: Foresight,
    /// New flows that wait for the predictors.
    observed: VecDeque<FlowObservation>,
    /// Buffer for the new flows of one call of the predictors; empty between calls.
    flows: Vec<NewFlow>,
    /// Buffer for new forecasts of the predictors; empty between calls.
    made: Vec<Forecast>,
    /// Time of the next forecast of a predictor; `None` until the next new flow.
    next_due: Option<Duration>,
    /// Time of the next report of outcomes to the governors of the predictors.
    next_report: Duration,
    /// The ring of announced flows and sets of back ends.
    incoming: Consumer<ForecastMessage>,
    /// The forecasts of other packet threads.
    pub(crate) inbox: Arc<ForecastInbox>,
    /// The inboxes of the packet threads, by port.
    pub(crate) routes: ForecastRoutes,
    /// The forecasts that wait for a translation.
    pub(crate) waiting: ForecastQueue,
    /// The counters that the thread publishes.
    pub(crate) counters: Arc<ForecastCounters>,
    /// The speculative entries of the thread.
    pub(crate) speculation: Speculation,
    /// The withheld forecasts of predictors.
    pub(crate) control: ControlGroup,
    /// The clock that measures the time of translations.
    pub(crate) stopwatch: Stopwatch,
}

/// The sender's end, for a thread that announces flows.
#[derive(Debug)]
pub struct ForecastSender {
    /// The ring to the packet thread.
    messages: Producer<ForecastMessage>,
    /// The counters of the announced flows.
    counters: Arc<ForecastCounters>,
    /// The link of the packet thread: its mailbox, waker and acknowledged version.
    link: Arc<Link>,
}

/// A message to a packet thread.
#[derive(Debug)]
enum ForecastMessage {
    /// A flow, and its preload if it has one.
    Forecast(Forecast, Option<Arc<ForecastTicket>>),
    /// The sets of back ends in new rules.
    RulesChanged(Arc<SiblingSets>),
}

/// Maximum number of messages in the ring.
const MESSAGES_MAX: usize = 1024;

/// Maximum number of new flows that wait for the predictors.
const OBSERVED_MAX: usize = 256;

/// Maximum number of new flows that predictors process in an iteration.
const OBSERVED_PER_ITERATION: usize = 8;

/// Maximum number of forecasts that predictors make in one call.
const FORECASTS_AT_ONCE: usize = 32;

/// Number of misses of which the time of one is measured.
const MISSES_PER_MEASUREMENT: u64 = 16;

/// Time between two reports to the governors of the predictors.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);

/// Creates the two ends for the packet thread of `control`.
///
/// The packet thread runs `predictors`, and is added to `routes`.
#[must_use]
pub fn forecast_endpoint(
    config: ForecastConfig,
    predictors: Foresight,
    routes: &ForecastRoutes,
    control: &ControlEnds,
) -> (ThreadForecasts, ForecastSender) {
    let (messages, incoming) = RingBuffer::new(MESSAGES_MAX);
    let counters = Arc::new(ForecastCounters::default());
    let thread = ThreadForecasts {
        config,
        next_due: predictors.next_due(),
        predictors,
        observed: VecDeque::new(),
        flows: Vec::with_capacity(OBSERVED_PER_ITERATION),
        made: Vec::with_capacity(FORECASTS_AT_ONCE),
        next_report: Duration::ZERO,
        incoming,
        inbox: routes.join(control.link()),
        routes: routes.clone(),
        waiting: ForecastQueue::default(),
        counters: Arc::clone(&counters),
        speculation: Speculation::default(),
        control: ControlGroup::new(config.seed),
        stopwatch: Stopwatch::default(),
    };
    let link = Arc::clone(control.link());
    (thread, ForecastSender { messages, counters, link })
}

impl ThreadForecasts {
    /// Measures the time of translations, which is zero without a stopwatch.
    #[must_use]
    pub fn with_stopwatch(mut self, stopwatch: Stopwatch) -> Self {
        self.stopwatch = stopwatch;
        self
    }

    /// Returns whether no message, flow or forecast waits.
    pub(crate) fn is_empty(&self) -> bool {
        let is_done = self.waiting.is_empty() && self.observed.is_empty();
        is_done && self.incoming.is_empty() && self.inbox.is_empty()
    }

    /// Returns whether an iteration at `now` would have nothing to do.
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        let is_report_due = !self.predictors.is_empty() && since_start(now) >= self.next_report;
        self.waiting.is_empty()
            && self.observed.is_empty()
            && self.speculation.len() + self.speculation.awaited() + self.control.len() == 0
            && !is_report_due
            && self.time_to_forecast(now) > Duration::ZERO
    }

    /// Returns the time until the next forecast of a predictor.
    pub(crate) fn time_to_forecast(&self, now: Time) -> Duration {
        self.next_due.map_or(Duration::MAX, |due| due.saturating_sub(since_start(now)))
    }

    /// Takes messages from the ring and the inbox.
    ///
    /// `last` is the number of the last install of the thread.
    pub(crate) fn take_incoming(&mut self, now: Time, last: InstallNo) {
        self.inbox.take(&mut self.waiting, last);
        while self.waiting.takes_announced()
            && let Ok(message) = self.incoming.pop()
        {
            match message {
                ForecastMessage::Forecast(forecast, ticket) => {
                    let account = ForecastAccount::open(&self.counters, forecast.source, ticket);
                    self.waiting.push(WaitingForecast { forecast, last, account });
                }
                ForecastMessage::RulesChanged(sets) => {
                    self.predictors.observe(&FlowEvent::RulesChanged(&sets), since_start(now));
                }
            }
        }
    }

    /// Returns the start of a miss if its time is to be measured.
    ///
    /// `misses` is the number of misses of the thread, this one included.
    pub(crate) fn start_of_miss(&self, misses: u64) -> Option<Time> {
        let is_measured = misses.is_multiple_of(MISSES_PER_MEASUREMENT);
        if is_measured && !self.predictors.is_empty() { self.stopwatch.read() } else { None }
    }

    /// Counts a miss that the slow path began to handle at `start`.
    pub(crate) fn end_miss(&self, start: Time) {
        self.counters.add_miss(self.stopwatch.since(start));
    }

    /// Returns whether the predictors take new flows.
    pub(crate) fn is_learning(&self) -> bool {
        self.predictors.is_learning()
    }

    /// Queues a new flow for the predictors, or counts it if the queue is full.
    pub(crate) fn observe(&mut self, observation: FlowObservation) {
        if self.observed.len() >= OBSERVED_MAX {
            return self.counters.observations_dropped.add(1);
        }
        self.observed.push_back(observation);
        self.counters.observed.add(1);
    }

    /// Runs the predictors on some new flows, and queues their forecasts.
    ///
    /// `last` is the number of the last install of the thread.
    pub(crate) fn run_predictors(&mut self, now: Time, last: InstallNo) {
        let count = self.observed.len().min(OBSERVED_PER_ITERATION);
        if count == 0 && self.time_to_forecast(now) > Duration::ZERO {
            return;
        }
        let (now, start) = (since_start(now), self.stopwatch.now());
        let clock = || since_start(self.stopwatch.now());
        if count > 0 {
            self.flows.extend(self.observed.drain(..count).map(|own| own.new_flow()));
            self.predictors.observe_flows(&self.flows, now, clock);
            self.flows.clear();
        }
        self.predictors.forecast_timed(now, FORECASTS_AT_ONCE, &mut self.made, clock);
        self.next_due = self.predictors.next_due();
        for forecast in self.made.drain(..) {
            let account = ForecastAccount::open(&self.counters, forecast.source, None);
            self.waiting.push(WaitingForecast { forecast, last, account });
        }
        self.counters.predictor_ns.add(nanoseconds(self.stopwatch.since(start)));
    }

    /// Passes outcomes of forecasts to the governors of the predictors, at intervals.
    pub(crate) fn report(&mut self, now: Time) {
        let now = since_start(now);
        if self.predictors.is_empty() || now < self.next_report {
            return;
        }
        self.next_report = now + REPORT_INTERVAL;
        self.predictors.set_per_miss(self.counters.per_miss());
        self.predictors.update(now, |source| self.counters.of(source).counts());
        // A predictor that is no longer paused, or has tokens again, may have a forecast.
        self.next_due = self.predictors.next_due();
        if let Some(mut status) = self.counters.predictors.try_lock() {
            status.clear();
            status.extend(self.predictors.status());
        }
    }
}

/// Returns a time as a duration since the start of the clock, for predictors.
const fn since_start(time: Time) -> Duration {
    Duration::from_nanos(time.nanoseconds())
}

impl ForecastSender {
    /// Returns whether the ring has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.messages.is_full()
    }

    /// Returns whether the packet thread has ended, and takes no more forecasts.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.messages.is_abandoned()
    }

    /// Counts forecasts that were not sent, because too many wait.
    pub fn refuse(&self, source: ForecastSource, count: u64) {
        self.counters.of(source).refuse_unsent(count);
    }

    /// Sends a forecast, and returns whether it fitted the ring.
    ///
    /// A forecast that does not fit is counted as refused. The caller calls [`Self::wake`]
    /// afterwards.
    pub fn send(&mut self, forecast: Forecast) -> bool {
        self.send_with(forecast, None)
    }

    /// Sends a forecast, and returns whether it fitted the ring.
    ///
    /// `ticket` counts the outcome for a preload. A forecast that does not fit is counted as
    /// refused, also by the ticket.
    pub fn send_with(&mut self, forecast: Forecast, ticket: Option<Arc<ForecastTicket>>) -> bool {
        if self.messages.is_full() {
            self.refuse(forecast.source, 1);
            ticket.iter().for_each(|ticket| ticket.refuse(ForecastRefusal::QueueFull));
            return false;
        }
        self.messages.push(ForecastMessage::Forecast(forecast, ticket)).is_ok()
    }

    /// Sends the sets of back ends in new rules; returns whether the ring had room.
    pub fn send_sibling_sets(&mut self, sets: Arc<SiblingSets>) -> bool {
        self.messages.push(ForecastMessage::RulesChanged(sets)).is_ok()
    }

    /// Wakes the packet thread, if it sleeps.
    pub fn wake(&self) {
        self.link.waker().wake();
    }

    /// Returns the counters of the packet thread.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ForecastCounters> {
        &self.counters
    }
}
