//! The thread that passes flows and sets of back ends to the predictors of packet threads.
//!
//! Preloaded and announced flows wait in this thread while the ring of a packet thread is full.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use parking_lot::Mutex;
use shunt_datapath::{
    Command, Waker,
    forecast::{
        ForecastCounters, ForecastRoutes, ForecastSender, ForecastTicket, Stopwatch,
        forecast_endpoint,
    },
    thread::ControlEnds,
};
use shunt_flow::FlowKey;
use shunt_foresight::{Forecast, ForecastSource, OutcomeCounts, PredictorStatus, SiblingSets};
use shunt_pipeline::Pipeline;

use crate::{
    announcements::Announced,
    config::ForesightOptions,
    threads::{
        clock::DaemonClock,
        predictor_log::PredictorLog,
        preload_tickets::PreloadTickets,
        rule_siblings::RuleSiblings,
        sibling_sets::SiblingWatch,
        worker::{SLEEP_MAX_MS, WorkerThread},
    },
};

/// The connection to the predictors of all packet threads.
pub(crate) struct ForesightWorker {
    pub(crate) worker: WorkerThread,
    /// Wakes the foresight thread when a flow arrives.
    waker: Arc<Waker>,
    /// The channel of announced flows.
    announced: mpsc::Sender<AnnouncedFlows>,
    /// Number of waiting announced flows,
    /// counted once for each receiving packet thread.
    waiting: Arc<AtomicUsize>,
    /// The inboxes of the packet threads, by port.
    routes: ForecastRoutes,
    /// The forecast counters of each packet thread.
    counters: Vec<Arc<ForecastCounters>>,
    /// Maximum number of speculative entries of a packet thread.
    entries: usize,
    /// The tickets of the newest preloads.
    tickets: Mutex<PreloadTickets>,
}

/// The flows of one announcement.
struct AnnouncedFlows {
    /// The origin of the flows.
    source: ForecastSource,
    /// The accepted flows for each packet thread.
    accepted: Vec<Vec<Forecast>>,
    /// Number of flows that did not fit the queue.
    refused: usize,
    /// The ticket of the preload, which counts the outcomes.
    ticket: Option<Arc<ForecastTicket>>,
}

/// The rings to all packet threads, before the foresight thread starts.
#[derive(Default)]
pub(crate) struct ForesightRings {
    /// The ring to each packet thread.
    senders: Vec<ForecastSender>,
    /// The inboxes of the packet threads, by port.
    routes: ForecastRoutes,
    /// The sets of back ends in rule changes, if a predictor needs them.
    siblings: Option<Arc<Mutex<RuleSiblings>>>,
}

/// The state of the foresight thread.
struct ForesightLoop {
    /// The waiting messages to each packet thread.
    outboxes: Vec<ThreadOutbox>,
    /// The sets of back ends, if a predictor needs them.
    siblings: Option<SiblingWatch>,
    /// The channel of announced flows.
    announced: mpsc::Receiver<AnnouncedFlows>,
    /// Number of announced flows that wait for their rings.
    waiting: Arc<AtomicUsize>,
    /// The logged states of the predictors.
    log: PredictorLog,
    clock: DaemonClock,
}

/// Messages to one packet thread that wait for space in its ring.
struct ThreadOutbox {
    /// The ring to the packet thread.
    sender: ForecastSender,
    /// The waiting flows, each with the ticket of its preload.
    forecasts: VecDeque<(Forecast, Option<Arc<ForecastTicket>>)>,
    /// The newest sets of back ends, not sent yet.
    sets: Option<Arc<SiblingSets>>,
}

/// Maximum number of waiting announced flows for each packet thread.
const WAITING_MAX: usize = 65_536;

/// Interval between two checks of the sets of back ends, in milliseconds.
const SETS_INTERVAL_MS: u16 = 500;

/// Pause while messages wait for space in a ring.
const FULL_RING_PAUSE: Duration = Duration::from_micros(200);

impl ForesightRings {
    /// Connects a packet thread that has not started yet, and sends it its predictors.
    pub(crate) fn connect(
        &mut self,
        options: &ForesightOptions,
        seed: u64,
        clock: DaemonClock,
        control: &mut ControlEnds,
    ) {
        let predictors = options.foresight(seed);
        if options.has_siblings() {
            self.siblings.get_or_insert_default();
        }
        let config = options.thread_config(seed);
        let (thread, sender) = forecast_endpoint(config, predictors, &self.routes, control);
        let thread = thread.with_stopwatch(Stopwatch::new(move || clock.now()));
        // A command always fits the empty queue of a new thread.
        let _ = control.send(Command::Forecasts(Some(Box::new(thread))));
        self.senders.push(sender);
    }

    /// Returns the sets of back ends in rule changes, if a predictor needs them.
    pub(crate) fn siblings(&self) -> Option<Arc<Mutex<RuleSiblings>>> {
        self.siblings.clone()
    }

    /// Starts the foresight thread.
    pub(crate) fn start(
        self,
        options: &ForesightOptions,
        pipeline: Arc<Pipeline>,
        clock: DaemonClock,
    ) -> io::Result<ForesightWorker> {
        let (announced, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counters = self.senders.iter().map(|sender| Arc::clone(sender.counters())).collect();
        let outbox = |sender| ThreadOutbox { sender, forecasts: VecDeque::new(), sets: None };
        let mut state = ForesightLoop {
            outboxes: self.senders.into_iter().map(outbox).collect(),
            siblings: self.siblings.map(|rules| SiblingWatch::new(pipeline, rules)),
            announced: receiver,
            waiting: Arc::clone(&waiting),
            log: PredictorLog::default(),
            clock,
        };
        let waker = Arc::new(Waker::new()?);
        let (name, own_waker) = ("shunt-foresight", Arc::clone(&waker));
        let sleep_max = if state.siblings.is_some() { SETS_INTERVAL_MS } else { SLEEP_MAX_MS };
        let worker = WorkerThread::start(name, own_waker, sleep_max, move || state.iterate())?;
        Ok(ForesightWorker {
            worker,
            waker,
            announced,
            waiting,
            routes: self.routes,
            counters,
            entries: options.entries,
            tickets: Mutex::default(),
        })
    }
}

impl ForesightWorker {
    /// Returns the tickets of preloads, by preload number.
    pub(crate) const fn tickets(&self) -> &Mutex<PreloadTickets> {
        &self.tickets
    }

    /// Queues flows for the packet threads of their ports,
    /// as long as the queue has space.
    pub(crate) fn announce(
        &self,
        mut forecasts: Vec<Forecast>,
        source: ForecastSource,
        ticket: Option<Arc<ForecastTicket>>,
    ) -> Announced {
        let (count, all) = (forecasts.len(), self.counters.len().max(1));
        let fitting = |waiting: usize| count.min(WAITING_MAX.saturating_sub(waiting / all));
        // `Relaxed`: the foresight thread subtracts what it has sent, and the counter orders no
        // other memory.
        let before = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            Some(waiting + fitting(waiting) * all)
        });
        let accepted = fitting(before.unwrap_or_else(|waiting| waiting));
        forecasts.truncate(accepted);
        let (for_threads, threads) = self.by_thread(forecasts);
        let sent: usize = for_threads.iter().map(Vec::len).sum();
        self.waiting.fetch_sub(accepted * all - sent, Ordering::Relaxed);
        ticket.iter().for_each(|ticket| ticket.count_sent(sent as u64));
        let refused = count - accepted;
        // If the foresight thread has ended, the flows are dropped.
        let _ =
            self.announced.send(AnnouncedFlows { source, accepted: for_threads, refused, ticket });
        self.waker.wake();
        Announced { accepted, refused, threads, entries: self.entries }
    }

    /// Returns the flows for each packet thread,
    /// and the highest number of threads for a flow.
    fn by_thread(&self, forecasts: Vec<Forecast>) -> (Vec<Vec<Forecast>>, usize) {
        let mut for_threads = vec![Vec::new(); self.counters.len()];
        let mut threads_max = 0;
        for forecast in forecasts {
            let key = FlowKey::from(&forecast.key);
            let mut receivers = self.routes.receivers(key.bridge(), key.in_port());
            if receivers.is_empty() {
                // No thread polls a new port yet, so all threads get the flow; for an unknown port
                // they refuse it.
                receivers = (0..for_threads.len()).collect();
            }
            threads_max = threads_max.max(receivers.len());
            for thread in receivers {
                if let Some(own) = for_threads.get_mut(thread) {
                    own.push(forecast.clone());
                }
            }
        }
        (for_threads, threads_max)
    }

    /// Returns the outcomes of the forecasts of an origin, summed over packet threads.
    pub(crate) fn counts(&self, source: ForecastSource) -> OutcomeCounts {
        let mut total = OutcomeCounts::default();
        self.counters.iter().for_each(|own| total.add(&own.of(source).counts()));
        total
    }

    /// Returns the number of predicted flows without a hit, summed over packet threads.
    pub(crate) fn speculative(&self) -> u64 {
        self.counters.iter().map(|own| own.speculative.get()).sum()
    }

    /// Returns the numbers of new flows that the predictors saw and missed.
    pub(crate) fn observed(&self) -> (u64, u64) {
        let seen = self.counters.iter().map(|own| own.observed.get()).sum();
        (seen, self.counters.iter().map(|own| own.observations_dropped.get()).sum())
    }

    /// Returns the time that the predictors took of all packet threads, without
    /// translations.
    pub(crate) fn predictor_time(&self) -> Duration {
        Duration::from_nanos(self.counters.iter().map(|own| own.predictor_ns.get()).sum())
    }

    /// Returns the mean time of the slow path for a miss, if it was measured.
    pub(crate) fn per_miss(&self) -> Option<Duration> {
        let time: u64 = self.counters.iter().map(|own| own.measured_miss_ns.get()).sum();
        let misses: u64 = self.counters.iter().map(|own| own.measured_misses.get()).sum();
        time.checked_div(misses).map(Duration::from_nanos)
    }

    /// Returns the states of the predictors of all packet threads.
    pub(crate) fn predictors(&self) -> Vec<PredictorStatus> {
        self.counters.iter().flat_map(|own| own.predictors.lock().clone()).collect()
    }
}

impl ForesightLoop {
    /// Does the work that is due; returns whether there was work.
    fn iterate(&mut self) -> bool {
        let has_taken = self.take_announced();
        self.take_sibling_sets();
        self.log_predictors();
        let is_left = self.send();
        has_taken || is_left
    }

    /// Passes announced flows to packet threads; returns whether there were any.
    fn take_announced(&mut self) -> bool {
        let mut has_taken = false;
        while let Ok(flows) = self.announced.try_recv() {
            let AnnouncedFlows { source, accepted, refused, ticket } = flows;
            has_taken = true;
            for (own, accepted) in self.outboxes.iter_mut().zip(accepted) {
                own.forecasts.extend(accepted.into_iter().map(|flow| (flow, ticket.clone())));
                // The sender of a preload retries refused flows and counts them itself.
                if source == ForecastSource::Announced {
                    own.sender.refuse(source, refused as u64);
                }
            }
        }
        has_taken
    }

    /// Logs predictors that were paused, and paused predictors that are tried again.
    fn log_predictors(&mut self) {
        let now = Duration::from_nanos(self.clock.now().nanoseconds());
        for (thread, own) in self.outboxes.iter().enumerate() {
            self.log.update(thread, now, &own.sender.counters().predictors.lock());
        }
    }

    /// Takes new sets of back ends, if they have changed.
    fn take_sibling_sets(&mut self) {
        let now = Duration::from_nanos(self.clock.now().nanoseconds());
        let siblings = self.siblings.as_mut();
        let Some(sets) = siblings.and_then(|siblings| siblings.changed(now)) else { return };
        self.outboxes.iter_mut().for_each(|own| own.sets = Some(Arc::clone(&sets)));
    }

    /// Sends messages to all packet threads as long as their rings have space.
    ///
    /// Returns whether messages are left.
    fn send(&mut self) -> bool {
        let all = |outboxes: &[ThreadOutbox]| -> usize {
            outboxes.iter().map(|own| own.forecasts.len()).sum()
        };
        let before = all(&self.outboxes);
        let is_left = self.outboxes.iter_mut().fold(false, |is_left, own| own.send() | is_left);
        self.waiting.fetch_sub(before - all(&self.outboxes), Ordering::Relaxed);
        if is_left {
            std::thread::sleep(FULL_RING_PAUSE);
        }
        is_left
    }
}

impl ThreadOutbox {
    /// Sends messages to the packet thread as long as its ring has space.
    ///
    /// Returns whether messages are left.
    fn send(&mut self) -> bool {
        if self.sender.is_ended() {
            // Messages for an ended thread are dropped, so the other packet threads do not wait for
            // it.
            self.forecasts.clear();
            self.sets = None;
        }
        if self.forecasts.is_empty() && self.sets.is_none() {
            return false;
        }
        if let Some(sets) = &self.sets
            && self.sender.send_sibling_sets(Arc::clone(sets))
        {
            self.sets = None;
        }
        while self.sender.has_room()
            && let Some((forecast, ticket)) = self.forecasts.pop_front()
        {
            self.sender.send_with(forecast, ticket);
        }
        self.sender.wake();
        !self.forecasts.is_empty() || self.sets.is_some()
    }
}
