//! The events that wake one thread.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    eventfd::{EfdFlags, EventFd},
};

/// A set of descriptors that is readable while one of them is.
///
/// The set has a wake event, which other threads set.
#[derive(Debug)]
pub struct WakeSet {
    epoll: Epoll,
    wake: EventFd,
}

impl WakeSet {
    /// Creates a set that has only its wake event.
    ///
    /// # Errors
    ///
    /// If the system has no more descriptors.
    pub fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self { epoll, wake })
    }

    /// Adds a descriptor; returns whether the system has accepted it.
    ///
    /// The system refuses a descriptor that is in the set already.
    pub fn add(&self, descriptor: &impl AsFd) -> bool {
        self.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, 1)).is_ok()
    }

    /// Removes a descriptor, if the set has it.
    pub fn remove(&self, descriptor: &impl AsFd) {
        let _ = self.epoll.delete(descriptor);
    }

    /// Sets the wake event.
    pub fn wake(&self) {
        // The counter is full only if the event is set already.
        let _ = self.wake.write(1);
    }

    /// Resets the wake event; returns whether it was set.
    pub fn clear_wake(&self) -> bool {
        self.wake.read().is_ok()
    }
}

impl AsFd for WakeSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}
