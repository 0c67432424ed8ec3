//! Unix sockets for messages: listeners and connections.
//!
//! The sockets have the type `SOCK_SEQPACKET`, so a message arrives as a whole or not at all. No
//! call in this module waits.
//!
//! Source: unix(7).

use std::{
    fmt,
    fs::{self, Permissions},
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use shunt_shared_memory::{
    OwnSocketFile, ReceivedBytes, receive_with_descriptors, send_with_descriptors,
};

use crate::{
    error::{MemifError, MemifProtocolError},
    message::{MESSAGE_BYTES, MemifMessage},
};

/// The address of a socket: a path, or `@` and the name of an abstract socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemifAddress(PathBuf);

impl MemifAddress {
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

    /// Connects to a listener; fails at once if its queue has no room.
    pub(crate) fn connect(&self) -> io::Result<MemifSocket> {
        let own = new_socket()?;
        connect(own.as_raw_fd(), &self.to_unix()?)?;
        Ok(MemifSocket(own))
    }

    /// Listens at the address; replaces the socket file of a killed process.
    ///
    /// # Errors
    ///
    /// If another program listens at the address, or a system call fails.
    pub(crate) fn listen(&self) -> Result<UnixListener, MemifError> {
        let in_use = || MemifError::InUse { socket: self.to_string() };
        let failed =
            |source| MemifError::System { doing: "listen at", socket: self.to_string(), source };
        match self.bind() {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let is_socket = self.abstract_name().is_none()
                    && fs::metadata(&self.0).is_ok_and(|file| file.file_type().is_socket());
                match self.connect() {
                    Err(refusal) if is_socket && refusal.kind() == ErrorKind::ConnectionRefused => {
                        fs::remove_file(&self.0).map_err(failed)?;
                        self.bind().map_err(failed)
                    }
                    Err(_) if !is_socket && self.abstract_name().is_none() => Err(failed(error)),
                    _ => Err(in_use()),
                }
            }
            result => result.map_err(failed),
        }
    }

    fn bind(&self) -> io::Result<UnixListener> {
        let own = new_socket()?;
        bind(own.as_raw_fd(), &self.to_unix()?)?;
        if self.abstract_name().is_none() {
            // A client may run as another user, in the group of the daemon.
            fs::set_permissions(&self.0, Permissions::from_mode(SOCKET_MODE))?;
        }
        listen(&own, Backlog::new(BACKLOG)?)?;
        Ok(own.into())
    }

    /// Returns the socket file, which is removed later; `None` for an abstract socket.
    pub(crate) fn file(&self) -> Option<OwnSocketFile> {
        self.abstract_name().is_none().then(|| OwnSocketFile::new(&self.0)).flatten()
    }
}

impl fmt::Display for MemifAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// The mode of a socket file: the user and the group of the daemon may connect.
const SOCKET_MODE: u32 = 0o660;

/// Maximum number of clients in the queue to be accepted.
const BACKLOG: i32 = 32;

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
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
