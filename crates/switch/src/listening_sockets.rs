//! Listening sockets that outlive the process.
//!
//! A service manager keeps a duplicate of each socket while the daemon restarts
//! ([`DescriptorStore`]). The kernel queues new connections of clients meanwhile, and the next
//! process accepts them. So no client is refused during a restart.
//!
//! - A TCP socket is identified by its address. A socket with a port that the kernel has chosen is
//!   not kept, and one of another network namespace is closed.
//! - A Unix socket is identified by a key, and by device and inode of its file. So the daemon
//!   detects that another process has replaced the file. The inode is not reused while the socket
//!   exists.
//! - A socket that is no longer wanted is shut down, because the duplicate would keep it open.
//!
//! Without a service manager, sockets are opened and closed as usual.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::{UnixDatagram, UnixListener},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::sys::socket::{Backlog, Shutdown, getsockopt, listen, shutdown, sockopt::AcceptConn};
use parking_lot::Mutex;
use shunt_datapath::port::{
    DescriptorStore, NoDescriptorStore, StoredDescriptor, namespace_of_socket,
};
use tracing::{info, warn};

/// Device and inode of the file of a Unix socket.
pub type SocketInode = (u64, u64);

/// The listening sockets of a daemon, including sockets of an earlier process.
#[derive(Debug)]
pub struct ListeningSockets {
    /// The store of the service manager.
    store: Arc<dyn DescriptorStore>,
    /// The sockets in the store, by the prefix of their names.
    sockets: Mutex<BTreeMap<String, KeptListener>>,
}

/// A duplicate of a socket that is also in the store.
#[derive(Debug)]
struct KeptListener {
    /// The duplicate of the listening socket.
    fd: OwnedFd,
    /// The file of the socket, if it is a Unix socket.
    file: Option<SocketFile>,
    /// True while this process accepts connections on the socket.
    is_used: bool,
}

/// The file of a Unix socket.
#[derive(Debug)]
struct SocketFile {
    /// The path of the file.
    path: PathBuf,
    /// The inode, which shows if another file has replaced this file.
    inode: SocketInode,
}

/// The beginning of the names of all listening sockets in the store.
const PREFIX: &str = "listen/";

/// The beginning of the names of TCP sockets in the store.
const TCP: &str = "listen/tcp/";

/// The beginning of the names of Unix sockets in the store.
const UNIX: &str = "listen/unix/";

/// Maximum length of a key in bytes.
///
/// The name in the store then has at most 255 bytes, the limit of systemd.
const KEY_BYTES_MAX: usize = 200;

/// Binding a port below this number needs a privilege.
const UNPRIVILEGED_PORT: u16 = 1024;

impl Default for ListeningSockets {
    /// Creates a set of sockets that are closed when the process ends.
    fn default() -> Self {
        Self::new(Arc::new(NoDescriptorStore))
    }
}

impl ListeningSockets {
    /// Takes the listening sockets that an earlier process has put into the store.
    #[must_use]
    pub fn new(store: Arc<dyn DescriptorStore>) -> Self {
        let mut sockets = BTreeMap::new();
        for StoredDescriptor { name, fd, .. } in store.take(PREFIX) {
            match read_name(&name) {
                Some((_, None)) if is_elsewhere(fd.as_fd()) => {
                    warn!(
                        "stored socket {name}: closed, because it belongs to another network \
                         namespace"
                    );
                    // The store closes its duplicate later.
                    let _ = shutdown(fd.as_raw_fd(), Shutdown::Both);
                    store.discard(&name);
                }
                Some((key, file)) if getsockopt(&fd, AcceptConn) == Ok(true) => {
                    sockets.insert(key, KeptListener { fd, file, is_used: false });
                }
                _ => {
                    warn!(
                        "stored descriptor {name}: refused, because it is not a listening socket"
                    );
                    store.discard(&name);
                }
            }
        }
        Self { store, sockets: Mutex::new(sockets) }
    }

    /// Returns whether the sockets are kept when the process ends.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        self.store.is_active()
    }

    /// Listens on a TCP address, with the socket of an earlier process if one exists.
    ///
    /// The listener is non-blocking. A caller that cannot use the listener calls
    /// [`Self::pause_tcp`], so that its next attempt gets the same socket.
    ///
    /// # Errors
    ///
    /// If the address cannot be used.
    pub fn listen_tcp(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let key = tcp_key(address);
        if let Some(listener) = self.free_tcp(&key, address) {
            return Ok(listener);
        }
        let listener = match TcpListener::bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && self.release_unused_beside(address) =>
            {
                TcpListener::bind(address)
            }
            bound => bound,
        };
        let listener = listener.map_err(|error| with_remedy(error, address))?;
        listener.set_nonblocking(true)?;
        // More clients than usual connect while the daemon restarts. If the call fails, the default
        // length of the queue applies.
        let _ = listen(&listener, Backlog::MAXCONN);
        // For port 0, the kernel chooses another port for the next process, so the socket is not
        // kept.
        if address.port() != 0 {
            self.keep(&key, key.clone(), listener.as_fd(), None);
        }
        Ok(listener)
    }

    /// Returns the unused TCP socket of an address, if the store has such a socket.
    fn free_tcp(&self, key: &str, address: SocketAddr) -> Option<TcpListener> {
        let mut sockets = self.sockets.lock();
        let socket = sockets.get_mut(key).filter(|socket| !socket.is_used)?;
        let listener = TcpListener::from(socket.fd.try_clone().ok()?);
        if listener.local_addr().ok()? != address {
            return None;
        }
        listener.set_nonblocking(true).ok()?;
        socket.is_used = true;
        Some(listener)
    }

    /// Closes unused sockets that prevent a socket at `address`.
    ///
    /// Returns whether there was such a socket. A socket is unused, for example, after a change of
    /// its address in the configuration.
    fn release_unused_beside(&self, address: SocketAddr) -> bool {
        self.release_where(|key, socket| {
            let own = || TcpListener::from(socket.fd.try_clone().ok()?).local_addr().ok();
            !socket.is_used
                && key.starts_with(TCP)
                && own().is_some_and(|own| overlap(own, address))
        })
    }

    /// Records that this process has closed the socket of an address, to open it again.
    pub fn pause_tcp(&self, address: SocketAddr) {
        if let Some(socket) = self.sockets.lock().get_mut(&tcp_key(address)) {
            socket.is_used = false;
        }
    }

    /// Closes the socket of an address permanently: clients are refused from now on.
    ///
    /// The socket must have been paused. So a socket of the same address that another part of the
    /// daemon uses stays open.
    pub fn release_tcp(&self, address: SocketAddr) {
        let wanted = tcp_key(address);
        self.release_where(|key, socket| *key == wanted && !socket.is_used);
    }

    /// Returns the Unix socket of an earlier process, if its file is at `path`.
    ///
    /// The socket was stored by [`Self::keep_unix`] with the same key. The socket is non-blocking.
    #[must_use]
    pub fn inherited_unix(&self, key: &str, path: &Path) -> Option<UnixListener> {
        let wanted = unix_key(key)?;
        let listener = {
            let mut sockets = self.sockets.lock();
            let socket = sockets.get_mut(&wanted).filter(|socket| !socket.is_used)?;
            let file = socket.file.as_mut().filter(|file| inode(path) == Some(file.inode));
            match (file, socket.fd.try_clone().map(UnixListener::from)) {
                (Some(file), Ok(listener)) => {
                    path.clone_into(&mut file.path);
                    socket.is_used = true;
                    Some(listener)
                }
                _ => None,
            }
        };
        if listener.is_none() {
            self.release_where(|key, _| *key == wanted);
        }
        listener.filter(|listener| listener.set_nonblocking(true).is_ok())
    }

    /// Keeps a Unix socket with its file for the next process.
    ///
    /// Returns true if the service manager keeps the socket. This process must then not remove the
    /// file of the socket at its end.
    pub fn keep_unix(&self, key: &str, path: &Path, socket: BorrowedFd<'_>) -> bool {
        let (Some(key), Some(inode)) = (unix_key(key), inode(path)) else { return false };
        let name = format!("{key}{:x}-{:x}", inode.0, inode.1);
        let file = SocketFile { path: path.to_owned(), inode };
        self.keep(&key, name, socket, Some(file))
    }

    /// Closes a Unix socket permanently, and removes its file.
    pub fn release_unix(&self, key: &str) {
        if let Some(wanted) = unix_key(key) {
            self.release_where(|key, _| *key == wanted);
        }
    }

    /// Returns the files of all Unix sockets in the store.
    #[must_use]
    pub fn files(&self) -> BTreeSet<SocketInode> {
        let sockets = self.sockets.lock();
        sockets.values().filter_map(|socket| Some(socket.file.as_ref()?.inode)).collect()
    }

    /// Closes the sockets of an earlier process that this process does not use.
    pub fn release_unused(&self) {
        self.release_where(|key, socket| {
            if !socket.is_used {
                info!(
                    "service manager: the stored socket {key} is not used any more, so it is closed"
                );
            }
            !socket.is_used
        });
    }

    /// Closes all sockets permanently, and removes their files.
    ///
    /// A daemon calls this function if no next process is expected.
    pub fn release_all(&self) {
        self.release_where(|_, _| true);
    }

    /// Stores a duplicate of a socket, if there is a store.
    fn keep(
        &self,
        key: &str,
        name: String,
        socket: BorrowedFd<'_>,
        file: Option<SocketFile>,
    ) -> bool {
        let copy = || socket.try_clone_to_owned();
        if !self.store.is_active() {
            return false;
        }
        let (Ok(fd), Ok(stored)) = (copy(), copy()) else { return false };
        let stored = StoredDescriptor { name, fd: stored, is_inherited: false };
        self.store.keep(key, vec![stored]);
        self.sockets.lock().insert(key.to_owned(), KeptListener { fd, file, is_used: true });
        true
    }

    /// Closes the sockets for which a function returns true.
    ///
    /// Returns whether a socket was released.
    fn release_where(&self, is_released: impl Fn(&String, &KeptListener) -> bool) -> bool {
        let released: Vec<_> =
            self.sockets.lock().extract_if(.., |key, socket| is_released(key, socket)).collect();
        for (key, socket) in &released {
            // The store closes its duplicate later. An error means that the socket does not listen
            // any more.
            let _ = shutdown(socket.fd.as_raw_fd(), Shutdown::Both);
            self.store.discard(key);
            if let Some(file) = &socket.file
                && inode(&file.path) == Some(file.inode)
            {
                let _ = fs::remove_file(&file.path);
            }
        }
        !released.is_empty()
    }
}

/// Returns the prefix of the name of a TCP socket; a name must not have a colon.
fn tcp_key(address: SocketAddr) -> String {
    format!("{TCP}{}/", address.to_string().replace(':', "_"))
}

/// Returns the prefix of the name of a Unix socket.
///
/// `None` if the key has a character that names must not have.
fn unix_key(key: &str) -> Option<String> {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !b":=".contains(&byte);
    let fits = key.len() <= KEY_BYTES_MAX && key.bytes().all(is_valid);
    fits.then(|| format!("{UNIX}{key}="))
}

/// Parses the name of a stored socket: its prefix, and the file of a Unix socket.
fn read_name(name: &str) -> Option<(String, Option<SocketFile>)> {
    let Some(unix) = name.strip_prefix(UNIX) else {
        return (name.starts_with(TCP) && name.ends_with('/')).then(|| (name.to_owned(), None));
    };
    let (key, inode) = unix.rsplit_once('=')?;
    let (device, number) = inode.split_once('-')?;
    let number_of = |text| u64::from_str_radix(text, 16).ok();
    let inode = (number_of(device)?, number_of(number)?);
    Some((unix_key(key)?, Some(SocketFile { path: PathBuf::from(key), inode })))
}

/// Returns whether a socket is of another network namespace than the process.
///
/// False on kernels that cannot tell.
fn is_elsewhere(socket: BorrowedFd<'_>) -> bool {
    let own = UnixDatagram::unbound().and_then(|own| namespace_of_socket(own.as_fd()));
    let both = own.ok().zip(namespace_of_socket(socket).ok());
    both.is_some_and(|(own, other)| own != other)
}

/// Returns device and inode of the file of a socket.
pub(crate) fn inode(path: &Path) -> Option<SocketInode> {
    let found = fs::symlink_metadata(path).ok()?;
    found.file_type().is_socket().then(|| (found.dev(), found.ino()))
}

/// Returns whether two sockets cannot listen on these addresses at the same time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (is_any || one.ip() == other.ip())
}

/// Adds a correction to the error of an address that needs a privilege.
fn with_remedy(error: io::Error, address: SocketAddr) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied || address.port() >= UNPRIVILEGED_PORT {
        return error;
    }
    let remedy = "ports below 1024 need CAP_NET_BIND_SERVICE or a lower \
                  net.ipv4.ip_unprivileged_port_start: use a higher port, or see docs/install.md";
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

#[cfg(test)]
mod tests;
