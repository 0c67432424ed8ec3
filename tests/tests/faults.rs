//! A daemon while the system fails: calls, disks, limits, clocks, pauses and kills.

use std::{
    env,
    process::{Command, Stdio},
};

use shunt_tests::{
    daemon::binary,
    namespace::{namespace_or_skip, skipped},
    repository::root,
};

/// Seconds of a short run, which has a few rounds.
const SHORT: &str = "30";

/// Returns the value of a variable of the environment, or a default.
fn variable(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// The tool prints each round, and the log of a failed round.
#[test]
fn a_daemon_comes_back_from_faults() {
    if namespace_or_skip("faults").is_none() {
        return;
    }
    let strace = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    if !strace.is_ok_and(|status| status.success()) {
        skipped("system calls that fail need strace");
        return;
    }
    let mut tool = Command::new("python3");
    tool.arg(root().join("tests/tools/faults.py")).arg(binary("shuntd")).arg(binary("shuntctl"));
    tool.args(["--seconds", &variable("SHUNT_FAULT_SECONDS", SHORT)]);
    tool.args(["--seed", &variable("SHUNT_SEED", "0")]);
    let status = tool.status().unwrap_or_else(|error| panic!("python3: {error}"));
    assert!(status.success(), "the output has the round that failed");
}
