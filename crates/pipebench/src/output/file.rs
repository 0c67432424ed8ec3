//! A file that is there whole or not at all.
//!
//! It is written under another name beside its own, and gets its own name when it is finished. What
//! is not finished is removed, so that a full disk or an interrupted run leaves no file that looks
//! like a result.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::OutputError;

/// A file that is being written.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    /// Where it is until it is finished.
    temporary: PathBuf,
    /// `None` once it is finished.
    writer: Option<BufWriter<File>>,
}

/// Bytes that are collected for one system call.
const BUFFER: usize = 1 << 20;

impl OutputFile {
    /// Begins a file, in a folder that exists.
    ///
    /// # Errors
    ///
    /// When the folder cannot be written to.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let mut name = path.file_name().map(std::ffi::OsStr::to_os_string).ok_or_else(|| {
            OutputError::new("write", path, io::Error::other("it has no file name"))
        })?;
        name.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(name);
        let file =
            File::create(&temporary).map_err(|error| OutputError::new("write", path, error))?;
        let writer = Some(BufWriter::with_capacity(BUFFER, file));
        Ok(Self { path: path.to_owned(), temporary, writer })
    }

    /// Gives the file its name; one that had it before is gone.
    ///
    /// # Errors
    ///
    /// When the rest of the file cannot be written, or the name cannot be given.
    pub fn finish(mut self) -> Result<(), OutputError> {
        let failed = |error| OutputError::new("write", &self.path, error);
        if let Some(writer) = &mut self.writer {
            writer.flush().map_err(failed)?;
        }
        fs::rename(&self.temporary, &self.path)
            .map_err(|error| OutputError::new("name", &self.path, error))?;
        self.writer = None;
        Ok(())
    }

    /// Says of an error that it came of writing this file.
    #[must_use]
    pub fn failed(&self, error: io::Error) -> OutputError {
        OutputError::new("write", &self.path, error)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Some(writer) => writer.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // What is in the buffer is not wanted any more.
            drop(writer.into_parts());
            // If it cannot be removed, its name still says that it is a part.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
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
    fn a_folder_that_is_not_there_is_named() {
        let error = OutputFile::create(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all: "), "{error}");
    }
}
