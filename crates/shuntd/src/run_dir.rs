//! The run directory of a daemon: pid file, lock and sockets.
//!
//! A daemon owns the directory while it holds a lock on `shuntd.pid`. The kernel releases the lock
//! when the process ends in any way, so files of a killed daemon do not block the next daemon. The
//! pid file has the process id, which is part of the socket name.
//!
//! The file has two locks. The lock of `flock(2)` belongs to the open file and excludes other
//! daemons. The record lock of `fcntl(2)` belongs to the process: `ovs-appctl -t shuntd` considers
//! the file stale if the process with the id in it holds no record lock.
//!
//! A service manager may keep the control socket while the daemon restarts. Meanwhile, the pid file
//! and the socket file stay. A client that connects meanwhile uses the socket of the earlier
//! process, and the next process answers. The next process adds a second file name to the socket,
//! with its own id.
//!
//! Clients of `ovs-vswitchd` also find the daemon: `ovs-vswitchd.pid` and `ovs-vswitchd.PID.ctl`
//! are links to the files of the daemon (module [`links`](crate::run_dir_links)).

use std::{
    collections::BTreeSet,
    fs::{self, DirEntry},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use shunt_switch::SocketInode;
use thiserror::Error;

use crate::{
    lock_file::{LockError, LockFile, lock_record},
    rpc::CallError,
    run_dir_links::VswitchdLinks,
};

/// The reason why a daemon cannot use a run directory.
#[derive(Debug, Error)]
pub(crate) enum ClaimError {
    /// Another daemon uses the run directory.
    #[error("another shuntd (process {process}) runs in {folder}")]
    Taken {
        /// Process id in the pid file.
        process: String,
        /// Path of the run directory.
        folder: String,
    },
    /// The directory cannot be a run directory.
    #[error("--run-dir {folder}: {problem}")]
    Unusable {
        /// Path of the run directory.
        folder: String,
        /// The reason, and the way to correct it.
        problem: String,
    },
    /// A system call for the directory failed.
    #[error("cannot {doing}")]
    System {
        /// The operation that failed.
        doing: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// The run directory of this process; dropping the value releases it.
pub(crate) struct RunDir {
    /// The path of the control socket.
    socket: PathBuf,
    /// File name of the control socket with the process id of an earlier process.
    earlier_socket: Option<PathBuf>,
    /// True if the pid file and the socket file stay for the next process.
    is_left: bool,
    /// Dropped before the lock, so that no link leads to files of another daemon.
    _links: Option<VswitchdLinks>,
    /// The lock of the directory.
    lock: LockFile,
}

impl RunDir {
    /// Creates and locks the directory, unless another daemon uses it.
    ///
    /// The call waits for a daemon that is ending. The call may be cancelled. Socket files in
    /// `inherited` are kept, because an earlier process has passed these sockets to this process.
    ///
    /// # Errors
    ///
    /// If another daemon uses the directory, or a system call fails.
    pub(crate) async fn claim(
        folder: &Path,
        inherited: &BTreeSet<SocketInode>,
    ) -> Result<Self, ClaimError> {
        let shown = folder.display();
        let own_socket = control_socket_path(folder, &std::process::id().to_string());
        let length = own_socket.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            let problem = format!(
                "the path of the control socket in it has {length} bytes, and a socket has at most \
                 {SOCKET_PATH_MAX}: name a directory with a shorter path"
            );
            return Err(ClaimError::Unusable { folder: shown.to_string(), problem });
        }
        let made = fs::create_dir_all(folder);
        made.map_err(|source| refusal(folder, format!("create {shown}"), source))?;
        let pid = pid_file(folder);
        let failed = |source| refusal(folder, format!("write {}", pid.display()), source);
        // A daemon creates its socket at the end of its start, and removes it before it stops.
        let has_no_socket = |process: &str| !control_socket_path(folder, process).exists();
        let lock = match LockFile::lock(&pid, has_no_socket).await {
            Ok(lock) => lock,
            Err(LockError::Taken(process)) => {
                return Err(ClaimError::Taken { process, folder: shown.to_string() });
            }
            Err(LockError::System(source)) => return Err(failed(source)),
        };
        let earlier_socket = control_socket_path(folder, &lock.earlier_id());
        let taken = lock_record(lock.file())
            .and_then(|()| remove_sockets(folder, &earlier_socket, inherited))
            .and_then(|()| take_socket(&earlier_socket, &own_socket))
            .and_then(|is_taken| lock.write_id().map(|()| is_taken));
        let is_taken = taken.map_err(failed)?;
        let links = VswitchdLinks::make(folder, std::process::id());
        Ok(Self {
            socket: own_socket,
            earlier_socket: is_taken.then_some(earlier_socket),
            is_left: false,
            _links: links,
            lock,
        })
    }

    /// Makes the pid file and the socket file stay for the next process.
    pub(crate) const fn leave(&mut self) {
        self.is_left = true;
        self.lock.leave();
    }

    /// Returns the path of the control socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        for path in self.earlier_socket.iter().chain([&self.socket]) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Longest path of a Unix socket in bytes, without its zero byte (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Returns the error of a system call in a run directory, with advice.
fn refusal(folder: &Path, doing: String, source: io::Error) -> ClaimError {
    let advice = match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "the path has a file: name a directory"
        }
        io::ErrorKind::PermissionDenied => {
            "the user of the daemon may not write there: give the directory to this user, start the \
             daemon as its owner, or name another directory"
        }
        _ => return ClaimError::System { doing, source },
    };
    let problem = format!("cannot {doing}: {advice}");
    ClaimError::Unusable { folder: folder.display().to_string(), problem }
}

/// Returns the control socket of the daemon in a run directory, from its pid file.
///
/// # Errors
///
/// If the pid file does not exist, is empty, or cannot be read.
pub(crate) fn find_socket(folder: &Path) -> Result<PathBuf, CallError> {
    let file = pid_file(folder);
    let missing = |reason| CallError::NoDaemon { folder: folder.display().to_string(), reason };
    match fs::read_to_string(&file) {
        Ok(id) if id.trim().is_empty() => Err(missing(format!("{} is empty", file.display()))),
        Ok(id) => Ok(control_socket_path(folder, id.trim())),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(CallError::NotPermitted { path: file.display().to_string() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(missing(format!("{} does not exist", file.display())))
        }
        Err(error) => Err(missing(format!("cannot read {}: {error}", file.display()))),
    }
}

/// Waits until the daemon with a control socket has released its run directory.
///
/// The daemon closes its connections before its devices.
///
/// # Errors
///
/// If the daemon takes longer than `longest`.
pub(crate) fn wait_for_release(
    folder: &Path,
    socket: &Path,
    longest: Duration,
) -> Result<(), CallError> {
    let mut waited = Duration::ZERO;
    while find_socket(folder).is_ok_and(|found| found == socket) {
        if waited > longest {
            return Err(CallError::StillRuns { seconds: longest.as_secs() });
        }
        sleep(RELEASE_PAUSE);
        waited += RELEASE_PAUSE;
    }
    Ok(())
}

/// Pause between two checks of a run directory that is about to be released.
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

/// Returns the path of the PID file.
fn pid_file(folder: &Path) -> PathBuf {
    folder.join("shuntd.pid")
}

/// Returns the path of the control socket with an id.
fn control_socket_path(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("shuntd.{id}.ctl"))
}

/// Removes the control and management sockets of killed daemons.
///
/// The caller holds the lock, so no other daemon uses the directory. Sockets in `inherited` remain:
/// sockets of bridges, and the control socket under the name that the pid file leads to.
fn remove_sockets(
    folder: &Path,
    earlier_socket: &Path,
    inherited: &BTreeSet<SocketInode>,
) -> io::Result<()> {
    remove_entries(folder, |name, entry| {
        let is_control = is_control_socket(name, "shuntd");
        if !(is_control || name.ends_with(".mgmt")) || !entry.file_type()?.is_socket() {
            return Ok(false);
        }
        let found = entry.metadata()?;
        let is_inherited = inherited.contains(&(found.dev(), found.ino()));
        Ok(!is_inherited || is_control && entry.path() != earlier_socket)
    })
}

/// Adds a second file name to the inherited control socket; false if there is none.
fn take_socket(earlier: &Path, own: &Path) -> io::Result<bool> {
    // In containers, each daemon may have the same process id.
    if earlier == own {
        return Ok(false);
    }
    match fs::hard_link(earlier, own) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // The file system does not support hard links.
        Err(_) => fs::rename(earlier, own).map(|()| false),
    }
}

/// Removes the entries of a directory for which a function returns true.
///
/// The function gets the name of each entry.
pub(crate) fn remove_entries(
    folder: &Path,
    is_stale: impl Fn(&str, &DirEntry) -> io::Result<bool>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_stale(entry.file_name().to_str().unwrap_or_default(), &entry)? {
            remove_if_present(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file, if it exists.
pub(crate) fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a file name is the name of a control socket: `PROGRAM.PID.ctl`.
pub(crate) fn is_control_socket(name: &str, program: &str) -> bool {
    let id = name.strip_prefix(program).and_then(|name| name.strip_prefix('.'));
    let id = id.and_then(|name| name.strip_suffix(".ctl"));
    id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Returns the socket files that an earlier process with id 1 has left.
    fn left_by_process_1(folder: &Path) -> (UnixListener, BTreeSet<SocketInode>) {
        let path = folder.join("shuntd.1.ctl");
        let listener = UnixListener::bind(&path).unwrap();
        fs::write(pid_file(folder), "1\n").unwrap();
        let found = fs::symlink_metadata(path).unwrap();
        (listener, BTreeSet::from([(found.dev(), found.ino())]))
    }

    #[tokio::test]
    async fn an_inherited_control_socket_has_both_names() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (_listener, inherited) = left_by_process_1(folder);
        let claimed = RunDir::claim(folder, &inherited).await.unwrap();
        let (own, earlier) = (claimed.socket().to_owned(), folder.join("shuntd.1.ctl"));
        assert_eq!(find_socket(folder).unwrap(), own);
        for path in [&own, &earlier] {
            UnixStream::connect(path).unwrap();
        }
        drop(claimed);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn an_unusable_directory_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let claim = async |path: &Path| {
            let claimed = RunDir::claim(path, &BTreeSet::new()).await;
            claimed.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = claim(&path).await;
            assert!(error.ends_with("the path has a file: name a directory"), "{error}");
        }
        let error = claim(&folder.path().join("x".repeat(99))).await;
        assert!(error.ends_with("at most 107: name a directory with a shorter path"), "{error}");
        let error = refusal(&file, "write x".into(), io::ErrorKind::PermissionDenied.into());
        assert!(error.to_string().contains("cannot write x: the user of the daemon may not"));
    }

    #[tokio::test]
    async fn the_socket_of_a_killed_daemon_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let _ = left_by_process_1(folder.path());
        let claimed = RunDir::claim(folder.path(), &BTreeSet::new()).await.unwrap();
        assert!(!folder.path().join("shuntd.1.ctl").exists() && !claimed.socket().exists());
    }

    #[tokio::test]
    async fn remaining_names_lead_to_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let mut claimed = RunDir::claim(folder.path(), &BTreeSet::new()).await.unwrap();
        let socket = claimed.socket().to_owned();
        let _listener = UnixListener::bind(&socket).unwrap();
        claimed.leave();
        drop(claimed);
        assert_eq!(find_socket(folder.path()).unwrap(), socket);
        assert!(socket.exists());
    }
}
