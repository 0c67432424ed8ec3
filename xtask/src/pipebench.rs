//! `cargo xtask pipebench`: a workload by its name, as a folder of files.

use crate::shell::{Failure, cargo, run};

const PROGRAM: &[&str] =
    &["run", "--release", "--quiet", "--package", "shunt-pipebench", "--bin", "pipebench", "--"];

/// Writes the workload; without a name it says what names there are.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let command = if arguments.is_empty() { "names" } else { "write" };
    run(cargo(PROGRAM).arg(command).args(arguments).current_dir(here()?))
}

/// Where the user is: folders are told from there.
fn here() -> Result<std::path::PathBuf, Failure> {
    Ok(std::env::current_dir()?)
}
