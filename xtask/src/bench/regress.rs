//! `cargo xtask bench regress BASE`: is this tree slower than a commit?
//!
//! BASE is built in a worktree of its own below `target`, which keeps what was built for the next
//! time; then both builds are measured in turns.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{PACKAGES, ensure_rival, run_experiments};
use crate::shell::{Failure, cargo, output, root, run};

/// A checkout of another commit; gone when dropped.
struct Worktree(PathBuf);

impl Worktree {
    fn add(path: PathBuf, commit: &str) -> Result<Self, Failure> {
        // What a run that was killed has left.
        let _ = fs::remove_dir_all(&path);
        git(&["worktree", "prune"])?;
        let target = path.display().to_string();
        git(&["worktree", "add", "--detach", "--force", &target, commit])?;
        Ok(Self(path))
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        let _ = git(&["worktree", "remove", "--force", &self.0.display().to_string()]);
    }
}

/// Builds both, and measures.
pub(super) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let Some((base, rest)) = arguments.split_first().filter(|(base, _)| !base.starts_with('-'))
    else {
        return Err(Failure::new("say which commit to compare with: regress BASE [--quick]"));
    };
    let commit = git(&["rev-parse", "--verify", "--short", &format!("{base}^{{commit}}")])
        .map_err(|_| Failure::new(format!("`{base}` is no commit of this repository")))?;
    let commit = commit.trim();
    let folder = root().join("target/regress");
    let build = folder.join("build");
    println!("building {base} ({commit}) into {}", build.display());
    let worktree = Worktree::add(folder.join("tree"), commit)?;
    run(cargo(PACKAGES).current_dir(&worktree.0).env("CARGO_TARGET_DIR", &build))?;
    println!("building this tree");
    run(&mut cargo(PACKAGES))?;
    ensure_rival();
    let binaries = build.join("release").display().to_string();
    let name = format!("{base} ({commit})");
    let words = ["regress", "--base", &binaries, "--base-name", &name].map(str::to_owned);
    run_experiments(&[&words[..], rest].concat())
}

fn git(words: &[&str]) -> Result<String, Failure> {
    let root: &Path = &root();
    output(Command::new("git").args(words).current_dir(root))
}
