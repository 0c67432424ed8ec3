//! A Unix socket that carries messages with descriptors.
//!
//! No call waits for the front-end: a message arrives in parts, and the last part completes it.

use std::{
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use shunt_shared_memory::{DESCRIPTORS_MAX, ReceivedBytes, receive_with_descriptors};

use crate::{
    error::ProtocolError,
    message::{MessageHeader, REGIONS_PER_MESSAGE, VhostReply, VhostRequest},
};

/// The connection to a front-end.
#[derive(Debug)]
pub(crate) struct MessageSocket {
    stream: UnixStream,
    /// The bytes of the next message that have arrived.
    bytes: Vec<u8>,
    /// The file descriptors that arrived with these bytes.
    descriptors: Vec<OwnedFd>,
    /// The time at which the message must be whole; `None` before its first byte.
    deadline: Option<Instant>,
}

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) number: u32,
    pub(crate) needs_reply: bool,
    /// The request, or the reason why the message is no valid request.
    pub(crate) request: Result<VhostRequest, ProtocolError>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Maximum time from the first byte of a message to the last.
const MESSAGE_LONGEST: Duration = Duration::from_secs(1);

/// Length of the longest message.
const MESSAGE_MAX: usize = MessageHeader::BYTES + MessageHeader::PAYLOAD_MAX;

const _: () = assert!(REGIONS_PER_MESSAGE <= DESCRIPTORS_MAX, "each region has a descriptor");

impl MessageSocket {
    /// Creates the message socket of a connected stream.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let bytes = Vec::with_capacity(MESSAGE_MAX);
        Ok(Self { stream, bytes, descriptors: Vec::new(), deadline: None })
    }

    /// Receives a request; `None` if it is not whole yet.
    ///
    /// # Errors
    ///
    /// If the connection has ended, a message takes too long, or the start of the next message cannot be
    /// found.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
    ) -> Result<Option<ReceivedMessage>, ProtocolError> {
        loop {
            let header = self.header()?;
            let whole = header.map_or(0, |header| header.length) + MessageHeader::BYTES;
            if let Some(header) = header.filter(|_| self.bytes.len() == whole) {
                return Ok(Some(self.take(header)));
            }
            if !self.read_part(whole, now)? {
                return Ok(None);
            }
        }
    }

    /// Returns the header of the next message, once it has arrived.
    fn header(&self) -> Result<Option<MessageHeader>, ProtocolError> {
        self.bytes.first_chunk().map(|header| MessageHeader::parse(*header)).transpose()
    }

    /// Reads a part of a message; returns false if nothing waits.
    ///
    /// The message has `whole` bytes.
    fn read_part(&mut self, whole: usize, now: Instant) -> Result<bool, ProtocolError> {
        let mut part = [0; MESSAGE_MAX];
        let missing = whole.saturating_sub(self.bytes.len()).min(MESSAGE_MAX);
        let received = match receive_with_descriptors(&self.stream, &mut part[..missing]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
                return if is_late { Err(ProtocolError::Slow) } else { Ok(false) };
            }
            result => result?,
        };
        let ReceivedBytes { length, descriptors, has_lost_descriptors } = received;
        if length == 0 {
            let is_between = self.bytes.is_empty();
            return Err(if is_between { ProtocolError::Closed } else { ProtocolError::Incomplete });
        }
        self.deadline.get_or_insert(now + MESSAGE_LONGEST);
        self.bytes.extend_from_slice(&part[..length]);
        self.descriptors.extend(descriptors);
        if has_lost_descriptors || self.descriptors.len() > DESCRIPTORS_MAX {
            let given = self.descriptors.len().max(DESCRIPTORS_MAX + 1);
            let expected = REGIONS_PER_MESSAGE;
            return Err(ProtocolError::Descriptors { request: 0, given, expected });
        }
        Ok(true)
    }

    /// Takes the message, which is whole.
    fn take(&mut self, header: MessageHeader) -> ReceivedMessage {
        let MessageHeader { request: number, needs_reply, .. } = header;
        let payload = self.bytes.get(MessageHeader::BYTES..).unwrap_or_default();
        let descriptors = std::mem::take(&mut self.descriptors);
        let request = VhostRequest::parse(number, payload).and_then(|request| {
            let (given, expected) = (descriptors.len(), request.descriptors());
            // A request to remove a region may carry the descriptor of the region.
            let is_right = given == expected || matches!(request, VhostRequest::RemMemReg(_));
            let wrong = ProtocolError::Descriptors { request: number, given, expected };
            is_right.then_some(request).ok_or(wrong)
        });
        self.bytes.clear();
        self.deadline = None;
        ReceivedMessage { number, needs_reply, request, descriptors }
    }

    /// Sends a reply to a request.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the front-end has not read many earlier replies.
    pub(crate) fn reply(&mut self, request: u32, reply: VhostReply) -> Result<(), ProtocolError> {
        self.stream.write_all(&MessageHeader::reply(request, reply)).map_err(|error| {
            match error.kind() {
                ErrorKind::WouldBlock => ProtocolError::Unread,
                _ => error.into(),
            }
        })
    }

    /// Returns the time at which a message that has begun must be whole.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the descriptor of the connection.
    ///
    /// The descriptor is readable while bytes wait.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the deadline starts at the current time")]
mod tests {
    use shunt_shared_memory::send_with_descriptors;

    use super::*;

    /// Returns the two ends of a connection.
    fn sockets() -> (UnixStream, MessageSocket) {
        let (front_end, own) = UnixStream::pair().unwrap();
        (front_end, MessageSocket::new(own).unwrap())
    }

    /// The request to add a region, which has a descriptor.
    fn message() -> Vec<u8> {
        let header = [37_u32, 1, 40].into_iter().flat_map(u32::to_le_bytes);
        header.chain([1; 40]).collect()
    }

    #[test]
    fn message_in_parts_is_received_whole() {
        let (front_end, mut socket) = sockets();
        let now = Instant::now();
        let message = message();
        for cut in 1..message.len() {
            let (first, second) = message.split_at(cut);
            send_with_descriptors(&front_end, first, &[front_end.as_fd()]).unwrap();
            assert!(socket.receive(now).unwrap().is_none());
            assert_eq!(socket.deadline(), Some(now + MESSAGE_LONGEST));
            // The next message follows at once.
            let both = [second, &message].concat();
            send_with_descriptors(&front_end, &both, &[]).unwrap();
            let whole = socket.receive(now).unwrap().unwrap();
            assert!(matches!(whole.request, Ok(VhostRequest::AddMemReg(_))), "{whole:?}");
            assert_eq!((whole.descriptors.len(), socket.deadline()), (1, None));
            let next = socket.receive(now).unwrap().unwrap();
            let error = next.request.unwrap_err();
            assert!(matches!(error, ProtocolError::Descriptors { given: 0, .. }), "{error}");
        }
    }

    /// Every byte comes soon after the one before.
    #[test]
    fn a_message_has_one_deadline() {
        let (mut front_end, mut socket) = sockets();
        let start = Instant::now();
        let mut results = (0_u32..).zip(message()).map(|(number, byte)| {
            front_end.write_all(&[byte]).unwrap();
            socket.receive(start + MESSAGE_LONGEST * number / 10)
        });
        assert!(results.by_ref().take(10).all(|result| matches!(result, Ok(None))));
        assert!(matches!(results.next(), Some(Err(ProtocolError::Slow))));
    }

    #[test]
    fn a_message_has_a_limited_number_of_descriptors() {
        let (front_end, mut socket) = sockets();
        let now = Instant::now();
        let part = |byte: &[u8]| {
            send_with_descriptors(&front_end, byte, &[front_end.as_fd(); DESCRIPTORS_MAX]).unwrap();
        };
        part(&message()[..1]);
        assert!(socket.receive(now).unwrap().is_none());
        part(&message()[1..2]);
        let error = socket.receive(now).unwrap_err();
        assert!(matches!(error, ProtocolError::Descriptors { given: 16, .. }), "{error}");
    }

    #[test]
    fn replies_that_nobody_reads_end_the_connection() {
        let (_front_end, mut socket) = sockets();
        let full =
            (0..1_000_000).find_map(|number| socket.reply(1, VhostReply::Number(number)).err());
        assert!(matches!(full, Some(ProtocolError::Unread)), "{full:?}");
    }
}
