//! The file below a log. Tests replace it by one that fails.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A place for the bytes of a log.
pub trait LogStorage: Send {
    /// Writes bytes at an offset, which is the end of the log.
    ///
    /// # Errors
    ///
    /// If not all bytes could be written; some may be.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts everything from an offset on.
    ///
    /// # Errors
    ///
    /// If the log could not be cut.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Waits until all bytes are on disk.
    ///
    /// # Errors
    ///
    /// If they may not be.
    fn sync(&mut self) -> io::Result<()>;

    /// Replaces the whole log at once.
    ///
    /// After a crash it has the old contents, or the new.
    ///
    /// # Errors
    ///
    /// If the log has the old contents.
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
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let created = write_new(&temporary, contents).and_then(|file| {
            std::fs::rename(&temporary, path)?;
            sync_folder(path)?;
            Ok(Self { path: path.to_owned(), file })
        });
        if created.is_err() {
            // The first error counts.
            let _ = std::fs::remove_file(&temporary);
        }
        created
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

fn write_new(path: &Path, contents: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true).mode(0o640);
    let mut file = options.open(path)?;
    file.write_all(contents)?;
    file.sync_all()?;
    Ok(file)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
