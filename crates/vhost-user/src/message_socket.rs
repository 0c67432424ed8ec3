//! A Unix socket that carries messages with descriptors.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use shunt_shared_memory::{DESCRIPTORS_MAX, ReceivedBytes, receive_with_descriptors};

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

const _: () = assert!(REGIONS_PER_MESSAGE <= DESCRIPTORS_MAX, "each region has a descriptor");

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
        let ReceivedBytes { length, descriptors, has_lost_descriptors } =
            receive_with_descriptors(&self.0, &mut header)?;
        if has_lost_descriptors {
            return Err(ProtocolError::Descriptors {
                request: 0,
                given: DESCRIPTORS_MAX + 1,
                expected: REGIONS_PER_MESSAGE,
            });
        }
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
}
