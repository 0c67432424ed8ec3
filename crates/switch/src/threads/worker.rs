//! A thread that processes work in iterations, and parks when there is no work.
//!
//! Packet threads fill bounded rings and wake the worker thread; neither side waits for the other.
//! [`WorkerThread::has_panicked`] detects a panic.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use shunt_datapath::{
    Waker,
    thread::{CurrentIteration, IterationWatch},
};

use crate::{status::thread::ThreadState, threads::slot::ThreadSlot};

/// Maximum time, in milliseconds, that a thread is parked if all its work wakes it.
///
/// The limit bounds the delay if a wake-up were lost, which must not happen.
pub(crate) const SLEEP_MAX_MS: u16 = 5000;

/// A worker thread and its stop flag.
pub(crate) struct WorkerThread {
    /// True when the worker thread must end.
    stop: Arc<AtomicBool>,
    /// Wakes the worker thread when it has work.
    waker: Arc<Waker>,
    /// The iterations of the worker thread.
    iterations: Arc<IterationWatch>,
    /// The OS thread, until it is joined.
    state: Mutex<ThreadSlot<JoinHandle<()>>>,
}

impl WorkerThread {
    /// Starts a worker thread.
    ///
    /// `iterate` processes the waiting work and returns whether there was any work. `iterate` is
    /// called at least once every `sleep_max_ms` milliseconds.
    pub(crate) fn start(
        name: &str,
        waker: Arc<Waker>,
        sleep_max_ms: u16,
        mut iterate: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, own_waker) = (Arc::clone(&stop), Arc::clone(&waker));
        let iterations = Arc::<IterationWatch>::default();
        let watch = Arc::clone(&iterations);
        let handle = Builder::new().name(name.to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if watch.run(&mut iterate) {
                    continue;
                }
                // The thread announces that it parks before its last check for work, so later work
                // wakes it.
                own_waker.prepare_park();
                if !watch.run(&mut iterate) && !stopped.load(Ordering::Relaxed) {
                    let mut fds = [PollFd::new(own_waker.as_fd(), PollFlags::POLLIN)];
                    // The thread checks for work after any result, even if the poll was
                    // interrupted.
                    let _ = poll(&mut fds, PollTimeout::from(sleep_max_ms));
                }
                own_waker.unpark();
            }
        })?;
        Ok(Self { stop, waker, iterations, state: Mutex::new(ThreadSlot::Running(handle)) })
    }

    /// Returns whether the thread has panicked since the last check.
    pub(crate) fn has_panicked(&self) -> bool {
        self.state.lock().has_panicked()
    }

    /// Returns the state of the thread as of the last check.
    pub(crate) fn state(&self) -> ThreadState {
        self.state.lock().state()
    }

    /// Returns the present iteration of a running thread; `None` if the thread sleeps.
    pub(crate) fn current_iteration(&self) -> Option<CurrentIteration> {
        self.iterations.current().filter(|_| self.state() == ThreadState::Running)
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        self.state.lock().stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a waker for a test.
    fn waker() -> Arc<Waker> {
        Arc::new(Waker::new().unwrap())
    }

    #[test]
    fn a_worker_that_panics_is_noticed_once() {
        let worker =
            WorkerThread::start("test", waker(), SLEEP_MAX_MS, || -> bool { panic!("as wanted") });
        let worker = worker.unwrap();
        while !worker.has_panicked() {
            std::thread::yield_now();
        }
        assert!(!worker.has_panicked());
        worker.stop();
        assert_eq!(worker.state(), ThreadState::Panicked);
    }

    #[test]
    fn a_worker_that_hangs_stays_in_its_iteration() {
        let (blocked, release) = std::sync::mpsc::channel::<()>();
        let mut is_first = true;
        let worker = WorkerThread::start("test", waker(), SLEEP_MAX_MS, move || {
            if is_first {
                let _ = release.recv();
            }
            std::mem::take(&mut is_first)
        });
        let worker = worker.unwrap();
        let current = || worker.current_iteration();
        while current().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(current(), current());
        drop(blocked);
        while current().is_some() {
            std::thread::yield_now();
        }
        worker.stop();
        assert_eq!(current(), None);
    }

    #[test]
    fn a_worker_that_is_stopped_has_not_panicked() {
        let worker = WorkerThread::start("test", waker(), SLEEP_MAX_MS, || false).unwrap();
        assert!(!worker.has_panicked());
        worker.stop();
        assert!(!worker.has_panicked());
        assert_eq!(worker.state(), ThreadState::Stopped);
    }
}
