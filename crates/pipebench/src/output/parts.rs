//! What an interrupted run would leave behind, so that it can be removed.
//!
//! A signal that ends the program runs no destructors. Whoever wants parts of files to be gone even
//! then waits for the signal and calls [`remove_parts`].

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A file or folder that is not finished; removed when dropped.
#[derive(Debug)]
pub(super) struct Part(PathBuf);

/// All that there are, each with the folder that was made for it alone.
type Parts = BTreeMap<PathBuf, Option<PathBuf>>;

static PARTS: Mutex<Parts> = Mutex::new(BTreeMap::new());

impl Part {
    /// The part of a file that is to have this name.
    pub(super) fn beside(target: &Path) -> io::Result<Self> {
        let mut name = target
            .file_name()
            .map(OsStr::to_os_string)
            .ok_or_else(|| io::Error::other("it has no file name"))?;
        name.push(suffix());
        let path = target.with_file_name(name);
        parts().insert(path.clone(), None);
        Ok(Self(path))
    }

    /// The part of what is to lie in this folder, which need not be there yet.
    pub(super) fn within(folder: &Path) -> Self {
        let path = folder.join(suffix());
        parts().insert(path.clone(), (!folder.exists()).then(|| folder.to_owned()));
        Self(path)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let made = parts().remove(&self.0).flatten();
        remove(&self.0, made.as_deref());
    }
}

/// Removes all files and folders that are not finished, and then does `end` while none can be begun:
/// for a program that is about to end.
pub fn remove_parts(end: impl FnOnce()) {
    let parts = parts();
    parts.iter().for_each(|(part, made)| remove(part, made.as_deref()));
    end();
}

fn suffix() -> String {
    format!(".{}.part", std::process::id())
}

fn parts() -> MutexGuard<'static, Parts> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a part if it is there, and the folder that was made for it if that is empty. What cannot be
/// removed says by its name that it is a part.
fn remove(path: &Path, made: Option<&Path>) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Some(made) = made {
        let _ = fs::remove_dir(made);
    }
}
