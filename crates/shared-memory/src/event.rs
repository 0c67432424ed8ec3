//! Eventfds, by which two processes notify each other.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// A reason why a descriptor cannot be used for notifications.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The descriptor is something else.
    #[error("the descriptor for notifications is {0}, not an eventfd")]
    NotAnEventFd(String),
    /// The system refused a request.
    #[error("the descriptor for notifications is not usable: {0}")]
    System(#[from] io::Error),
}

/// The name of an eventfd in `/proc`.
const EVENT_FD: &str = "anon_inode:[eventfd]";

/// Takes an eventfd of another process, and sets it to non-blocking.
///
/// Threads that move frames read and write events, and must never wait. Reading or writing another
/// kind of file could block, so it is refused.
///
/// # Errors
///
/// If the descriptor is not an eventfd, or the system refuses a request.
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

/// Sets an event.
pub fn notify(mut event: &File) {
    // The counter is full only if the other side has not read earlier notifications.
    let _ = event.write(&1_u64.to_ne_bytes());
}

/// Resets an event.
pub fn reset(mut event: &File) {
    let _ = event.read(&mut [0; 8]);
}

#[cfg(test)]
mod tests {
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
        // It blocks as long as it has not been accepted.
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
}
