//! A file that is there whole or not at all.
//!
//! It is written under another name beside its own, and gets its own name when it is finished. What
//! is not finished is removed, so that a full disk or an interrupted run leaves no file that looks
//! like a result. A symbolic link is followed: what it points at is replaced, and not the link. What
//! is no regular file, such as a pipe or a terminal, is written to as it is.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use super::parts::Part;
use crate::OutputError;

/// A file that is being written.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    place: Place,
    writer: BufWriter<File>,
}

/// Where what is written goes until it is finished.
#[derive(Debug)]
enum Place {
    /// Beside the file that it becomes.
    Beside { part: Part, target: PathBuf },
    /// Where it is read: there is nothing to be replaced.
    Direct,
}

/// Bytes that are collected for one system call, of all files that are written side by side.
const BUFFER: usize = 1 << 20;

/// Bytes that are collected for one file at least.
const BUFFER_MIN: usize = 1 << 14;

impl OutputFile {
    /// Begins a file, in a folder that exists.
    ///
    /// # Errors
    ///
    /// When it is a folder, or its folder cannot be written to.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        Self::create_beside(path, 1)
    }

    /// Begins one of so many files that are written side by side.
    ///
    /// # Errors
    ///
    /// When it is a folder, or its folder cannot be written to.
    pub fn create_beside(path: &Path, count: usize) -> Result<Self, OutputError> {
        let failed = |error| OutputError::new("write", path, error);
        let (place, file) = match target(path).map_err(failed)? {
            Some(target) => {
                let part = Part::beside(&target).map_err(failed)?;
                let file = File::create(part.path()).map_err(failed)?;
                (Place::Beside { part, target }, file)
            }
            None => {
                let file = File::options().write(true).open(path).map_err(failed)?;
                (Place::Direct, file)
            }
        };
        let writer = BufWriter::with_capacity((BUFFER / count.max(1)).max(BUFFER_MIN), file);
        Ok(Self { path: path.to_owned(), place, writer })
    }

    /// Tells whether a file of this name can be written, before there is anything to write.
    ///
    /// # Errors
    ///
    /// When it cannot.
    pub fn check(path: &Path) -> Result<(), OutputError> {
        let failed = |error| OutputError::new("write", path, error);
        match target(path).map_err(failed)? {
            Some(_) => Self::create(path).map(drop),
            // Whoever waits for it would take what is opened and closed for all there is.
            None => Ok(()),
        }
    }

    /// Gives the file its name; one that had it before is gone.
    ///
    /// # Errors
    ///
    /// When the rest of the file cannot be written, or the name cannot be given.
    pub fn finish(mut self) -> Result<(), OutputError> {
        self.writer.flush().map_err(|error| self.failed(error))?;
        if let Place::Beside { part, target } = &self.place {
            fs::rename(part.path(), target)
                .map_err(|error| OutputError::new("name", &self.path, error))?;
        }
        Ok(())
    }

    /// Says of an error that it came of writing this file.
    #[must_use]
    pub fn failed(&self, error: io::Error) -> OutputError {
        match self.place {
            Place::Beside { .. } => OutputError::new("write", &self.path, error),
            Place::Direct => OutputError::direct(&self.path, error),
        }
    }
}

/// The regular file that a path is the name of, or will be, behind all links; `None` if it is the name
/// of something else that can be written to.
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

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_finished() {
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
    fn an_unfinished_file_leaves_nothing_and_an_old_one_as_it_was() {
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
    fn a_link_stays_and_what_it_points_at_is_replaced() {
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
    fn a_pipe_stays_a_pipe_and_is_written_into() {
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
    fn what_cannot_be_written_is_named_with_what_to_do() {
        let error = OutputFile::create(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all: "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = OutputFile::check(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("name a file in it"), "{error}");
    }
}
