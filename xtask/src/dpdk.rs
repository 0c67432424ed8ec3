//! The daemon with DPDK ports, which the suite `dpdk_ports` runs.

use std::fs;

use crate::{
    install,
    shell::{TaskError, cargo, run, target},
};

/// Environment variable that gives tests the folder of the programs with DPDK.
pub(crate) const VARIABLE: &str = "SHUNT_DPDK_PROGRAMS";

/// Programs of the daemon.
const PROGRAMS: [&str; 2] = ["shuntd", "shuntctl"];

/// Installs libdpdk and its drivers if permitted.
///
/// # Errors
///
/// If it is not permitted or fails.
pub(crate) fn ensure_library() -> Result<(), TaskError> {
    install::ensure(install::DPDK)
}

/// Builds the daemon with DPDK ports; returns the folder of its programs.
///
/// They have a folder of their own, because other suites run the daemon without DPDK.
///
/// # Errors
///
/// If the build fails.
pub(crate) fn ensure_programs() -> Result<String, TaskError> {
    let build = ["build", "--quiet", "--package", "shuntd", "--bins"];
    run(cargo(&build).args(["--features", "dpdk"]))?;
    let folder = target().join("dpdk");
    fs::create_dir_all(&folder)?;
    for program in PROGRAMS {
        let copy = folder.join(program);
        // A running program cannot be overwritten.
        let _ = fs::remove_file(&copy);
        fs::copy(target().join("debug").join(program), copy)?;
    }
    // Puts the programs without DPDK back in their place; they are built already.
    run(&mut cargo(&build))?;
    Ok(folder.to_string_lossy().into_owned())
}
