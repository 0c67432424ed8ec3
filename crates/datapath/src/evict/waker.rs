//! Sleep and waking: who looks last, sees.
//!
//! A thread that found nothing to do for a while sleeps in the kernel, and whoever sends it
//! something must wake it, but should pay for a system call only if it really sleeps. That is a
//! race in two directions, and each side must write before it looks, with a full fence between:
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
//! Without the fences both may look before either write is seen, also on x86, which delays stores
//! past later loads: the sender finds the thread awake, the thread its queue empty, and the message
//! lies there until something else comes. The signal is an `eventfd`: it stays set until the
//! sleeper clears it, so a signal before the wait is not lost either.
//!
//! The same two fences say more: a sender that has posted and then finds the thread asleep knows that
//! it will see the message before it does anything else ([`Waker::finds_asleep`]). If that is all that
//! the sender wants, it need not wake the thread.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

use crate::sync::{AtomicBool, Ordering, fence};

/// Where one thread says that it sleeps, and others wake it.
#[derive(Debug)]
pub struct Waker {
    asleep: AtomicBool,
    event: event::Event,
}

impl Waker {
    /// A waker of a thread that is awake.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { asleep: AtomicBool::new(false), event: event::Event::new()? })
    }

    /// Wakes the thread if it sleeps; called after the message was posted.
    pub fn wake(&self) {
        if self.finds_asleep() {
            self.signal();
        }
    }

    /// Whether the thread sleeps, asked after a message was posted: if so, it looks at its queues
    /// after [`Self::unpark`] and finds the message there, woken by this one or not.
    #[must_use]
    pub fn finds_asleep(&self) -> bool {
        // SeqCst: partner of the fences in `prepare_park` and `unpark`.
        fence(Ordering::SeqCst);
        // Acquire: partner of the Release in `prepare_park`. Who finds the thread asleep sees what it did
        // before, its counters too.
        self.asleep.load(Ordering::Acquire)
    }

    /// Wakes a thread that was found asleep.
    pub fn signal(&self) {
        self.event.signal();
    }

    /// The thread says that it is about to sleep. Afterwards it looks at its queues once more, and
    /// calls [`Self::unpark`] instead of waiting if there is something.
    pub fn prepare_park(&self) {
        // Release: partner of the Acquire in `finds_asleep`.
        self.asleep.store(true, Ordering::Release);
        // SeqCst: partner of the fence in `finds_asleep`.
        fence(Ordering::SeqCst);
    }

    /// The thread says that it is awake. Afterwards it drains its queues.
    pub fn unpark(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        // SeqCst: partner of the fence in `finds_asleep`.
        fence(Ordering::SeqCst);
        self.event.clear();
    }

    /// Whether the thread says that it sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Whether the thread would wake.
    #[cfg(not(loom))]
    #[cfg(test)]
    pub(crate) fn is_signalled(&self) -> bool {
        use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        epoll.add(self, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).unwrap() == 1
    }

    /// Waits in the model checker as a thread waits in the kernel.
    #[cfg(loom)]
    pub(crate) fn wait(&self) {
        self.event.wait();
    }
}

#[cfg(not(loom))]
impl AsFd for Waker {
    /// The descriptor that becomes readable when the thread is woken.
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
            // It fails only when the counter is full, and then it is set.
            let _ = self.0.write(1);
        }

        pub(super) fn clear(&self) {
            // It fails only when it is not set.
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
    fn a_thread_that_is_awake_costs_its_sender_no_system_call() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!waker.is_signalled());
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_once() {
        let waker = Waker::new().unwrap();
        waker.prepare_park();
        assert!(!waker.is_signalled());
        waker.wake();
        assert!(waker.is_signalled());
        waker.unpark();
        assert!(!waker.is_signalled());
    }
}
