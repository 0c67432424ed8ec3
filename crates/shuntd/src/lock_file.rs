//! A locked file that contains the process id of its owner.
//!
//! The kernel releases the lock when the process ends in any way, so the file of a killed process
//! blocks no other process. An ending process holds its locks until the kernel has closed its
//! devices, which takes seconds with many ports. So a new process waits for the lock of an ending
//! process.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use thiserror::Error;
use tokio::time::sleep;
use tracing::info;

/// The reason why a file cannot be locked.
#[derive(Debug, Error)]
pub(crate) enum LockError {
    /// Another process holds the lock; the variant has its process id.
    #[error("the lock is held by process {0}")]
    Taken(String),
    /// A system call for the file failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A locked file; dropping it removes the file and releases the lock.
pub(crate) struct LockFile {
    /// The path of the file.
    path: PathBuf,
    /// The open file, which holds the lock.
    file: File,
    /// True if the file stays when the lock is released.
    is_left: bool,
}

/// Maximum number of attempts to lock the file of a running process.
///
/// The running process may end at this moment.
const ATTEMPTS_MAX: u32 = 50;

/// Maximum number of attempts to lock the file of an ending process.
///
/// The attempts take about ten seconds.
const ATTEMPTS_MAX_ENDING: u32 = 500;

/// Maximum number of bytes of a process id in a file.
const ID_BYTES_MAX: usize = 32;

/// Pause between two attempts to lock the file.
const PAUSE: Duration = Duration::from_millis(20);

impl LockFile {
    /// Creates and locks a file; the caller must then call [`Self::write_id`].
    ///
    /// `is_ending` returns whether the process with a given id is about to release the lock. The
    /// call then waits for the lock; it may be cancelled.
    ///
    /// # Errors
    ///
    /// If another process holds the lock, or a system call fails.
    pub(crate) async fn lock(
        path: &Path,
        is_ending: impl Fn(&str) -> bool,
    ) -> Result<Self, LockError> {
        let (mut attempts, mut is_logged) = (0, false);
        loop {
            attempts += 1;
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(path)?;
            match file.try_lock() {
                // The previous owner, which has just ended, removed the file. Another process may
                // have created a new file.
                Ok(()) if !is_at(&file, path) => continue,
                Ok(()) => return Ok(Self { path: path.to_owned(), file, is_left: false }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            let process = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            let is_ending = has_freed_memory(&process) || is_ending(&process);
            if attempts >= if is_ending { ATTEMPTS_MAX_ENDING } else { ATTEMPTS_MAX } {
                let is_known = !process.is_empty();
                let process = if is_known { process } else { "with unknown id".to_owned() };
                return Err(LockError::Taken(process));
            }
            if is_ending && !is_logged {
                info!(
                    "{}: waiting for process {process}, which is starting or ending",
                    path.display()
                );
                is_logged = true;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the content of the file: the process id of an earlier owner.
    ///
    /// The text is empty if no earlier owner has left the file.
    pub(crate) fn earlier_id(&self) -> String {
        let mut text = [0; ID_BYTES_MAX];
        let length = self.file.read_at(&mut text, 0).unwrap_or_default();
        let text = text.get(..length).unwrap_or_default();
        String::from_utf8_lossy(text).trim().to_owned()
    }

    /// Writes the id of this process to the file.
    ///
    /// At any time, a reader finds the earlier id or this id, and never an empty file.
    pub(crate) fn write_id(&self) -> io::Result<()> {
        let mut text = format!("{}\n", std::process::id()).into_bytes();
        let length = text.len();
        // All bytes of a longer earlier id are overwritten by the same write.
        text.resize(ID_BYTES_MAX, b'\n');
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(length as u64)
    }

    /// Makes the file stay when the lock is released.
    pub(crate) const fn leave(&mut self) {
        self.is_left = true;
    }

    /// Returns the locked file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if !self.is_left {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes the record lock of `fcntl(2)` on the whole file.
///
/// The kernel releases the lock when the process closes any descriptor of the file. So no other
/// code in this process may open the file.
pub(crate) fn lock_record(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETLK(&whole_file())).map(drop).map_err(io::Error::from)
}

/// Returns the id of another process that holds a record lock on a file.
pub(crate) fn record_owner(file: &File) -> io::Result<Option<i32>> {
    let mut lock = whole_file();
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid))
}

/// Returns the request for a record lock on a whole file.
#[expect(clippy::cast_possible_truncation, reason = "the constants are small")]
const fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Returns whether the kernel has already freed the memory of an exiting process.
///
/// A killed process may still have open files.
fn has_freed_memory(process: &str) -> bool {
    let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        && fs::read_link(format!("/proc/{process}/exe"))
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns whether a path leads to the open file `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, there) = (file.metadata().map(inode), fs::metadata(path).map(inode));
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}
