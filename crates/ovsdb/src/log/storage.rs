//! The file of a log, behind a trait, so that tests can use a storage that fails.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use tracing::warn;

/// Storage for the bytes of a log.
pub trait LogStorage: Send {
    /// Writes bytes at an offset, which is the end of the log.
    ///
    /// # Errors
    ///
    /// If not all bytes could be written. A part of the record may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Truncates the log to a length.
    ///
    /// # Errors
    ///
    /// If the log could not be truncated.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Waits until all bytes are on disk.
    ///
    /// # Errors
    ///
    /// If some bytes may not be on disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Replaces the whole log at once.
    ///
    /// After a crash the log has either the old contents or the new contents.
    ///
    /// # Errors
    ///
    /// If the replacement failed. The log then has the old contents.
    fn replace(&mut self, contents: &[u8]) -> io::Result<()>;
}

/// A log in a file.
#[derive(Debug)]
pub struct FileStorage {
    path: PathBuf,
    file: File,
}

impl FileStorage {
    /// Opens an existing file.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened for reading and writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Creates a file, or replaces it.
    ///
    /// # Errors
    ///
    /// If the file or its folder cannot be written.
    pub fn create(path: &Path, contents: &[u8]) -> io::Result<Self> {
        // A symbolic link is resolved, so that the link stays and its target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        // The folder is opened before the rename: an error after the rename could not keep the old
        // log.
        let folder = open_folder(&path)?;
        let old = std::fs::metadata(&path).ok();
        let created = write_new(&temporary, contents, old.as_ref()).and_then(|file| {
            std::fs::rename(&temporary, &path)?;
            Ok(file)
        });
        let file = created.inspect_err(|_| {
            // The first error is returned, so an error of this removal is ignored.
            let _ = std::fs::remove_file(&temporary);
        })?;
        if let Err(error) = folder.sync_all() {
            let path = path.display();
            warn!(%error, "ovsdb: the file {path} was renamed, but the new name may not be on \
                           disk yet: a crash of the host may bring back the old file");
        }
        Ok(Self { path, file })
    }
}

impl LogStorage for FileStorage {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn replace(&mut self, contents: &[u8]) -> io::Result<()> {
        *self = Self::create(&self.path, contents)?;
        Ok(())
    }
}

/// Writes the file that replaces `old`, with its mode and owner.
fn write_new(path: &Path, contents: &[u8], old: Option<&Metadata>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true).mode(0o640);
    let mut file = options.open(path)?;
    if let Some(old) = old {
        // Only root can change the owner. Otherwise the new file belongs to the user of the
        // process.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        // The mode is set after the owner, because a change of the owner clears bits of the mode.
        file.set_permissions(old.permissions())?;
    }
    file.write_all(contents)?;
    file.sync_all()?;
    Ok(file)
}

/// Opens the folder of a file, to synchronize it to the disk.
fn open_folder(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_replaced_log_keeps_its_link_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["log", "link"].map(|name| folder.path().join(name));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        let mut storage = FileStorage::open(&link).unwrap();
        storage.replace(b"new").unwrap();
        storage.write_at(b" log", 3).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new log");
        assert_eq!(std::fs::read_link(&link).unwrap(), path);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// If the replacement fails, later records go to the old file.
    #[test]
    fn a_failed_replacement_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "old").unwrap();
        let mut storage = FileStorage::open(&path).unwrap();
        // A folder with the name of the temporary file prevents the creation of the file.
        std::fs::create_dir(folder.path().join("log.tmp")).unwrap();
        assert!(storage.replace(b"new").is_err());
        storage.write_at(b" log", 3).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old log");
    }
}
