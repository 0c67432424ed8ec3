//! `cargo xtask lint`: format, lints and repository rules of the gate.

use crate::{
    shell::{TaskError, cargo, run, step},
    suite::FEATURES,
};

/// Runs format, clippy and rustdoc, with warnings as errors.
pub(crate) fn run_all() -> Result<(), TaskError> {
    step("fmt", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    check(&["--workspace", "--features", FEATURES])
}

/// Runs clippy and rustdoc on packages and features, with warnings as errors.
pub(crate) fn check(selection: &[&str]) -> Result<(), TaskError> {
    step("clippy", || {
        let mut command = cargo(&["clippy", "--all-targets", "--quiet"]);
        run(command.args(selection).args(["--", "-D", "warnings"]))
    })?;
    step("rustdoc", || {
        let mut command = cargo(&["doc", "--no-deps", "--quiet"]);
        run(command.args(selection).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// Runs the command; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    run_all()
}
