//! The state file of a daemon: the state that the next start restores.
//!
//! The file is replaced as a whole: a new file replaces the old file when the new file is complete
//! and on disk. A daemon that is killed loses the changes since the last write: half a second, or
//! more with many rules.
//!
//! A start loses nothing that it cannot restore. Ports without a device and addresses in use stay
//! part of the running switch, and so of the next write. If any other part is refused, the file is
//! copied before it is replaced.

use std::{
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};
use shunt_switch::{Config, ReloadReport, SavedState, Switch};
use tracing::{error, info, warn};

use super::{reload::LoadedFile, trace_log};
use crate::{
    lock_file::{LockError, LockFile},
    number_range::refusal_in_json,
    tls,
};

/// The content of a state file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateFile {
    /// The saved state of the switch.
    state: SavedState,
    /// Configuration file as it was last loaded, without the refused changes.
    ///
    /// At the next start, the differences of the configuration file from it are applied, as by a
    /// reload.
    loaded: Config,
    /// The log filter (`logging.filter`).
    #[serde(default)]
    filter: SavedFilter,
}

/// The log filter in a state file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SavedFilter {
    /// The log filter in force.
    in_force: String,
    /// The log filter of the configuration file as it was last loaded.
    loaded: String,
}

impl SavedFilter {
    /// Creates the log filters of a state file from the filter in force.
    ///
    /// `loaded` is the filter of the configuration file.
    fn of(loaded: String) -> Self {
        Self { in_force: trace_log::filter(), loaded }
    }

    /// Returns the log filter for a start.
    ///
    /// `file` is the filter of the configuration file. A changed file has precedence.
    fn start<'a>(&'a self, file: &'a str) -> &'a str {
        if self.in_force.is_empty() || self.loaded != file { file } else { &self.in_force }
    }
}

/// The result of a start with a state file.
pub(crate) struct Resumed {
    /// True if the state file may be replaced.
    ///
    /// Then the switch, or a copy of the file, has every part of the file.
    pub(crate) may_write: bool,
    /// Configuration file of this start, without the refused changes.
    pub(crate) loaded: Config,
    /// The refused parts of the state, with the reasons.
    pub(crate) refused: Vec<String>,
}

/// The reason why a daemon cannot keep its state in a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateLockError {
    /// Another daemon has locked the state file.
    #[error("another shuntd (process {process}) keeps its state in {}", path.display())]
    Taken {
        /// Path of the state file.
        path: PathBuf,
        /// Process id of the other daemon, from the lock file.
        process: String,
    },
    /// The directory of the file does not exist, or its files cannot be created.
    #[error(
        "cannot keep the state in {}: cannot create {}: {source}",
        path.display(), lock.display()
    )]
    System {
        /// Path of the state file.
        path: PathBuf,
        /// Path of the lock file.
        lock: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// The lock of a state file.
///
/// Without the lock, two daemons would overwrite each other's state. Each write replaces the state
/// file, so a separate file beside it is locked.
pub(crate) struct StateLock {
    _lock: LockFile,
}

impl StateLock {
    /// Locks a state file; returns `None` for a device or a pipe.
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

/// Maximum number of refused parts that are logged; further parts are counted.
const REFUSED_LOGGED_MAX: usize = 32;

impl StateFile {
    /// Returns the state of a switch; `loaded` is its configuration file.
    pub(crate) fn of(switch: &Switch, loaded: LoadedFile) -> Self {
        let LoadedFile { filter, config, .. } = loaded;
        Self { state: switch.save(), loaded: config, filter: SavedFilter::of(filter) }
    }

    /// Sets the log filter for a start; `file` is the filter of the configuration file.
    ///
    /// An earlier version accepted filters that are now refused. The filter of the configuration
    /// file then stays in force.
    pub(crate) fn set_start_filter(&self, file: &str) {
        if let Err(problem) = trace_log::set(self.filter.start(file)) {
            warn!(
                "state file: {problem}; the log filter {file} of the configuration file stays in \
                 force"
            );
        }
    }

    /// Reads a state file; returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// A message that names the file, if it cannot be read, is not a state file, or was written by
    /// a newer version of the daemon.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StateReadError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let problem = format!("cannot read {}: {error}", path.display());
                return Err(StateReadError::Invalid(problem));
            }
        };
        if text.trim_ascii().is_empty() {
            let problem = format!("{} is not a state file of shuntd: it is empty", path.display());
            return Err(StateReadError::Invalid(problem));
        }
        // Only the key `format` is read: other keys of a newer format are not known.
        if let Ok(AnyStateFile { state: StateFormat { format } }) = serde_json::from_slice(&text)
            && format > SavedState::FORMAT
        {
            return Err(StateReadError::Later { path: path.to_owned(), found: format });
        }
        let invalid = |error: serde_json::Error| {
            let reason = refusal_in_json(&error, &text).unwrap_or_else(|| error.to_string());
            let problem = format!("{} is not a state file of shuntd: {reason}", path.display());
            StateReadError::Invalid(problem)
        };
        serde_json::from_slice(&text).map(Some).map_err(invalid)
    }

    /// Returns the text of the state file, with a rule on each line.
    pub(crate) fn text(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string())
    }

    /// Restores the state in a running switch.
    ///
    /// # Errors
    ///
    /// If the state is not valid, or needs TLS files. After an error, nothing has changed.
    pub(crate) async fn restore(&self, switch: &Switch) -> Result<ReloadReport, String> {
        tls::check_restored(switch.tls(), &self.state.config.bridges)?;
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

    /// Returns the configuration for the start of a switch that resumes this state.
    ///
    /// `file` is the configuration file of this start.
    pub(crate) fn start_config(&self, file: &Config) -> Config {
        self.state.start_config(&self.loaded, file)
    }

    /// Restores the state after the start of a switch, and logs the result.
    ///
    /// The switch must have been started with [`Self::start_config`]. The call also applies the
    /// changes of the configuration file since the last run.
    ///
    /// # Errors
    ///
    /// If the state is not valid. After an error, nothing has changed.
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
        for warning in tls::address_warnings(switch.tls(), &switch.running_config().bridges) {
            warn!("state file {}: {warning}", path.display());
        }
        let applied = restored.applied.len() + changed.applied.len();
        info!(changes = applied, "state file {}: the saved state is restored", path.display());
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
    /// A newer version of the daemon wrote the file, in a newer format.
    #[error(
        "{} has format {found} of a newer version, and shuntd {} reads formats up to {}",
        path.display(), env!("CARGO_PKG_VERSION"), SavedState::FORMAT
    )]
    Later {
        /// Path of the state file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
    },
}

/// The part of a state file that all versions can read.
#[derive(Deserialize)]
struct AnyStateFile {
    /// The head of the file.
    state: StateFormat,
}

/// The format number of a state file, read before the rest.
#[derive(Deserialize)]
struct StateFormat {
    format: u32,
}

/// Maximum number of copies of state files with the same newer format.
const NEWER_COPIES_MAX: u32 = 100;

/// Copies a state file of a newer version, because the daemon will replace it.
///
/// Earlier copies stay. An existing copy with the same content is used again.
///
/// # Errors
///
/// If the copy cannot be written, or if there are too many copies; the message names the files.
pub(crate) fn copy_newer(path: &Path, format: u32) -> Result<PathBuf, String> {
    for number in 1..=NEWER_COPIES_MAX {
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
        "cannot copy {path}: {NEWER_COPIES_MAX} other copies of format {format} exist: remove some of \
         {path}.format-{format}*"
    ))
}

/// Logs the refused parts of a saved state.
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

/// Copies a state file with refused parts.
///
/// Returns whether the copy exists. The name of the copy has the time at which the state file was
/// written.
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
            "state file {path}: cannot be copied to {copy}; the state file is not updated until \
             the next start, so that the refused parts are not lost: make room, and restart the \
             daemon"
        ),
    }
    copied.is_ok()
}

/// The failed write of a file, by the file that is in place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The old file is still in place.
    #[error("{0}; nothing was written")]
    OldFile(#[source] io::Error),
    /// The new file is in place, but its directory entry may not be on disk yet.
    #[error(
        "the new state file is in place, but its directory cannot be synced, so a crash of the \
         host may bring back the old file: {0}"
    )]
    NotSynced(#[source] io::Error),
    /// The file is a device or a pipe, so the write cannot be repeated.
    #[error("{0}")]
    InPlace(#[source] io::Error),
}

/// Writes a file as a whole or not at all.
///
/// A symbolic link stays, and the file that it leads to is replaced. The new file has the mode and
/// the owner of the old file. A device or a pipe is written in place.
///
/// # Errors
///
/// If a system call fails; the error names the file that is in place.
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
    // The new file name is on disk only after the directory is synced.
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(WriteError::NotSynced)
}

/// Maximum number of symbolic links in a row, as in Linux.
const LINKS_MAX: usize = 40;

/// Returns the path behind the symbolic links at `path`.
///
/// The last file in the chain need not exist.
fn link_end(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        // If `next` is absolute, `join` returns `next` alone.
        path = path.parent().unwrap_or_else(|| Path::new("")).join(next);
    }
    Err(io::Error::other(format!("more than {LINKS_MAX} symbolic links in a row")))
}

/// Writes the file that replaces `old`, with the mode and owner of `old`.
fn write_new(new: &Path, text: &str, old: Option<&Metadata>) -> io::Result<()> {
    let mut file = File::create(new)?;
    if let Some(old) = old {
        // Only root may change the owner of a file. Without root, the new file belongs to the
        // writer.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        // The mode is set after the owner, because a change of the owner clears bits of the mode.
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
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
        // A directory at the path of the new file makes the write fail.
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
    fn new_file_has_mode_of_old() {
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
    fn file_that_is_not_state_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert!(StateFile::read(&path).unwrap().is_none());
        fs::write(&path, "{}").unwrap();
        let error = StateFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("state is not a state file of shuntd: missing field"), "{error}");
        fs::write(&path, "\n").unwrap();
        let error = StateFile::read(&path).unwrap_err().to_string();
        assert!(error.ends_with("state is not a state file of shuntd: it is empty"), "{error}");
    }
}
