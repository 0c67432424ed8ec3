//! The names of `ovs-vswitchd` in a run directory, as links to the files of this daemon.
//!
//! `ovs-appctl` without `-t` reads `ovs-vswitchd.pid` and connects to `ovs-vswitchd.PID.ctl`. It checks
//! that the process holds a record lock on the pid file. A link leads to the locked file itself.
//!
//! The names belong to a running `ovs-vswitchd` if there is one: then nothing is changed.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, symlink},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use tracing::{info, warn};

const PID_FILE: &str = "ovs-vswitchd.pid";

/// The links of this process; dropping it removes them.
pub(crate) struct VswitchdLinks(Vec<PathBuf>);

impl VswitchdLinks {
    /// Makes the links, unless another daemon has the pid file.
    ///
    /// The caller owns the run directory, so links to files of other `shuntd` processes are stale.
    pub(crate) fn make(folder: &Path, process: u32) -> Option<Self> {
        let pid_file = folder.join(PID_FILE);
        if let Some(owner) = owner(&pid_file) {
            info!(
                "{}: belongs to process {owner}, so ovs-appctl needs `-t shuntd`",
                pid_file.display()
            );
            return None;
        }
        let mut links = Self(Vec::new());
        let socket = folder.join(format!("ovs-vswitchd.{process}.ctl"));
        let made = remove_stale(folder)
            .and_then(|()| links.add(socket, &format!("shuntd.{process}.ctl")))
            .and_then(|()| links.add(pid_file, "shuntd.pid"));
        if let Err(error) = made {
            warn!(%error, "{}: no links for ovs-appctl, which needs `-t shuntd`", folder.display());
        }
        Some(links)
    }

    fn add(&mut self, link: PathBuf, target: &str) -> io::Result<()> {
        remove_if_present(&link)?;
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
/// A link is of a `shuntd`. It must not be opened: closing it would release the lock on the own pid
/// file.
fn owner(pid_file: &Path) -> Option<i32> {
    if fs::symlink_metadata(pid_file).ok()?.is_symlink() {
        return None;
    }
    let file = File::options().read(true).write(true).open(pid_file).ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "small constants")]
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    (i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
}

/// Removes the links and sockets of daemons that were killed.
fn remove_stale(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let id = name.strip_prefix("ovs-vswitchd.").and_then(|name| name.strip_suffix(".ctl"));
        let is_control = id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
        let kind = entry.file_type()?;
        if is_control && (kind.is_symlink() || kind.is_socket()) {
            remove_if_present(&entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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
}
