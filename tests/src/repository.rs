//! Facts about the repository, read from `cargo metadata` and `git`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Returns the root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("/")).to_path_buf()
}

/// Returns the metadata of the workspace from cargo.
///
/// # Panics
///
/// If cargo fails.
#[must_use]
pub fn metadata() -> Value {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version=1"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("cargo metadata: {error}"));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("metadata: {error}"))
}

/// Returns the tracked and trackable files with an ending.
///
/// Each file has a path relative to the root, and a text.
///
/// # Panics
///
/// If git fails.
#[must_use]
pub fn files(ending: &str) -> Vec<(String, String)> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("git ls-files: {error}"));
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |path: &str| Some((path.to_owned(), fs::read_to_string(root().join(path)).ok()?));
    list.lines().filter(|path| path.ends_with(ending)).filter_map(read).collect()
}

/// Returns one file of the repository.
///
/// # Panics
///
/// If the file does not exist.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
