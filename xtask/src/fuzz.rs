//! `cargo xtask fuzz`: fuzz targets under libFuzzer, built with the nightly toolchain.
//!
//! Each target is three lines that call a function of a crate. The target starts from the inputs in
//! `tests/data/fuzz` of that crate, which are seeds and past findings. A stable test replays these
//! inputs. The build does not use cargo-fuzz, because cargo-fuzz only adds the flags below.

use std::{path::PathBuf, process::Command};

use crate::shell::{TaskError, output, root, run, step};

/// Compiler flags of fuzz targets.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks --cfg fuzzing -Zsanitizer=address";

/// Default seconds per target.
const SECONDS: &str = "60";

/// Runs the named target, or all targets in turn.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let targets = targets()?;
    if arguments.iter().any(|argument| argument == "--list") {
        targets.iter().for_each(|target| println!("{target}"));
        return Ok(());
    }
    let mut seconds = SECONDS.to_owned();
    let mut named = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            let missing = || TaskError::new("--seconds needs a number");
            seconds.clone_from(rest.next().ok_or_else(missing)?);
        } else if targets.contains(argument) {
            named.push(argument.clone());
        } else {
            return Err(TaskError::new(format!(
                "unknown fuzz target `{argument}`; choose from: {}",
                targets.join(", ")
            )));
        }
    }
    let chosen = if named.is_empty() { targets } else { named };
    build(&chosen)?;
    chosen.iter().try_for_each(|target| {
        step(&format!("fuzz {target} for {seconds} s"), || fuzz(target, &seconds))
    })
}

fn targets() -> Result<Vec<String>, TaskError> {
    let folder = root().join("fuzz/targets");
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

fn build(targets: &[String]) -> Result<(), TaskError> {
    if output(Command::new("cargo").args(["+nightly", "--version"])).is_err() {
        return Err(TaskError::new(
            "fuzzing needs nightly: run `rustup toolchain install nightly`",
        ));
    }
    run(Command::new("cargo")
        .args(["+nightly", "build", "--release", "--target", TRIPLE])
        .args(["--target-dir", "target"])
        .args(targets.iter().flat_map(|target| ["--bin", target]))
        .current_dir(root().join("fuzz"))
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env("RUSTFLAGS", FLAGS))
}

fn fuzz(target: &str, seconds: &str) -> Result<(), TaskError> {
    let folder = root().join("fuzz");
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts").join(target);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    // New inputs are written to the first folder; the other folders are read-only.
    run(Command::new(folder.join("target").join(TRIPLE).join("release").join(target))
        .arg(corpus)
        .args(seeds(target)?)
        .arg(format!("-max_total_time={seconds}"))
        .arg("-timeout=10")
        .arg("-rss_limit_mb=2048")
        .arg(format!("-artifact_prefix={}/", artifacts.display())))
}

/// Returns the folders of committed inputs for a target.
fn seeds(target: &str) -> Result<Vec<PathBuf>, TaskError> {
    let crates = std::fs::read_dir(root().join("crates"))?;
    let folder = |entry: std::fs::DirEntry| entry.path().join("tests/data/fuzz").join(target);
    Ok(crates.filter_map(|entry| entry.ok().map(folder)).filter(|path| path.is_dir()).collect())
}

/// The target for which fuzz targets are built.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
