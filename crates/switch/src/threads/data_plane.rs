//! The data plane: the tables, the packet threads and the eviction thread.
//!
//! Every change follows one path. The tables publish a new version, and the eviction thread
//! receives the changes in version order. A version is in force when every packet thread has
//! acknowledged it; [`DataPlane::adopted`] waits for that.
//!
//! A thread that panics blocks no caller: versions no longer wait for it, and
//! [`DataPlane::reclaim`] drops its unanswered commands. Without the eviction thread, stale entries
//! would stay in the caches. Without the learner thread, every queue with a learn request would
//! stop. So if either of these threads ends, all packet threads are stopped.

mod stalled_threads;

use std::{collections::BTreeSet, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_datapath::{
    Command, CoordinatorClock, CoordinatorHandle, EvictionCoordinator, PacketThread, ThreadConfig,
    ThreadCounters, Waker,
    command::Tuning,
    offload::OffloadHandle,
    thread::{
        CacheMismatch, ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_coordinator,
        spawn_packet_thread, thread_ends,
    },
};
use shunt_flow::extract::VlanLimit;
use shunt_pipeline::{BridgeId, Evictor, OwnerId, Pipeline, Time};
use tokio::sync::{oneshot, watch};

use crate::{
    config::Config,
    error::SwitchError,
    nic::{AgentSettings, NicAgent, OffloadConnection, StartedAgent},
    status::thread::{ThreadState, ThreadStatus},
    threads::{
        clock::DaemonClock,
        foresight::{ForesightRings, ForesightWorker},
        learner,
        listener::{PacketInListener, PuntReceivers},
        publisher::Publisher,
        slot::ThreadSlot,
        worker::WorkerThread,
    },
};

/// Pause before a retry, if a command queue is full or the learner is not done.
const FULL_QUEUE_PAUSE: Duration = Duration::from_micros(100);

/// The packet threads, and the threads for evictions, NIC and forecasts.
pub(crate) struct DataPlane {
    pipeline: Arc<Pipeline>,
    clock: DaemonClock,
    /// Maximum number of VLAN tags that are parsed.
    vlan_limit: Mutex<VlanLimit>,
    publisher: Arc<Publisher>,
    /// Command queues of the packet threads; `None` for a stopped thread.
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    /// The counters of each packet thread.
    counters: Vec<Arc<ThreadCounters>>,
    listener: PacketInListener,
    learner: WorkerThread,
    foresight: ForesightWorker,
    handle: Arc<CoordinatorHandle>,
    /// The newest version that all packet threads have adopted.
    adopted: Arc<watch::Sender<Version>>,
    running: Arc<Mutex<DataPlaneThreads>>,
}

/// The packet threads, the eviction thread and the offload thread.
struct DataPlaneThreads {
    packet: Vec<ThreadSlot<Running<PacketThread>>>,
    eviction: ThreadSlot<Running<Option<EvictionCoordinator>>>,
    /// Offload thread; it runs from the first NIC on.
    offload: Option<OffloadThread>,
    /// Packet threads with a trainer that panicked, as of the last check.
    trainers_lost: BTreeSet<usize>,
}

/// The offload thread, with the handle that sends it commands.
struct OffloadThread {
    slot: ThreadSlot<Running<NicAgent>>,
    handle: OffloadHandle,
}

/// Threads that have ended since the last check.
#[derive(Default)]
pub(crate) struct StoppedThreads {
    /// Name of an ended thread without which no packet thread may run.
    pub(crate) vital: Option<&'static str>,
    /// True if the listener thread has ended, so controllers receive no packet-ins.
    pub(crate) listener: bool,
    /// True if the offload thread has ended, so nothing updates the entries of the NIC.
    pub(crate) offload: bool,
    /// Packet threads that have ended.
    pub(crate) packet: Vec<usize>,
    /// Packet threads without a learned index because their trainer panicked.
    pub(crate) trainers: Vec<usize>,
}

const EVICTION: &str = "eviction thread";
const LEARNER: &str = "learner thread";
const LISTENER: &str = "listener thread";
const OFFLOAD: &str = "offload thread";
const FORESIGHT: &str = "foresight thread";

/// A running data plane, and the receivers of its packets for the control plane.
pub(crate) struct StartedDataPlane {
    pub(crate) plane: DataPlane,
    pub(crate) punts: PuntReceivers,
}

/// A function that creates the eviction engine for a pipeline.
pub type EngineMaker = Box<dyn FnOnce(Arc<Pipeline>) -> Box<dyn Evictor> + Send>;

impl DataPlane {
    /// Starts the threads of a configuration, without bridges, ports and NIC.
    pub(crate) fn start(
        config: &Config,
        seed: u64,
        engine: EngineMaker,
    ) -> Result<StartedDataPlane, SwitchError> {
        let clock = DaemonClock::start();
        let pipeline = Pipeline::new(seed).with_group_check(shunt_ofproto::connection::is_listable);
        let (version, pipeline) = (pipeline.version(), Arc::new(pipeline));
        let wakers = Wakers {
            coordinator: Arc::new(Waker::new().map_err(system)?),
            control: Arc::new(Waker::new().map_err(system)?),
            learner: Arc::new(Waker::new().map_err(system)?),
        };
        let (mut threads, mut endpoints, mut packet) = (Vec::new(), Vec::new(), Vec::new());
        let mut forecasts = ForesightRings::default();
        for index in 0..config.threads.packet {
            let ends = thread_ends(OwnerId(index), version, QueueSizes::default(), wakers.clone());
            let (thread, mut control, coordinator) = ends.map_err(system)?;
            let own_seed = seed.wrapping_add(u64::from(index));
            forecasts.connect(&config.foresight, own_seed, clock, &mut control);
            let thread =
                PacketThread::new(thread_config(config, own_seed), Arc::clone(&pipeline), thread);
            let cpu = config.threads.cpus.get(usize::from(index)).copied();
            let runner = RunnerConfig { index, cpu, epoch: clock.epoch() };
            packet.push(ThreadSlot::Running(spawn_packet_thread(thread, runner).map_err(system)?));
            threads.push(control);
            endpoints.push(coordinator);
        }
        let evictor = engine(Arc::clone(&pipeline));
        let waker = Arc::clone(&wakers.coordinator);
        let time = CoordinatorClock::new(move || clock.now());
        let (coordinator, changes) =
            EvictionCoordinator::with_clock(evictor, version, endpoints, waker, time);
        let adopted = Arc::new(watch::Sender::new(version));
        let acked = Arc::clone(&adopted);
        let handle = CoordinatorHandle::new(coordinator, move |version| {
            acked.send_replace(version);
        });
        let changes = changes.helping(&handle);
        let eviction = ThreadSlot::Running(spawn_coordinator(Arc::clone(&handle)).map_err(system)?);
        let counters = threads.iter().map(|ends| Arc::clone(&ends.counters)).collect();
        let publisher = Publisher::new(Arc::clone(&pipeline), changes, clock);
        let publisher = Arc::new(publisher.with_siblings(forecasts.siblings()));
        let rings = threads.iter_mut().filter_map(|ends| ends.learn_requests.take()).collect();
        let learner =
            learner::start(wakers.learner, rings, Arc::clone(&publisher)).map_err(system)?;
        let foresight = forecasts.start(&config.foresight, Arc::clone(&pipeline), clock);
        let foresight = foresight.map_err(system)?;
        let threads = Arc::new(Mutex::new(threads.into_iter().map(Some).collect()));
        let listener = PacketInListener::start(wakers.control, Arc::clone(&threads), clock);
        let (listener, punts) = listener.map_err(system)?;
        let plane = Self {
            pipeline,
            clock,
            vlan_limit: Mutex::new(vlan_limit(config)),
            publisher,
            counters,
            threads,
            listener,
            learner,
            foresight,
            handle,
            adopted,
            running: Arc::new(Mutex::new(DataPlaneThreads {
                packet,
                eviction,
                offload: None,
                trainers_lost: BTreeSet::new(),
            })),
        };
        Ok(StartedDataPlane { plane, punts })
    }

    /// Starts the agent of a NIC; replaces a previous agent that has no NIC.
    ///
    /// The bridge of the NIC may be added later.
    pub(crate) async fn start_offload(
        &self,
        config: Config,
        bridge: BridgeId,
        seed: u64,
    ) -> Result<OffloadConnection, SwitchError> {
        self.pull().await;
        let (threads, epoch) = (self.threads_count(), self.clock.epoch());
        let settings = AgentSettings { threads, config, bridge, seed, epoch };
        let (handle, pipeline) = (Arc::clone(&self.handle), Arc::clone(&self.pipeline));
        let running = Arc::clone(&self.running);
        // A cancelled start would leave a registered agent, and versions wait for every registered
        // agent.
        let start = move || {
            let before = running.lock().offload.take();
            if let Some(mut before) = before {
                before.slot.stop();
            }
            let StartedAgent { connection, thread, candidates } =
                match settings.start(&handle, &pipeline)? {
                    Ok(started) => started,
                    Err(error) => return Some(Err(error)),
                };
            let (slot, handle) = (ThreadSlot::Running(thread), connection.handle.clone());
            running.lock().offload = Some(OffloadThread { slot, handle });
            Some(Ok((connection, candidates)))
        };
        let started = tokio::task::spawn_blocking(start).await.ok().flatten();
        let (connection, candidates) = started.ok_or(SwitchError::NoThreads)?.map_err(system)?;
        for (thread, candidates) in candidates.into_iter().enumerate() {
            self.send(thread, Command::OffloadCandidate(Some(Box::new(candidates)))).await;
        }
        Ok(connection)
    }

    /// Stops the collection of offload candidates, because there is no NIC.
    pub(crate) async fn stop_candidates(&self) {
        for thread in self.living() {
            self.send(thread, Command::OffloadCandidate(None)).await;
        }
    }

    /// Applies the settings that packet threads can change while they forward.
    pub(crate) async fn tune(&self, config: &Config) {
        let tuning = tuning(config);
        *self.vlan_limit.lock() = tuning.vlan_limit;
        for thread in 0..usize::from(self.threads_count()) {
            self.send(thread, Command::Tune(tuning)).await;
        }
    }

    /// Removes the cache entries of all packet threads.
    pub(crate) async fn empty_caches(&self) {
        for thread in self.living() {
            self.send(thread, Command::EmptyCaches).await;
        }
    }

    /// Returns the tables for reading.
    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the publisher, which changes the tables.
    pub(crate) const fn publisher(&self) -> &Arc<Publisher> {
        &self.publisher
    }

    /// Returns the connection to the predictors.
    pub(crate) const fn foresight(&self) -> &ForesightWorker {
        &self.foresight
    }

    /// Returns the clock of the daemon.
    pub(crate) const fn clock(&self) -> DaemonClock {
        self.clock
    }

    /// Returns the time by the clock of the daemon.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the number of VLAN tags that are parsed.
    pub(crate) fn vlan_limit(&self) -> VlanLimit {
        *self.vlan_limit.lock()
    }

    /// Waits until every packet thread has adopted the newest version.
    pub(crate) async fn adopted_newest(&self) {
        self.adopted(self.pipeline.version()).await;
    }

    /// Waits until every packet thread has adopted `version`.
    ///
    /// After that, no packet uses replaced rules or objects.
    pub(crate) async fn adopted(&self, version: Version) {
        let mut adopted = self.adopted.subscribe();
        // `self` owns the sender, so the wait only ends when the version is adopted.
        let _ = adopted.wait_for(|adopted| *adopted >= version).await;
    }

    /// Returns the version that every packet thread has adopted.
    pub(crate) fn version(&self) -> Version {
        (*self.adopted.borrow()).min(self.pipeline.version())
    }

    /// Waits until all learned rules and addresses are in force on every packet thread.
    pub(crate) async fn wait_until_learned(&self) {
        // After the replies, the counters contain all learn requests so far.
        self.pull_threads().await;
        let sent: u64 = self.counters.iter().map(|counters| counters.learn_requests.get()).sum();
        while self.publisher.learned() < sent && self.learner.state() == ThreadState::Running {
            tokio::time::sleep(FULL_QUEUE_PAUSE).await;
        }
        self.adopted_newest().await;
    }

    /// Waits until packet threads, and the NIC if it answers,
    /// have reported their counts.
    pub(crate) async fn pull(&self) {
        let offload = self.running.lock().offload.as_ref().map(|offload| {
            let (sender, answer) = oneshot::channel();
            offload.handle.pull(Box::new(move |()| {
                // The receiver is dropped if the caller was cancelled.
                let _ = sender.send(());
            }));
            answer
        });
        self.pull_threads().await;
        if let Some(answer) = offload {
            // A stopped agent drops the request without a reply.
            let _ = answer.await;
        }
    }

    /// Waits until packet threads have processed commands and reported counts.
    pub(crate) async fn pull_threads(&self) {
        self.ask(|_, reply| Command::Pull(reply)).await;
    }

    /// Checks for panicked threads; returns threads that ended since the last check.
    pub(crate) fn reclaim(&self) -> StoppedThreads {
        let mut running = self.running.lock();
        let mut stopped = StoppedThreads {
            listener: self.listener.worker.has_panicked(),
            ..StoppedThreads::default()
        };
        // A panic is only recorded: packets are forwarded without the predictors.
        self.foresight.worker.has_panicked();
        if self.learner.has_panicked() {
            stopped.vital = Some(LEARNER);
        }
        let is_unkept = running.eviction.has_panicked();
        if is_unkept {
            stopped.vital = Some(EVICTION);
        }
        // Without the eviction thread, a NIC would forward by stale entries while its status is
        // connected.
        let has_ended = |slot: &mut ThreadSlot<_>| slot.has_panicked() || is_unkept && slot.stop();
        stopped.offload =
            running.offload.as_mut().is_some_and(|offload| has_ended(&mut offload.slot));
        let trainers = self.trainers_lost().filter(|index| running.trainers_lost.insert(*index));
        stopped.trainers = trainers.collect();
        for (index, slot) in running.packet.iter_mut().enumerate() {
            if slot.has_panicked() || stopped.vital.is_some() && slot.stop() {
                // The commands that the thread has not answered are dropped with its queue.
                self.threads.lock().get_mut(index).map(Option::take);
                stopped.packet.push(index);
            }
        }
        if is_unkept {
            // No packet thread is left that could use older versions.
            self.adopted.send_replace(Version::new(u64::MAX));
        }
        stopped
    }

    /// Returns the packet threads with a trainer that panicked.
    fn trainers_lost(&self) -> impl Iterator<Item = usize> {
        let counters = self.counters.iter().enumerate();
        counters.filter(|(_, own)| own.trainer_lost.get() > 0).map(|(index, _)| index)
    }

    /// Returns the status of all threads.
    ///
    /// The packet threads are first, followed by the eviction, learner, listener, foresight and
    /// offload threads, and by trainers that have panicked.
    pub(crate) fn thread_states(&self) -> Vec<ThreadStatus> {
        let running = self.running.lock();
        let packet = running.packet.iter().zip(&self.counters).enumerate();
        let status = ThreadStatus::new;
        let packet = packet.map(|(at, (slot, counters))| ThreadStatus {
            iterations: Some(counters.iterations.get()),
            ..status(format!("packet thread {at}"), slot.state())
        });
        let others = [
            (EVICTION, running.eviction.state()),
            (LEARNER, self.learner.state()),
            (LISTENER, self.listener.worker.state()),
            (FORESIGHT, self.foresight.worker.state()),
        ];
        let offload = running.offload.as_ref().map(|offload| (OFFLOAD, offload.slot.state()));
        let others = others.into_iter().chain(offload);
        let others = others.map(|(name, state)| status(name.to_owned(), state));
        let trainers = self.trainers_lost().map(|index| {
            status(format!("trainer of packet thread {index}"), ThreadState::Panicked)
        });
        packet.chain(others).chain(trainers).collect()
    }

    /// Returns the numbers of the running packet threads.
    pub(crate) fn living(&self) -> Vec<usize> {
        let threads = self.threads.lock();
        threads.iter().enumerate().filter(|(_, ends)| ends.is_some()).map(|(at, _)| at).collect()
    }

    /// Returns the number of packet threads, including stopped ones.
    pub(crate) const fn threads_count(&self) -> u16 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "there are at most THREADS_MAX threads"
        )]
        {
            self.counters.len() as u16
        }
    }

    /// Returns the number of packet-ins that were dropped because the queue was full.
    pub(crate) fn packet_ins_dropped(&self) -> u64 {
        self.listener.dropped()
    }

    /// Calls `look` on the eviction coordinator, between two of its iterations.
    ///
    /// Returns `None` if the eviction thread has ended.
    pub(crate) async fn inspect_coordinator<T: Send + 'static>(
        &self,
        look: impl FnOnce(&EvictionCoordinator) -> T + Send + 'static,
    ) -> Option<T> {
        let handle = Arc::clone(&self.handle);
        let looked = tokio::task::spawn_blocking(move || handle.inspect(look)).await;
        looked.ok().flatten()
    }

    /// Returns the counters of each packet thread.
    pub(crate) fn counters(&self) -> &[Arc<ThreadCounters>] {
        &self.counters
    }

    /// Takes the verified hits since the last call that differed from the tables.
    pub(crate) fn take_differences(&self) -> Vec<CacheMismatch> {
        let mut threads = self.threads.lock();
        let rings = threads.iter_mut().flatten().map(|ends| &mut ends.differences);
        rings.flat_map(|ring| std::iter::from_fn(|| ring.pop().ok())).collect()
    }

    /// Sends a command to every running packet thread.
    ///
    /// Returns the replies in the order of the threads.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        mut question: impl FnMut(usize, Box<dyn FnOnce(T) + Send>) -> Command,
    ) -> Vec<T> {
        let mut answers = Vec::new();
        for thread in self.living() {
            let (sender, answer) = oneshot::channel();
            // The receiver is dropped if the caller was cancelled.
            let reply = Box::new(move |value| drop(sender.send(value)));
            self.send(thread, question(thread, reply)).await;
            answers.push(answer);
        }
        let mut values = Vec::new();
        for answer in answers {
            values.extend(answer.await.ok());
        }
        values
    }

    /// Sends a command to one packet thread.
    ///
    /// Returns the reply, or `None` if the thread has ended.
    pub(crate) async fn ask_one<T: Send + 'static>(
        &self,
        thread: usize,
        question: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Command,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.send(thread, question(Box::new(move |value| drop(sender.send(value))))).await;
        answer.await.ok()
    }

    /// Sends a command to one packet thread; waits while its queue is full.
    pub(crate) async fn send(&self, thread: usize, command: Command) {
        let mut refused = self.try_send(thread, command);
        while let Err(back) = refused {
            tokio::time::sleep(FULL_QUEUE_PAUSE).await;
            refused = self.try_send(thread, back);
        }
    }

    /// Sends a command to one packet thread, or returns it if the queue is full.
    ///
    /// The command for a stopped thread is dropped without an error.
    pub(crate) fn try_send(&self, thread: usize, command: Command) -> Result<(), Command> {
        let mut threads = self.threads.lock();
        threads.get_mut(thread).and_then(Option::as_mut).map_or(Ok(()), |ends| ends.send(command))
    }

    /// Stops all threads and waits for their ends.
    pub(crate) fn stop(&self) {
        let mut running = self.running.lock();
        // The objects that only the threads used are dropped in this call.
        thread::scope(|scope| {
            for slot in &mut running.packet {
                scope.spawn(move || slot.stop());
            }
        });
        running.eviction.stop();
        if let Some(offload) = &mut running.offload {
            offload.slot.stop();
        }
        self.listener.worker.stop();
        self.learner.stop();
        self.foresight.worker.stop();
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the error that the system refused to start the threads.
fn system(source: std::io::Error) -> SwitchError {
    SwitchError::System { doing: "start the threads".into(), source }
}

/// Returns the settings of a packet thread from the configuration.
fn thread_config(config: &Config, seed: u64) -> ThreadConfig {
    let mut thread = ThreadConfig {
        vlan_limit: vlan_limit(config),
        seed,
        translations_per_iteration: config.threads.translations_per_iteration,
        sleep_max: config.threads.sleep_max(),
        max_idle: config.caches.idle(),
        verify_one_in: config.caches.verify_one_in,
        repair: config.eviction.repair(),
        ..ThreadConfig::default()
    };
    thread.caches.wildcard = config.caches.wildcard();
    thread.caches.entries_max = config.caches.megaflow_entries;
    thread.caches.exact.lines = config.caches.exact_entries.max(1);
    // An exact-match cache without insertions is turned off.
    let is_on = config.caches.exact_entries > 0;
    thread.caches.exact.insert_inverse = if is_on { config.caches.exact_insert_one_in } else { 0 };
    thread
}

/// Returns the settings of the threads that may change.
const fn tuning(config: &Config) -> Tuning {
    Tuning {
        max_idle: config.caches.idle(),
        verify_one_in: config.caches.verify_one_in,
        translations_per_iteration: config.threads.translations_per_iteration,
        sleep_max: config.threads.sleep_max(),
        repair: config.eviction.repair(),
        wildcard: config.caches.wildcard(),
        entries_max: config.caches.megaflow_entries,
        vlan_limit: vlan_limit(config),
    }
}

/// Returns the maximum number of VLAN tags that are parsed: two, or else one.
const fn vlan_limit(config: &Config) -> VlanLimit {
    if config.packets.vlan_limit == 2 { VlanLimit::Two } else { VlanLimit::One }
}

#[cfg(test)]
mod tests;
