//! Unix sockets for messages: listeners and connections.
//!
//! The sockets have the type `SOCK_SEQPACKET`, so a message arrives as a whole or not at all. No
//! call in this module waits.
//!
//! Source: unix(7).

use std::{
    fmt,
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixListener},
    },
    path::{Path, PathBuf},
};

use nix::sys::socket::{SockType, UnixAddr};
use shunt_shared_memory::{
    ListenError, ListeningSocket, ReceivedBytes, connect_at_once, listen_at,
    receive_with_descriptors, send_with_descriptors,
};

use crate::{
    error::{MemifError, MemifProtocolError},
    message::{MESSAGE_BYTES, MemifMessage},
};

/// The address of a socket: a path, or `@` and the name of an abstract socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemifAddress(PathBuf);

impl MemifAddress {
    /// Returns the address that the configuration writes as this path.
    pub(crate) fn new(socket: &Path) -> Self {
        Self(socket.to_owned())
    }

    /// Returns the name of an abstract socket; `None` for a path.
    fn abstract_name(&self) -> Option<&[u8]> {
        self.0.as_os_str().as_bytes().strip_prefix(b"@")
    }

    /// Returns the address in the form of the kernel.
    ///
    /// # Errors
    ///
    /// If the path or name is too long.
    pub(crate) fn to_unix(&self) -> nix::Result<UnixAddr> {
        match self.abstract_name() {
            Some(name) => UnixAddr::new_abstract(name),
            None => UnixAddr::new(&self.0),
        }
    }

    /// Connects to a listener; fails immediately if the queue of the listener is full.
    pub(crate) fn connect(&self) -> io::Result<MemifSocket> {
        connect_at_once(&self.to_unix()?, SockType::SeqPacket).map(MemifSocket)
    }

    /// Listens at the address; replaces the socket file of a killed process.
    ///
    /// # Errors
    ///
    /// If another program listens at the address, or a system call fails.
    pub(crate) fn listen(&self) -> Result<ListeningSocket, MemifError> {
        let listened = self.to_unix().map_err(|errno| ListenError::System(errno.into()));
        listened.and_then(|address| listen_at(&address, SockType::SeqPacket)).map_err(|error| {
            let socket = self.to_string();
            match error {
                ListenError::InUse => MemifError::InUse { socket },
                ListenError::System(source) => {
                    MemifError::System { doing: "listen at", socket, source }
                }
            }
        })
    }
}

impl fmt::Display for MemifAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// A connection to a peer.
#[derive(Debug)]
pub(crate) struct MemifSocket(OwnedFd);

impl MemifSocket {
    /// Accepts the connection of a client; `None` if no client waits.
    pub(crate) fn accept(listener: &UnixListener) -> io::Result<Option<Self>> {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                Ok(Some(Self(stream.into())))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Receives a message and its descriptor; `None` if no message waits.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the bytes are not a message.
    pub(crate) fn receive(
        &self,
    ) -> Result<Option<(MemifMessage, Option<OwnedFd>)>, MemifProtocolError> {
        // A message is too long if it fills one byte more.
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let received = match receive_with_descriptors(&self.0, &mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            result => result?,
        };
        let ReceivedBytes { length, descriptors, .. } = received;
        if length == 0 {
            return Err(MemifProtocolError::Closed);
        }
        let message = MemifMessage::parse(bytes.get(..length).unwrap_or_default())?;
        Ok(Some((message, descriptors.into_iter().next())))
    }

    /// Sends a message with at most one descriptor.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the peer does not read.
    pub(crate) fn send(
        &self,
        message: &MemifMessage,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        send_with_descriptors(&self.0, &message.encode(), descriptor.as_slice()).map(drop)
    }
}

impl AsFd for MemifSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
