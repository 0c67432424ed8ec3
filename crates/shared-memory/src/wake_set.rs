//! A set of the descriptors that wake one thread.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    eventfd::{EfdFlags, EventFd},
};

/// A descriptor (epoll set) that is readable while any descriptor in the set is.
///
/// The set always contains a wake event, which other threads can set.
#[derive(Debug)]
pub struct WakeSet {
    epoll: Epoll,
    wake: EventFd,
}

impl WakeSet {
    /// Creates a set that contains only its wake event.
    ///
    /// # Errors
    ///
    /// If the system has no more file descriptors.
    pub fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self { epoll, wake })
    }

    /// Adds a descriptor; returns whether the kernel has accepted it.
    ///
    /// The kernel refuses a descriptor that is already in the set.
    pub fn add(&self, descriptor: &impl AsFd) -> bool {
        self.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, 1)).is_ok()
    }

    /// Removes a descriptor, if it is in the set.
    pub fn remove(&self, descriptor: &impl AsFd) {
        let _ = self.epoll.delete(descriptor);
    }

    /// Sets the event that wakes the thread.
    pub fn wake(&self) {
        // Writing fails only if the event is already set.
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
