//! The thread that passes flows and sets of back ends to the predictors of packet threads.
//!
//! Flows that an operator preloads or an orchestrator announces wait here while a ring is full.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, mpsc},
    time::Duration,
};

use shunt_datapath::{
    Command, Waker,
    forecast::{ForecastCounters, ForecastSender, forecast_endpoint},
    thread::ControlEnds,
};
use shunt_foresight::{Forecast, ForecastSource, OutcomeCounts, PredictorStatus, SiblingSets};
use shunt_pipeline::Pipeline;

use crate::{
    config::ForesightOptions,
    threads::{
        clock::DaemonClock,
        sibling_sets::SiblingWatch,
        worker::{SLEEP_MAX_MS, WorkerThread},
    },
};

/// The connection to the predictors of all packet threads.
pub(crate) struct ForesightWorker {
    pub(crate) worker: WorkerThread,
    waker: Arc<Waker>,
    announced: mpsc::Sender<Vec<Forecast>>,
    counters: Vec<Arc<ForecastCounters>>,
}

/// The rings of all packet threads, before the thread starts.
#[derive(Default)]
pub(crate) struct ForesightRings {
    senders: Vec<ForecastSender>,
}

/// The state of the thread.
struct ForesightLoop {
    outboxes: Vec<ThreadOutbox>,
    /// The sets of back ends, if a predictor needs them.
    siblings: Option<SiblingWatch>,
    announced: mpsc::Receiver<Vec<Forecast>>,
    clock: DaemonClock,
}

/// Messages to one packet thread that wait for room in its ring.
struct ThreadOutbox {
    sender: ForecastSender,
    forecasts: VecDeque<Forecast>,
    sets: Option<Arc<SiblingSets>>,
}

/// Maximum number of announced flows that wait for one packet thread.
const WAITING_MAX: usize = 65_536;

/// Interval between two checks of the sets of back ends, in milliseconds.
const SETS_INTERVAL_MS: u16 = 500;

/// Pause while messages wait for room in a ring.
const FULL_RING_PAUSE: Duration = Duration::from_micros(200);

impl ForesightRings {
    /// Connects a packet thread that has not started yet, and gives it its predictors.
    pub(crate) fn connect(
        &mut self,
        options: &ForesightOptions,
        seed: u64,
        control: &mut ControlEnds,
    ) {
        let predictors = options.foresight(seed);
        let (thread, sender) = forecast_endpoint(options.thread_config(), predictors, control);
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
    ) -> io::Result<ForesightWorker> {
        let (announced, receiver) = mpsc::channel();
        let counters = self.senders.iter().map(|sender| Arc::clone(sender.counters())).collect();
        let outbox = |sender| ThreadOutbox { sender, forecasts: VecDeque::new(), sets: None };
        let mut state = ForesightLoop {
            outboxes: self.senders.into_iter().map(outbox).collect(),
            siblings: options.has_siblings().then(|| SiblingWatch::new(pipeline)),
            announced: receiver,
            clock,
        };
        let waker = Arc::new(Waker::new()?);
        let (name, own_waker) = ("shunt-foresight", Arc::clone(&waker));
        let sleep_max = if state.siblings.is_some() { SETS_INTERVAL_MS } else { SLEEP_MAX_MS };
        let worker = WorkerThread::start(name, own_waker, sleep_max, move || state.iterate())?;
        Ok(ForesightWorker { worker, waker, announced, counters })
    }
}

impl ForesightWorker {
    /// Sends flows to all packet threads.
    pub(crate) fn announce(&self, forecasts: Vec<Forecast>) {
        // A thread that has ended drops the forecasts.
        let _ = self.announced.send(forecasts);
        self.waker.wake();
    }

    /// Returns the outcomes of the forecasts of an origin, over all packet threads.
    pub(crate) fn counts(&self, source: ForecastSource) -> OutcomeCounts {
        let mut total = OutcomeCounts::default();
        self.counters.iter().for_each(|own| total.add(&own.of(source).counts()));
        total
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

    /// Returns the states of the predictors of all packet threads.
    pub(crate) fn predictors(&self) -> Vec<PredictorStatus> {
        self.counters.iter().flat_map(|own| own.predictors.lock().clone()).collect()
    }
}

impl ForesightLoop {
    /// Does the work that is due. Returns whether there was work.
    fn iterate(&mut self) -> bool {
        let has_taken = self.take_announced();
        self.take_sibling_sets();
        let is_left = self.send();
        has_taken || is_left
    }

    fn take_announced(&mut self) -> bool {
        let mut has_taken = false;
        while let Ok(forecasts) = self.announced.try_recv() {
            has_taken = true;
            for own in &mut self.outboxes {
                for forecast in &forecasts {
                    if own.forecasts.len() < WAITING_MAX {
                        own.forecasts.push_back(forecast.clone());
                    } else {
                        own.sender.refuse(forecast.source);
                    }
                }
            }
        }
        has_taken
    }

    /// Takes the sets of back ends, if they have changed.
    fn take_sibling_sets(&mut self) {
        let now = Duration::from_nanos(self.clock.now().nanoseconds());
        let siblings = self.siblings.as_mut();
        let Some(sets) = siblings.and_then(|siblings| siblings.changed(now)) else { return };
        self.outboxes.iter_mut().for_each(|own| own.sets = Some(Arc::clone(&sets)));
    }

    /// Sends messages while there is room. Returns whether some are left.
    fn send(&mut self) -> bool {
        let is_left = self.outboxes.iter_mut().fold(false, |is_left, own| own.send() | is_left);
        if is_left {
            std::thread::sleep(FULL_RING_PAUSE);
        }
        is_left
    }
}

impl ThreadOutbox {
    /// Sends messages while there is room. Returns whether some are left.
    fn send(&mut self) -> bool {
        if self.forecasts.is_empty() && self.sets.is_none() {
            return false;
        }
        if let Some(sets) = &self.sets
            && self.sender.send_sibling_sets(Arc::clone(sets))
        {
            self.sets = None;
        }
        while self.sender.has_room()
            && let Some(forecast) = self.forecasts.pop_front()
        {
            self.sender.send(forecast);
        }
        self.sender.wake();
        !self.forecasts.is_empty() || self.sets.is_some()
    }
}
