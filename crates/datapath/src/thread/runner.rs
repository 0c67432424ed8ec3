//! The threads themselves: loops around a [`PacketThread`] and an [`EvictionCoordinator`].
//!
//! This is the only place of the crate's threads that reads a clock and waits.

use std::{
    hint, io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    unistd::Pid,
};
use shunt_pipeline::Time;

use super::PacketThread;
use crate::evict::{coordinator::EvictionCoordinator, handle::CoordinatorHandle};

/// How a packet thread runs.
#[derive(Clone, Copy, Debug)]
pub struct RunnerConfig {
    /// Number of the thread, for its name.
    pub index: u16,
    /// The CPU that it is bound to; `None`: any.
    pub cpu: Option<usize>,
    /// The moment that is [`Time::ZERO`].
    pub epoch: Instant,
}

/// A thread that runs around a `T`.
pub struct Running<T> {
    stop: Arc<AtomicBool>,
    wake: Box<dyn Fn() + Send + Sync>,
    handle: JoinHandle<T>,
}

/// Turns without anything to do before a thread sleeps: a packet that follows soon is not worth two
/// system calls.
const IDLE_ITERATIONS: u32 = 64;

/// Longest sleep: entries expire also on a thread that nothing comes to.
const SLEEP_MAX_MS: u16 = 500;

/// Descriptors looked at in one wait; which of them were readable does not matter.
const EVENTS_MAX: usize = 8;

/// Starts a packet thread, `shunt-packet-0` and so on.
///
/// # Errors
///
/// When the system has no thread left. A CPU that it may not run on is reported too.
pub fn spawn_packet_thread(
    mut thread: PacketThread,
    config: RunnerConfig,
) -> io::Result<Running<PacketThread>> {
    let stop = Arc::new(AtomicBool::new(false));
    let link = Arc::clone(&thread.link);
    let mut sleeper = Sleeper::new(config.cpu)?;
    let stopped = Arc::clone(&stop);
    let name = format!("shunt-packet-{}", config.index);
    let handle = Builder::new().name(name).spawn(move || {
        sleeper.bind();
        let mut idle = 0_u32;
        while !stopped.load(Ordering::Relaxed) {
            let worked = thread.turn(time_since(config.epoch)).worked;
            idle = if worked { 0 } else { idle.saturating_add(1) };
            if idle < IDLE_ITERATIONS || !thread.prepare_sleep() {
                hint::spin_loop();
                continue;
            }
            if !stopped.load(Ordering::Relaxed) {
                sleeper.wait(thread.ports_changed(), || thread.wait_fds());
            }
            thread.unpark();
            idle = 0;
        }
        thread
    })?;
    Ok(Running::new(stop, move || link.waker().wake(), handle))
}

/// Starts the eviction thread, `shunt-eviction`, to which the seat belongs.
///
/// # Errors
///
/// When the system has no thread left.
pub fn spawn_coordinator(
    handle: Arc<CoordinatorHandle>,
) -> io::Result<Running<Option<EvictionCoordinator>>> {
    let stop = Arc::new(AtomicBool::new(false));
    let waker = Arc::clone(handle.waker());
    let mut sleeper = Sleeper::new(None)?;
    let stopped = Arc::clone(&stop);
    let handle = Builder::new().name("shunt-eviction".to_owned()).spawn(move || {
        let waker = Arc::clone(handle.waker());
        while !stopped.load(Ordering::Relaxed) {
            if handle.turn() {
                continue;
            }
            // It says that it sleeps before it looks once more: what comes later wakes it.
            waker.prepare_park();
            if !handle.turn() && !stopped.load(Ordering::Relaxed) {
                sleeper.wait(0, || std::iter::once(waker.as_fd()));
            }
            waker.unpark();
        }
        handle.close()
    })?;
    Ok(Running::new(stop, move || waker.wake(), handle))
}

impl<T> Running<T> {
    /// A thread that ends soon after `stop` is set and `wake` is called.
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        wake: impl Fn() + Send + Sync + 'static,
        handle: JoinHandle<T>,
    ) -> Self {
        Self { stop, wake: Box::new(wake), handle }
    }

    /// Stops the thread after its turn, and gives back what it ran around; `None` if it panicked.
    #[must_use]
    pub fn stop(self) -> Option<T> {
        self.stop.store(true, Ordering::Relaxed);
        (self.wake)();
        self.handle.join().ok()
    }

    /// Whether the thread has ended by itself, which it does only by a panic.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl<T> std::fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// Waits for descriptors, which are registered once and again only when they change.
pub(crate) struct Sleeper {
    epoll: Epoll,
    registered: Option<u64>,
    cpus: Option<CpuSet>,
}

impl Sleeper {
    pub(crate) fn new(cpu: Option<usize>) -> io::Result<Self> {
        let mut cpus = cpu.map(|_| CpuSet::new());
        if let (Some(cpus), Some(cpu)) = (&mut cpus, cpu) {
            cpus.set(cpu)?;
        }
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, registered: None, cpus })
    }

    /// Binds the calling thread; it runs on where it is if the system refuses.
    fn bind(&self) {
        if let Some(cpus) = &self.cpus {
            let _ = sched_setaffinity(Pid::from_raw(0), cpus);
        }
    }

    /// Waits until one of these is readable, or for a while; `changed` grows when they are others.
    pub(crate) fn wait<'a, I: Iterator<Item = BorrowedFd<'a>>>(
        &mut self,
        changed: u64,
        fds: impl FnOnce() -> I,
    ) {
        if self.registered != Some(changed) {
            self.registered = self.register(fds()).is_ok().then_some(changed);
        }
        // Interrupted, or not all registered: the turn that follows finds out what there is.
        let timeout = if self.registered.is_some() {
            EpollTimeout::from(SLEEP_MAX_MS)
        } else {
            EpollTimeout::from(1_u8)
        };
        let _ = self.epoll.wait(&mut [EpollEvent::empty(); EVENTS_MAX], timeout);
    }

    /// A fresh set: descriptors that were closed have left the old one in their own ways.
    fn register<'a>(&mut self, fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
        self.epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for fd in fds {
            self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(())
    }
}

/// The moment that it is now.
pub(crate) fn time_since(epoch: Instant) -> Time {
    Time::ZERO
        .after(Duration::from_nanos(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}
