//! `cargo xtask lint`: formatting, lints and repository rules of the gate.

use crate::{
    dpdk,
    shell::{TaskError, cargo, run, step},
    suite::{FEATURES, FEATURES_AND_DPDK},
};

/// Runs format, clippy and rustdoc, with warnings as errors.
///
/// The checks include code behind the feature `dpdk` if libdpdk is installed, or can be installed.
///
/// # Errors
///
/// If a step fails. `on_missing` determines whether a missing libdpdk is also an error.
pub(crate) fn run_all(on_missing: OnMissing) -> Result<(), TaskError> {
    step("fmt", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    let features = features(dpdk::ensure_headers(), on_missing)?;
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

/// The result of lint if libdpdk cannot be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnMissing {
    /// Lint leaves out the code behind the feature `dpdk`, with a message.
    Skip,
    /// Lint fails without libdpdk.
    Fail,
}

/// Returns the features to check, with `libdpdk` as the result of its installation.
fn features(
    libdpdk: Result<(), TaskError>,
    on_missing: OnMissing,
) -> Result<&'static str, TaskError> {
    const CODE: &str = "the code behind the feature `dpdk`";
    match (libdpdk, on_missing) {
        (Ok(()), _) => Ok(FEATURES_AND_DPDK),
        (Err(error), OnMissing::Skip) => {
            println!("SKIPPED: {CODE}: {error}");
            Ok(FEATURES)
        }
        (Err(error), OnMissing::Fail) => {
            Err(TaskError::new(format!("{CODE} cannot be checked: {error}")))
        }
    }
}

/// Runs the command, which has no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    run_all(OnMissing::Skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_gate_fails_without_libdpdk() {
        let missing = || Err(TaskError::new("apt-get is locked"));
        let of = |libdpdk, on_missing| features(libdpdk, on_missing).map_err(|error| error.0);
        assert_eq!(of(Ok(()), OnMissing::Fail), Ok(FEATURES_AND_DPDK));
        assert_eq!(of(missing(), OnMissing::Skip), Ok(FEATURES));
        let error = of(missing(), OnMissing::Fail).unwrap_err();
        let expected = "the code behind the feature `dpdk` cannot be checked: apt-get is locked";
        assert_eq!(error, expected);
    }
}
