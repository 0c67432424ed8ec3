//! OS threads that run a [`PacketThread`] or an [`EvictionCoordinator`] in a loop.
//!
//! Only this module and the offload runner read a clock and wait.

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

/// Settings of the OS thread of a packet thread.
#[derive(Clone, Copy, Debug)]
pub struct RunnerConfig {
    /// Number of the thread, used in its name.
    pub index: u16,
    /// The CPU to pin the thread to; `None`: any.
    pub cpu: Option<usize>,
    /// The instant that is [`Time::ZERO`].
    pub epoch: Instant,
}

/// A running OS thread that owns a `T`.
pub struct Running<T> {
    stop: Arc<AtomicBool>,
    wake: Box<dyn Fn() + Send + Sync>,
    handle: JoinHandle<T>,
}

/// Number of idle iterations before a thread sleeps.
///
/// Spinning that long is cheaper than two system calls if a packet follows soon.
const IDLE_ITERATIONS: u32 = 64;

/// Maximum sleep, so that entries expire on an idle thread too.
const SLEEP_MAX_MS: u16 = 500;

/// Maximum number of events per wait; the thread polls all queues anyway.
const EVENTS_MAX: usize = 8;

/// Starts a packet thread, `shunt-packet-0` and so on.
///
/// # Errors
///
/// Fails if the system has no thread left, or if `cpu` is out of range.
pub fn spawn_packet_thread(
    mut thread: PacketThread,
    config: RunnerConfig,
) -> io::Result<Running<PacketThread>> {
    let stop = Arc::new(AtomicBool::new(false));
    let link = Arc::clone(&thread.link);
    let mut sleeper = EpollSleeper::new(config.cpu)?;
    let stopped = Arc::clone(&stop);
    let name = format!("shunt-packet-{}", config.index);
    let handle = Builder::new().name(name).spawn(move || {
        sleeper.bind();
        let mut idle = 0_u32;
        while !stopped.load(Ordering::Relaxed) {
            let worked = thread.run_iteration(time_since(config.epoch)).worked;
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

/// Starts the eviction thread, `shunt-eviction`, for the coordinator of `handle`.
///
/// # Errors
///
/// Fails if the system has no thread left.
pub fn spawn_coordinator(
    handle: Arc<CoordinatorHandle>,
) -> io::Result<Running<Option<EvictionCoordinator>>> {
    let stop = Arc::new(AtomicBool::new(false));
    let waker = Arc::clone(handle.waker());
    let mut sleeper = EpollSleeper::new(None)?;
    let stopped = Arc::clone(&stop);
    let handle = Builder::new().name("shunt-eviction".to_owned()).spawn(move || {
        let waker = Arc::clone(handle.waker());
        while !stopped.load(Ordering::Relaxed) {
            if handle.run_iteration() {
                continue;
            }
            // The thread announces its sleep before the last check, so a later message wakes it.
            waker.prepare_park();
            if !handle.run_iteration() && !stopped.load(Ordering::Relaxed) {
                sleeper.wait(0, || std::iter::once(waker.as_fd()));
            }
            waker.unpark();
        }
        handle.close()
    })?;
    Ok(Running::new(stop, move || waker.wake(), handle))
}

impl<T> Running<T> {
    /// Wraps a thread that ends soon after `stop` is set and `wake` is called.
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        wake: impl Fn() + Send + Sync + 'static,
        handle: JoinHandle<T>,
    ) -> Self {
        Self { stop, wake: Box::new(wake), handle }
    }

    /// Stops the thread after its iteration, and returns its state.
    ///
    /// `None` if the thread panicked.
    #[must_use]
    pub fn stop(self) -> Option<T> {
        self.stop.store(true, Ordering::Relaxed);
        (self.wake)();
        self.handle.join().ok()
    }

    /// Returns whether the thread has ended by itself, which only a panic causes.
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

/// An epoll set that registers its descriptors again only when they change.
pub(crate) struct EpollSleeper {
    epoll: Epoll,
    registered: Option<u64>,
    cpus: Option<CpuSet>,
}

impl EpollSleeper {
    pub(crate) fn new(cpu: Option<usize>) -> io::Result<Self> {
        let mut cpus = cpu.map(|_| CpuSet::new());
        if let (Some(cpus), Some(cpu)) = (&mut cpus, cpu) {
            cpus.set(cpu)?;
        }
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, registered: None, cpus })
    }

    /// Pins the calling thread to its CPU; does nothing if the system refuses.
    fn bind(&self) {
        if let Some(cpus) = &self.cpus {
            let _ = sched_setaffinity(Pid::from_raw(0), cpus);
        }
    }

    /// Waits until a descriptor is readable or the maximum sleep ends.
    ///
    /// `changed` must grow when the descriptors change.
    pub(crate) fn wait<'a, I: Iterator<Item = BorrowedFd<'a>>>(
        &mut self,
        changed: u64,
        fds: impl FnOnce() -> I,
    ) {
        if self.registered != Some(changed) {
            self.registered = self.register(fds()).is_ok().then_some(changed);
        }
        // After an error or an interrupt, the next iteration polls all queues anyway.
        let timeout = if self.registered.is_some() {
            EpollTimeout::from(SLEEP_MAX_MS)
        } else {
            EpollTimeout::from(1_u8)
        };
        let _ = self.epoll.wait(&mut [EpollEvent::empty(); EVENTS_MAX], timeout);
    }

    /// Creates a new epoll set with the current descriptors.
    fn register<'a>(&mut self, fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
        self.epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for fd in fds {
            self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(())
    }
}

/// Returns the current time since `epoch`.
pub(crate) fn time_since(epoch: Instant) -> Time {
    Time::ZERO
        .after(Duration::from_nanos(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}
