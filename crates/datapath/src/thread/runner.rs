//! OS threads that run a [`PacketThread`] or an [`EvictionCoordinator`] in a loop.
//!
//! Only this module and the offload runner read a clock and wait. The runner gives packet threads a
//! stopwatch that measures translations.

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

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use shunt_pipeline::Time;

use super::{IterationWatch, PacketThread, cpu_binding::CpuBinding};
use crate::{
    evict::{coordinator::EvictionCoordinator, handle::CoordinatorHandle},
    forecast::Stopwatch,
};

/// Settings of the OS thread of a packet thread.
#[derive(Clone, Copy, Debug)]
pub struct RunnerConfig {
    /// The number in the name of the thread.
    pub index: u16,
    /// The CPU to which the thread is pinned; `None`: not pinned.
    pub cpu: Option<usize>,
    /// The instant that is [`Time::ZERO`].
    pub epoch: Instant,
}

/// A running OS thread that owns a `T`.
pub struct Running<T> {
    /// True when the OS thread must end.
    stop: Arc<AtomicBool>,
    /// The function that wakes the thread.
    wake: Box<dyn Fn() + Send + Sync>,
    /// The handle of the OS thread.
    handle: JoinHandle<T>,
    /// The iterations, unless the thread answers pings.
    iterations: Option<Arc<IterationWatch>>,
}

/// Number of idle iterations before a packet thread sleeps.
///
/// If a packet arrives soon, these iterations cost less than two system calls.
const IDLE_ITERATIONS: u32 = 64;

/// Maximum sleep of the eviction thread and of the thread of an offload device.
const SLEEP_MAX_MS: u16 = 500;

/// Starts the OS thread of a packet thread, with a name like `shunt-packet-0`.
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
    let binding = config.cpu.map(CpuBinding::new).transpose()?;
    let stopped = Arc::clone(&stop);
    let name = format!("shunt-packet-{}", config.index);
    let handle = Builder::new().name(name).spawn(move || {
        if let Some(binding) = binding {
            binding.bind(config.index);
        }
        thread.stopwatch = Stopwatch::new(move || time_since(config.epoch));
        let mut idle = 0_u32;
        while !stopped.load(Ordering::Relaxed) {
            let worked = thread.run_iteration(time_since(config.epoch)).worked;
            idle = if worked { 0 } else { idle.saturating_add(1) };
            if idle < IDLE_ITERATIONS || !thread.prepare_sleep() {
                hint::spin_loop();
                continue;
            }
            if !stopped.load(Ordering::Relaxed) {
                thread.sleep();
            }
            thread.unpark();
            idle = 0;
        }
        thread
    })?;
    Ok(Running::new(stop, move || link.waker().wake(), handle, None))
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
    let mut sleeper = EpollSleeper::new()?;
    let stopped = Arc::clone(&stop);
    let iterations = Arc::<IterationWatch>::default();
    let watch = Arc::clone(&iterations);
    let handle = Builder::new().name("shunt-eviction".to_owned()).spawn(move || {
        let waker = Arc::clone(handle.waker());
        while !stopped.load(Ordering::Relaxed) {
            if watch.run(|| handle.run_iteration()) {
                continue;
            }
            // Announced before the last check for messages, so that a later message wakes this
            // thread.
            waker.prepare_park();
            if !watch.run(|| handle.run_iteration()) && !stopped.load(Ordering::Relaxed) {
                sleeper.wait(waker.as_fd());
            }
            waker.unpark();
        }
        handle.close()
    })?;
    Ok(Running::new(stop, move || waker.wake(), handle, Some(iterations)))
}

impl<T> Running<T> {
    /// Wraps a running thread, which must end after `stop` is set and `wake` is called.
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        wake: impl Fn() + Send + Sync + 'static,
        handle: JoinHandle<T>,
        iterations: Option<Arc<IterationWatch>>,
    ) -> Self {
        Self { stop, wake: Box::new(wake), handle, iterations }
    }

    /// Returns the iterations of the thread.
    ///
    /// `None` for a packet thread, which answers pings.
    #[must_use]
    pub fn iterations(&self) -> Option<&IterationWatch> {
        self.iterations.as_deref()
    }

    /// Stops the thread after its current iteration, and returns the `T`.
    ///
    /// `None` if the thread panicked.
    #[must_use]
    pub fn stop(self) -> Option<T> {
        self.stop.store(true, Ordering::Relaxed);
        (self.wake)();
        self.handle.join().ok()
    }

    /// Returns whether the thread has ended without [`Self::stop`]: it panicked.
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

/// An epoll set for one file descriptor.
pub(crate) struct EpollSleeper {
    /// The epoll set that waits for the file descriptor.
    epoll: Epoll,
    /// True once the descriptor is in the set.
    is_registered: bool,
}

impl EpollSleeper {
    /// Creates a set without a registered descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, is_registered: false })
    }

    /// Waits until the descriptor is readable or the maximum sleep ends.
    ///
    /// All calls must pass the same descriptor.
    pub(crate) fn wait(&mut self, descriptor: BorrowedFd<'_>) {
        if !self.is_registered {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
            self.is_registered = self.epoll.add(descriptor, event).is_ok();
        }
        // Errors and signals need no handling, because the caller checks all its queues next.
        let timeout = if self.is_registered {
            EpollTimeout::from(SLEEP_MAX_MS)
        } else {
            EpollTimeout::from(1_u8)
        };
        let _ = self.epoll.wait(&mut [EpollEvent::empty()], timeout);
    }
}

/// Returns the current time since `epoch`.
pub(crate) fn time_since(epoch: Instant) -> Time {
    Time::ZERO
        // 64 bits of nanoseconds last for 584 years.
        .after(Duration::from_nanos(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}
