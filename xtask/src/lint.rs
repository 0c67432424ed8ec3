//! `cargo xtask lint`: what the gate demands of how the code looks.

use crate::shell::{Failure, cargo, run, step};

/// Format, clippy and rustdoc, each with warnings as errors.
pub(crate) fn run_all() -> Result<(), Failure> {
    step("fmt", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("clippy", || {
        run(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("rustdoc", || {
        let arguments = ["doc", "--workspace", "--no-deps", "--all-features", "--quiet"];
        run(cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// The command; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), Failure> {
    run_all()
}
