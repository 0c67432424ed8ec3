//! The data plane, as control sees it: tables, packet threads and the eviction thread, joined.
//!
//! Every change goes the same way: it is made in the tables, which publishes a version, and handed
//! to the eviction thread in the order of versions. It is true everywhere when every packet thread
//! has answered its version; [`Plane::adopted`] waits for that.
//!
//! A thread that ends by a panic takes nobody with it who waits: it holds up no version from that
//! moment on, and [`Plane::bury`] drops what it was asked and did not answer. Without the eviction
//! thread nothing that is stale would go any more, so its end is that of all packet threads.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_datapath::{
    ChangeSender, Command, EvictionDesk, PacketThread, ThreadConfig, ThreadCounters, Waker,
    thread::{
        ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_desk, spawn_packet_thread,
        thread_ends,
    },
};
use shunt_flow::extract::VlanLimit;
use shunt_pipeline::{Change, Iterative, OwnerId, PacketIn, Pipeline};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::error;

use crate::{
    Config, SwitchError,
    clock::Clock,
    learner::{Learner, Publisher},
    listener::Listener,
};

/// Pause before a queue that was full is tried again.
pub(crate) const FULL_QUEUE_PAUSE: Duration = Duration::from_micros(100);

/// The data plane.
pub(crate) struct Plane {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) clock: Clock,
    pub(crate) vlan_limit: VlanLimit,
    changes: Arc<Mutex<ChangeSender>>,
    /// The packet threads; `None` where one is gone.
    threads: Arc<Mutex<Vec<Option<ControlEnds>>>>,
    counters: Vec<Arc<ThreadCounters>>,
    listener: Listener,
    learner: Learner,
    adopted: Arc<watch::Sender<Version>>,
    running: Mutex<Threads>,
}

/// The threads that run.
struct Threads {
    packet: Vec<Option<Running<PacketThread>>>,
    eviction: Option<Running<EvictionDesk>>,
}

impl Plane {
    /// Starts the threads of a configuration, without bridges and ports.
    ///
    /// Packets for controllers come out of the receiver.
    pub(crate) fn start(
        config: &Config,
        seed: u64,
    ) -> Result<(Self, mpsc::Receiver<PacketIn>), SwitchError> {
        let system = |source| SwitchError::System { doing: "start the threads".into(), source };
        let clock = Clock::start();
        let pipeline = Arc::new(Pipeline::new(seed));
        let version = pipeline.version();
        let wakers = Wakers {
            desk: Arc::new(Waker::new().map_err(system)?),
            control: Arc::new(Waker::new().map_err(system)?),
            learner: Arc::new(Waker::new().map_err(system)?),
        };
        let (mut threads, mut desks, mut packet) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..config.threads.packet {
            let ends = thread_ends(OwnerId(index), version, QueueSizes::default(), wakers.clone());
            let (thread, control, desk) = ends.map_err(system)?;
            let own_seed = seed.wrapping_add(u64::from(index));
            let thread =
                PacketThread::new(thread_config(config, own_seed), Arc::clone(&pipeline), thread);
            let cpu = config.threads.cpus.get(usize::from(index)).copied();
            let runner = RunnerConfig { index, cpu, epoch: clock.epoch() };
            packet.push(Some(spawn_packet_thread(thread, runner).map_err(system)?));
            threads.push(control);
            desks.push(desk);
        }
        let evictor = Box::new(Iterative::new(Arc::clone(&pipeline)));
        let (desk, changes) = EvictionDesk::new(evictor, version, desks, Arc::clone(&wakers.desk));
        let adopted = Arc::new(watch::Sender::new(version));
        let answered = Arc::clone(&adopted);
        let eviction = spawn_desk(desk, move |version| {
            answered.send_replace(version);
        });
        let eviction = Some(eviction.map_err(system)?);
        let counters = threads.iter().map(|ends| Arc::clone(&ends.counters)).collect();
        let changes = Arc::new(Mutex::new(changes));
        let publisher =
            Publisher { pipeline: Arc::clone(&pipeline), changes: Arc::clone(&changes), clock };
        let rings = threads.iter_mut().filter_map(|ends| ends.lessons.take()).collect();
        let learner = Learner::start(wakers.learner, rings, publisher).map_err(system)?;
        let threads = Arc::new(Mutex::new(threads.into_iter().map(Some).collect()));
        let listener = Listener::start(wakers.control, Arc::clone(&threads));
        let (listener, packet_ins) = listener.map_err(system)?;
        let plane = Self {
            pipeline,
            clock,
            vlan_limit: vlan_limit(config),
            changes,
            counters,
            threads,
            listener,
            learner,
            adopted,
            running: Mutex::new(Threads { packet, eviction }),
        };
        Ok((plane, packet_ins))
    }

    /// Makes a change and hands it on; answers with it.
    ///
    /// Changes are made one at a time, so that the eviction thread hears of versions in their order.
    pub(crate) fn change<E>(
        &self,
        make: impl FnOnce(&Pipeline) -> Result<Change, E>,
    ) -> Result<Change, E> {
        let changes = self.changes.lock();
        let change = make(&self.pipeline)?;
        if !change.deltas.is_empty() {
            let mut refused = changes.send(change.clone());
            // The queue holds thousands of versions; who makes more waits, and nobody else does.
            while let Err(back) = refused {
                std::thread::sleep(FULL_QUEUE_PAUSE);
                refused = changes.send(back);
            }
        }
        Ok(change)
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

    /// Waits until every packet thread has handed in what it counted until now.
    pub(crate) async fn pull(&self) {
        self.ask(|_, reply| Command::Pull(reply)).await;
    }

    /// Looks for threads that have ended by a panic; answers which packet threads are gone since
    /// the last look.
    pub(crate) fn bury(&self) -> Vec<usize> {
        let mut running = self.running.lock();
        let is_over = running.eviction.as_ref().is_some_and(Running::is_finished);
        if is_over {
            error!(
                "the eviction thread has ended by a panic: packet threads stop, restart the switch"
            );
            running.eviction = None;
        }
        let mut gone = Vec::new();
        for (index, slot) in running.packet.iter_mut().enumerate() {
            let thread = slot.take_if(|thread| is_over || thread.is_finished());
            if let Some(thread) = thread {
                // What it was asked and has not answered goes with its queue.
                drop(thread.stop());
                self.threads.lock().get_mut(index).map(Option::take);
                gone.push(index);
            }
        }
        if is_over {
            // Nobody is left who could meet what an older version saw.
            self.adopted.send_replace(Version::new(u64::MAX));
        }
        gone
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

    /// What each packet thread counts.
    pub(crate) fn counters(&self) -> &[Arc<ThreadCounters>] {
        &self.counters
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
        for thread in running.packet.iter_mut().filter_map(Option::take) {
            drop(thread.stop());
        }
        drop(running.eviction.take().map(Running::stop));
        self.listener.stop();
        self.learner.stop();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.stop();
    }
}

fn thread_config(config: &Config, seed: u64) -> ThreadConfig {
    let mut thread = ThreadConfig {
        vlan_limit: vlan_limit(config),
        seed,
        translations_per_turn: config.threads.translations_per_turn,
        max_idle: config.caches.idle(),
        ..ThreadConfig::default()
    };
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
