//! Unix sockets: non-blocking functions that listen at a path and connect to it.
//!
//! Source: unix(7).

use std::{
    fs::{self, Permissions},
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, PermissionsExt},
            net::UnixListener,
        },
    },
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};

use crate::socket_file::OwnSocketFile;

/// A socket that this process listens at.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The listener, which does not block.
    pub listener: UnixListener,
    /// The file of the socket; `None` for an abstract socket.
    pub file: Option<OwnSocketFile>,
}

/// The reason why this process cannot listen at an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program listens at the address.
    #[error("another program listens at this address: choose another address")]
    InUse,
    /// A system call for the socket failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The mode of a socket file: the user and the group of the process may connect.
const SOCKET_MODE: u32 = 0o660;

/// Maximum number of peers that wait to be accepted.
const BACKLOG: i32 = 32;

/// Connects to a listener; fails immediately if the queue of the listener is full.
///
/// # Errors
///
/// If no program listens at the address, or a system call fails.
pub fn connect_at_once(address: &UnixAddr, kind: SockType) -> io::Result<OwnedFd> {
    let own = new_socket(kind)?;
    connect(own.as_raw_fd(), address)?;
    Ok(own)
}

/// Listens at an address; replaces the socket file of a killed process.
///
/// The user and the group of this process may connect.
///
/// # Errors
///
/// If another program listens at the address, or a system call fails.
pub fn listen_at(address: &UnixAddr, kind: SockType) -> Result<ListeningSocket, ListenError> {
    match new_listener(address, kind) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let Some(path) = address.path() else { return Err(ListenError::InUse) };
            if !fs::metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
                return Err(error.into());
            }
            match connect_at_once(address, kind) {
                Err(refusal) if refusal.kind() == ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)?;
                    Ok(new_listener(address, kind)?)
                }
                _ => Err(ListenError::InUse),
            }
        }
        result => Ok(result?),
    }
}

/// Opens a listening socket at an address.
fn new_listener(address: &UnixAddr, kind: SockType) -> io::Result<ListeningSocket> {
    let own = new_socket(kind)?;
    bind(own.as_raw_fd(), address)?;
    let file = address.path().and_then(OwnSocketFile::new);
    if let Some(path) = address.path() {
        // A peer may run as another user, in the group of this process.
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    }
    listen(&own, Backlog::new(BACKLOG)?)?;
    Ok(ListeningSocket { listener: own.into(), file })
}

fn new_socket(kind: SockType) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, kind, flags, None)
}
