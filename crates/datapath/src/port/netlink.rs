//! Requests about network devices, which the kernel answers over netlink.
//!
//! Each request has a socket of its own. The answers concern the network namespace of the calling
//! thread, unlike those of `/sys`.
//!
//! Source: netlink(7), rtnetlink(7), Linux `include/uapi/linux/netlink.h`.

use std::{ffi::c_int, io, os::fd::AsRawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// The last message of an answer that has failed, and an acknowledgement.
const NLMSG_ERROR: u16 = 2;
/// The last message of an answer that has several messages.
const NLMSG_DONE: u16 = 3;
/// The flag of an attribute that contains attributes.
const NESTED: u16 = 0x8000;

/// Length of the header of a message (`nlmsghdr`).
const HEADER: usize = 16;
/// The sequence number of a request, which all messages of its answer have.
///
/// Messages that answer no request have 0.
const SEQUENCE: u32 = 1;
/// Length of the longest part of an answer.
///
/// The kernel sends at most 32 KiB in a part of several messages.
const PART_MAX: usize = 1 << 16;

/// The messages that answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetlinkAnswer {
    /// Only an acknowledgement, without data.
    Acknowledgement,
    /// One message of this type.
    One(u16),
    /// Messages of this type for all objects, in any number of parts.
    All(u16),
}

impl NetlinkAnswer {
    /// Returns the flags of a request for this answer.
    const fn flags(self) -> c_int {
        match self {
            Self::Acknowledgement => libc::NLM_F_REQUEST | libc::NLM_F_ACK,
            Self::One(_) => libc::NLM_F_REQUEST,
            Self::All(_) => libc::NLM_F_REQUEST | libc::NLM_F_DUMP,
        }
    }

    /// Returns whether the answer has messages of a type.
    fn has(self, kind: u16) -> bool {
        match self {
            Self::Acknowledgement => false,
            Self::One(own) | Self::All(own) => own == kind,
        }
    }

    /// Passes the messages in a part of the answer to `take`, without their headers.
    ///
    /// Returns whether the answer is complete.
    ///
    /// # Errors
    ///
    /// The error in the answer. `InvalidData` if the part is truncated, or has a message of another
    /// type.
    fn take_part(self, mut part: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        if part.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        while !part.is_empty() {
            let message = NetlinkMessage::first(part).ok_or(io::ErrorKind::InvalidData)?;
            let end = (HEADER + message.content.len()).next_multiple_of(4);
            part = part.get(end..).unwrap_or_default();
            if message.sequence != SEQUENCE {
                continue;
            }
            if matches!(message.kind, NLMSG_ERROR | NLMSG_DONE) {
                return message.result().map(|()| true);
            }
            if !self.has(message.kind) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            take(message.content);
            if matches!(self, Self::One(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A request to the kernel.
pub(super) struct NetlinkRequest<'a> {
    /// The type of the message.
    pub(super) kind: u16,
    /// The flags in addition to those that the answer needs.
    pub(super) flags: c_int,
    /// The part of the message after its header.
    pub(super) content: &'a [u8],
    /// The type of the expected answer.
    pub(super) answer: NetlinkAnswer,
}

impl NetlinkRequest<'_> {
    /// Sends the request, and passes the messages of its answer to `take`.
    ///
    /// `take` gets the messages without their headers. If the kernel refuses the request, `take`
    /// has got the earlier messages.
    ///
    /// # Errors
    ///
    /// If the process has no free descriptor, or the kernel refuses the request. `InvalidData` if
    /// the answer is truncated.
    pub(super) fn ask(&self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
        let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        send(socket.as_raw_fd(), &self.message(), MsgFlags::empty())?;
        let mut part = vec![0; PART_MAX];
        loop {
            let length = recv(socket.as_raw_fd(), &mut part, MsgFlags::empty())?;
            if self.answer.take_part(part.get(..length).unwrap_or_default(), &mut take)? {
                return Ok(());
            }
        }
    }

    /// Returns the bytes of the request.
    fn message(&self) -> Vec<u8> {
        let length = HEADER + self.content.len();
        let flags = self.flags | self.answer.flags();
        let mut message = Vec::with_capacity(length);
        // The header has length, type, flags, sequence number and sender.
        message.extend(u32::try_from(length).unwrap_or_default().to_ne_bytes());
        message.extend(self.kind.to_ne_bytes());
        message.extend(u16::try_from(flags).unwrap_or_default().to_ne_bytes());
        message.extend(SEQUENCE.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(self.content);
        message
    }
}

/// A message of an answer.
struct NetlinkMessage<'a> {
    /// The message type, such as `RTM_NEWLINK`.
    kind: u16,
    /// The sequence number of the request.
    sequence: u32,
    /// The part of the message after its header.
    content: &'a [u8],
}

impl<'a> NetlinkMessage<'a> {
    /// Returns the first message; `None` if it is truncated.
    fn first(part: &'a [u8]) -> Option<Self> {
        let length = usize::try_from(u32::from_ne_bytes(*part.first_chunk()?)).ok()?;
        let kind = u16::from_ne_bytes(*part.get(4..)?.first_chunk()?);
        let sequence = u32::from_ne_bytes(*part.get(8..)?.first_chunk()?);
        Some(Self { kind, sequence, content: part.get(HEADER..length)? })
    }

    /// Returns the result in the last message of an answer.
    ///
    /// The message has a negated error number, or 0.
    fn result(&self) -> io::Result<()> {
        let code = self.content.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        match i32::from_ne_bytes(*code) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        }
    }
}

/// Returns the attributes of a message, as type and value, until an invalid one.
pub(super) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let ([a, b, c, d], _) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let kind = u16::from_ne_bytes([*c, *d]) & !NESTED;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type of messages.
    const OBJECT: u16 = 20;

    /// Returns a message with padding.
    fn message(kind: u16, sequence: u32, content: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(u32::try_from(HEADER + content.len()).unwrap().to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend([0; 2]);
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(content);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    /// Returns a netlink message with a result.
    fn result(kind: u16, code: i32) -> Vec<u8> {
        message(kind, SEQUENCE, &code.to_ne_bytes())
    }

    /// Returns the contents of the messages of a part, and whether it is the last.
    fn take(answer: NetlinkAnswer, part: &[u8]) -> (Vec<Vec<u8>>, io::Result<bool>) {
        let mut contents = Vec::new();
        let is_last = answer.take_part(part, &mut |content: &[u8]| contents.push(content.to_vec()));
        (contents, is_last)
    }

    #[test]
    fn all_parts_of_an_answer_are_taken() {
        let all = NetlinkAnswer::All(OBJECT);
        let first =
            [message(OBJECT, SEQUENCE, b"abcde"), message(OBJECT, SEQUENCE, b"fg")].concat();
        let (contents, is_last) = take(all, &first);
        assert_eq!(contents, [b"abcde".to_vec(), b"fg".to_vec()]);
        assert!(!is_last.unwrap(), "the end is to come");
        let last = [message(OBJECT, SEQUENCE, b"hi"), result(NLMSG_DONE, 0)].concat();
        let (contents, is_last) = take(all, &last);
        assert_eq!(contents, [b"hi"]);
        assert!(is_last.unwrap());
        let (contents, is_last) = take(NetlinkAnswer::One(OBJECT), &first);
        assert_eq!(contents, [b"abcde"], "one message is the whole answer");
        assert!(is_last.unwrap());
    }

    #[test]
    fn a_failed_answer_is_an_error() {
        let answers = [
            NetlinkAnswer::Acknowledgement,
            NetlinkAnswer::One(OBJECT),
            NetlinkAnswer::All(OBJECT),
        ];
        for answer in answers {
            for kind in [NLMSG_DONE, NLMSG_ERROR] {
                assert!(take(answer, &result(kind, 0)).1.unwrap());
                let code = |code| take(answer, &result(kind, code)).1.unwrap_err().raw_os_error();
                assert_eq!(code(-libc::EPERM), Some(libc::EPERM));
                assert_eq!(code(i32::MIN), Some(i32::MAX));
            }
            let error = take(answer, &message(OBJECT + 1, SEQUENCE, &[0; 8])).1.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "no message of an answer");
        }
        let part = [message(OBJECT, SEQUENCE, b"ab"), result(NLMSG_DONE, -libc::EINTR)].concat();
        let (contents, is_last) = take(NetlinkAnswer::All(OBJECT), &part);
        assert_eq!(contents, [b"ab"], "messages before an error are taken");
        assert_eq!(is_last.unwrap_err().raw_os_error(), Some(libc::EINTR));
    }

    #[test]
    fn a_truncated_answer_is_an_error() {
        let first = message(OBJECT, SEQUENCE, b"abcd");
        let part = [first.clone(), result(NLMSG_DONE, 0)].concat();
        for length in 0..part.len() {
            let (contents, is_last) = take(NetlinkAnswer::All(OBJECT), &part[..length]);
            assert_eq!(contents.len(), usize::from(length >= first.len()), "cut at {length}");
            let kind = is_last.map_err(|error| error.kind());
            let expected =
                if length == first.len() { Ok(false) } else { Err(io::ErrorKind::InvalidData) };
            assert_eq!(kind, expected, "cut at {length}");
        }
        // A message that is shorter than its header must not cause an endless loop.
        assert!(take(NetlinkAnswer::All(OBJECT), &[0; 64]).1.is_err());
        // A result without its number.
        let short = message(NLMSG_ERROR, SEQUENCE, &[]);
        assert!(take(NetlinkAnswer::Acknowledgement, &short).1.is_err());
    }

    #[test]
    fn answers_to_other_requests_are_skipped() {
        let other = SEQUENCE + 1;
        let foreign = [
            message(OBJECT, other, b"ab"),
            message(OBJECT + 1, 0, b"cd"),
            message(NLMSG_ERROR, other, &(-libc::EPERM).to_ne_bytes()),
            message(NLMSG_DONE, other, &[0; 4]),
        ]
        .concat();
        let (contents, is_last) = take(NetlinkAnswer::One(OBJECT), &foreign);
        assert_eq!(contents, Vec::<Vec<u8>>::new());
        assert!(!is_last.unwrap(), "the answer is to come");
        let part = [foreign, message(OBJECT, SEQUENCE, b"ef")].concat();
        let (contents, is_last) = take(NetlinkAnswer::One(OBJECT), &part);
        assert_eq!(contents, [b"ef"]);
        assert!(is_last.unwrap());
    }

    #[test]
    fn a_request_has_the_flags_of_its_answer() {
        let flags = |answer, flags| {
            let request = NetlinkRequest { kind: OBJECT, flags, content: b"abcde", answer };
            let message = request.message();
            let own = NetlinkMessage::first(&message).unwrap();
            assert_eq!((own.kind, own.sequence), (OBJECT, SEQUENCE));
            assert_eq!(own.content, b"abcde");
            c_int::from(u16::from_ne_bytes([message[6], message[7]]))
        };
        let request = libc::NLM_F_REQUEST;
        assert_eq!(flags(NetlinkAnswer::One(OBJECT), 0), request);
        assert_eq!(flags(NetlinkAnswer::All(OBJECT), 0), request | libc::NLM_F_DUMP);
        let (acknowledged, create) = (NetlinkAnswer::Acknowledgement, libc::NLM_F_CREATE);
        assert_eq!(flags(acknowledged, create), request | libc::NLM_F_ACK | create);
    }
}
