//! Errors, by the side that must correct them: operator, front-end or guest.

use std::{io, path::PathBuf};

use shunt_shared_memory::EventError;

use crate::memory::MemoryError;

/// A reason why a back-end does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// Another program listens at the path.
    #[error(
        "the socket {} belongs to another program, which listens there: choose another path",
        path.display()
    )]
    InUse {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The operating system refused a system call.
    #[error("cannot {doing} {}", path.display())]
    System {
        /// The attempted action, as a verb.
        doing: &'static str,
        /// The path of the socket.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A message that breaks the protocol, or cannot be executed.
///
/// The back-end closes the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("the front-end sent a vhost-user message of version {0}: only version 1 exists")]
    Version(u32),
    #[error(
        "the front-end sent request {request} with a payload of {length} bytes: at most {max} are \
         allowed"
    )]
    TooLong { request: u32, length: u32, max: usize },
    #[error(
        "the front-end sent request {request} with a payload of {length} bytes, which is too \
         short for this request"
    )]
    TooShort { request: u32, length: usize },
    #[error("the front-end sent request {0}, which this device does not support")]
    Unsupported(u32),
    #[error(
        "the front-end sent request {request} with {given} file descriptors, but {expected} are \
         needed"
    )]
    Descriptors { request: u32, given: usize, expected: usize },
    #[error(transparent)]
    Event(#[from] EventError),
    #[error("the front-end named queue {queue}, which does not exist: the device has {max} queues")]
    NoSuchQueue { queue: u32, max: u16 },
    #[error("the front-end chose the features {0:#x}, which were not offered")]
    NotOffered(u64),
    #[error("the front-end set an MTU of {0} bytes: it must be from 68 to 65535")]
    Mtu(u64),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the front-end closed the connection")]
    Closed,
    #[error("the front-end closed the connection in the middle of a message")]
    Incomplete,
    #[error("the front-end has not sent the rest of a message within a second")]
    Slow,
    #[error("the front-end does not read the replies to its requests")]
    Unread,
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
}

/// A rule of virtqueues that a guest broke; the queue is then stopped.
///
/// Source: Virtual I/O Device 1.2, 2.7 and 2.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The size of the queue is not a power of two, or too large.
    #[error("the size of the queue is {0}: it must be a power of two up to 32768")]
    Size(u32),
    /// The size of a packed queue is zero or too large.
    #[error("the size of the queue is {0}: it must be from 1 to 32768")]
    PackedSize(u32),
    /// A part of the queue is not in the memory of the guest.
    #[error("the {part} of the queue at {address:#x} is outside the memory of the guest")]
    Unmapped {
        /// The part of the queue.
        part: &'static str,
        /// The address of the part, as the front-end set it.
        address: u64,
    },
    /// A part of the queue is not aligned.
    #[error("the {part} of the queue at {address:#x} is not aligned as virtio requires")]
    Misaligned {
        /// The part of the queue.
        part: &'static str,
        /// The address of the part, as the front-end set it.
        address: u64,
    },
    /// The guest offers more buffers than the queue has.
    #[error(
        "the guest offered {offered} buffers at once, but the queue has places for {size} only"
    )]
    Offered {
        /// The number of offered buffers.
        offered: u16,
        /// The size of the queue.
        size: u16,
    },
    /// The number of a descriptor is beyond the end of its table.
    #[error(
        "the guest named descriptor {index}, which does not exist: the table has {size} \
         descriptors"
    )]
    NoDescriptor {
        /// The number of the descriptor.
        index: u16,
        /// The number of descriptors in the table.
        size: u16,
    },
    /// A buffer is not in the memory of the guest.
    #[error(
        "the guest offered a buffer of {length} bytes at {address:#x}, which is outside its \
         memory"
    )]
    Buffer {
        /// The address of the buffer in the guest.
        address: u64,
        /// The length of the buffer.
        length: u32,
    },
    /// A chain of descriptors does not end.
    #[error(
        "the guest offered a chain of more than {0} descriptors, which is the size of the queue"
    )]
    LongChain(u16),
    /// A buffer for frames is shorter than the header of a frame.
    #[error("the guest offered a buffer of {0} bytes for frames: it must have at least 12")]
    ShortBuffer(usize),
    /// A buffer has the wrong direction: writable instead of readable, or vice versa.
    #[error(
        "the guest offered a buffer of the wrong direction: the device must be able to write \
         receive buffers, and to read transmit buffers"
    )]
    Direction,
    /// The guest uses an indirect table, but did not accept `VIRTIO_F_INDIRECT_DESC`.
    #[error("the guest offered an indirect descriptor, but did not accept VIRTIO_F_INDIRECT_DESC")]
    IndirectRefused,
    /// An indirect table of descriptors has an invalid length or is nested.
    #[error(
        "the guest offered an indirect table of {0} bytes: it must hold whole descriptors, and be \
         inside no other table"
    )]
    IndirectTable(u32),
}
