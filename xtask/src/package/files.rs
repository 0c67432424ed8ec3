//! Files of packages and images, with permissions and times that do not depend on the machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{TaskError, output, root, run};

/// Returns the time of the last commit, in a format of `git log`.
///
/// This time is the time of all files, so that one commit always produces the same package.
pub(super) fn commit_time(format: &str) -> Result<String, TaskError> {
    let format = format!("--format={format}");
    output(Command::new("git").args(["log", "-1", &format]).current_dir(root()))
}

/// Copies a file, with the permissions `mode`.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), TaskError> {
    let text =
        fs::read(from).map_err(|error| TaskError::new(format!("{}: {error}", from.display())))?;
    write_bytes(to, &text, mode)
}

/// Writes a text file, with the permissions `mode`.
pub(super) fn write_file(to: &Path, text: &str, mode: u32) -> Result<(), TaskError> {
    write_bytes(to, text.as_bytes(), mode)
}

/// Writes a file, in folders that all users may read, with any umask.
fn write_bytes(to: &Path, bytes: &[u8], mode: u32) -> Result<(), TaskError> {
    let folder = to.parent().unwrap_or(to);
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    for folder in missing {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(to, bytes)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Compresses files by `gzip`, without the time in the archive.
pub(super) fn compress(files: &[PathBuf]) -> Result<(), TaskError> {
    run(Command::new("gzip").args(["-9", "--no-name", "--force"]).args(files))
}
