//! `cargo xtask bench regress BASE`: compares the speed of this tree with a commit.
//!
//! BASE is extracted and built below `target`, and then both builds are measured in alternating
//! rounds. Git only provides the files, so an interrupted run leaves nothing to clean up. The build
//! is reused while BASE is the same commit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{PACKAGES, build, ensure_rival, run_experiments};
use crate::shell::{TaskError, cargo, output, root, run, target};

const USAGE: &str = "usage: cargo xtask bench regress BASE [--quick]
    BASE      the commit to compare this tree with: main, v0.1, HEAD~10
    --quick   fewer rounds, and no large tables
Builds both below `target`, measures kernels, forwarding and flow-mods of both in alternating
rounds, and writes the table to `target/results/regress.md`.";

/// Builds this tree and the base, and compares them.
pub(super) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    if arguments.iter().any(|word| ["--help", "-h"].contains(&word.as_str())) {
        println!("{USAGE}");
        return Ok(());
    }
    let (base, options) = parse(arguments)?;
    let commit = git(&["rev-parse", "--verify", "--quiet", &format!("{base}^{{commit}}")])
        .map_err(|_| {
            TaskError::new(format!(
                "`{base}` is not a commit of this repository: name a branch, a tag or a hash"
            ))
        })?;
    let short = git(&["rev-parse", "--short", commit.trim()])?;
    let name = match short.trim() {
        short if base.starts_with(short) => short.to_owned(),
        short => format!("{base} ({short})"),
    };
    let binaries = base_build(&target().join("regress"), commit.trim(), &name)?;
    println!("building this tree:");
    build(PACKAGES)?;
    ensure_rival();
    let binaries = binaries.display().to_string();
    let words = ["regress", "--base", &binaries, "--base-name", &name].map(str::to_owned);
    run_experiments(&[&words[..], options].concat(), &[])
}

/// Returns BASE and the forwarded options, which are all checked before the build.
fn parse(arguments: &[String]) -> Result<(&str, &[String]), TaskError> {
    let Some((base, options)) = arguments.split_first().filter(|(base, _)| !base.starts_with('-'))
    else {
        return Err(TaskError::new(format!("name a commit to compare with\n{USAGE}")));
    };
    match options.iter().find(|word| *word != "--quick") {
        None => Ok((base, options)),
        Some(word) => Err(TaskError::new(format!("unknown option `{word}`\n{USAGE}"))),
    }
}

/// Builds a commit, unless the commit was built last.
///
/// Returns the folder with the programs of the build.
fn base_build(folder: &Path, commit: &str, name: &str) -> Result<PathBuf, TaskError> {
    let (tree, build) = (folder.join("tree"), folder.join("build"));
    // The file is written after a complete build, and is missing otherwise.
    let stamp = folder.join("commit");
    if fs::read_to_string(&stamp).is_ok_and(|built| built == commit) {
        println!("{name} is already built in {}", build.display());
        return Ok(build.join("release"));
    }
    let _ = fs::remove_file(&stamp);
    println!("building {name} into {}:", build.display());
    unpack(folder, &tree, commit)?;
    // A program of another base must not be used.
    let _ = fs::remove_file(build.join("release/kernels"));
    let built = run(cargo(&words(&tree)).current_dir(&tree).env("CARGO_TARGET_DIR", &build));
    let _ = fs::remove_dir_all(&tree);
    built.map_err(|failure| TaskError::new(format!("{name} does not build: {failure}")))?;
    fs::write(&stamp, commit)?;
    Ok(build.join("release"))
}

/// Extracts the files of a commit with new times.
///
/// Cargo determines by file times which crates to build.
fn unpack(folder: &Path, tree: &Path, commit: &str) -> Result<(), TaskError> {
    let _ = fs::remove_dir_all(tree);
    fs::create_dir_all(tree)?;
    let archive = folder.join("tree.tar");
    let file = archive.display().to_string();
    git(&["archive", "--format=tar", "--output", &file, commit])?;
    output(Command::new("tar").args(["-x", "-m", "-f", &file, "-C"]).arg(tree))?;
    Ok(fs::remove_file(archive)?)
}

/// Returns the cargo arguments for a tree.
///
/// The arguments build the daemon, and the kernels if the tree has kernels. The packages are the
/// packages of [`PACKAGES`], so that shared dependencies have the same features in both builds.
fn words(tree: &Path) -> Vec<&'static str> {
    let has = |file: &str| tree.join(file).is_file();
    let mut words = vec!["build", "--release", "--package", "shuntd"];
    words.extend(["--bin", "shuntd", "--bin", "shuntctl"]);
    for (package, manifest) in MEASURING {
        if has(manifest) {
            words.extend(["--package", package]);
        }
    }
    if KERNELS.iter().any(|file| has(file)) {
        words.extend(["--bin", "kernels"]);
    }
    words
}

/// Packages that measure. An older commit may lack some of these packages.
const MEASURING: [(&str, &str); 2] =
    [("shunt-kernels", "benches/kernels/Cargo.toml"), ("shunt-benches", "benches/Cargo.toml")];

/// Current and former path of the program `kernels`.
const KERNELS: [&str; 2] = ["benches/kernels/src/bin/kernels.rs", "benches/src/bin/kernels.rs"];

fn git(words: &[&str]) -> Result<String, TaskError> {
    output(Command::new("git").args(words).current_dir(root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn mistyped_options_are_refused_before_the_build() {
        for text in ["", "--quick", "--quick main", "main --qiuck", "main other", "main --all"] {
            assert!(parse(&words_of(text)).is_err(), "{text}");
        }
        let words = words_of("main --quick");
        assert_eq!(parse(&words).ok(), Some(("main", &words[1..])));
    }

    #[test]
    fn an_invalid_commit_is_refused() {
        let failure = run_command(&words_of("no-such-commit --quick")).unwrap_err().to_string();
        assert!(failure.starts_with("`no-such-commit` is not a commit of this repository"));
    }

    #[test]
    fn a_comparison_builds_all_programs_of_this_tree() {
        let all = words(&root()).join(" ");
        assert!(
            all.contains("--package shunt-kernels --package shunt-benches --bin kernels"),
            "{all}"
        );
        let old = words(Path::new("/nowhere")).join(" ");
        assert_eq!(old, "build --release --package shuntd --bin shuntd --bin shuntctl");
    }
}
