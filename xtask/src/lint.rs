//! `cargo xtask lint`: format, lints and repository rules of the gate.

use crate::{
    dpdk,
    shell::{TaskError, cargo, run, step},
    suite::{FEATURES, FEATURES_AND_DPDK},
};

/// Runs format, clippy and rustdoc, with warnings as errors.
///
/// Code behind the feature `dpdk` is included where libdpdk is installed, or can be.
pub(crate) fn run_all() -> Result<(), TaskError> {
    step("fmt", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    let features = match dpdk::ensure_library() {
        Ok(()) => FEATURES_AND_DPDK,
        Err(error) => {
            println!("SKIPPED: the code behind the feature `dpdk`: {error}");
            FEATURES
        }
    };
    let selection = ["--workspace", "--features", features, "--quiet"];
    step("clippy", || {
        let mut command = cargo(&["clippy", "--all-targets"]);
        run(command.args(selection).args(["--", "-D", "warnings"]))
    })?;
    step("rustdoc", || {
        let mut command = cargo(&["doc", "--no-deps"]);
        run(command.args(selection).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// Runs the command; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    run_all()
}
