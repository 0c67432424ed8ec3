//! The file of a listening Unix socket.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The file of a listening socket, which dropping the value removes.
///
/// If another file has replaced it at the path, the other file stays.
#[derive(Debug)]
pub struct OwnSocketFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// The device number of the file system, and the inode number of the file.
type FileIdentity = (u64, u64);

/// Returns the device and inode of a file.
fn identity(path: &Path) -> Option<FileIdentity> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl OwnSocketFile {
    /// Takes ownership of the file at a path; `None` if the file does not exist.
    #[must_use]
    pub fn new(path: &Path) -> Option<Self> {
        identity(path).map(|identity| Self { path: path.to_owned(), identity })
    }
}

impl Drop for OwnSocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == Some(self.identity) {
            // Another process may remove the file first.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_removes_only_its_own_file() {
        let folder = std::env::temp_dir().join(format!("shunt-socket-file-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("a.sock");
        assert!(OwnSocketFile::new(&path).is_none());
        let _first = UnixListener::bind(&path).unwrap();
        let file = OwnSocketFile::new(&path).unwrap();
        let other = folder.join("b.sock");
        let _second = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        drop(file);
        assert!(path.exists(), "the path names another file");
        drop(OwnSocketFile::new(&path));
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
