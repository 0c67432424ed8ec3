//! File descriptors that are passed between the service manager and the daemon.
//!
//! At its start, the daemon inherits descriptors: their numbers start at 3, and environment
//! variables describe them (`sd_listen_fds(3)`). Later descriptors are sent in messages
//! (`SCM_RIGHTS`, `unix(7)`).
#![expect(unsafe_code, reason = "numbers of descriptors, and messages that std does not send")]

use std::{
    ffi::c_int,
    io,
    mem::{offset_of, size_of, zeroed},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixDatagram,
    },
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use nix::libc;
use tracing::warn;

/// Takes the inherited descriptors with their names.
///
/// A second call returns no descriptors.
pub(super) fn take_inherited() -> Vec<(String, OwnedFd)> {
    /// Set by the first call.
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Relaxed) {
        return Vec::new();
    }
    let listed = match sd_notify::listen_fds_with_names() {
        Ok(listed) => listed,
        Err(error) => {
            warn!(%error, "service manager: the stored descriptors cannot be used");
            return Vec::new();
        }
    };
    // SAFETY: the service manager opened these descriptors for this process alone, as `LISTEN_PID`
    // says. The descriptors are open, since the call before has set a flag of each. The descriptors
    // are taken once.
    listed.map(|(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) })).collect()
}

/// A control message with one descriptor.
#[repr(C)]
struct DescriptorMessage {
    header: libc::cmsghdr,
    fd: c_int,
}

const _: () = assert!(offset_of!(DescriptorMessage, fd) == size_of::<libc::cmsghdr>());

/// Sends a message with a descriptor to the peer of a socket.
///
/// # Errors
///
/// If the system refuses.
pub(super) fn send(socket: &UnixDatagram, message: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut rights: DescriptorMessage = unsafe { zeroed() };
    rights.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<c_int>();
    rights.header.cmsg_level = libc::SOL_SOCKET;
    rights.header.cmsg_type = libc::SCM_RIGHTS;
    rights.fd = fd.as_raw_fd();
    let bytes = message.as_bytes();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all fields are integers, or pointers that are not followed while their lengths are
    // zero.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = ptr::from_mut(&mut rights).cast();
    header.msg_controllen = size_of::<DescriptorMessage>();
    // SAFETY: the kernel reads the message and the control message, which live until it returns.
    // The descriptor is open.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
