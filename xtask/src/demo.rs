//! `cargo xtask demo`: shows the switch in a minute.

use std::process::Command;

use crate::{
    install,
    shell::{TaskError, cargo, root, run, target},
};

/// Builds the daemon and runs the demo.
///
/// `--gigaflow` selects the demo of the emulated NIC.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = arguments.iter().find(|word| *word != "--gigaflow") {
        return Err(TaskError::new(format!(
            "unknown demo option `{unknown}`: only --gigaflow exists"
        )));
    }
    install::ensure(install::DEMO)?;
    println!("building shuntd, shuntctl and the demo, which takes some minutes the first time:");
    let programs = ["--package", "shuntd", "--package", "shunt-tests", "--bins"];
    run(cargo(&["build"]).args(programs))?;
    // `cargo run` builds the demo again, because another package selection changes features.
    run(Command::new(target().join("debug/demo")).args(arguments).current_dir(root()))
}
