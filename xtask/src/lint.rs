//! `cargo xtask lint`: format, lints and repository rules of the gate.

use crate::{
    shell::{TaskError, cargo, run, step},
    suite::FEATURES,
};

/// Runs format, clippy and rustdoc, with warnings as errors.
pub(crate) fn run_all() -> Result<(), TaskError> {
    step("fmt", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("clippy", || {
        run(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            FEATURES,
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("rustdoc", || {
        let arguments = ["doc", "--workspace", "--no-deps", "--features", FEATURES, "--quiet"];
        run(cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// Runs the command; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    run_all()
}
