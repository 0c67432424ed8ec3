//! A thread that does what comes, in turns, and sleeps where nothing has.
//!
//! Packet threads fill bounded rings and wake it; neither end waits for the other. One that ends by a
//! panic is noticed by whoever looks ([`Worker::has_panicked`]).

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
use shunt_datapath::Waker;

use crate::status::thread::ThreadState;

/// Longest sleep, so that a stop is never missed.
const SLEEP_MAX_MS: u16 = 500;

/// The thread, and what ends it.
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    state: Mutex<State>,
}

enum State {
    Running(JoinHandle<()>),
    Panicked,
    Stopped,
}

impl Worker {
    /// Starts a thread. A turn does what there is, and answers whether there was anything.
    pub(crate) fn start(
        name: &str,
        waker: Arc<Waker>,
        mut turn: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, own_waker) = (Arc::clone(&stop), Arc::clone(&waker));
        let handle = Builder::new().name(name.to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if turn() {
                    continue;
                }
                // It says that it sleeps before it looks once more: what comes later wakes it.
                own_waker.prepare_park();
                if !turn() && !stopped.load(Ordering::Relaxed) {
                    let mut fds = [PollFd::new(own_waker.as_fd(), PollFlags::POLLIN)];
                    // Interrupted or woken, it looks again either way.
                    let _ = poll(&mut fds, PollTimeout::from(SLEEP_MAX_MS));
                }
                own_waker.unpark();
            }
        })?;
        Ok(Self { stop, waker, state: Mutex::new(State::Running(handle)) })
    }

    /// Whether it was running at the last look and has ended since, by a panic.
    pub(crate) fn has_panicked(&self) -> bool {
        let mut state = self.state.lock();
        let is_over = matches!(&*state, State::Running(handle) if handle.is_finished());
        if is_over {
            *state = State::Panicked;
        }
        is_over
    }

    /// How it is, as of the last look.
    pub(crate) fn state(&self) -> ThreadState {
        match *self.state.lock() {
            State::Running(_) => ThreadState::Running,
            State::Panicked => ThreadState::Panicked,
            State::Stopped => ThreadState::Stopped,
        }
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let mut state = self.state.lock();
        *state = match std::mem::replace(&mut *state, State::Stopped) {
            State::Running(handle) => match handle.join() {
                Ok(()) => State::Stopped,
                Err(_) => State::Panicked,
            },
            over => over,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waker() -> Arc<Waker> {
        Arc::new(Waker::new().unwrap())
    }

    #[test]
    fn a_worker_that_panics_is_noticed_once() {
        let worker = Worker::start("test", waker(), || panic!("as the test wants it")).unwrap();
        while !worker.has_panicked() {
            std::thread::yield_now();
        }
        assert!(!worker.has_panicked());
        worker.stop();
        assert_eq!(worker.state(), ThreadState::Panicked);
    }

    #[test]
    fn a_worker_that_is_stopped_has_not_panicked() {
        let worker = Worker::start("test", waker(), || false).unwrap();
        assert!(!worker.has_panicked());
        worker.stop();
        assert!(!worker.has_panicked());
        assert_eq!(worker.state(), ThreadState::Stopped);
    }
}
