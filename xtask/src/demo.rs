//! `cargo xtask demo`: the switch in a minute.

use crate::{
    install,
    shell::{Failure, cargo, run},
};

/// Builds the daemon and runs the demo; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), Failure> {
    install::ensure(install::DEMO)?;
    println!("building shuntd and shuntctl");
    run(&mut cargo(&["build", "--quiet", "--package", "shuntd", "--bins"]))?;
    run(&mut cargo(&["run", "--quiet", "--package", "shunt-tests", "--bin", "demo"]))
}
