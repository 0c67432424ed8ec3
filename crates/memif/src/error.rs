//! Errors, by the side that must correct them: operator or peer.

use std::io;

use shunt_shared_memory::{EventError, MapError};

/// The reason why an interface does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemifError {
    /// Another program listens at the socket.
    #[error(
        "the socket {socket} belongs to another program, which listens there: choose another \
         socket"
    )]
    InUse {
        /// The path or name of the socket.
        socket: String,
    },
    /// Another interface of this process has the same number.
    #[error("the memif id {id} at {socket} is the {role} of another port: choose another id")]
    IdInUse {
        /// The path or name of the socket.
        socket: String,
        /// The number of the interface.
        id: u32,
        /// The role of both interfaces.
        role: &'static str,
    },
    /// The secret has too many bytes.
    #[error("the secret of the memif port has {0} bytes: use at most 24")]
    SecretTooLong(usize),
    /// Rings and buffers do not fit into one region of memory.
    #[error(
        "the rings and buffers of the memif port take {bytes} bytes, but at most 4 GiB are \
         possible: lower rsize, bsize or queues"
    )]
    TooLarge {
        /// Length of rings and buffers together.
        bytes: u64,
    },
    /// A setting is out of its allowed range.
    #[error("{setting} is {value}: it must be {range}")]
    Range {
        /// The name of the setting in the configuration.
        setting: &'static str,
        /// The value of the setting.
        value: u64,
        /// Description of the permitted values.
        range: &'static str,
    },
    /// The operating system refused a system call.
    #[error("cannot {doing} {socket}")]
    System {
        /// The attempted action, as a verb.
        doing: &'static str,
        /// The path or name of the socket.
        socket: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// The reason why a connection is closed.
///
/// A message breaks the protocol or cannot be handled, or the peer has closed the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemifProtocolError {
    #[error("the peer sent a memif message of {0} bytes, but each message has 128")]
    Length(usize),
    #[error("the peer sent a memif message of the unknown type {0}")]
    UnknownType(u16),
    #[error("the peer sent the memif message {0}, which is not allowed at this point")]
    Unexpected(&'static str),
    #[error("the peer sent the memif message {0} without its file descriptor")]
    NoDescriptor(&'static str),
    #[error(
        "the peer supports the versions {min:#x} to {max:#x} of memif: version 0x200 is needed"
    )]
    Version { min: u16, max: u16 },
    #[error("no server at this socket has the memif id {0}: give both ports the same id")]
    NoSuchInterface(u32),
    #[error("the server with the memif id {0} is connected to another client: use another id")]
    AlreadyConnected(u32),
    #[error("the mode {0} of the client is not supported: use mode ethernet, which is mode 0")]
    Mode(u8),
    #[error("the secret of the client is wrong: give both ports the same `secret`")]
    Secret,
    #[error(
        "the peer added memory region {index}, but the next number is {next}, and at most {max} \
         regions are allowed"
    )]
    Region { index: u16, next: usize, max: usize },
    #[error("the memory regions of the client have {0} bytes: at most 4 GiB are possible")]
    RegionsBytes(u64),
    #[error(
        "the peer added ring {index}, which was added before or does not exist: at most {max} \
         rings are allowed"
    )]
    Ring { index: u16, max: u16 },
    #[error("the peer did not add ring {0}: rings are numbered from 0 without a gap")]
    MissingRing(u16),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    Rule(#[from] MemifRingError),
    #[error("the peer has disconnected: {0}")]
    Disconnected(String),
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer has not completed the exchange of messages within {0} seconds")]
    Slow(u64),
    #[error(
        "the client has chosen no interface for the longest time of {0} such clients, which is \
         the limit"
    )]
    Crowded(usize),
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
}

/// A rule of rings that a peer broke; the connection is then closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemifRingError {
    /// The binary logarithm of the ring size is not supported.
    #[error("the peer added a ring of 2^{0} descriptors: a ring has at most 2^14")]
    Size(u8),
    /// The ring is not inside its region.
    #[error(
        "the ring at byte {offset} of memory region {region} is outside of the region, or at an \
         odd byte"
    )]
    Place {
        /// The number of the region with the ring.
        region: u16,
        /// The first byte of the ring.
        offset: u32,
    },
    /// The first word of the ring is not the memif cookie.
    #[error("the ring of the peer begins with {0:#x} instead of the memif cookie 0x3e31f20")]
    Cookie(u32),
    /// The peer moved an index by more than the size of the ring.
    #[error("the peer announced {announced} descriptors in a ring that has only {size}")]
    Index {
        /// The number of descriptors that the index announces.
        announced: u16,
        /// The number of descriptors of the ring.
        size: u16,
    },
    /// A buffer is not inside its region.
    #[error(
        "the buffer of {length} bytes at byte {offset} of memory region {region} is outside of \
         its region"
    )]
    Buffer {
        /// The number of the region that the descriptor names.
        region: u16,
        /// The first byte of the buffer.
        offset: u32,
        /// The length of the buffer.
        length: u32,
    },
    /// A buffer that the peer offers for frames is too short.
    #[error("the peer offers a buffer of {0} bytes: there must be at least 64")]
    ShortBuffer(u32),
    /// A frame takes more descriptors than the ring has.
    #[error("the peer sent a frame with more than {0} descriptors, which is the size of the ring")]
    LongChain(u16),
}
