//! A folder of files that are there all or not at all.
//!
//! They are written into a folder within it, and moved when all of them are finished, so that a full
//! disk leaves no folder that looks like a workload.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::OutputError;

/// A folder that is being filled.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    /// Where its files are until all are finished.
    temporary: PathBuf,
    /// Whether it was there before.
    was_there: bool,
}

impl OutputFolder {
    /// Begins a folder, which is made if it is not there, with those that it lies in.
    ///
    /// # Errors
    ///
    /// When it cannot be made or written to.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let was_there = path.exists();
        let temporary = path.join(format!(".{}.part", std::process::id()));
        let folder = Self { path: path.to_owned(), temporary, was_there };
        fs::create_dir_all(&folder.temporary)
            .map_err(|error| OutputError::new("make the folder", path, error))?;
        Ok(folder)
    }

    /// Where its files are to be written.
    #[must_use]
    pub fn files(&self) -> &Path {
        &self.temporary
    }

    /// Moves all files to where they belong; those that had their names before are gone.
    ///
    /// # Errors
    ///
    /// When one cannot be moved.
    pub fn finish(self) -> Result<(), OutputError> {
        self.moved().map_err(|error| OutputError::new("move files into", &self.path, error))
    }

    fn moved(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.temporary)? {
            let entry = entry?;
            fs::rename(entry.path(), self.path.join(entry.file_name()))?;
        }
        Ok(())
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        // If it cannot be removed, its name still says that it is a part.
        let _ = fs::remove_dir_all(&self.temporary);
        if !self.was_there {
            // This removes it only if it is empty.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_appear_together_or_not_at_all() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep/workload");
        let folder = OutputFolder::create(&path).unwrap();
        fs::write(folder.files().join("rules.txt"), "half").unwrap();
        assert!(!path.join("rules.txt").exists());
        drop(folder);
        assert!(!path.exists());

        let folder = OutputFolder::create(&path).unwrap();
        fs::write(folder.files().join("rules.txt"), "whole").unwrap();
        folder.finish().unwrap();
        assert_eq!(fs::read(path.join("rules.txt")).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    }

    #[test]
    fn what_was_in_the_folder_stays_when_a_new_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.txt"), "old").unwrap();
        let output = OutputFolder::create(folder.path()).unwrap();
        fs::write(output.files().join("rules.txt"), "new").unwrap();
        drop(output);
        assert_eq!(fs::read(folder.path().join("rules.txt")).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
