//! Parking a thread in the kernel, and waking it, without a lost message.
//!
//! A thread that has been idle for a while sleeps in the kernel. A sender must wake it, but should
//! pay for a system call only if the thread sleeps. This is a race in two directions, so each side
//! writes before it reads, with a full fence between:
//!
//! ```text
//!   sleeper                              sender
//!   asleep = true                        queue.push(message)
//!   fence                                fence
//!   queue.is_empty()?  else stay awake   asleep?  then signal
//!   wait for the signal
//!   asleep = false
//!   fence
//!   drain the queue
//! ```
//!
//! Without the fences both may read before either write is visible, even on x86, which delays stores
//! past later loads. Then the sender finds the thread awake, the thread finds its queue empty, and
//! the message waits until another event wakes the thread. The signal is an `eventfd`: it stays set
//! until the sleeper clears it, so a signal before the wait is not lost either.
//!
//! The fences guarantee more. If a sender finds the thread asleep after it has posted, the thread
//! sees the message before it does anything else ([`Waker::finds_asleep`]). A sender that needs no
//! more than this does not have to wake the thread.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

use crate::sync::{AtomicBool, Ordering, fence};

/// A thread's sleep state, and the signal that wakes it.
#[derive(Debug)]
pub struct Waker {
    asleep: AtomicBool,
    event: event::Event,
}

impl Waker {
    /// Creates a waker of a thread that is awake.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { asleep: AtomicBool::new(false), event: event::Event::new()? })
    }

    /// Wakes the thread if it sleeps; call it after posting the message.
    pub fn wake(&self) {
        if self.finds_asleep() {
            self.signal();
        }
    }

    /// Returns whether the thread sleeps; call it after posting a message.
    ///
    /// If it sleeps, it reads its queues after [`Self::unpark`] and finds the message. Any sender may
    /// wake it.
    #[must_use]
    pub fn finds_asleep(&self) -> bool {
        // SeqCst: partner of the fences in `prepare_park` and `unpark`.
        fence(Ordering::SeqCst);
        // Acquire: partner of the Release in `prepare_park`. A sender that finds the thread asleep sees
        // everything that it did before, its counters included.
        self.asleep.load(Ordering::Acquire)
    }

    /// Wakes a thread that was found asleep.
    pub fn signal(&self) {
        self.event.signal();
    }

    /// Announces that the thread is about to sleep.
    ///
    /// Afterwards the thread reads its queues once more. It calls [`Self::unpark`] instead of waiting
    /// if a queue is not empty.
    pub fn prepare_park(&self) {
        // Release: partner of the Acquire in `finds_asleep`.
        self.asleep.store(true, Ordering::Release);
        // SeqCst: partner of the fence in `finds_asleep`.
        fence(Ordering::SeqCst);
    }

    /// Announces that the thread is awake; afterwards it drains its queues.
    pub fn unpark(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        // SeqCst: partner of the fence in `finds_asleep`.
        fence(Ordering::SeqCst);
        self.event.clear();
    }

    /// Returns whether the thread has announced that it sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Returns whether the signal is set.
    #[cfg(not(loom))]
    #[cfg(test)]
    pub(crate) fn is_signalled(&self) -> bool {
        use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        epoll.add(self, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).unwrap() == 1
    }

    /// Waits for the signal in the model checker, as a thread waits in the kernel.
    #[cfg(loom)]
    pub(crate) fn wait(&self) {
        self.event.wait();
    }
}

#[cfg(not(loom))]
impl AsFd for Waker {
    /// Returns the descriptor that becomes readable when the thread is woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(not(loom))]
mod event {
    use std::{
        io,
        os::fd::{AsFd, BorrowedFd},
    };

    use nix::sys::eventfd::{EfdFlags, EventFd};

    #[derive(Debug)]
    pub(super) struct Event(EventFd);

    impl Event {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
        }

        pub(super) fn signal(&self) {
            // A write fails only when the counter is full, and then it is set.
            let _ = self.0.write(1);
        }

        pub(super) fn clear(&self) {
            // A read fails only when the signal is not set.
            let _ = self.0.read();
        }
    }

    impl AsFd for Event {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(loom)]
mod event {
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(super) struct Event {
        set: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(Self { set: Mutex::new(false), changed: Condvar::new() })
        }

        pub(super) fn signal(&self) {
            *self.set.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
            self.changed.notify_one();
        }

        pub(super) fn clear(&self) {
            *self.set.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = false;
        }

        pub(super) fn wait(&self) {
            let mut set = self.set.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            while !*set {
                set = self.changed.wait(set).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_an_awake_thread_makes_no_system_call() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!waker.is_signalled());
    }

    #[test]
    fn a_parked_thread_is_woken_once() {
        let waker = Waker::new().unwrap();
        waker.prepare_park();
        assert!(!waker.is_signalled());
        waker.wake();
        assert!(waker.is_signalled());
        waker.unpark();
        assert!(!waker.is_signalled());
    }
}
