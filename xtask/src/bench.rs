//! `cargo xtask bench`: experiments, each measured with its rival in one run.
//!
//! The experiments and their command line are a program of `shunt-benches`. This module builds this
//! program with the daemon, and installs the programs that the experiments need.

mod regress;

use std::{os::unix::process::CommandExt as _, process::Command};

use crate::{
    dpdk, install,
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
        return run_experiments(arguments, None);
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
    run_experiments(&words, os_ken.as_deref())
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

/// Runs the built program.
///
/// `cargo run` builds the program again, because a different package selection changes features.
fn run_experiments(arguments: &[String], os_ken: Option<&str>) -> Result<(), TaskError> {
    let program = target().join("release/experiments");
    let mut command = Command::new(&program);
    command.envs(os_ken.map(|python| (install::OS_KEN_APPLICATIONS.variable, python)));
    // The experiments replace this process, so that only the experiments handle interrupts.
    let error = command.args(arguments).current_dir(root()).exec();
    Err(TaskError::new(format!("cannot run `{}`: {error}", program.display())))
}
