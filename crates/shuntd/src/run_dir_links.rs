//! The file names of `ovs-vswitchd` in a run directory, as links to the files of this daemon.
//!
//! `ovs-appctl` without `-t` reads `ovs-vswitchd.pid` and connects to `ovs-vswitchd.PID.ctl`.
//! `ovs-appctl` checks that the process holds a record lock on the pid file. So the link to the pid
//! file leads to the locked file itself.
//!
//! If an `ovs-vswitchd` is running and owns these names, they are not changed.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, symlink},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
};
use tracing::{info, warn};

use crate::{
    lock_file::record_owner,
    run_dir::{is_control_socket, remove_entries, remove_if_present},
};

/// Name of the PID file of Open vSwitch.
const PID_FILE: &str = "ovs-vswitchd.pid";

/// The links of this process; dropping the value removes them.
pub(crate) struct VswitchdLinks(Vec<PathBuf>);

impl VswitchdLinks {
    /// Creates the links, unless another daemon has the pid file or may have it.
    ///
    /// The caller owns the run directory, so existing links to files of other `shuntd` processes
    /// are stale.
    pub(crate) fn make(folder: &Path, process: u32) -> Option<Self> {
        let pid_file = folder.join(PID_FILE);
        let shown = pid_file.display();
        match owner(&pid_file) {
            Ok(None) => {}
            Ok(Some(owner)) => {
                info!(
                    "{shown}: this file belongs to process {owner}, so ovs-appctl needs `-t \
                     shuntd`"
                );
                return None;
            }
            Err(error) => {
                warn!(%error, "{shown}: this file may belong to another daemon, so ovs-appctl \
                               needs `-t shuntd`");
                return None;
            }
        }
        let mut links = Self(Vec::new());
        let socket = folder.join(format!("ovs-vswitchd.{process}.ctl"));
        let made = remove_stale(folder)
            .and_then(|()| links.add(socket, &format!("shuntd.{process}.ctl")))
            .and_then(|()| remove_if_present(&pid_file))
            .and_then(|()| links.add(pid_file, "shuntd.pid"));
        if let Err(error) = made {
            warn!(%error, "{}: the links for ovs-appctl cannot be created, so it needs `-t \
                           shuntd`", folder.display());
        }
        Some(links)
    }

    /// Creates a link, and remembers to remove it.
    fn add(&mut self, link: PathBuf, target: &str) -> io::Result<()> {
        symlink(target, &link)?;
        self.0.push(link);
        Ok(())
    }
}

impl Drop for VswitchdLinks {
    fn drop(&mut self) {
        for link in &self.0 {
            let _ = fs::remove_file(link);
        }
    }
}

/// Returns the process that holds a record lock on a pid file of another daemon.
///
/// A symbolic link belongs to a `shuntd` and must not be opened: closing it would release the lock
/// on this daemon's own pid file.
///
/// # Errors
///
/// If the owner cannot be determined. The file may then belong to a running daemon.
fn owner(pid_file: &Path) -> io::Result<Option<i32>> {
    let kind = match fs::symlink_metadata(pid_file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?.file_type(),
    };
    if kind.is_symlink() {
        return Ok(None);
    }
    // Opening a named pipe would wait for a writer.
    if !kind.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    record_owner(&File::open(pid_file)?)
}

/// Removes links and sockets of killed daemons.
fn remove_stale(folder: &Path) -> io::Result<()> {
    remove_entries(folder, |name, entry| {
        let kind = entry.file_type()?;
        let is_stale =
            || kind.is_symlink() || kind.is_socket() && refuses_connections(&entry.path());
        Ok(is_control_socket(name, "ovs-vswitchd") && is_stale())
    })
}

/// Returns whether no process listens on a socket.
fn refuses_connections(path: &Path) -> bool {
    // A non-blocking connect returns immediately, even if the queue of a hanging process is full.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let attempt = || {
        let client = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(client.as_raw_fd(), &UnixAddr::new(path)?)
    };
    attempt() == Err(Errno::ECONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_replace_files_of_killed_daemons() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at(PID_FILE), "999999\n").unwrap();
        symlink("shuntd.999999.ctl", at("ovs-vswitchd.999999.ctl")).unwrap();
        fs::write(at("ovs-vswitchd.log"), "").unwrap();
        let links = VswitchdLinks::make(folder.path(), 7).unwrap();
        assert_eq!(fs::read_link(at(PID_FILE)).unwrap(), Path::new("shuntd.pid"));
        let socket = fs::read_link(at("ovs-vswitchd.7.ctl")).unwrap();
        assert_eq!(socket, Path::new("shuntd.7.ctl"));
        assert!(fs::symlink_metadata(at("ovs-vswitchd.999999.ctl")).is_err());
        drop(links);
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "the log of the other daemon stays");
    }

    #[test]
    fn the_socket_of_a_running_daemon_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _live = UnixListener::bind(at("ovs-vswitchd.99999.ctl")).unwrap();
        drop(UnixListener::bind(at("ovs-vswitchd.99998.ctl")).unwrap());
        // The socket of a process that has the same id in another container.
        let _same = UnixListener::bind(at("ovs-vswitchd.7.ctl")).unwrap();
        drop(VswitchdLinks::make(folder.path(), 7));
        let kind = |name| fs::symlink_metadata(at(name)).map(|found| found.file_type().is_socket());
        assert!(kind("ovs-vswitchd.99999.ctl").unwrap() && kind("ovs-vswitchd.7.ctl").unwrap());
        assert!(kind("ovs-vswitchd.99998.ctl").is_err(), "no process listens on this one");
    }

    /// A pid file without a known owner may belong to a running daemon.
    #[test]
    fn unreadable_pid_file_prevents_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at(PID_FILE)).unwrap();
        symlink("shuntd.999999.ctl", at("ovs-vswitchd.999999.ctl")).unwrap();
        assert!(VswitchdLinks::make(folder.path(), 7).is_none());
        assert!(fs::symlink_metadata(at("ovs-vswitchd.999999.ctl")).is_ok());
        assert!(fs::symlink_metadata(at("ovs-vswitchd.7.ctl")).is_err());
        fs::remove_dir(at(PID_FILE)).unwrap();
        // The name is longer than the kernel allows, so the file cannot be examined.
        assert!(owner(&at(&"x".repeat(300))).is_err());
        assert_eq!(owner(&at(PID_FILE)).unwrap(), None);
    }
}
