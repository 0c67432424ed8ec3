//! The data plane, as control sees it: tables, packet threads and the eviction thread, joined.
//!
//! Every change goes the same way: it is made in the tables, which publishes a version, and handed
//! to the eviction thread in the order of versions. It is true everywhere when every packet thread
//! has answered its version; [`Plane::adopted`] waits for that.
//!
//! A thread that ends by a panic takes nobody with it who waits: it holds up no version from that
//! moment on, and [`Plane::reclaim`] drops what it was asked and did not answer. Without the eviction
//! thread nothing that is stale would go any more, and without the learner every queue that has taught
//! would stand still: the end of either is that of all packet threads.

use std::sync::Arc;

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_datapath::{
    Command, CoordinatorClock, CoordinatorHandle, EvictionCoordinator, PacketThread, ThreadConfig,
    ThreadCounters, Waker,
    offload::OffloadHandle,
    thread::{
        CacheMismatch, ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_coordinator,
        spawn_packet_thread, thread_ends,
    },
};
use shunt_flow::extract::VlanLimit;
use shunt_pipeline::{BridgeId, Change, Evictor, OwnerId, Pipeline, PuntedPacket};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    config::Config,
    error::SwitchError,
    nic::{NicOwner, OwnerSettings, StartedOwner, Target},
    openflow::events::Removals,
    status::thread::{ThreadState, ThreadStatus},
    threads::{
        clock::Clock,
        learner,
        listener::Listener,
        publisher::{FULL_QUEUE_PAUSE, Publisher},
        worker::Worker,
    },
};

/// The data plane.
pub(crate) struct Plane {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) clock: Clock,
    pub(crate) vlan_limit: VlanLimit,
    publisher: Arc<Publisher>,
    /// The packet threads; `None` where one is gone.
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    counters: Vec<Arc<ThreadCounters>>,
    listener: Listener,
    learner: Worker,
    handle: Arc<CoordinatorHandle>,
    adopted: Arc<watch::Sender<Version>>,
    running: Arc<Mutex<Threads>>,
}

/// The threads of the data plane.
struct Threads {
    packet: Vec<Slot<PacketThread>>,
    eviction: Slot<Option<EvictionCoordinator>>,
    /// That of a NIC, since there was one.
    target: Option<OffloadThread>,
}

/// The thread of the owner of a target, and where it takes commands.
struct OffloadThread {
    slot: Slot<NicOwner>,
    handle: OffloadHandle,
}

/// The place of a thread.
enum Slot<T> {
    Running(Running<T>),
    /// It has ended by a panic.
    Panicked,
    /// It was stopped.
    Stopped,
}

/// Threads that have ended since the last look.
#[derive(Default)]
pub(crate) struct Gone {
    /// A thread without which no packet thread goes on.
    pub(crate) vital: Option<&'static str>,
    /// Whether the listener has: controllers hear of no packet any more.
    pub(crate) listener: bool,
    /// Whether that of the target has: nobody sees to the rules of the NIC any more.
    pub(crate) target: bool,
    /// The packet threads.
    pub(crate) packet: Vec<usize>,
}

const EVICTION: &str = "eviction thread";
const LEARNER: &str = "learner thread";
const LISTENER: &str = "listener thread";
const TARGET: &str = "target thread";

/// A plane that runs, and what goes in and out of it besides.
pub(crate) struct Started {
    pub(crate) plane: Plane,
    /// Packets for controllers.
    pub(crate) packet_ins: mpsc::Receiver<PuntedPacket>,
}

/// What makes the eviction engine of a pipeline.
pub type EngineMaker = Box<dyn FnOnce(Arc<Pipeline>) -> Box<dyn Evictor> + Send>;

impl Plane {
    /// Starts the threads of a configuration, without bridges and ports, and without that of a NIC.
    pub(crate) fn start(
        config: &Config,
        seed: u64,
        engine: EngineMaker,
    ) -> Result<Started, SwitchError> {
        let clock = Clock::start();
        let pipeline = Arc::new(Pipeline::new(seed));
        let version = pipeline.version();
        let wakers = Wakers {
            coordinator: Arc::new(Waker::new().map_err(system)?),
            control: Arc::new(Waker::new().map_err(system)?),
            learner: Arc::new(Waker::new().map_err(system)?),
        };
        let (mut threads, mut desks, mut packet) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..config.threads.packet {
            let ends = thread_ends(OwnerId(index), version, QueueSizes::default(), wakers.clone());
            let (thread, control, coordinator) = ends.map_err(system)?;
            let own_seed = seed.wrapping_add(u64::from(index));
            let thread =
                PacketThread::new(thread_config(config, own_seed), Arc::clone(&pipeline), thread);
            let cpu = config.threads.cpus.get(usize::from(index)).copied();
            let runner = RunnerConfig { index, cpu, epoch: clock.epoch() };
            packet.push(Slot::Running(spawn_packet_thread(thread, runner).map_err(system)?));
            threads.push(control);
            desks.push(coordinator);
        }
        let evictor = engine(Arc::clone(&pipeline));
        let waker = Arc::clone(&wakers.coordinator);
        let time = CoordinatorClock::new(move || clock.now());
        let (coordinator, changes) =
            EvictionCoordinator::with_clock(evictor, version, desks, waker, time);
        let adopted = Arc::new(watch::Sender::new(version));
        let acked = Arc::clone(&adopted);
        let handle = CoordinatorHandle::new(coordinator, move |version| {
            acked.send_replace(version);
        });
        let changes = changes.helping(&handle);
        let eviction = Slot::Running(spawn_coordinator(Arc::clone(&handle)).map_err(system)?);
        let counters = threads.iter().map(|ends| Arc::clone(&ends.counters)).collect();
        let publisher = Arc::new(Publisher::new(Arc::clone(&pipeline), changes, clock));
        let rings = threads.iter_mut().filter_map(|ends| ends.learn_requests.take()).collect();
        let learner =
            learner::start(wakers.learner, rings, Arc::clone(&publisher)).map_err(system)?;
        let threads = Arc::new(Mutex::new(threads.into_iter().map(Some).collect()));
        let listener = Listener::start(wakers.control, Arc::clone(&threads));
        let (listener, packet_ins) = listener.map_err(system)?;
        let plane = Self {
            pipeline,
            clock,
            vlan_limit: vlan_limit(config),
            publisher,
            counters,
            threads,
            listener,
            learner,
            handle,
            adopted,
            running: Arc::new(Mutex::new(Threads { packet, eviction, target: None })),
        };
        Ok(Started { plane, packet_ins })
    }

    /// Runs the owner of a target, in front of a bridge that may come later, in the place of the owner
    /// before, which has no target any more.
    pub(crate) async fn start_offload(
        &self,
        (config, bridge, seed): (Config, BridgeId, u64),
    ) -> Result<Target, SwitchError> {
        self.pull().await;
        let (threads, epoch) = (self.threads_count(), self.clock.epoch());
        let settings = OwnerSettings { threads, config, bridge, seed, epoch };
        let (handle, pipeline) = (Arc::clone(&self.handle), Arc::clone(&self.pipeline));
        let running = Arc::clone(&self.running);
        // In one step, whoever gives up to wait for it: versions wait for who has joined.
        let start = move || {
            let before = running.lock().target.take();
            if let Some(mut before) = before {
                before.slot.stop();
            }
            let StartedOwner { target, thread, offers } =
                match settings.start(&handle, &pipeline)? {
                    Ok(started) => started,
                    Err(error) => return Some(Err(error)),
                };
            let (slot, handle) = (Slot::Running(thread), target.handle.clone());
            running.lock().target = Some(OffloadThread { slot, handle });
            Some(Ok((target, offers)))
        };
        let started = tokio::task::spawn_blocking(start).await.ok().flatten();
        let (target, offers) = started.ok_or(SwitchError::NoThreads)?.map_err(system)?;
        for (thread, offers) in offers.into_iter().enumerate() {
            self.send(thread, Command::OffloadCandidate(Some(Box::new(offers)))).await;
        }
        Ok(target)
    }

    /// Has no packets offered any more: there is no target.
    pub(crate) async fn offer_to_nobody(&self) {
        for thread in self.living() {
            self.send(thread, Command::OffloadCandidate(None)).await;
        }
    }

    /// Makes a change and hands it on; answers with its version.
    pub(crate) fn change<E>(
        &self,
        make: impl FnOnce(&Pipeline) -> Result<Change, E>,
    ) -> Result<Version, E> {
        self.publisher.change(make)
    }

    /// Rules that were removed, for controllers.
    pub(crate) fn removals(&self) -> &Removals {
        &self.publisher.removals
    }

    /// Changes that waited for room on their way to the eviction thread.
    pub(crate) fn delayed(&self) -> u64 {
        self.publisher.delayed()
    }

    /// Waits until every packet thread has adopted `version`: no packet meets what it replaced.
    pub(crate) async fn adopted(&self, version: Version) {
        let mut adopted = self.adopted.subscribe();
        // The sender is a part of `self`, so this ends by the version alone.
        let _ = adopted.wait_for(|adopted| *adopted >= version).await;
    }

    /// The version that every packet thread has adopted.
    pub(crate) fn version(&self) -> Version {
        (*self.adopted.borrow()).min(self.pipeline.version())
    }

    /// Waits until all that packets have taught so far is true on every packet thread.
    pub(crate) async fn learned(&self) {
        // Once they have answered, their counts of lessons hold all that came before.
        self.pull_threads().await;
        let taught: u64 = self.counters.iter().map(|counters| counters.learn_requests.get()).sum();
        while self.publisher.learned() < taught && self.learner.state() == ThreadState::Running {
            tokio::time::sleep(FULL_QUEUE_PAUSE).await;
        }
        self.adopted(self.pipeline.version()).await;
    }

    /// Waits until every packet thread has handed in what it counted until now, and the NIC if it
    /// answers.
    pub(crate) async fn pull(&self) {
        let target = self.running.lock().target.as_ref().map(|target| {
            let (sender, answer) = oneshot::channel();
            target.handle.pull(Box::new(move |()| {
                // An answer that nobody waits for any more is not missed.
                let _ = sender.send(());
            }));
            answer
        });
        self.pull_threads().await;
        if let Some(answer) = target {
            // An owner that is gone drops what it was asked.
            let _ = answer.await;
        }
    }

    /// Waits until every packet thread has done what it was told until now, and has handed in what it
    /// counted.
    pub(crate) async fn pull_threads(&self) {
        self.ask(|_, reply| Command::Pull(reply)).await;
    }

    /// Looks for threads that have ended by a panic; answers which are gone since the last look.
    pub(crate) fn reclaim(&self) -> Gone {
        let mut running = self.running.lock();
        let mut gone = Gone { listener: self.listener.worker.has_panicked(), ..Gone::default() };
        if self.learner.has_panicked() {
            gone.vital = Some(LEARNER);
        }
        let is_unkept = running.eviction.has_panicked();
        if is_unkept {
            gone.vital = Some(EVICTION);
        }
        // Without evictions a NIC would forward by old rules and be said to be true to the new ones.
        let has_ended = |slot: &mut Slot<_>| slot.has_panicked() || is_unkept && slot.stop();
        gone.target = running.target.as_mut().is_some_and(|target| has_ended(&mut target.slot));
        for (index, slot) in running.packet.iter_mut().enumerate() {
            if slot.has_panicked() || gone.vital.is_some() && slot.stop() {
                // What it was asked and has not answered goes with its queue.
                self.threads.lock().get_mut(index).map(Option::take);
                gone.packet.push(index);
            }
        }
        if is_unkept {
            // Nobody is left who could meet what an older version saw.
            self.adopted.send_replace(Version::new(u64::MAX));
        }
        gone
    }

    /// How the threads are: those of packets, then the one of evictions, the learner, the listener,
    /// and that of a target.
    pub(crate) fn thread_states(&self) -> Vec<ThreadStatus> {
        let running = self.running.lock();
        let packet = running.packet.iter().enumerate();
        let status = |name: String, state| ThreadStatus { name, state };
        let packet = packet.map(|(at, slot)| status(format!("packet thread {at}"), slot.state()));
        let others = [
            (EVICTION, running.eviction.state()),
            (LEARNER, self.learner.state()),
            (LISTENER, self.listener.worker.state()),
        ];
        let target = running.target.as_ref().map(|target| (TARGET, target.slot.state()));
        let others = others.into_iter().chain(target);
        packet.chain(others.map(|(name, state)| status(name.to_owned(), state))).collect()
    }

    /// The packet threads that are there.
    pub(crate) fn living(&self) -> Vec<usize> {
        let threads = self.threads.lock();
        threads.iter().enumerate().filter(|(_, ends)| ends.is_some()).map(|(at, _)| at).collect()
    }

    /// Number of packet threads, with those that are gone.
    pub(crate) const fn threads_count(&self) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "at most THREADS_MAX")]
        {
            self.counters.len() as u16
        }
    }

    /// Packets for controllers that found no room on their way from the packet threads.
    pub(crate) fn packet_ins_dropped(&self) -> u64 {
        self.listener.dropped()
    }

    /// Looks at the eviction desk, when its turn is over; `None` if its thread is gone.
    pub(crate) async fn inspect_coordinator<T: Send + 'static>(
        &self,
        look: impl FnOnce(&EvictionCoordinator) -> T + Send + 'static,
    ) -> Option<T> {
        let handle = Arc::clone(&self.handle);
        let looked = tokio::task::spawn_blocking(move || handle.inspect(look)).await;
        looked.ok().flatten()
    }

    /// What each packet thread counts.
    pub(crate) fn counters(&self) -> &[Arc<ThreadCounters>] {
        &self.counters
    }

    /// Hits of which the tables said something else than the cache, since the last look.
    pub(crate) fn take_differences(&self) -> Vec<CacheMismatch> {
        let mut threads = self.threads.lock();
        let rings = threads.iter_mut().flatten().map(|ends| &mut ends.differences);
        rings.flat_map(|ring| std::iter::from_fn(|| ring.pop().ok())).collect()
    }

    /// Asks every packet thread, and waits for the answers of all that are there; they are in the
    /// order of the threads.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        mut question: impl FnMut(usize, Box<dyn FnOnce(T) + Send>) -> Command,
    ) -> Vec<T> {
        let mut answers = Vec::new();
        for thread in self.living() {
            let (sender, answer) = oneshot::channel();
            // An answer that nobody waits for any more is not missed.
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

    /// Asks one packet thread; `None` if it is not there.
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

    /// Sends a command to one packet thread, or gives it back. One that is gone takes any.
    pub(crate) fn try_send(&self, thread: usize, command: Command) -> Result<(), Command> {
        let mut threads = self.threads.lock();
        threads.get_mut(thread).and_then(Option::as_mut).map_or(Ok(()), |ends| ends.send(command))
    }

    /// Stops every thread and waits for its end.
    pub(crate) fn stop(&self) {
        let mut running = self.running.lock();
        // What they ran around is dropped here, or was by a panic.
        for slot in &mut running.packet {
            slot.stop();
        }
        running.eviction.stop();
        if let Some(target) = &mut running.target {
            target.slot.stop();
        }
        self.listener.worker.stop();
        self.learner.stop();
    }
}

impl<T> Slot<T> {
    /// Whether it was running at the last look and has ended since, by a panic.
    fn has_panicked(&mut self) -> bool {
        let is_over = matches!(self, Self::Running(thread) if thread.is_finished());
        if is_over {
            *self = Self::Panicked;
        }
        is_over
    }

    /// Stops it, and waits for its end; answers whether it was there.
    fn stop(&mut self) -> bool {
        match std::mem::replace(self, Self::Stopped) {
            Self::Running(thread) => {
                if thread.stop().is_none() {
                    *self = Self::Panicked;
                }
                true
            }
            over => {
                *self = over;
                false
            }
        }
    }

    const fn state(&self) -> ThreadState {
        match self {
            Self::Running(_) => ThreadState::Running,
            Self::Panicked => ThreadState::Panicked,
            Self::Stopped => ThreadState::Stopped,
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.stop();
    }
}

fn system(source: std::io::Error) -> SwitchError {
    SwitchError::System { doing: "start the threads".into(), source }
}

fn thread_config(config: &Config, seed: u64) -> ThreadConfig {
    let mut thread = ThreadConfig {
        vlan_limit: vlan_limit(config),
        seed,
        translations_per_iteration: config.threads.translations_per_iteration,
        max_idle: config.caches.idle(),
        verify_one_in: config.caches.verify_one_in,
        repair: config.eviction.repair(),
        ..ThreadConfig::default()
    };
    thread.caches.wildcard = config.caches.wildcard();
    thread.caches.entries_max = config.caches.megaflow_entries;
    thread.caches.exact.lines = config.caches.exact_entries.max(1);
    // A cache that nothing is ever put into is off.
    let is_on = config.caches.exact_entries > 0;
    thread.caches.exact.insert_inverse = if is_on { config.caches.exact_insert_one_in } else { 0 };
    thread
}

fn vlan_limit(config: &Config) -> VlanLimit {
    if config.packets.vlan_limit == 2 { VlanLimit::Two } else { VlanLimit::One }
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::Iterative;

    use super::*;

    /// A plane, and a thread that is dying.
    fn plane() -> (Plane, Worker) {
        let engine: EngineMaker = Box::new(|pipeline| Box::new(Iterative::new(pipeline)));
        let plane = Plane::start(&Config::default(), 1, engine).unwrap().plane;
        let waker = Arc::new(Waker::new().unwrap());
        let doomed = Worker::start("doomed", waker, || panic!("as the test wants it")).unwrap();
        (plane, doomed)
    }

    /// Looks until something is gone.
    fn gone(plane: &Plane) -> Gone {
        loop {
            let gone = plane.reclaim();
            if gone.vital.is_some() || gone.listener {
                return gone;
            }
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn without_the_learner_no_packet_thread_goes_on_and_nobody_waits_for_it() {
        let (mut plane, doomed) = plane();
        std::mem::replace(&mut plane.learner, doomed).stop();
        let gone = gone(&plane);
        assert_eq!((gone.vital, gone.packet), (Some(LEARNER), vec![0]));
        assert!(plane.living().is_empty());
        plane.learned().await;
        let states = plane.thread_states();
        let panicked = states.iter().filter(|own| own.state == ThreadState::Panicked);
        assert_eq!(panicked.map(|own| &*own.name).collect::<Vec<_>>(), [LEARNER]);
    }

    #[tokio::test]
    async fn another_owner_of_a_target_follows_on_one_that_has_ended() {
        let (plane, doomed) = plane();
        doomed.stop();
        let (config, bridge) = (Config::default(), BridgeId::new(1));
        for _ in 0..2 {
            plane.start_offload((config.clone(), bridge, 1)).await.unwrap();
            let states = plane.thread_states();
            let target = states.iter().find(|own| own.name == TARGET).unwrap();
            assert_eq!((target.state, states.len()), (ThreadState::Running, 5));
            let owner_statuses =
                plane.inspect_coordinator(|coordinator| coordinator.owner_statuses().len()).await;
            assert_eq!(owner_statuses, Some(2));
            if let Some(target) = &mut plane.running.lock().target {
                target.slot.stop();
                target.slot = Slot::Panicked;
            }
            plane.pull().await;
        }
    }

    #[tokio::test]
    async fn without_the_listener_packets_go_on() {
        let (mut plane, doomed) = plane();
        std::mem::replace(&mut plane.listener.worker, doomed).stop();
        let gone = gone(&plane);
        assert!(gone.listener && gone.vital.is_none() && gone.packet.is_empty());
        assert_eq!(plane.living(), [0]);
        plane.pull().await;
    }
}
