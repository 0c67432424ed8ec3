//! The registry of unfinished files, which a program removes after a signal.
//!
//! A signal that ends a program runs no destructors. So a program can wait for the signal on a
//! thread and call [`remove_parts`].

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// An unfinished file or folder, which is removed on drop.
#[derive(Debug)]
pub(super) struct UnfinishedPath(PathBuf);

/// All unfinished files, each with the folder that was created for it, if any.
type UnfinishedPaths = BTreeMap<PathBuf, Option<PathBuf>>;

/// The unfinished files of this process.
static PARTS: Mutex<UnfinishedPaths> = Mutex::new(BTreeMap::new());

impl UnfinishedPath {
    /// Returns the path of a temporary file next to the target.
    pub(super) fn next_to(target: &Path) -> io::Result<Self> {
        let mut name = target
            .file_name()
            .map(OsStr::to_os_string)
            .ok_or_else(|| io::Error::other("the path has no file name"))?;
        name.push(suffix());
        let path = target.with_file_name(name);
        parts().insert(path.clone(), None);
        Ok(Self(path))
    }

    /// Returns a temporary path within a folder, which need not exist.
    pub(super) fn within(folder: &Path) -> Self {
        let path = folder.join(suffix());
        parts().insert(path.clone(), (!folder.exists()).then(|| folder.to_owned()));
        Self(path)
    }

    /// Returns the path of the unfinished file or folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for UnfinishedPath {
    fn drop(&mut self) {
        let made = parts().remove(&self.0).flatten();
        remove(&self.0, made.as_deref());
    }
}

/// Removes all unfinished files and folders, then runs `end`.
///
/// No new file can start before `end` returns.
pub fn remove_parts(end: impl FnOnce()) {
    let parts = parts();
    parts.iter().for_each(|(part, made)| remove(part, made.as_deref()));
    end();
}

/// Returns the suffix of the unfinished files of this process.
fn suffix() -> String {
    format!(".{}.part", std::process::id())
}

/// Locks the paths of the unfinished files.
fn parts() -> MutexGuard<'static, UnfinishedPaths> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes an unfinished file, and the folder created for it if it is empty.
///
/// The name of a file that cannot be removed marks the file as unfinished.
fn remove(path: &Path, made: Option<&Path>) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Some(made) = made {
        let _ = fs::remove_dir(made);
    }
}
