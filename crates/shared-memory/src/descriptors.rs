//! Sending and receiving file descriptors with bytes over a Unix socket.
//!
//! Source: unix(7), `SCM_RIGHTS`.
#![expect(unsafe_code, reason = "control messages, which std does not have")]

use std::{
    ffi::c_int,
    io,
    mem::zeroed,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// The maximum number of descriptors that are sent or received with one message.
pub const DESCRIPTORS_MAX: usize = 8;

/// Received bytes, with their descriptors.
#[derive(Debug)]
pub struct ReceivedBytes {
    /// Number of received bytes; 0 if the other side has closed the connection.
    pub length: usize,
    /// The descriptors that were received with the bytes.
    pub descriptors: Vec<OwnedFd>,
    /// True if more descriptors were sent;
    /// the kernel has closed the additional descriptors.
    pub has_lost_descriptors: bool,
}

/// A buffer for the descriptors of a message, aligned for its control header.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// Number of bytes of the descriptors of one message.
const DESCRIPTORS_BYTES: usize = DESCRIPTORS_MAX * size_of::<RawFd>();
/// Length of the control header and descriptors, with the padding of `CMSG_SPACE`.
const CONTROL_BYTES: usize = size_of::<libc::cmsghdr>() + DESCRIPTORS_BYTES + 16;

/// Receives bytes, and the descriptors that accompany them.
///
/// # Errors
///
/// If the socket fails, or is non-blocking and has nothing to read.
pub fn receive_with_descriptors(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<ReceivedBytes> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all fields are integers or pointers: zero is a value of each.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
    let flags = libc::MSG_CMSG_CLOEXEC;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the message describes `bytes` and `control`, which both outlive the call.
    let length = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let descriptors = taken_descriptors(&message);
    let has_lost_descriptors = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(ReceivedBytes { length, descriptors, has_lost_descriptors })
}

/// Takes the descriptors out of a received message.
fn taken_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    // SAFETY: the system has filled the control buffer of the message, which still exists.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: a header that is not null lies in the control buffer, which is aligned for it.
        let header = unsafe { ptr::read(control) };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: the function only computes a length.
            let front = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = header.cmsg_len.saturating_sub(front) / size_of::<c_int>();
            // SAFETY: the data follow the header in the same buffer.
            let data = unsafe { libc::CMSG_DATA(control) }.cast::<c_int>();
            for index in 0..count {
                // SAFETY: the length of the header says that as many descriptors follow.
                let place = unsafe { data.add(index) };
                // SAFETY: as above; the place need not be aligned.
                let descriptor = unsafe { ptr::read_unaligned(place) };
                // SAFETY: the system has made the descriptor for this process, and nothing else has it.
                taken.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
        }
        // SAFETY: as for the first header.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    taken
}

/// Sends bytes with descriptors; raises no `SIGPIPE` if the peer has gone.
///
/// Returns the number of sent bytes.
///
/// # Errors
///
/// If the socket fails, or is non-blocking and has no space.
///
/// # Panics
///
/// Panics if there are more than [`DESCRIPTORS_MAX`] descriptors.
pub fn send_with_descriptors(
    socket: &impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all fields are integers or pointers: zero is a value of each.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    assert!(
        descriptors.len() <= DESCRIPTORS_MAX,
        "the control buffer has room for DESCRIPTORS_MAX descriptors"
    );
    if !descriptors.is_empty() {
        let length = u32::try_from(size_of_val(descriptors)).unwrap_or_default();
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the function only computes a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as usize;
        // SAFETY: the message has a control buffer with room for a header.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: the function only computes a length.
        let header_length = unsafe { libc::CMSG_LEN(length) } as usize;
        let filled = libc::cmsghdr {
            cmsg_len: header_length,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        // SAFETY: the header lies in the control buffer, which is aligned for it.
        unsafe { ptr::write(header, filled) };
        // SAFETY: the data follow the header in the same buffer.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
        for (index, descriptor) in descriptors.iter().enumerate() {
            // SAFETY: the buffer has room for as many descriptors, as asserted above.
            let place = unsafe { data.add(index) };
            // SAFETY: as above; the place need not be aligned.
            unsafe { ptr::write_unaligned(place, descriptor.as_raw_fd()) };
        }
    }
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the message describes `bytes` and `control`, which both outlive the call.
    let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::unix::net::UnixStream};

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (sender, receiver) = UnixStream::pair().unwrap();
        let mut file = File::from(memfd_create(c"file", MFdFlags::MFD_CLOEXEC).unwrap());
        file.write_all(b"content").unwrap();
        let both = [file.as_fd(), sender.as_fd()];
        assert_eq!(send_with_descriptors(&sender, b"bytes", &both).unwrap(), 5);
        assert_eq!(send_with_descriptors(&sender, b"more", &[]).unwrap(), 4);
        let mut bytes = [0; 16];
        let ReceivedBytes { length, descriptors, has_lost_descriptors } =
            receive_with_descriptors(&receiver, &mut bytes).unwrap();
        assert_eq!((&bytes[..length], descriptors.len()), (&b"bytes"[..], 2));
        assert!(!has_lost_descriptors);
        let arrived = File::from(descriptors.into_iter().next().unwrap());
        assert_eq!(arrived.metadata().unwrap().len(), 7);
        let rest = receive_with_descriptors(&receiver, &mut bytes).unwrap();
        assert_eq!((&bytes[..rest.length], rest.descriptors.len()), (&b"more"[..], 0));
        drop(sender);
        assert_eq!(receive_with_descriptors(&receiver, &mut bytes).unwrap().length, 0);
    }
}
