//! An output file that is written completely or not at all.
//!
//! The file is written under a temporary name in the same folder, and renamed when finished. An
//! unfinished file is removed, so a full disk or an interrupted run leaves no file that looks like
//! a result. The target of a symbolic link is replaced, not the link. Special files, such as a pipe
//! or a terminal, are written directly.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use super::unfinished_files::UnfinishedPath;
use crate::OutputError;

/// A file that is being written.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    destination: Destination,
    writer: BufWriter<File>,
}

/// Destination of the data until the file is finished.
#[derive(Debug)]
enum Destination {
    /// A temporary file next to the target.
    OtherMatches { part: UnfinishedPath, target: PathBuf },
    /// The target itself, because it is a special file.
    Direct,
}

/// Total size in bytes of the buffers of all files written in parallel.
const BUFFER: usize = 1 << 20;

/// Minimum size in bytes of the buffer of a file.
const BUFFER_MIN: usize = 1 << 14;

impl OutputFile {
    /// Starts a file in an existing folder.
    ///
    /// # Errors
    ///
    /// If `path` is a folder, or its folder is not writable.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        Self::create_beside(path, 1)
    }

    /// Starts one of `count` files that are written in parallel.
    ///
    /// # Errors
    ///
    /// If `path` is a folder, or its folder is not writable.
    pub fn create_beside(path: &Path, count: usize) -> Result<Self, OutputError> {
        let failed = |error| OutputError::new("write", path, error);
        let (destination, file) = match target(path).map_err(failed)? {
            Some(target) => {
                let part = UnfinishedPath::next_to(&target).map_err(failed)?;
                let file = File::create(part.path()).map_err(failed)?;
                (Destination::OtherMatches { part, target }, file)
            }
            None => {
                let file = File::options().write(true).open(path).map_err(failed)?;
                (Destination::Direct, file)
            }
        };
        let writer = BufWriter::with_capacity((BUFFER / count.max(1)).max(BUFFER_MIN), file);
        Ok(Self { path: path.to_owned(), destination, writer })
    }

    /// Checks before any work that a file with this name can be written.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn check(path: &Path) -> Result<(), OutputError> {
        let failed = |error| OutputError::new("write", path, error);
        match target(path).map_err(failed)? {
            Some(_) => Self::create(path).map(drop),
            // Special files are not opened: the reader of a pipe would see the end of the data.
            None => Ok(()),
        }
    }

    /// Renames the file to its final name; replaces a previous file.
    ///
    /// # Errors
    ///
    /// If the rest of the file cannot be written, or the rename fails.
    pub fn finish(mut self) -> Result<(), OutputError> {
        self.writer.flush().map_err(|error| self.failed(error))?;
        if let Destination::OtherMatches { part, target } = &self.destination {
            fs::rename(part.path(), target)
                .map_err(|error| OutputError::new("name", &self.path, error))?;
        }
        Ok(())
    }

    /// Returns an error that names this file.
    #[must_use]
    pub fn failed(&self, error: io::Error) -> OutputError {
        match self.destination {
            Destination::OtherMatches { .. } => OutputError::new("write", &self.path, error),
            Destination::Direct => OutputError::direct(&self.path, error),
        }
    }
}

/// Returns the regular file that a path refers to, after all symbolic links.
///
/// The file may not exist yet. Returns `None` for a special file that can be written directly.
fn target(path: &Path) -> io::Result<Option<PathBuf>> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(path.to_owned())),
        Err(error) => return Err(error),
    };
    let target = if found.is_symlink() { fs::canonicalize(path)? } else { path.to_owned() };
    let kind = fs::metadata(&target)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(kind.is_file().then_some(target))
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    /// Returns the names of the files in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn an_incomplete_output_file_has_a_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.txt");
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        file.write_all(b" and whole").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"half and whole");
        assert_eq!(names(folder.path()), ["rules.txt"]);
    }

    #[test]
    fn an_unfinished_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.txt");
        fs::write(&path, "old").unwrap();
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["rules.txt"]);
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("rules.txt"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        symlink("rules.txt", &link).unwrap();
        let mut file = OutputFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["link", "rules.txt"]);
    }

    #[test]
    fn an_existing_pipe_is_written_directly() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        OutputFile::check(&path).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"through the pipe").unwrap();
        file.finish().unwrap();
        assert_eq!(reader.join().unwrap(), b"through the pipe");
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        assert_eq!(names(folder.path()), ["pipe"]);
    }

    #[test]
    fn write_errors_have_path_and_advice() {
        let error = OutputFile::create(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all: "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = OutputFile::check(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("name a file in it"), "{error}");
    }
}
