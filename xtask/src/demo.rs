//! `cargo xtask demo`: the switch in a minute.

use std::process::Command;

use crate::{
    install,
    shell::{Failure, cargo, root, run, target},
};

/// Builds the daemon and runs the demo, or with `--gigaflow` that of pieces on a NIC.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.iter().find(|word| *word != "--gigaflow") {
        return Err(Failure::new(format!("the demo has no `{unknown}`, only --gigaflow")));
    }
    install::ensure(install::DEMO)?;
    println!("building shuntd, shuntctl and the demo, which takes some minutes the first time:");
    let programs = ["--package", "shuntd", "--package", "shunt-tests", "--bins"];
    run(cargo(&["build"]).args(programs))?;
    // Not by `cargo run`, which would build it anew, since fewer packages have other features.
    run(Command::new(target().join("debug/demo")).args(arguments).current_dir(root()))
}
