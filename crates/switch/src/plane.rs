//! The data plane, as control sees it: tables, packet threads and the eviction thread, joined.
//!
//! Every change goes the same way: it is made in the tables, which publishes a version, and handed
//! to the eviction thread in the order of versions. It is true everywhere when every packet thread
//! has answered its version; [`Plane::adopted`] waits for that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

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

use crate::{Config, SwitchError, clock::Clock, listener::Listener};

/// Pause before a queue that was full is tried again.
const FULL_QUEUE_PAUSE: Duration = Duration::from_micros(100);

/// The data plane.
pub(crate) struct Plane {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) clock: Clock,
    pub(crate) vlan_limit: VlanLimit,
    changes: Mutex<ChangeSender>,
    threads: Arc<Mutex<Vec<ControlEnds>>>,
    counters: Vec<Arc<ThreadCounters>>,
    listener: Listener,
    adopted: Arc<watch::Sender<Version>>,
    running: Mutex<Vec<Box<dyn Thread>>>,
    /// Whether the threads were told to stop.
    stopped: AtomicBool,
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
        };
        let (mut threads, mut desks) = (Vec::new(), Vec::new());
        let mut running: Vec<Box<dyn Thread>> = Vec::new();
        for index in 0..config.threads.packet {
            let ends = thread_ends(OwnerId(index), version, QueueSizes::default(), wakers.clone());
            let (thread, control, desk) = ends.map_err(system)?;
            let own_seed = seed.wrapping_add(u64::from(index));
            let thread =
                PacketThread::new(thread_config(config, own_seed), Arc::clone(&pipeline), thread);
            let cpu = config.threads.cpus.get(usize::from(index)).copied();
            let runner = RunnerConfig { index, cpu, epoch: clock.epoch() };
            let thread = spawn_packet_thread(thread, runner).map_err(system)?;
            running.push(Box::new(thread));
            threads.push(control);
            desks.push(desk);
        }
        let evictor = Box::new(Iterative::new(Arc::clone(&pipeline)));
        let (desk, changes) = EvictionDesk::new(evictor, version, desks, Arc::clone(&wakers.desk));
        let adopted = Arc::new(watch::Sender::new(version));
        let answered = Arc::clone(&adopted);
        let desk = spawn_desk(desk, move |version| {
            answered.send_replace(version);
        });
        let desk = desk.map_err(system)?;
        running.push(Box::new(desk));
        let counters = threads.iter().map(|ends| Arc::clone(&ends.counters)).collect();
        let threads = Arc::new(Mutex::new(threads));
        let listener = Listener::start(wakers.control, Arc::clone(&threads));
        let (listener, packet_ins) = listener.map_err(system)?;
        let plane = Self {
            pipeline,
            clock,
            vlan_limit: vlan_limit(config),
            changes: Mutex::new(changes),
            counters,
            threads,
            listener,
            adopted,
            running: Mutex::new(running),
            stopped: AtomicBool::new(false),
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
                if self.stopped.load(Ordering::Relaxed) {
                    // The eviction thread is gone, and so is who would have met the change.
                    break;
                }
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
        *self.adopted.borrow()
    }

    /// Waits until every packet thread has handed in what it counted until now.
    pub(crate) async fn pull(&self) {
        self.ask(|_, reply| Command::Pull(reply)).await;
    }

    /// Whether a thread has ended by itself, which it does only by a panic. What waits for its
    /// answer waits for ever.
    pub(crate) fn has_failed(&self) -> bool {
        self.running.lock().iter().any(|thread| thread.has_ended())
    }

    /// Number of packet threads.
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

    /// Asks every packet thread, and waits for all answers; they are in the order of the threads.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        mut question: impl FnMut(usize, Box<dyn FnOnce(T) + Send>) -> Command,
    ) -> Vec<T> {
        let mut answers = Vec::new();
        for thread in 0..self.counters.len() {
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

    /// Sends a command to one packet thread, or gives it back.
    pub(crate) fn try_send(&self, thread: usize, command: Command) -> Result<(), Command> {
        self.threads.lock().get_mut(thread).map_or(Ok(()), |ends| ends.send(command))
    }

    /// Stops every thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.running.lock().drain(..).for_each(Thread::stop);
        self.listener.stop();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A thread of the data plane, whatever it runs.
trait Thread: Send {
    fn has_ended(&self) -> bool;
    fn stop(self: Box<Self>);
}

impl<T: Send> Thread for Running<T> {
    fn has_ended(&self) -> bool {
        self.is_finished()
    }

    fn stop(self: Box<Self>) {
        // What it ran around is dropped here, or was by its panic.
        drop((*self).stop());
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
