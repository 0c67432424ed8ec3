//! The lock on a log file, which `ovsdb-server` and `ovsdb-tool` take as well.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};

use crate::error::LogError;

/// A file lock, which is released when the value is dropped or the process ends.
#[derive(Debug)]
pub(super) struct FileLock {
    /// The lock belongs to the open file.
    _file: File,
}

impl FileLock {
    /// Locks a log by the file `.NAME.~lock~` beside it.
    ///
    /// The lock is a lock of `fcntl`, which excludes other processes only.
    pub(super) fn take(path: &Path) -> Result<Self, LogError> {
        let failed = |source| LogError::Io { path: path.to_owned(), action: "locking", source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(lock_path(path)).map_err(failed)?;
        let lock =
            libc::flock { l_type: WRITE_LOCK, l_whence: START, l_start: 0, l_len: 0, l_pid: 0 };
        match fcntl(&file, FcntlArg::F_SETLK(&lock)) {
            Ok(_) => Ok(Self { _file: file }),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(LogError::Locked { path: path.to_owned() }),
            Err(errno) => Err(failed(io::Error::from(errno))),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the constant is 1")]
const WRITE_LOCK: libc::c_short = libc::F_WRLCK as libc::c_short;
/// The start of the file, from which the lock counts.
#[expect(clippy::cast_possible_truncation, reason = "the constant is 0")]
const START: libc::c_short = libc::SEEK_SET as libc::c_short;

/// Returns the path of the lock file of a log.
fn lock_path(path: &Path) -> PathBuf {
    // As in Open vSwitch, the lock is beside the file itself, not beside a link to the file.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.~lock~"))
}
