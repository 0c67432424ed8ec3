//! `cargo xtask man`: manual pages and shell completions of all programs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{TaskError, cargo, run, target};

/// Writes the pages to `target/manual`.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    let folder = write()?;
    println!("{0}/man and {0}/completions", folder.display());
    Ok(())
}

/// Name of the example that writes the pages.
pub(crate) const WRITER: &str = "manual";

/// Builds the program that writes the pages, runs the program,
/// and returns the folder.
fn write() -> Result<PathBuf, TaskError> {
    let folder = target().join("manual");
    run(cargo(&["run", "--package", "shuntd", "--example", WRITER, "--"]).arg(&folder))?;
    Ok(folder)
}

/// Writes the pages with a program that was built before.
///
/// Returns the folder of the pages. If the folder `programs` lacks the program, the program is
/// built first.
pub(crate) fn write_by(programs: &Path) -> Result<PathBuf, TaskError> {
    let writer = programs.join("examples").join(WRITER);
    if !writer.exists() {
        return write();
    }
    let folder = target().join("manual");
    run(Command::new(writer).arg(&folder))?;
    Ok(folder)
}
