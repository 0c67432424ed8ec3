//! `cargo xtask man`: manual pages and shell completions of all programs.

use std::path::PathBuf;

use crate::shell::{TaskError, cargo, run, target};

/// Writes the pages to `target/manual`.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    let folder = write()?;
    println!("{0}/man and {0}/completions", folder.display());
    Ok(())
}

/// Writes the pages, and returns their folder.
pub(crate) fn write() -> Result<PathBuf, TaskError> {
    let folder = target().join("manual");
    let program = ["run", "--quiet", "--package", "shuntd", "--example", "manual", "--"];
    run(cargo(&program).arg(&folder))?;
    Ok(folder)
}
