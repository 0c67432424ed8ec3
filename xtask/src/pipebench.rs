//! `cargo xtask pipebench`: generates a workload by name, as a folder of files.

use crate::shell::{TaskError, cargo, run};

/// Arguments of cargo that run `pipebench`.
const PROGRAM: &[&str] =
    &["run", "--release", "--quiet", "--package", "shunt-pipebench", "--bin", "pipebench", "--"];

/// Writes the workload. Without a name, the command lists the names.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let command = if arguments.is_empty() { "names" } else { "write" };
    run(cargo(PROGRAM).arg(command).args(arguments).current_dir(here()?))
}

/// Returns the user's working directory, which is the base of relative paths.
fn here() -> Result<std::path::PathBuf, TaskError> {
    Ok(std::env::current_dir()?)
}
