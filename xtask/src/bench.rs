//! `cargo xtask bench`: experiments, each beside its rival in one run.
//!
//! The experiments themselves, and all that their command line says, are a program of
//! `shunt-benches`; this builds it, with the daemon, and gets the programs that it drives.

mod regress;

use std::{os::unix::process::CommandExt as _, process::Command};

use crate::{
    install,
    shell::{Failure, cargo, root, run, target},
};

/// What is built for a comparison: the daemon, and the programs that measure.
const PACKAGES: &[&str] =
    &["--package", "shuntd", "--package", "shunt-kernels", "--package", "shunt-benches", "--bins"];

/// Engines in circuits of dbsp, which takes long to build.
const DBSP: &[&str] = &["--features", "shunt-benches/dbsp,shuntd/dbsp"];

/// What is built where nothing is measured: the program that knows the experiments.
const LIST: &[&str] = &["--package", "shunt-benches", "--bin", "experiments"];

/// Runs the experiments named.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    if arguments.first().is_some_and(|name| name == "regress") {
        return regress::run_command(&arguments[1..]);
    }
    if arguments.iter().all(|word| ASKS.contains(&word.as_str())) {
        println!("the list is in the program of the experiments, which cargo builds once:");
        build(LIST)?;
        return run_experiments(arguments, None);
    }
    println!("building the switch and the experiments, optimised:");
    // The one word that is for the build; the experiments know from it what they have.
    let (features, words): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|word| word == "--dbsp");
    build(&[PACKAGES, if features.is_empty() { &[] } else { DBSP }].concat())?;
    ensure_rival();
    let os_ken = os_ken(&words);
    run_experiments(&words, os_ken.as_deref())
}

/// Words that measure nothing.
const ASKS: [&str; 3] = ["--list", "--help", "-h"];

fn build(packages: &[&str]) -> Result<(), Failure> {
    run(cargo(&["build", "--release"]).args(packages))
}

/// Gets the rival where that is allowed; without it, Shunt is measured alone.
fn ensure_rival() {
    if let Err(failure) = install::ensure(install::RIVAL) {
        println!("running without the rival: {failure}");
    }
}

/// The Python that has os-ken, made where an experiment is named that it is a part of; `None` where that
/// is not needed or did not go.
fn os_ken(words: &[String]) -> Option<String> {
    if !words.iter().any(|word| ["kairo-flapping", "--all"].contains(&word.as_str())) {
        return None;
    }
    let python = install::ensure_python(&install::OS_KEN_APPLICATIONS);
    python.map_err(|failure| println!("running without os-ken: {failure}")).ok()
}

/// Runs the program that was built. Not by `cargo run`, which would build it anew, since other packages
/// beside it make other features.
fn run_experiments(arguments: &[String], os_ken: Option<&str>) -> Result<(), Failure> {
    let program = target().join("release/experiments");
    let mut command = Command::new(&program);
    command.envs(os_ken.map(|python| (install::OS_KEN_APPLICATIONS.variable, python)));
    // In place of this process, so that it alone answers an interrupt.
    let error = command.args(arguments).current_dir(root()).exec();
    Err(Failure::new(format!("cannot run `{}`: {error}", program.display())))
}
