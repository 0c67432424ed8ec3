//! The state file of a daemon: what survives its end.
//!
//! The file is written whole or not at all: a new file replaces the old one when it is complete and on
//! disk. A daemon that is killed loses the changes since the last write: half a second, or more with
//! many rules.
//!
//! Nothing that a start cannot restore is lost. Ports without a device and addresses in use are part of
//! the running switch, and so of the next write. If something else is refused, the file is copied before
//! it is replaced.

use std::{
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use shunt_switch::{Config, ReloadReport, SavedState, Switch};
use tracing::{error, info, warn};

use super::{
    reload::{LoadedFile, Reloader},
    trace_log,
};
use crate::lock_file::{LockError, LockFile};

/// The content of a state file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateFile {
    /// State of the switch.
    state: SavedState,
    /// Configuration file as it was loaded last, without the changes that were refused.
    ///
    /// A file that differs from it changes the restored state, as a reload does.
    loaded: Config,
    /// `logging.filter`.
    #[serde(default)]
    filter: SavedFilter,
}

/// The log filter in a state file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SavedFilter {
    /// The filter in force.
    in_force: String,
    /// The filter of the configuration file as it was loaded last.
    loaded: String,
}

impl SavedFilter {
    /// Returns the filter in force; `loaded` is that of the configuration file.
    fn of(loaded: String) -> Self {
        Self { in_force: trace_log::filter(), loaded }
    }

    /// Returns the filter of a start; `file` is that of the configuration file.
    fn start<'a>(&'a self, file: &'a str) -> &'a str {
        if self.in_force.is_empty() || self.loaded != file { file } else { &self.in_force }
    }
}

/// The result of a start with a state file.
pub(crate) struct Resumed {
    /// Set if the file may be replaced.
    ///
    /// Nothing of it is missing in the switch or in a copy.
    pub(crate) may_write: bool,
    /// Configuration file of this start, without the changes that were refused.
    pub(crate) loaded: Config,
    /// The parts that were refused, with the reasons.
    pub(crate) refused: Vec<String>,
}

/// A reason why a daemon cannot keep its state in a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateLockError {
    /// Another daemon writes the file.
    #[error("another shuntd (process {process}) keeps its state in {}", path.display())]
    Taken {
        /// The state file.
        path: PathBuf,
        /// Process id in the lock file.
        process: String,
    },
    /// The directory of the file does not exist, or its files cannot be created.
    #[error("cannot keep the state in {}: cannot create {}: {source}", path.display(), lock.display())]
    System {
        /// The state file.
        path: PathBuf,
        /// Lock file of the state file.
        lock: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The lock of a state file.
///
/// Two daemons would overwrite each other's state.
/// A write replaces the state file, so the lock is on a file of its own beside it.
pub(crate) struct StateLock {
    _lock: LockFile,
}

impl StateLock {
    /// Locks a state file; `None` for a device or a pipe.
    ///
    /// # Errors
    ///
    /// If another daemon has the lock, or the lock file cannot be created.
    pub(crate) async fn lock(path: &Path) -> Result<Option<Self>, StateLockError> {
        if fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir()) {
            return Ok(None);
        }
        let mut lock = link_end(path).unwrap_or_else(|_| path.to_owned()).into_os_string();
        lock.push(".lock");
        let (path, lock) = (path.to_owned(), PathBuf::from(lock));
        match LockFile::lock(&lock, |_| false).await {
            Ok(held) => match held.write_id() {
                Ok(()) => Ok(Some(Self { _lock: held })),
                Err(source) => Err(StateLockError::System { path, lock, source }),
            },
            Err(LockError::Taken(process)) => Err(StateLockError::Taken { path, process }),
            Err(LockError::System(source)) => Err(StateLockError::System { path, lock, source }),
        }
    }
}

/// Shortest time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// Writing takes at most one part in this number of the time.
const WRITE_SHARE: u32 = 20;

/// Maximum number of refused parts that are logged; further ones are counted.
const REFUSED_LOGGED_MAX: usize = 32;

impl StateFile {
    /// Returns the state of a switch; `loaded` is its configuration file.
    pub(crate) fn of(switch: &Switch, loaded: LoadedFile) -> Self {
        let LoadedFile { filter, config, .. } = loaded;
        Self { state: switch.save(), loaded: config, filter: SavedFilter::of(filter) }
    }

    /// Returns the log filter of a start; `file` is that of the configuration file.
    pub(crate) fn start_filter<'a>(&'a self, file: &'a str) -> &'a str {
        self.filter.start(file)
    }

    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// A message that names the file, if it cannot be read, is not a state file, or was written by a
    /// later version.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StateReadError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let problem = format!("cannot read {}: {error}", path.display());
                return Err(StateReadError::Invalid(problem));
            }
        };
        // Other keys of a later format are not known.
        if let Ok(AnyStateFile { state: StateFormat { format } }) = serde_json::from_slice(&text)
            && format > SavedState::FORMAT
        {
            return Err(StateReadError::Later { path: path.to_owned(), found: format });
        }
        let invalid = |error| {
            let problem = format!("{} is not a state file of shuntd: {error}", path.display());
            StateReadError::Invalid(problem)
        };
        serde_json::from_slice(&text).map(Some).map_err(invalid)
    }

    /// Returns the text of the file, with a rule on each line.
    pub(crate) fn text(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string())
    }

    /// Restores the state in a running switch.
    ///
    /// # Errors
    ///
    /// If the state is not valid; then nothing changes.
    pub(crate) async fn restore(&self, switch: &Switch) -> Result<ReloadReport, String> {
        let restored = switch.restore(&self.state).await;
        let mut report = restored.map_err(|error| shunt_switch::with_causes(&error))?;
        let filter = &self.filter.in_force;
        if !filter.is_empty() && *filter != trace_log::filter() {
            match trace_log::set(filter) {
                Ok(()) => report.applied.push(format!("logging.filter={filter}")),
                Err(problem) => report.refused.push(problem),
            }
        }
        Ok(report)
    }

    /// Returns the configuration with which a switch starts that resumes this state.
    ///
    /// `file` is the configuration file.
    pub(crate) fn start_config(&self, file: &Config) -> Config {
        self.state.start_config(&self.loaded, file)
    }

    /// Restores the state after a start, and logs the result.
    ///
    /// The switch has started with [`Self::start_config`].
    /// It also applies the changes of the configuration file since then.
    ///
    /// # Errors
    ///
    /// If the state is not valid; then nothing changes.
    pub(crate) async fn resume(
        &self,
        path: &Path,
        switch: &Switch,
        file: &Config,
    ) -> Result<Resumed, String> {
        let resumed = switch.resume(&self.state, &self.loaded, file).await;
        let [restored, changed] = resumed.map_err(|error| shunt_switch::with_causes(&error))?;
        log_refused(path, &restored);
        log_refused(path, &changed);
        let applied = restored.applied.len() + changed.applied.len();
        info!(changes = applied, "state file {}: restored", path.display());
        let may_write = restored.refused.is_empty() || keep_copy(path);
        let loaded = changed.without_refused(&self.loaded, file);
        let refused = [restored.refused, changed.refused].concat();
        Ok(Resumed { may_write, loaded, refused })
    }
}

/// The reason why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateReadError {
    /// The file cannot be read, or is not a state file.
    #[error("{0}")]
    Invalid(String),
    /// A later version of the daemon wrote the file.
    #[error(
        "{} has format {found} of a later version, and shuntd {} reads formats up to {}",
        path.display(), env!("CARGO_PKG_VERSION"), SavedState::FORMAT
    )]
    Later {
        /// The state file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
    },
}

/// The format of a state file of any version.
#[derive(Deserialize)]
struct AnyStateFile {
    state: StateFormat,
}

#[derive(Deserialize)]
struct StateFormat {
    format: u32,
}

/// Maximum number of copies of state files of one later format.
const LATER_COPIES_MAX: u32 = 100;

/// Copies a state file of a later version, since the daemon will replace it.
///
/// Earlier copies stay. A copy with the same content is used again.
///
/// # Errors
///
/// If the system refuses, or if there are too many copies; the message names the files.
pub(crate) fn keep_later(path: &Path, format: u32) -> Result<PathBuf, String> {
    for number in 1..=LATER_COPIES_MAX {
        let mut copy = path.as_os_str().to_owned();
        copy.push(format!(".format-{format}"));
        if number > 1 {
            copy.push(format!(".{number}"));
        }
        let copy = PathBuf::from(copy);
        let copied = match File::create_new(&copy) {
            Ok(file) => {
                let copied = fs::copy(path, &copy).and_then(|_| file.sync_all());
                // An incomplete copy would occupy its file name at the next start.
                copied.inspect_err(|_| drop(fs::remove_file(&copy)))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match (fs::read(path), fs::read(&copy)) {
                    (Ok(content), Ok(kept)) if content == kept => Ok(()),
                    (Ok(_), _) => continue,
                    (Err(error), _) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        let failed =
            |error| format!("cannot copy {} to {}: {error}", path.display(), copy.display());
        return copied.map(|()| copy.clone()).map_err(failed);
    }
    let path = path.display();
    Err(format!(
        "cannot copy {path}: {LATER_COPIES_MAX} other copies of format {format} exist: remove some of \
         {path}.format-{format}*"
    ))
}

/// Logs the parts of a state that were refused.
fn log_refused(path: &Path, report: &ReloadReport) {
    let path = path.display();
    for change in report.refused.iter().take(REFUSED_LOGGED_MAX) {
        warn!("state file {path}: refused: {change}");
    }
    if let Some(more) =
        report.refused.len().checked_sub(REFUSED_LOGGED_MAX).filter(|more| *more > 0)
    {
        warn!("state file {path}: {more} more refused");
    }
}

/// Copies a state file of which parts were refused.
///
/// Returns whether the copy exists.
/// The name of the copy has the time at which the file was written.
fn keep_copy(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|file| file.modified()).unwrap_or(UNIX_EPOCH);
    let since = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".refused-{}", since.as_secs()));
    let copy = PathBuf::from(name);
    let copied = fs::copy(path, &copy).and_then(|_| File::open(&copy)?.sync_all());
    let (path, copy) = (path.display(), copy.display());
    match copied {
        Ok(()) => warn!(
            "state file {path}: the refused parts are in the copy {copy}: correct the cause and add them \
             again, or restore the whole copy with `shuntctl restore {copy}`"
        ),
        Err(ref error) => error!(
            %error,
            "state file {path}: cannot be copied to {copy}; it is not updated until the next start, so \
             that the refused parts are not lost: make room, and restart the daemon"
        ),
    }
    copied.is_ok()
}

/// The failed write of a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The new file is not in place.
    #[error("{0}; nothing was written")]
    OldFile(#[source] io::Error),
    /// The new file is in place, but its name is not on disk yet.
    #[error(
        "the new file is in place, but its directory cannot be synced, so a crash of the host may \
             bring back the old file: {0}"
    )]
    NotSynced(#[source] io::Error),
    /// The file is a device or a pipe, which takes no second attempt.
    #[error("{0}")]
    InPlace(#[source] io::Error),
}

/// Writes a file whole or not at all.
///
/// A symbolic link stays, and the file that it names is replaced. The new file has the mode and the
/// owner of the old one. A device or a pipe is written in place.
///
/// # Errors
///
/// If the system refuses; the error names the file that is in place.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), WriteError> {
    let path = link_end(path).map_err(WriteError::OldFile)?;
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
        let file = File::options().write(true).open(&path);
        return file
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(WriteError::InPlace);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = folder.join(name);
    let written = write_new(&new, text, old.as_ref());
    if let Err(error) = written.and_then(|()| fs::rename(&new, &path)) {
        let _ = fs::remove_file(&new);
        return Err(WriteError::OldFile(error));
    }
    // The new name is on disk when the directory is.
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(WriteError::NotSynced)
}

/// Maximum number of symbolic links in a row, as in Linux.
const LINKS_MAX: usize = 40;

/// Returns the path behind the symbolic links at `path`.
///
/// The last file need not exist.
fn link_end(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        // `join` returns an absolute `next` alone.
        path = path.parent().unwrap_or_else(|| Path::new("")).join(next);
    }
    Err(io::Error::other(format!("more than {LINKS_MAX} symbolic links in a row")))
}

/// Writes the file that replaces `old`, with its mode and owner.
fn write_new(new: &Path, text: &str, old: Option<&Metadata>) -> io::Result<()> {
    let mut file = File::create(new)?;
    if let Some(old) = old {
        // Only root can give a file away. Then the new file belongs to the writer.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        // After the owner, as a new owner clears bits of the mode.
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Keeps the state file of a switch up to date.
pub(crate) struct StateKeeper {
    path: PathBuf,
    switch: Arc<Switch>,
    reloader: Arc<Reloader>,
    /// Held while the file is written: a write goes on when its task is cancelled.
    writing: Arc<Mutex<()>>,
}

impl StateKeeper {
    pub(crate) fn new(path: PathBuf, switch: Arc<Switch>, reloader: Arc<Reloader>) -> Self {
        Self { path, switch, reloader, writing: Arc::default() }
    }

    /// Writes the file when the state has changed, as long as the switch runs.
    pub(crate) async fn run(&self) {
        let mut written = None;
        let mut pause = WRITE_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let now = (self.switch.version(), self.switch.running_config(), trace_log::filter());
            if written.as_ref() == Some(&now) {
                continue;
            }
            let begun = tokio::time::Instant::now();
            if self.write().await {
                written = Some(now);
            }
            pause = WRITE_INTERVAL.max(begun.elapsed() * WRITE_SHARE);
        }
    }

    /// Writes the file now; returns whether it is written.
    pub(crate) async fn write(&self) -> bool {
        let loaded = self.reloader.loaded().await;
        let (switch, path) = (Arc::clone(&self.switch), self.path.clone());
        let writing = Arc::clone(&self.writing);
        // A state of many rules is long, and a disk may be slow.
        let written = tokio::task::spawn_blocking(move || {
            let _writing = writing.lock();
            let text = StateFile::of(&switch, loaded).text()?;
            write_whole(&path, &text).map_err(|error| error.to_string())
        });
        let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
        if let Err(error) = &written {
            let path = self.path.display();
            warn!("state file {path}: cannot be written: {error}");
        }
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn a_file_that_cannot_be_replaced_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        write_whole(&path, "one").unwrap();
        // A directory at the path of the new file prevents the write.
        fs::create_dir(folder.path().join("state.new")).unwrap();
        assert!(write_whole(&path, "two").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::remove_dir(folder.path().join("state.new")).unwrap();
        write_whole(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_symbolic_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, far] = ["state", "link", "far"].map(|name| folder.path().join(name));
        symlink("link", &far).unwrap();
        symlink(&path, &link).unwrap();
        // The writes follow the link, before and after its target exists.
        for text in ["one", "two"] {
            write_whole(&far, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_link(&link).unwrap(), path);
        symlink("round", folder.path().join("round")).unwrap();
        let error = write_whole(&folder.path().join("round"), "one").unwrap_err().to_string();
        assert!(error.contains("symbolic links in a row; nothing was written"), "{error}");
    }

    #[test]
    fn the_new_file_has_the_mode_of_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        write_whole(&path, "one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write_whole(&path, "two").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_device_is_written_in_place() {
        write_whole(Path::new("/dev/null"), "one").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_file_that_is_not_a_state_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert!(StateFile::read(&path).unwrap().is_none());
        fs::write(&path, "{}").unwrap();
        let error = StateFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("state is not a state file of shuntd: missing field"), "{error}");
    }
}
