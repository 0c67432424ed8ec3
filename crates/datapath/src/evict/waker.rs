//! Parking a thread in the kernel, and waking it, without a lost message.
//!
//! A thread that has been idle for a while sleeps in the kernel. A sender must wake it, but should
//! pay for a system call only if the thread sleeps. So sleeper and sender each write before they
//! read, with a full fence in between:
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
//! Without the fences, both may read before the other's write is visible, even on x86, which delays
//! stores past later loads. Then the sender finds the thread awake, the thread finds its queue
//! empty, and the message waits until another event wakes the thread. The [`Signal`] stays set
//! until the sleeper clears it, so a signal before the wait is not lost either.
//!
//! The fences guarantee more. If a sender finds the thread asleep after posting a message, the
//! thread reads this message first when it wakes ([`Waker::finds_asleep`]). A sender for which this
//! suffices need not wake the thread.
//!
//! `shunt-nic` uses a [`Signal`] without a [`Waker`] for two queues: for a doorbell with one
//! receiver, and for a queue of commands behind a lock.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

use super::signal::Signal;
use crate::sync::{AtomicBool, Ordering, fence};

/// A thread's sleep state, and the signal that wakes it.
#[derive(Debug)]
pub struct Waker {
    /// True while the thread sleeps, or is about to.
    asleep: AtomicBool,
    /// The event that ends the sleep.
    signal: Signal,
}

impl Waker {
    /// Creates a waker of a thread that is awake.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { asleep: AtomicBool::new(false), signal: Signal::new()? })
    }

    /// Wakes the thread if it sleeps; call it after posting the message.
    pub fn wake(&self) {
        if self.finds_asleep() {
            self.signal();
        }
    }

    /// Returns whether the thread sleeps; call it after posting a message.
    ///
    /// A sleeping thread reads its queues after [`Self::unpark`] and finds the message. Any sender
    /// may wake the thread.
    #[must_use]
    pub fn finds_asleep(&self) -> bool {
        // SeqCst: partner of the fences in `prepare_park` and `unpark`.
        fence(Ordering::SeqCst);
        // Acquire: partner of the Release in `prepare_park`. A sender that finds the thread asleep
        // sees all earlier writes of the thread, its counters included.
        self.asleep.load(Ordering::Acquire)
    }

    /// Wakes a thread that was found asleep.
    pub fn signal(&self) {
        self.signal.set();
    }

    /// Announces that the thread is about to sleep.
    ///
    /// After the call, the thread reads its queues once more. If a queue is not empty, the thread
    /// calls [`Self::unpark`] instead of waiting.
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
        self.signal.clear();
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

    /// Waits for the signal in the model checker, in place of a wait in the kernel.
    #[cfg(loom)]
    pub(crate) fn wait(&self) {
        self.signal.wait();
    }
}

#[cfg(not(loom))]
impl AsFd for Waker {
    /// Returns the descriptor that becomes readable when the thread is woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
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
