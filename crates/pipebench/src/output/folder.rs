//! An output folder: either all of its files are written, or none.
//!
//! The files are written into a temporary folder within the folder, and moved when all are
//! finished. So a full disk leaves no folder that looks like a workload. One file, the manifest,
//! lists all others. The manifest is removed first and written last, so it exists only together
//! with all other files. Files from the previous run that are not written again are removed.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::unfinished_files::UnfinishedPath;
use crate::OutputError;

/// An output folder that is being filled.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    /// Temporary location of the files.
    part: UnfinishedPath,
}

impl OutputFolder {
    /// Starts an output folder; creates missing folders of the path.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, or is not writable.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let folder = Self { path: path.to_owned(), part: UnfinishedPath::within(path) };
        fs::create_dir_all(folder.files())
            .map_err(|error| OutputError::new("create the folder", path, error))?;
        Ok(folder)
    }

    /// Returns the temporary folder for the files.
    #[must_use]
    pub fn files(&self) -> &Path {
        self.part.path()
    }

    /// Moves all files to their final names; removes previous and `old` files.
    ///
    /// The file `manifest` exists only together with all other files.
    ///
    /// # Errors
    ///
    /// If a file cannot be moved.
    pub fn finish(self, manifest: &str, old: &[String]) -> Result<(), OutputError> {
        self.replace_files(manifest, old)
            .map_err(|error| OutputError::new("move files into", &self.path, error))
    }

    /// Removes the former files, then moves the new ones to their places.
    fn replace_files(&self, manifest: &str, old: &[String]) -> io::Result<()> {
        for name in std::iter::once(manifest).chain(old.iter().map(String::as_str)) {
            if is_name(name) {
                remove_if_there(&self.path.join(name))?;
            }
        }
        let files = fs::read_dir(self.files())?.collect::<io::Result<Vec<_>>>()?;
        let mut names: Vec<_> = files.iter().map(fs::DirEntry::file_name).collect();
        names.sort_by_key(|name| name == manifest);
        names.iter().try_for_each(|name| fs::rename(self.files().join(name), self.path.join(name)))
    }
}

/// Returns whether a name is a plain file name, without folders.
fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

/// Removes a file, if it exists.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name of the file that is written last.
    const MANIFEST: &str = "manifest";

    /// Returns the names of the files in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

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
        folder.finish(MANIFEST, &[]).unwrap();
        assert_eq!(fs::read(path.join("rules.txt")).unwrap(), b"whole");
        assert_eq!(names(&path), ["rules.txt"]);
    }

    #[test]
    fn a_failed_folder_leaves_the_old_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.txt"), "old").unwrap();
        let output = OutputFolder::create(folder.path()).unwrap();
        fs::write(output.files().join("rules.txt"), "new").unwrap();
        drop(output);
        assert_eq!(fs::read(folder.path().join("rules.txt")).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["rules.txt"]);
    }

    #[test]
    fn old_files_are_removed_within_the_folder_only() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("workload");
        fs::create_dir(&path).unwrap();
        for file in ["../outside", "old.pcap", "notes", MANIFEST] {
            fs::write(path.join(file), "").unwrap();
        }
        let output = OutputFolder::create(&path).unwrap();
        fs::write(output.files().join("new.pcap"), "").unwrap();
        let old = ["../outside", "old.pcap", "never.there"].map(str::to_owned);
        output.finish(MANIFEST, &old).unwrap();
        assert_eq!(names(&path), ["new.pcap", "notes"]);
        assert!(parent.path().join("outside").exists());
    }

    #[test]
    fn an_incomplete_folder_has_no_manifest() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MANIFEST), "old").unwrap();
        // A file cannot replace a folder.
        fs::create_dir(folder.path().join("rules.txt")).unwrap();
        let output = OutputFolder::create(folder.path()).unwrap();
        for file in ["rules.txt", MANIFEST] {
            fs::write(output.files().join(file), "new").unwrap();
        }
        assert!(output.finish(MANIFEST, &[]).is_err());
        assert_eq!(names(folder.path()), ["rules.txt"]);
    }
}
