//! The run directory: what a daemon has there, and how its client finds it.
//!
//! A daemon has the directory while it holds a lock on `shuntd.pid`. The system lets go of the lock
//! when the process ends, however it ends, so what a daemon that was killed leaves behind keeps nobody
//! out. The file is there for people and clients: it says which process, and so which socket.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use thiserror::Error;

/// Why a daemon cannot have a run directory.
#[derive(Debug, Error)]
pub(crate) enum ClaimError {
    /// Another daemon has it.
    #[error("another shuntd (process {process}) runs in {folder}")]
    Taken {
        /// What its pid file says.
        process: String,
        /// The directory.
        folder: String,
    },
    /// The system refused.
    #[error("cannot {doing}")]
    System {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A run directory that this process has until it drops this.
pub(crate) struct RunDir {
    pid: PathBuf,
    socket: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// How often a daemon asks for the directory before it gives up. One that was killed a moment ago
/// still holds it: the system takes a while to close its devices.
const CLAIMS_MAX: u32 = 50;

/// Pause before a daemon asks again.
const CLAIM_PAUSE: Duration = Duration::from_millis(20);

impl RunDir {
    /// Makes the directory and takes it, unless a daemon runs there.
    pub(crate) fn claim(folder: &Path) -> Result<Self, ClaimError> {
        let shown = folder.display();
        let made = fs::create_dir_all(folder);
        made.map_err(|source| ClaimError::System { doing: format!("make {shown}"), source })?;
        let pid = pid_file(folder);
        let doing = || format!("write {}", pid.display());
        let failed = |source| ClaimError::System { doing: doing(), source };
        for _ in 0..CLAIMS_MAX {
            let open =
                File::options().read(true).write(true).create(true).truncate(false).open(&pid);
            let file = open.map_err(failed)?;
            match file.try_lock() {
                // One that just ended has removed the file: another may have made a new one.
                Ok(()) if !is_at(&file, &pid) => {}
                Ok(()) => return Self::hold(file, folder).map_err(failed),
                Err(TryLockError::WouldBlock) => sleep(CLAIM_PAUSE),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        let process = fs::read_to_string(&pid).unwrap_or_default().trim().to_owned();
        let process = if process.is_empty() { "of unknown number".to_owned() } else { process };
        Err(ClaimError::Taken { process, folder: shown.to_string() })
    }

    fn hold(mut lock: File, folder: &Path) -> io::Result<Self> {
        let id = std::process::id();
        lock.set_len(0)?;
        lock.write_all(format!("{id}\n").as_bytes())?;
        remove_sockets(folder)?;
        Ok(Self { pid: pid_file(folder), socket: socket(folder, &id.to_string()), _lock: lock })
    }

    /// Where the control socket goes.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(&self.pid);
    }
}

/// The control socket of the daemon that has a run directory, as its pid file says.
///
/// # Errors
///
/// What is wrong with the file, for people.
pub(crate) fn find_socket(folder: &Path) -> Result<PathBuf, String> {
    let file = pid_file(folder);
    match fs::read_to_string(&file) {
        Ok(id) if id.trim().is_empty() => Err(format!("{} is empty", file.display())),
        Ok(id) => Ok(socket(folder, id.trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no {}", file.display()))
        }
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

fn pid_file(folder: &Path) -> PathBuf {
    folder.join("shuntd.pid")
}

fn socket(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("shuntd.{id}.ctl"))
}

/// Removes the sockets of daemons that were killed: who holds the lock knows that there are no others.
fn remove_sockets(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("shuntd.")?.strip_suffix(".ctl"));
        if id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit())) {
            fs::remove_file(folder.join(&name))?;
        }
    }
    Ok(())
}

/// Whether a path leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, there) = (file.metadata().map(inode), fs::metadata(path).map(inode));
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}
