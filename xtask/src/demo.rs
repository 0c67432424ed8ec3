//! `cargo xtask demo`: the switch in a minute.

use crate::{
    install,
    shell::{Failure, cargo, run},
};

/// Builds the daemon and runs the demo; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), Failure> {
    install::ensure(install::DEMO)?;
    println!("building shuntd, shuntctl and the demo:");
    let programs = ["--package", "shuntd", "--package", "shunt-tests", "--bins"];
    run(cargo(&["build"]).args(programs))?;
    run(&mut cargo(&["run", "--quiet", "--package", "shunt-tests", "--bin", "demo"]))
}
