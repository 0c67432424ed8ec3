//! `cargo xtask bench`: experiments, each measured with its rival in one run.
//!
//! The experiments and their command line are a program of `shunt-benches`. This module builds this
//! program with the daemon, and installs the programs that the experiments need.

mod regress;

use std::{ffi::OsString, os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use crate::{
    dpdk, install, linux_guest,
    shell::{TaskError, cargo, root, run, target},
};

/// Packages of a measuring run: the daemon, and the programs that measure.
const PACKAGES: &[&str] =
    &["--package", "shuntd", "--package", "shunt-kernels", "--package", "shunt-benches", "--bins"];

/// Options for the eviction engines that run as dbsp circuits.
const DBSP: &[&str] = &["--features", "shunt-benches/dbsp,shuntd/dbsp"];

/// Options for DPDK ports of the daemon.
const DPDK: &[&str] = &["--features", "shuntd/dpdk"];

/// Packages for `--list` and `--help`: the program with the list of experiments.
const LIST: &[&str] = &["--package", "shunt-benches", "--bin", "experiments"];

/// Runs the named experiments.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    if arguments.first().is_some_and(|name| name == "regress") {
        return regress::run_command(&arguments[1..]);
    }
    if arguments.iter().all(|word| QUERY_OPTIONS.contains(&word.as_str())) {
        println!("building the experiment program for its list, once:");
        build(LIST)?;
        return run_experiments(arguments, &[]);
    }
    println!("building the switch and the experiments with optimisation:");
    // These options are for the build only. The experiments check the features.
    let (features, words): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|word| word == "--dbsp" || word == "--dpdk");
    let has = |option: &str| features.iter().any(|word| word == option);
    if has("--dpdk") {
        dpdk::ensure_library()?;
    }
    let features = [if has("--dbsp") { DBSP } else { &[] }, if has("--dpdk") { DPDK } else { &[] }];
    build(&[PACKAGES, features.concat().as_slice()].concat())?;
    ensure_rival();
    let os_ken = os_ken(&words);
    let os_ken =
        os_ken.map(|python| (install::OS_KEN_APPLICATIONS.variable, OsString::from(python)));
    let guest = guest_files(&words).map(|folder| (linux_guest::VARIABLE, OsString::from(folder)));
    let variables: Vec<(&str, OsString)> = os_ken.into_iter().chain(guest).collect();
    run_experiments(&words, &variables)
}

/// Options that measure nothing.
const QUERY_OPTIONS: [&str; 3] = ["--list", "--help", "-h"];

fn build(packages: &[&str]) -> Result<(), TaskError> {
    run(cargo(&["build", "--release"]).args(packages))
}

/// Installs the rival if the installation is permitted.
/// Without the rival, Shunt is measured alone.
fn ensure_rival() {
    if let Err(failure) = install::ensure(install::RIVAL) {
        println!("running without the rival: {failure}");
    }
}

/// Returns the path of Python with os-ken, if a named experiment needs os-ken.
///
/// Returns `None` otherwise, or on failure.
fn os_ken(words: &[String]) -> Option<String> {
    if !words.iter().any(|word| ["kairo-flapping", "--all"].contains(&word.as_str())) {
        return None;
    }
    let python = install::ensure_python(&install::OS_KEN_APPLICATIONS);
    python.map_err(|failure| println!("running without os-ken: {failure}")).ok()
}

/// Returns the folder of the Linux guest, if a named experiment needs the guest.
///
/// Only the name of the experiment permits the download of a kernel. `--all` uses the files of an
/// earlier run. Returns `None` otherwise, or on failure.
fn guest_files(words: &[String]) -> Option<PathBuf> {
    let has = |name: &str| words.iter().any(|word| word == name);
    let is_needed = has("ports-vms") || has("--all") && linux_guest::has_kernel();
    if !is_needed {
        return None;
    }
    linux_guest::ensure()
        .map_err(|failure| println!("running without a Linux guest: {failure}"))
        .ok()
}

/// Runs the built program with further environment variables.
///
/// `cargo run` builds the program again, because a different package selection changes features.
fn run_experiments(arguments: &[String], variables: &[(&str, OsString)]) -> Result<(), TaskError> {
    let program = target().join("release/experiments");
    let mut command = Command::new(&program);
    for (name, value) in variables {
        command.env(name, value);
    }
    // The experiments replace this process, so that only the experiments handle interrupts.
    let error = command.args(arguments).current_dir(root()).exec();
    Err(TaskError::new(format!("cannot run `{}`: {error}", program.display())))
}
