//! Eventfds, by which two processes notify each other.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::{read_at_once::read_at_once, signal_at_once::EventSignaller};

/// The reason why a descriptor cannot be used for notifications.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The descriptor is not an eventfd.
    #[error("the descriptor for notifications is {0}, not an eventfd")]
    NotAnEventFd(String),
    /// A system call for the descriptor failed.
    #[error("the descriptor for notifications is not usable: {0}")]
    System(#[from] io::Error),
}

/// The target of the link in `/proc/self/fd` of an eventfd.
const EVENT_FD: &str = "anon_inode:[eventfd]";

/// Takes an eventfd of another process, and sets it to non-blocking.
///
/// Threads that move frames read and write eventfds, and must not wait. Reading or writing another
/// kind of file could block, so it is refused.
///
/// The other process shares the flags of the eventfd, and may clear `O_NONBLOCK` again. So neither
/// [`reset`] nor [`notify`] relies on this flag.
///
/// # Errors
///
/// If the descriptor is not an eventfd, or a system call fails.
pub fn accept_event(descriptor: OwnedFd) -> Result<File, EventError> {
    let target = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    if target.as_os_str() != EVENT_FD {
        return Err(EventError::NotAnEventFd(target.display().to_string()));
    }
    let flags = fcntl(&descriptor, FcntlArg::F_GETFL).map_err(io::Error::from)?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(&descriptor, FcntlArg::F_SETFL(flags)).map_err(io::Error::from)?;
    Ok(File::from(descriptor))
}

thread_local! {
    /// The signaller of this thread, created by its first notification.
    ///
    /// The result is `None` if the kernel provides no such event.
    static SIGNALLER: RefCell<Option<EventSignaller>> = RefCell::new(EventSignaller::new().ok());
}

/// Sets an eventfd, which notifies the other process.
///
/// The call never waits, whatever the flags and the counter of the eventfd are. If the kernel has
/// no asynchronous requests, there is one exception. The call waits if the other process clears
/// `O_NONBLOCK` and fills the counter during the call.
pub fn notify(event: &File) {
    // The signaller of a thread that is ending may already be dropped.
    let is_set = SIGNALLER.try_with(|signaller| {
        let mut signaller = signaller.borrow_mut();
        signaller.as_mut().is_some_and(|signaller| signaller.signal(event).is_ok())
    });
    if !is_set.unwrap_or(false) {
        notify_unless_full(event);
    }
}

/// Sets an eventfd, unless its counter is full at this moment.
fn notify_unless_full(mut event: &File) {
    // The counter is full only if the other side has not read earlier notifications.
    if is_ready(event, PollFlags::POLLOUT) {
        let _ = event.write(&1_u64.to_ne_bytes());
    }
}

/// Resets an eventfd to zero.
///
/// The call never waits, whatever the flags of the eventfd are. If the kernel does not support
/// `RWF_NOWAIT` for eventfds, the call waits if the other process reads the eventfd during the
/// call.
pub fn reset(mut event: &File) {
    let mut counter = [0; 8];
    let Err(error) = read_at_once(event, &mut counter) else { return };
    if error.kind() != io::ErrorKind::WouldBlock && is_ready(event, PollFlags::POLLIN) {
        let _ = event.read(&mut counter);
    }
}

/// Returns whether a read or write would not block at this moment.
fn is_ready(event: &File, request: PollFlags) -> bool {
    let mut polled = [PollFd::new(event.as_fd(), request)];
    let count = poll(&mut polled, PollTimeout::ZERO);
    // For a counter beyond its range, the kernel reports an error, and no space.
    let is_met = |event: &PollFd<'_>| event.revents().is_some_and(|met| met.contains(request));
    count.is_ok() && polled.iter().any(is_met)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use nix::{
        sys::{
            eventfd::{EfdFlags, EventFd},
            memfd::{MFdFlags, memfd_create},
        },
        unistd::pipe,
    };

    use super::*;

    #[test]
    fn only_an_eventfd_is_accepted() {
        // The eventfd blocks until it is accepted.
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let event = accept_event(event.into()).unwrap();
        notify(&event);
        reset(&event);
        reset(&event);
        let (reader, _writer) = pipe().unwrap();
        let file = memfd_create(c"file", MFdFlags::MFD_CLOEXEC).unwrap();
        for other in [reader, file] {
            let error = accept_event(other).unwrap_err().to_string();
            assert!(error.ends_with("not an eventfd"), "{error}");
        }
    }

    /// Runs a function in another thread, and checks that it returns in time.
    fn returns(function: impl FnOnce() + Send + 'static) {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            function();
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_blocking_peer_event_stops_no_thread() {
        let own = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let passed = own.as_fd().try_clone_to_owned().unwrap();
        let event = accept_event(passed).unwrap();
        fcntl(&own, FcntlArg::F_SETFL(OFlag::O_RDWR)).unwrap();
        let flags = OFlag::from_bits_retain(fcntl(&event, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK), "both descriptors share the flags");
        let unset = event.try_clone().unwrap();
        returns(move || reset(&unset));
        // The counter gets its greatest value.
        own.write(u64::MAX - 1).unwrap();
        let full = event.try_clone().unwrap();
        returns(move || notify(&full));
        let unless_full = event.try_clone().unwrap();
        returns(move || notify_unless_full(&unless_full));
        assert!(own.read().unwrap() >= u64::MAX - 1);
        notify(&event);
        assert!(is_ready(&event, PollFlags::POLLIN), "the event is set");
        reset(&event);
        assert!(!is_ready(&event, PollFlags::POLLIN), "the event is reset");
    }
}
