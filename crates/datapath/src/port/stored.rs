//! The store for file descriptors of ports that outlive the process.
//!
//! A service manager such as systemd keeps descriptors of a daemon that restarts
//! (`sd_pid_notify_with_fds(3)`, `FDSTORE=1`). While the service manager holds the queues of a
//! port, the device keeps its carrier and its addresses, and the kernel queues the packets that
//! arrive. The next process takes the queues, and forwards these packets.
//!
//! The name of a descriptor starts with the prefix of its port ([`PortSpec::store_prefix`]). The
//! name of a queue contains its number and its layout. A port takes a descriptor only if it is a
//! queue of that device and layout. A port refuses other descriptors, and opens new queues in their
//! place.

use std::{
    fmt::Debug,
    io,
    os::fd::{AsFd, OwnedFd},
};

use tracing::warn;

use super::PortSpec;

/// A file descriptor of a port, for a process that starts later.
#[derive(Debug)]
pub struct StoredDescriptor {
    /// Name of the descriptor: printable ASCII without colon.
    pub name: String,
    /// The file descriptor that is stored.
    pub fd: OwnedFd,
    /// True if an earlier process has stored the descriptor under this name.
    ///
    /// The descriptor is then in the store already.
    pub is_inherited: bool,
}

/// A store of descriptors that outlives the process.
///
/// Names are unique. Calls may wait for a moment, so control threads alone make them.
pub trait DescriptorStore: Debug + Send + Sync {
    /// Returns whether stored descriptors outlive the process.
    fn is_active(&self) -> bool;

    /// Takes the descriptors of an earlier process with names that have this prefix.
    ///
    /// A descriptor can be taken once. The descriptor stays in the store until [`Self::keep`] or
    /// [`Self::discard`].
    fn take(&self, prefix: &str) -> Vec<StoredDescriptor>;

    /// Stores descriptors, and removes other descriptors with this prefix.
    fn keep(&self, prefix: &str, descriptors: Vec<StoredDescriptor>);

    /// Removes the descriptors with this prefix from the store.
    fn discard(&self, prefix: &str) {
        self.keep(prefix, Vec::new());
    }
}

/// A store that keeps nothing: descriptors end with the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDescriptorStore;

impl DescriptorStore for NoDescriptorStore {
    fn is_active(&self) -> bool {
        false
    }

    fn take(&self, _prefix: &str) -> Vec<StoredDescriptor> {
        Vec::new()
    }

    fn keep(&self, _prefix: &str, _descriptors: Vec<StoredDescriptor>) {}
}

impl PortSpec {
    /// Returns the prefix of the names of the port's descriptors in the store.
    ///
    /// `None` for ports without stored descriptors. A hypervisor, and the peer of a memif port, send
    /// their descriptors again. A device of DPDK has no descriptors.
    #[must_use]
    pub fn store_prefix(&self) -> Option<String> {
        match self {
            Self::AfPacket { device, .. } => Some(format!("af_packet/{device}/")),
            Self::AfXdp { device, .. } => Some(format!("af_xdp/{device}/")),
            Self::Tap { device, .. } => Some(format!("tap/{device}/")),
            Self::Null
            | Self::Pcap { .. }
            | Self::VhostUser { .. }
            | Self::Memif(_)
            | Self::Dpdk { .. } => None,
        }
    }
}

/// The reason why a port does not use a descriptor of an earlier process.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefusedDescriptor {
    #[error("the stored descriptor is not {0}")]
    Kind(&'static str),
    #[error("the stored descriptor belongs to another device or network namespace")]
    Device,
    #[error("the stored receive ring has another layout than this version of shuntd uses")]
    Layout,
    #[error("the descriptor {0} was not stored")]
    Missing(String),
    #[error("the stored descriptor belongs to a queue that the port does not have")]
    Surplus,
    #[error("the kernel still sends frames that the earlier process left in the stored socket")]
    Unsettled,
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Returns the descriptors that pass a check, in the order of their names.
///
/// Logs each descriptor that does not pass, with the reason.
pub(super) fn accepted(
    device: &str,
    mut inherited: Vec<StoredDescriptor>,
    check: impl Fn(&StoredDescriptor) -> Result<(), RefusedDescriptor>,
) -> Vec<StoredDescriptor> {
    inherited.sort_by(|one, other| one.name.cmp(&other.name));
    inherited.retain(|stored| match check(stored) {
        Ok(()) => true,
        Err(error) => {
            let name = &stored.name;
            warn!(
                "device {device}: the stored descriptor {name} is refused: {error}; it is replaced"
            );
            false
        }
    });
    inherited
}

/// Returns a copy of a descriptor to store; `None` if the kernel refuses a copy.
///
/// A queue that an earlier process stored under another name must be stored again: the number in
/// the name changes when the port refuses a queue with a smaller number.
pub(super) fn copy(
    name: String,
    fd: &impl AsFd,
    stored_name: Option<&str>,
) -> Option<StoredDescriptor> {
    let fd = fd.as_fd().try_clone_to_owned().ok()?;
    let is_inherited = stored_name == Some(name.as_str());
    Some(StoredDescriptor { name, fd, is_inherited })
}
