//! The thread of the predictors: takes new flows of the packet threads, and sends forecasts back.
//!
//! Flows that an operator preloads or an orchestrator announces pass through the same rings. They wait
//! here while a ring is full.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, mpsc},
    time::Duration,
};

use parking_lot::Mutex;
use shunt_datapath::{
    Command, Waker,
    forecast::{ForecastCounters, ForecastSender, forecast_endpoint},
    thread::ControlEnds,
};
use shunt_foresight::{
    FlowEvent, Forecast, ForecastSource, Foresight, GovernorConfig, OutcomeCounts, PredictorStatus,
};
use shunt_pipeline::Pipeline;

use crate::{
    config::ForesightOptions,
    threads::{
        clock::DaemonClock,
        sibling_sets::SiblingWatch,
        worker::{WorkerProgress, WorkerThread},
    },
};

/// The running predictors.
pub(crate) struct ForesightWorker {
    pub(crate) worker: WorkerThread,
    waker: Arc<Waker>,
    announced: mpsc::Sender<Vec<Forecast>>,
    counters: Vec<Arc<ForecastCounters>>,
    status: Arc<Mutex<Vec<PredictorStatus>>>,
}

/// The rings of all packet threads, before the thread starts.
pub(crate) struct ForesightRings {
    waker: Arc<Waker>,
    senders: Vec<ForecastSender>,
}

/// The state of the thread.
struct ForesightLoop {
    senders: Vec<ForecastSender>,
    foresight: Foresight,
    /// The sets of back ends, if a predictor needs them.
    siblings: Option<SiblingWatch>,
    announced: mpsc::Receiver<Vec<Forecast>>,
    /// Announced forecasts that wait for room in the ring of each packet thread.
    waiting: Vec<VecDeque<Forecast>>,
    forecasts: Vec<Forecast>,
    status: Arc<Mutex<Vec<PredictorStatus>>>,
    clock: DaemonClock,
    /// Time of the next report to the governors.
    next_report: Duration,
}

/// Maximum number of new flows taken from one packet thread in a row.
const OBSERVED_AT_ONCE: usize = 256;

/// Maximum number of forecasts made at once.
const FORECASTS_AT_ONCE: usize = 256;

/// Maximum number of announced flows that wait for one packet thread.
const WAITING_MAX: usize = 65_536;

/// Time between two reports to the governors.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Pause while announced flows wait for room in a ring.
const FULL_RING_PAUSE: Duration = Duration::from_micros(200);

impl ForesightRings {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { waker: Arc::new(Waker::new()?), senders: Vec::new() })
    }

    /// Connects a packet thread that has not started yet.
    pub(crate) fn connect(&mut self, options: &ForesightOptions, control: &mut ControlEnds) {
        let waker = Arc::clone(&self.waker);
        let mut immediate = Foresight::new(GovernorConfig::default());
        options.immediate_predictors().for_each(|predictor| immediate.add(predictor));
        // Packet threads are numbered in this order. There are at most 64.
        let number = u16::try_from(self.senders.len()).unwrap_or(u16::MAX);
        let config = options.thread_config();
        let (thread, sender) = forecast_endpoint(config, number, immediate, control, waker);
        // The queue of a new thread is empty.
        let _ = control.send(Command::Forecasts(Some(Box::new(thread))));
        self.senders.push(sender);
    }

    /// Starts the thread.
    pub(crate) fn start(
        self,
        options: &ForesightOptions,
        pipeline: Arc<Pipeline>,
        clock: DaemonClock,
        seed: u64,
    ) -> io::Result<ForesightWorker> {
        let Self { waker, senders } = self;
        let mut foresight = Foresight::new(GovernorConfig::default());
        options.predictors(seed).for_each(|predictor| foresight.add(predictor));
        let (announced, receiver) = mpsc::channel();
        let status = Arc::new(Mutex::new(foresight.status().collect()));
        let counters = senders.iter().map(|sender| Arc::clone(sender.counters())).collect();
        let mut state = ForesightLoop {
            waiting: senders.iter().map(|_| VecDeque::new()).collect(),
            senders,
            foresight,
            siblings: options.has_siblings().then(|| SiblingWatch::new(pipeline)),
            announced: receiver,
            forecasts: Vec::new(),
            status: Arc::clone(&status),
            clock,
            next_report: Duration::ZERO,
        };
        let worker =
            WorkerThread::start("shunt-foresight", Arc::clone(&waker), move || state.iterate())?;
        Ok(ForesightWorker { worker, waker, announced, counters, status })
    }
}

impl ForesightWorker {
    /// Sends flows to all packet threads.
    pub(crate) fn announce(&self, forecasts: Vec<Forecast>) {
        // A thread that has ended drops them.
        let _ = self.announced.send(forecasts);
        self.waker.wake();
    }

    /// Returns the outcomes of the forecasts of an origin, over all packet threads.
    pub(crate) fn counts(&self, source: ForecastSource) -> OutcomeCounts {
        total(self.counters.iter().map(Arc::as_ref), source)
    }

    /// Returns the number of predicted flows without a hit, over all packet threads.
    pub(crate) fn speculative(&self) -> u64 {
        self.counters.iter().map(|own| own.speculative.get()).sum()
    }

    /// Returns the new flows that the predictors saw, and those that they missed.
    pub(crate) fn observed(&self) -> (u64, u64) {
        let seen = self.counters.iter().map(|own| own.observed.get()).sum();
        (seen, self.counters.iter().map(|own| own.observations_dropped.get()).sum())
    }

    /// Returns the states of the predictors.
    ///
    /// One that runs on packet threads has a state for each.
    pub(crate) fn predictors(&self) -> Vec<PredictorStatus> {
        let mut all = self.status.lock().clone();
        self.counters.iter().for_each(|own| all.extend(own.predictors.lock().iter()));
        all
    }
}

impl ForesightLoop {
    /// Does the work that is due.
    fn iterate(&mut self) -> WorkerProgress {
        let now = Duration::from_nanos(self.clock.now().nanoseconds());
        let mut has_worked = self.observe(now);
        has_worked |= self.take_announced();
        self.report(now);
        self.foresight.forecast(now, FORECASTS_AT_ONCE, &mut self.forecasts);
        has_worked |= !self.forecasts.is_empty();
        for forecast in std::mem::take(&mut self.forecasts) {
            let all = 0..self.senders.len();
            let to = forecast.thread.map_or(all, |thread| thread.into()..usize::from(thread) + 1);
            for sender in self.senders.get_mut(to).into_iter().flatten() {
                sender.send(forecast.clone());
            }
        }
        has_worked |= self.send_announced();
        self.senders.iter().for_each(ForecastSender::wake);
        if has_worked {
            return WorkerProgress::Worked;
        }
        let due = self.foresight.next_due();
        WorkerProgress::Idle(due.map_or(Duration::MAX, |due| due.saturating_sub(now)))
    }

    /// Passes new flows to the predictors. Returns whether there was one.
    fn observe(&mut self, now: Duration) -> bool {
        let mut has_observed = false;
        for (thread, sender) in (0..).zip(&mut self.senders) {
            for _ in 0..OBSERVED_AT_ONCE {
                let Ok(observation) = sender.observations.pop() else { break };
                let flow = observation.new_flow(thread);
                self.foresight.observe(&FlowEvent::Started(&flow), now);
                has_observed = true;
            }
        }
        has_observed
    }

    fn take_announced(&mut self) -> bool {
        let mut has_taken = false;
        while let Ok(forecasts) = self.announced.try_recv() {
            has_taken = true;
            for (waiting, sender) in self.waiting.iter_mut().zip(&mut self.senders) {
                for forecast in &forecasts {
                    if waiting.len() < WAITING_MAX {
                        waiting.push_back(forecast.clone());
                    } else {
                        sender.refuse(forecast.source);
                    }
                }
            }
        }
        has_taken
    }

    /// Sends announced flows while there is room. Returns whether some are left.
    fn send_announced(&mut self) -> bool {
        for (waiting, sender) in self.waiting.iter_mut().zip(&mut self.senders) {
            while sender.has_room()
                && let Some(forecast) = waiting.pop_front()
            {
                sender.send(forecast);
            }
        }
        let is_left = self.waiting.iter().any(|waiting| !waiting.is_empty());
        if is_left {
            self.senders.iter().for_each(ForecastSender::wake);
            std::thread::sleep(FULL_RING_PAUSE);
        }
        is_left
    }

    /// Passes the outcomes of forecasts to the governors, at intervals.
    fn report(&mut self, now: Duration) {
        if now < self.next_report {
            return;
        }
        self.next_report = now + REPORT_INTERVAL;
        let siblings = self.siblings.as_mut();
        if let Some(sets) = siblings.and_then(|siblings| siblings.changed(now)) {
            self.foresight.observe(&FlowEvent::RulesChanged(sets), now);
        }
        let counters = || self.senders.iter().map(|sender| sender.counters().as_ref());
        self.foresight.update(now, |source| total(counters(), source));
        let mut status = self.status.lock();
        status.clear();
        status.extend(self.foresight.status());
    }
}

fn total<'a>(
    counters: impl Iterator<Item = &'a ForecastCounters>,
    source: ForecastSource,
) -> OutcomeCounts {
    let mut total = OutcomeCounts::default();
    counters.for_each(|own| total.add(&own.of(source).counts()));
    total
}
