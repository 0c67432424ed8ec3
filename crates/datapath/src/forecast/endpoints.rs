//! The rings between a packet thread and the thread of the predictors.
//!
//! No endpoint ever waits to send.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_flow::{FlowKey, PortNo, SparseKey};
use shunt_foresight::{FlowEvent, Forecast, ForecastRefusal, ForecastSource, Foresight, NewFlow};
use shunt_pipeline::{BridgeId, DatapathAction, InstallNo, Time};

use super::{ForecastCounters, Speculation};
use crate::{
    evict::{link::Link, waker::Waker},
    thread::ControlEnds,
};

/// Settings of the forecasts of a packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastConfig {
    /// Maximum number of forecasts that a thread handles in an iteration.
    pub per_iteration: usize,
    /// Time without a hit after which a speculative entry expires.
    pub idle: Duration,
    /// Maximum number of forecasts with speculative entries.
    pub speculative_max: usize,
    /// Set if new flows are passed to the thread of the predictors.
    pub observes: bool,
}

impl Default for ForecastConfig {
    fn default() -> Self {
        Self {
            per_iteration: 8,
            idle: Duration::from_secs(5),
            speculative_max: 16_384,
            observes: true,
        }
    }
}

/// A new flow, as a packet thread saw it.
#[derive(Clone, Debug)]
pub struct FlowObservation {
    /// The key of the packet as it arrived.
    pub key: SparseKey,
    /// The lists of actions that were executed on the packet, in order.
    pub actions: Vec<Arc<[DatapathAction]>>,
    /// The bridge and the number of the only port that the packet left by.
    pub egress: Option<(BridgeId, PortNo)>,
}

impl FlowObservation {
    /// Returns the flow with its headers as it left.
    ///
    /// `thread` is the index of its packet thread.
    #[must_use]
    pub fn new_flow(&self, thread: u16) -> NewFlow {
        let key = FlowKey::from(&self.key);
        let egress = self.egress.map(|(bridge, number)| {
            let mut egress = key.clone();
            let actions = self.actions.iter().flat_map(|list| list.iter());
            let before = actions.take_while(|own| !matches!(own, DatapathAction::Output { .. }));
            before.for_each(|action| action.change_key(&mut egress));
            egress.set_bridge(bridge.number().into());
            egress.set_in_port(number);
            egress
        });
        NewFlow { key, egress, thread }
    }
}

/// The end of a packet thread.
#[derive(Debug)]
pub struct ThreadForecasts {
    pub(crate) config: ForecastConfig,
    /// Index of the packet thread.
    thread: u16,
    /// Predictors that forecast at once, on the packet thread.
    immediate: Foresight,
    /// The forecasts of `immediate`; empty between calls.
    made: Vec<Forecast>,
    /// Time of the next report to the governors of `immediate`.
    next_report: Duration,
    incoming: Consumer<Forecast>,
    /// Forecasts with the last install before they were received.
    pub(crate) waiting: VecDeque<(Forecast, InstallNo)>,
    observations: Producer<FlowObservation>,
    pub(crate) counters: Arc<ForecastCounters>,
    predictors: Arc<Waker>,
    /// Set if an observation was sent that the predictors were not woken for.
    has_unnotified: bool,
    pub(crate) speculation: Speculation,
}

/// The end of the predictors.
#[derive(Debug)]
pub struct ForecastSender {
    forecasts: Producer<Forecast>,
    /// New flows of the packet thread.
    pub observations: Consumer<FlowObservation>,
    counters: Arc<ForecastCounters>,
    link: Arc<Link>,
}

/// Forecasts that may wait in the ring.
const FORECASTS_MAX: usize = 1024;

/// Forecasts that may wait on the packet thread.
const WAITING_MAX: usize = 256;

/// Observations that may wait for the predictors.
const OBSERVATIONS_MAX: usize = 1024;

/// Time between two reports to the governors of a packet thread.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of forecasts made at once of one new flow.
const FORECASTS_OF_FLOW_MAX: usize = 4;

/// Creates the rings of packet thread number `thread`, which is behind `control`.
///
/// `immediate` are predictors that run on the packet thread, and `predictors` wakes the thread of all
/// others.
#[must_use]
pub fn forecast_endpoint(
    config: ForecastConfig,
    thread: u16,
    immediate: Foresight,
    control: &ControlEnds,
    predictors: Arc<Waker>,
) -> (ThreadForecasts, ForecastSender) {
    let (forecasts, incoming) = RingBuffer::new(FORECASTS_MAX);
    let (observation_sender, observations) = RingBuffer::new(OBSERVATIONS_MAX);
    let counters = Arc::new(ForecastCounters::default());
    let thread = ThreadForecasts {
        config,
        thread,
        immediate,
        made: Vec::with_capacity(FORECASTS_OF_FLOW_MAX),
        next_report: Duration::ZERO,
        incoming,
        waiting: VecDeque::new(),
        observations: observation_sender,
        counters: Arc::clone(&counters),
        predictors,
        has_unnotified: false,
        speculation: Speculation::default(),
    };
    let link = Arc::clone(control.link());
    (thread, ForecastSender { forecasts, observations, counters, link })
}

impl ThreadForecasts {
    /// Returns whether forecasts wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.incoming.is_empty()
    }

    /// Returns whether an iteration has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.speculation.len() == 0
            && !self.has_unnotified
            && self.immediate.is_empty()
    }

    /// Takes forecasts from the ring; `last` is the last install of the thread.
    pub(crate) fn take_incoming(&mut self, last: InstallNo) {
        while self.waiting.len() < WAITING_MAX
            && let Ok(forecast) = self.incoming.pop()
        {
            self.counters.of(forecast.source).received.add(1);
            self.waiting.push_back((forecast, last));
        }
    }

    /// Returns whether a predictor takes new flows.
    pub(crate) const fn has_predictors(&self) -> bool {
        self.config.observes || !self.immediate.is_empty()
    }

    /// Passes a new flow to the predictors, or counts it if the ring is full.
    ///
    /// `cause` is the origin of the forecast that the flow hit, and `last` the last install of the thread.
    pub(crate) fn observe(
        &mut self,
        observation: FlowObservation,
        cause: Option<ForecastSource>,
        now: Time,
        last: InstallNo,
    ) {
        // The reply to a reply is the flow that caused it.
        let is_caused_here = cause == Some(ForecastSource::Reply);
        if !self.immediate.is_empty() && !is_caused_here {
            self.forecast_at_once(&observation, Duration::from_nanos(now.nanoseconds()), last);
        }
        if !self.config.observes {
            return self.counters.observed.add(1);
        }
        if self.observations.is_full() {
            return self.counters.observations_dropped.add(1);
        }
        self.has_unnotified |= self.observations.push(observation).is_ok();
        self.counters.observed.add(1);
    }

    /// Runs the predictors of this thread on a new flow, and queues their forecasts.
    fn forecast_at_once(&mut self, observation: &FlowObservation, now: Duration, last: InstallNo) {
        let flow = observation.new_flow(self.thread);
        self.immediate.observe(&FlowEvent::Started(&flow), now);
        self.immediate.forecast(now, FORECASTS_OF_FLOW_MAX, &mut self.made);
        for forecast in self.made.drain(..) {
            let counters = self.counters.of(forecast.source);
            counters.received.add(1);
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back((forecast, last));
            } else {
                counters.refuse(ForecastRefusal::QueueFull);
            }
        }
    }

    /// Passes the outcomes of forecasts to the governors of this thread, at intervals.
    pub(crate) fn report(&mut self, now: Time) {
        let now = Duration::from_nanos(now.nanoseconds());
        if self.immediate.is_empty() || now < self.next_report {
            return;
        }
        self.next_report = now + REPORT_INTERVAL;
        self.immediate.update(now, |source| self.counters.of(source).counts());
        if let Some(mut status) = self.counters.predictors.try_lock() {
            status.clear();
            status.extend(self.immediate.status());
        }
    }

    /// Wakes the predictors, if they sleep and a flow was sent since the last call.
    pub(crate) fn notify(&mut self) {
        if std::mem::take(&mut self.has_unnotified) {
            self.predictors.wake();
        }
    }
}

impl ForecastSender {
    /// Returns whether the ring has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.forecasts.is_full()
    }

    /// Counts a forecast that was not sent, since too many wait.
    pub fn refuse(&self, source: ForecastSource) {
        self.counters.of(source).queue_full.add(1);
    }

    /// Sends a forecast, and returns whether it fitted the ring.
    ///
    /// One that does not fit is counted as refused. Call [`Self::wake`] afterwards.
    pub fn send(&mut self, forecast: Forecast) -> bool {
        let source = forecast.source;
        let is_sent = self.forecasts.push(forecast).is_ok();
        if !is_sent {
            self.refuse(source);
        }
        is_sent
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
