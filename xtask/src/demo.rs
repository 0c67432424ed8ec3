//! `cargo xtask demo`: the switch in a minute.

use crate::{
    install,
    shell::{Failure, cargo, run},
};

/// Builds the daemon and runs the demo, or with `--gigaflow` that of pieces on a NIC.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.iter().find(|word| *word != "--gigaflow") {
        return Err(Failure::new(format!("the demo has no `{unknown}`, only --gigaflow")));
    }
    install::ensure(install::DEMO)?;
    println!("building shuntd, shuntctl and the demo:");
    let programs = ["--package", "shuntd", "--package", "shunt-tests", "--bins"];
    run(cargo(&["build"]).args(programs))?;
    let demo = ["run", "--quiet", "--package", "shunt-tests", "--bin", "demo", "--"];
    run(cargo(&demo).args(arguments))
}
