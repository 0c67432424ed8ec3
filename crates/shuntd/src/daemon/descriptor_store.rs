//! The file descriptors that systemd keeps while the daemon restarts.
//!
//! The daemon sends each descriptor with its name (`FDSTORE=1`, `FDNAME=`) as soon as it has opened
//! the descriptor. So the store is complete even if the daemon is killed. The next process gets all
//! descriptors from systemd. When the service stops, systemd closes the descriptors. systemd also
//! closes descriptors that exceed `FileDescriptorStoreMax=`.
//!
//! The daemon tells systemd not to watch the descriptors (`FDPOLL=0`). Otherwise systemd would
//! close the descriptors of a device that is down, and watching a socket delays each packet.
//!
//! Source: `sd_pid_notify_with_fds(3)`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsStr,
    io,
    ops::Bound,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

use parking_lot::Mutex;
use shunt_datapath::port::{DescriptorStore, StoredDescriptor};
use tracing::{info, warn};

use super::passed_descriptors;

/// The descriptor store of systemd; without systemd, it does nothing.
#[derive(Debug)]
pub(crate) struct ServiceDescriptors {
    /// Address of the notification socket of systemd.
    notify: Option<SocketAddr>,
    /// The inherited descriptors, and the names in the store.
    content: Mutex<StoreContent>,
}

/// The descriptors in the store.
#[derive(Debug, Default)]
struct StoreContent {
    /// Descriptors of an earlier process that no port has taken yet.
    inherited: BTreeMap<String, OwnedFd>,
    /// Names of all descriptors in the store.
    names: BTreeSet<String>,
}

impl ServiceDescriptors {
    /// Takes the descriptors that systemd passed to this process.
    pub(crate) fn new() -> Self {
        let notify = env::var_os("NOTIFY_SOCKET").and_then(|path| address(&path));
        let inherited: BTreeMap<_, _> = passed_descriptors::take_inherited().into_iter().collect();
        let names = inherited.keys().cloned().collect();
        Self { notify, content: Mutex::new(StoreContent { inherited, names }) }
    }

    /// Closes the descriptors that no port has taken, and removes them from the store.
    pub(crate) fn discard_unused(&self) {
        let unused: Vec<_> =
            std::mem::take(&mut self.content.lock().inherited).into_keys().collect();
        for name in unused {
            info!(
                "service manager: the stored descriptor {name} is not used any more, so it is \
                 closed"
            );
            self.remove(&name);
        }
    }

    /// Removes a descriptor from the store; closes it if no port has taken it.
    fn remove(&self, name: &str) {
        {
            let mut content = self.content.lock();
            content.names.remove(name);
            content.inherited.remove(name);
        }
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), None);
    }

    /// Sends a message to systemd, and logs a failure.
    fn send(&self, message: &str, fd: Option<&OwnedFd>) {
        let Some(address) = &self.notify else { return };
        if let Err(error) = send_to(address, message, fd) {
            warn!(%error, "service manager: a descriptor cannot be stored or removed");
        }
    }
}

impl DescriptorStore for ServiceDescriptors {
    fn is_active(&self) -> bool {
        self.notify.is_some()
    }

    fn take(&self, prefix: &str) -> Vec<StoredDescriptor> {
        let mut content = self.content.lock();
        let names = content.inherited.range::<str, _>(names_from(prefix)).map(|(name, _)| name);
        let names: Vec<_> = names.take_while(|name| name.starts_with(prefix)).cloned().collect();
        let taken = names.iter().filter_map(|name| content.inherited.remove_entry(name));
        taken.map(|(name, fd)| StoredDescriptor { name, fd, is_inherited: true }).collect()
    }

    fn keep(&self, prefix: &str, descriptors: Vec<StoredDescriptor>) {
        if self.notify.is_none() {
            return;
        }
        let used: BTreeSet<&str> = descriptors
            .iter()
            .filter(|stored| stored.is_inherited)
            .map(|stored| stored.name.as_str())
            .collect();
        let stale: Vec<_> = {
            let content = self.content.lock();
            let own = content.names.range::<str, _>(names_from(prefix));
            let own = own.take_while(|name| name.starts_with(prefix));
            own.filter(|name| !used.contains(name.as_str())).cloned().collect()
        };
        stale.iter().for_each(|name| self.remove(name));
        for StoredDescriptor { name, fd, is_inherited } in &descriptors {
            if !is_inherited {
                self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0\n"), Some(fd));
                self.content.lock().names.insert(name.clone());
            }
        }
    }
}

/// Returns a range of names that starts at the first name with the prefix `prefix`.
const fn names_from(prefix: &str) -> (Bound<&str>, Bound<&str>) {
    (Bound::Included(prefix), Bound::Unbounded)
}

/// Returns the address of a notification socket;
/// `@` is the start of an abstract name.
fn address(path: &OsStr) -> Option<SocketAddr> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    };
    address.ok()
}

/// Sends a message to the service manager, with a descriptor if there is one.
fn send_to(address: &SocketAddr, message: &str, fd: Option<&OwnedFd>) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(address)?;
    match fd {
        Some(fd) => passed_descriptors::send(&socket, message, fd.as_fd()),
        None => socket.send(message.as_bytes()).map(drop),
    }
}
