//! `cargo xtask bench`: experiments, each beside its rival in one run.
//!
//! The experiments themselves, and all that their command line says, are a program of
//! `shunt-benches`; this builds it, with the daemon, and gets the programs that it drives.

mod regress;

use crate::{
    install,
    shell::{Failure, cargo, root, run},
};

/// What is built for a comparison: the daemon, and the programs that measure.
const PACKAGES: &[&str] =
    &["build", "--release", "--package", "shuntd", "--package", "shunt-benches", "--bins"];

/// What is built where nothing is measured: the program that knows the experiments.
const LIST: &[&str] = &["build", "--release", "--package", "shunt-benches", "--bin", "experiments"];

/// Runs the experiments named.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    if arguments.first().is_some_and(|name| name == "regress") {
        return regress::run_command(&arguments[1..]);
    }
    if arguments.iter().all(|word| ["--list", "--help", "-h"].contains(&word.as_str())) {
        println!("the list is in the program of the experiments, which cargo builds once:");
        run(&mut cargo(LIST))?;
        return run_experiments(arguments);
    }
    println!("building the switch and the experiments, optimised:");
    run(&mut cargo(PACKAGES))?;
    ensure_rival();
    run_experiments(arguments)
}

/// Gets the rival where that is allowed; without it, Shunt is measured alone.
fn ensure_rival() {
    if let Err(failure) = install::ensure(install::RIVAL) {
        println!("running without the rival: {failure}");
    }
}

fn run_experiments(arguments: &[String]) -> Result<(), Failure> {
    let program =
        ["run", "--release", "--quiet", "--package", "shunt-benches", "--bin", "experiments", "--"];
    run(cargo(&program).args(arguments).current_dir(root()))
}
