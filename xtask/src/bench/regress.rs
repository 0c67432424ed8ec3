//! `cargo xtask bench regress BASE`: is this tree slower than a commit?
//!
//! BASE is unpacked and built below `target`; then both builds are measured in turns. Git is only asked
//! for the files, so a run that is interrupted leaves nothing that it would have to be told about. What
//! was built serves again while BASE is the same commit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{PACKAGES, build, ensure_rival, run_experiments};
use crate::shell::{Failure, cargo, output, root, run, target};

const USAGE: &str = "\
usage: cargo xtask bench regress BASE [--quick]
    BASE      the commit to compare this tree with: main, v0.1, HEAD~10
    --quick   fewer rounds, and no large tables
Builds both below `target`, measures kernels, forwarding and flow-mods of both in turns, and keeps
the table in `target/results/regress.md`.";

/// Builds both, and measures.
pub(super) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    if arguments.iter().any(|word| ["--help", "-h"].contains(&word.as_str())) {
        println!("{USAGE}");
        return Ok(());
    }
    let (base, options) = parsed(arguments)?;
    let commit = git(&["rev-parse", "--verify", "--quiet", &format!("{base}^{{commit}}")])
        .map_err(|_| Failure::new(format!("`{base}` is no commit of this repository")))?;
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
    run_experiments(&[&words[..], options].concat(), None)
}

/// BASE, and what is passed on; all of it is looked at before anything is built.
fn parsed(arguments: &[String]) -> Result<(&str, &[String]), Failure> {
    let Some((base, options)) = arguments.split_first().filter(|(base, _)| !base.starts_with('-'))
    else {
        return Err(Failure::new(format!("say which commit to compare with\n{USAGE}")));
    };
    match options.iter().find(|word| *word != "--quick") {
        None => Ok((base, options)),
        Some(word) => Err(Failure::new(format!("there is no option `{word}`\n{USAGE}"))),
    }
}

/// Builds a commit, unless that was the last to be built, and answers with where its programs are.
fn base_build(folder: &Path, commit: &str, name: &str) -> Result<PathBuf, Failure> {
    let (tree, build) = (folder.join("tree"), folder.join("build"));
    // Written when all is built, and gone while it is not.
    let stamp = folder.join("commit");
    if fs::read_to_string(&stamp).is_ok_and(|built| built == commit) {
        println!("{name} is built, in {}", build.display());
        return Ok(build.join("release"));
    }
    let _ = fs::remove_file(&stamp);
    println!("building {name} into {}:", build.display());
    unpack(folder, &tree, commit)?;
    // What another base has left is not this one's.
    let _ = fs::remove_file(build.join("release/kernels"));
    let built = run(cargo(&words(&tree)).current_dir(&tree).env("CARGO_TARGET_DIR", &build));
    let _ = fs::remove_dir_all(&tree);
    built.map_err(|failure| Failure::new(format!("{name} does not build: {failure}")))?;
    fs::write(&stamp, commit)?;
    Ok(build.join("release"))
}

/// The files of a commit, all of them new: cargo tells by their times what has to be built.
fn unpack(folder: &Path, tree: &Path, commit: &str) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(tree);
    fs::create_dir_all(tree)?;
    let archive = folder.join("tree.tar");
    let file = archive.display().to_string();
    git(&["archive", "--format=tar", "--output", &file, commit])?;
    output(Command::new("tar").args(["-x", "-m", "-f", &file, "-C"]).arg(tree))?;
    Ok(fs::remove_file(archive)?)
}

/// What cargo builds of a tree: the daemon, and the kernels where it has them.
///
/// The packages are those of [`PACKAGES`], so that what they share has the same features in both.
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

/// Packages that measure; a commit may be older than one.
const MEASURING: [(&str, &str); 2] =
    [("shunt-kernels", "benches/kernels/Cargo.toml"), ("shunt-benches", "benches/Cargo.toml")];

/// Where the program `kernels` is, and where it was.
const KERNELS: [&str; 2] = ["benches/kernels/src/bin/kernels.rs", "benches/src/bin/kernels.rs"];

fn git(words: &[&str]) -> Result<String, Failure> {
    output(Command::new("git").args(words).current_dir(root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_mistyped_is_refused_before_anything_is_built() {
        for text in ["", "--quick", "--quick main", "main --qiuck", "main other", "main --all"] {
            assert!(parsed(&words_of(text)).is_err(), "{text}");
        }
        let words = words_of("main --quick");
        assert_eq!(parsed(&words).ok(), Some(("main", &words[1..])));
    }

    #[test]
    fn a_commit_that_is_none_is_refused() {
        let failure = run_command(&words_of("no-such-commit --quick")).unwrap_err().to_string();
        assert_eq!(failure, "`no-such-commit` is no commit of this repository");
    }

    #[test]
    fn this_tree_has_all_that_is_built_of_a_base() {
        let all = words(&root()).join(" ");
        assert!(
            all.contains("--package shunt-kernels --package shunt-benches --bin kernels"),
            "{all}"
        );
        let old = words(Path::new("/nowhere")).join(" ");
        assert_eq!(old, "build --release --package shuntd --bin shuntd --bin shuntctl");
    }
}
