//! A Unix socket that carries messages with descriptors.
//!
//! Source: unix(7), `SCM_RIGHTS`.
#![expect(unsafe_code, reason = "control messages, which std does not have")]

use std::{
    ffi::c_int,
    io::{self, Read, Write},
    mem::zeroed,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    ptr,
    time::Duration,
};

use crate::{
    error::ProtocolError,
    message::{MessageHeader, REGIONS_PER_MESSAGE, VhostReply, VhostRequest},
};

/// The connection to a front-end.
#[derive(Debug)]
pub(crate) struct MessageSocket(UnixStream);

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) number: u32,
    pub(crate) needs_reply: bool,
    /// The request, or the reason why the message is no valid request.
    pub(crate) request: Result<VhostRequest, ProtocolError>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Maximum wait for the rest of a message, and for room for a reply.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Room for the descriptors of a message, aligned for its header.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

const DESCRIPTORS_BYTES: usize = REGIONS_PER_MESSAGE * size_of::<RawFd>();
/// Header and descriptors, with the padding of `CMSG_SPACE`.
const CONTROL_BYTES: usize = size_of::<libc::cmsghdr>() + DESCRIPTORS_BYTES + 16;

impl MessageSocket {
    /// Creates the message socket of a connected stream, with timeouts.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self(stream))
    }

    /// Receives a request; waits for the whole message for a second at most.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the start of the next message cannot be found.
    pub(crate) fn receive(&mut self) -> Result<ReceivedMessage, ProtocolError> {
        let mut header = [0; MessageHeader::BYTES];
        let (length, descriptors) = self.receive_with_descriptors(&mut header)?;
        match length {
            0 => return Err(ProtocolError::Closed),
            MessageHeader::BYTES => {}
            _ => self.read(&mut header[length..])?,
        }
        let MessageHeader { request: number, needs_reply, length } = MessageHeader::parse(header)?;
        let mut payload = vec![0; length];
        self.read(&mut payload)?;
        let request = VhostRequest::parse(number, &payload).and_then(|request| {
            let (given, expected) = (descriptors.len(), request.descriptors());
            // A request to remove a region may carry the descriptor of the region.
            let is_right = given == expected || matches!(request, VhostRequest::RemMemReg(_));
            let wrong = ProtocolError::Descriptors { request: number, given, expected };
            is_right.then_some(request).ok_or(wrong)
        });
        Ok(ReceivedMessage { number, needs_reply, request, descriptors })
    }

    /// Sends a reply to a request.
    ///
    /// # Errors
    ///
    /// If the front-end does not read the reply within a second.
    pub(crate) fn reply(&mut self, request: u32, reply: VhostReply) -> Result<(), ProtocolError> {
        Ok(self.0.write_all(&MessageHeader::reply(request, reply))?)
    }

    /// Returns the descriptor of the connection.
    ///
    /// The descriptor is readable while a request waits.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn read(&mut self, to: &mut [u8]) -> Result<(), ProtocolError> {
        self.0.read_exact(to).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ProtocolError::Incomplete
            }
            _ => error.into(),
        })
    }

    /// Receives bytes and the descriptors that come with them.
    fn receive_with_descriptors(
        &self,
        bytes: &mut [u8],
    ) -> Result<(usize, Vec<OwnedFd>), ProtocolError> {
        let mut control = ControlBuffer([0; CONTROL_BYTES]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all fields are integers or pointers: zero is a value of each.
        let mut message: libc::msghdr = unsafe { zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) =
            (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message describes `bytes` and `control`, which both outlive the call.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let descriptors = taken_descriptors(&message);
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(ProtocolError::Descriptors {
                request: 0,
                given: REGIONS_PER_MESSAGE + 1,
                expected: REGIONS_PER_MESSAGE,
            });
        }
        Ok((length, descriptors))
    }
}

/// Takes the descriptors of a message that was received.
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

/// Sends bytes with descriptors, as front-ends do.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn send_with_descriptors(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all fields are integers or pointers: zero is a value of each.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    assert!(descriptors.len() <= REGIONS_PER_MESSAGE, "the control buffer has room");
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
    // SAFETY: the message describes `bytes` and `control`, which both outlive the call.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
