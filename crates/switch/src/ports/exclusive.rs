//! Exclusive resources of ports: a network device, a socket, or a capture file that is written.
//!
//! Two sockets on one device would each receive all packets, and two writers of one file would
//! overwrite each other. Several ports may read one file, or write to `/dev/null` or a pipe.

use std::{
    fmt,
    path::{Path, PathBuf, absolute},
};

use shunt_datapath::port::{device_name, memif::MemifRole};

use crate::{
    config::{PortOptions, PortType},
    error::SwitchError,
};

/// Maximum number of chained symbolic links (see `path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// A resource that only one port may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ExclusiveResource {
    /// A network device, by name.
    Device(String),
    /// A DPDK device, by name.
    DpdkDevice(String),
    /// A capture file for writing, or a socket.
    File(PathBuf),
    /// One interface of a memif socket; the socket may have other interfaces.
    Memif {
        /// The path or abstract name of the socket.
        socket: PathBuf,
        /// The number of the interface.
        id: u32,
        /// The role of the switch at the socket.
        role: MemifRole,
    },
}

impl ExclusiveResource {
    /// Returns the exclusive resource of a port, and the key that selects it.
    pub(crate) fn of(port: &PortOptions) -> Option<(&'static str, Self)> {
        match port.kind {
            PortType::AfPacket | PortType::AfXdp | PortType::Tap => {
                Some(("device", Self::Device(port.device().to_owned())))
            }
            PortType::Pcap if !port.tx.as_os_str().is_empty() && !is_shared(&port.tx) => {
                Some(("tx", Self::File(canonical_path(&port.tx))))
            }
            PortType::VhostUser => Some(("path", Self::File(canonical_path(&port.path)))),
            PortType::Memif => {
                // An abstract socket has no file.
                let is_file = port.socket.is_absolute();
                let socket =
                    if is_file { canonical_path(&port.socket) } else { port.socket.clone() };
                Some(("id", Self::Memif { socket, id: port.id, role: port.role }))
            }
            PortType::Dpdk => {
                let device = device_name(&port.devargs).to_owned();
                Some(("devargs", Self::DpdkDevice(device)))
            }
            PortType::Pcap | PortType::Null | PortType::Patch | PortType::Unbound => None,
        }
    }

    /// Returns the error that port `port` of `bridge` already has the resource.
    pub(crate) fn in_use_by(&self, port: &str, bridge: &str) -> SwitchError {
        let (what, port, bridge) = (self.to_string(), port.to_owned(), bridge.to_owned());
        SwitchError::InUse { what, port, bridge }
    }
}

impl fmt::Display for ExclusiveResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DpdkDevice(name) => write!(f, "DPDK device {name}"),
            Self::Device(name) => write!(f, "device {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Memif { socket, id, role } => {
                write!(f, "memif {} with id {id} at {}", role.name(), socket.display())
            }
        }
    }
}

/// Returns whether several ports can write to the file at this path without damage.
fn is_shared(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file())
}

/// Returns the canonical path of a file, even if the file does not exist yet.
///
/// Several hard links of a file are not detected.
fn canonical_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(found) = path.canonicalize() {
            return found;
        }
        // A dangling link resolves to the path of its target.
        let Ok(target) = path.read_link() else { break };
        path = folder(&path).join(target);
    }
    let whole = folder(&path).canonicalize().ok().zip(path.file_name());
    let whole = whole.map(|(folder, name)| folder.join(name));
    whole.or_else(|| absolute(&path).ok()).unwrap_or(path)
}

/// Returns the folder of a file.
fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_file(path: &Path) -> Option<(&'static str, ExclusiveResource)> {
        ExclusiveResource::of(&PortOptions {
            kind: PortType::Pcap,
            tx: path.to_owned(),
            ..PortOptions::default()
        })
    }

    #[test]
    fn a_file_is_recognised_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pcap");
        let before = written_file(&file);
        assert_eq!(before, written_file(&folder.path().join("./out.pcap")));
        std::fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!((written_file(&file), written_file(&link)), (before.clone(), before));
        assert_ne!(written_file(&folder.path().join("other.pcap")), written_file(&file));
    }

    #[test]
    fn a_symbolic_link_claims_its_future_target() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, other) =
            ["out.pcap", "link", "other"].map(|name| folder.path().join(name)).into();
        std::os::unix::fs::symlink("out.pcap", &link).unwrap();
        std::os::unix::fs::symlink(&link, &other).unwrap();
        assert_eq!(
            (written_file(&link), written_file(&other)),
            (written_file(&file), written_file(&file))
        );
        let around = folder.path().join("around");
        std::os::unix::fs::symlink(&around, &around).unwrap();
        assert_ne!(written_file(&around), written_file(&file));
    }

    #[test]
    fn devices_and_pipes_can_be_shared() {
        assert_eq!(written_file(Path::new("/dev/null")), None);
    }

    #[test]
    fn reading_port_needs_no_exclusive_resource() {
        let port =
            PortOptions { kind: PortType::Pcap, rx: "in.pcap".into(), ..PortOptions::default() };
        assert_eq!(ExclusiveResource::of(&port), None);
    }
}
