//! What a port has for itself: no two ports may use one network device, or write one capture file.
//!
//! Two sockets on one device would each receive all of its packets, and two writers of one file would
//! write over one another. A file may be read by as many as like, and what is no file of a disk
//! (`/dev/null`, a pipe) may be written by as many.

use std::{
    fmt,
    path::{Path, PathBuf, absolute},
};

use crate::{
    config::{Port, PortType},
    error::SwitchError,
};

/// Links that lead to one another, at most (as Linux has it: `path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// What only one port may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exclusive {
    /// A network device, by its name.
    Device(String),
    /// A capture file that is written.
    File(PathBuf),
}

impl Exclusive {
    /// What a port has for itself, and the setting that says so.
    pub(crate) fn of(port: &Port) -> Option<(&'static str, Self)> {
        match port.kind {
            PortType::AfPacket | PortType::Tap => {
                Some(("device", Self::Device(port.device().to_owned())))
            }
            PortType::Pcap if !port.tx.as_os_str().is_empty() && !is_shared(&port.tx) => {
                Some(("tx", Self::File(place(&port.tx))))
            }
            PortType::Pcap | PortType::Null | PortType::Patch | PortType::Unbound => None,
        }
    }

    /// What to say where it is a port's already.
    pub(crate) fn is_of(&self, port: &str, bridge: &str) -> SwitchError {
        let (what, port, bridge) = (self.to_string(), port.to_owned(), bridge.to_owned());
        SwitchError::InUse { what, port, bridge }
    }
}

impl fmt::Display for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => write!(f, "device {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// Whether there is something at a path that several can write to without harm.
fn is_shared(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file())
}

/// One path for all that lead to a file, by links too, which need not be there yet. Names of one file
/// that are no links to one another (hard links) are not told.
fn place(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(found) = path.canonicalize() {
            return found;
        }
        // Of a link to what is not there yet, that is the place.
        let Ok(target) = path.read_link() else { break };
        path = folder(&path).join(target);
    }
    let whole = folder(&path).canonicalize().ok().zip(path.file_name());
    let whole = whole.map(|(folder, name)| folder.join(name));
    whole.or_else(|| absolute(&path).ok()).unwrap_or(path)
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(path: &Path) -> Option<(&'static str, Exclusive)> {
        Exclusive::of(&Port { kind: PortType::Pcap, tx: path.to_owned(), ..Port::default() })
    }

    #[test]
    fn a_file_is_the_same_by_whatever_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pcap");
        let before = writes(&file);
        assert_eq!(before, writes(&folder.path().join("./out.pcap")));
        std::fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!((writes(&file), writes(&link)), (before.clone(), before));
        assert_ne!(writes(&folder.path().join("other.pcap")), writes(&file));
    }

    #[test]
    fn a_link_leads_to_its_file_before_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, other) =
            ["out.pcap", "link", "other"].map(|name| folder.path().join(name)).into();
        std::os::unix::fs::symlink("out.pcap", &link).unwrap();
        std::os::unix::fs::symlink(&link, &other).unwrap();
        assert_eq!((writes(&link), writes(&other)), (writes(&file), writes(&file)));
        let around = folder.path().join("around");
        std::os::unix::fs::symlink(&around, &around).unwrap();
        assert_ne!(writes(&around), writes(&file));
    }

    #[test]
    fn what_is_no_file_of_a_disk_is_for_all() {
        assert_eq!(writes(Path::new("/dev/null")), None);
    }

    #[test]
    fn a_port_that_only_reads_has_nothing_for_itself() {
        let port = Port { kind: PortType::Pcap, rx: "in.pcap".into(), ..Port::default() };
        assert_eq!(Exclusive::of(&port), None);
    }
}
