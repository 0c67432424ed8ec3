//! A signal that wakes a thread: an `eventfd`, which stays set until it is cleared.
//!
//! [`Waker`](super::waker::Waker) adds a protocol that avoids the system call while the thread is
//! awake.

#[cfg(not(loom))]
pub use kernel::Signal;
#[cfg(loom)]
pub use model::Signal;

#[cfg(not(loom))]
mod kernel {
    use std::{
        io,
        os::fd::{AsFd, BorrowedFd},
    };

    use nix::sys::eventfd::{EfdFlags, EventFd};

    /// A signal with a descriptor that is readable while the signal is set.
    #[derive(Debug)]
    pub struct Signal(EventFd);

    impl Signal {
        /// Creates a signal that is not set.
        ///
        /// # Errors
        ///
        /// If the system has no descriptor left.
        pub fn new() -> io::Result<Self> {
            Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
        }

        /// Sets the signal, which wakes a waiting thread.
        pub fn set(&self) {
            // A write fails only when the counter is full, and then the signal is set.
            let _ = self.0.write(1);
        }

        /// Clears the signal before the thread waits again.
        pub fn clear(&self) {
            // A read fails only if the signal is not set.
            let _ = self.0.read();
        }
    }

    impl AsFd for Signal {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::{Condvar, Mutex};

    /// A signal for the model checker, which cannot see the `eventfd`.
    #[derive(Debug)]
    pub struct Signal {
        /// True if the signal is set.
        set: Mutex<bool>,
        /// The condition variable that wakes a waiting thread.
        changed: Condvar,
    }

    impl Signal {
        /// Creates a signal that is not set.
        pub(crate) fn new() -> std::io::Result<Self> {
            Ok(Self { set: Mutex::new(false), changed: Condvar::new() })
        }

        /// Sets the signal, and wakes its waiter.
        pub(crate) fn set(&self) {
            *self.set.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
            self.changed.notify_one();
        }

        /// Clears the signal before the thread waits again.
        pub(crate) fn clear(&self) {
            *self.set.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = false;
        }

        /// Blocks until the signal is set.
        pub(crate) fn wait(&self) {
            let mut set = self.set.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            while !*set {
                set = self.changed.wait(set).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }
}
