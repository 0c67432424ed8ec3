//! A daemon while the system fails: calls, disks, limits, clocks, pauses and kills.
//!
//! Also a daemon while everything that it keeps is added and deleted, and its page in a browser.

use std::{
    env,
    process::{Command, Stdio},
};

use shunt_tests::{
    daemon::binary,
    namespace::{namespace_or_skip, print_skipped},
    repository::root,
};

/// Seconds of a short run, which has a few rounds.
const SHORT: &str = "30";

/// Minutes of a short run under churn.
const SHORT_CHURN: &str = "0.5";

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
        print_skipped("system calls that fail need strace");
        return;
    }
    let mut tool = Command::new("python3");
    tool.arg(root().join("tests/tools/faults.py")).arg(binary("shuntd")).arg(binary("shuntctl"));
    tool.args(["--seconds", &variable("SHUNT_FAULT_SECONDS", SHORT)]);
    tool.args(["--seed", &variable("SHUNT_SEED", "0")]);
    let status = tool.status().unwrap_or_else(|error| panic!("python3: {error}"));
    assert!(status.success(), "the output has the round that failed");
}

/// The tool prints each round, the memory by use, and the first check that failed.
#[test]
fn memory_stays_flat_under_churn() {
    if namespace_or_skip("churn").is_none() {
        return;
    }
    for program in ["ovs-vsctl", "ovs-ofctl", "ovs-appctl"] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            print_skipped(&format!("churn needs {program}"));
            return;
        }
    }
    let mut tool = Command::new("python3");
    tool.arg(root().join("tests/tools/churn.py")).arg(binary("shuntd")).arg(binary("shuntctl"));
    tool.args(["--minutes", &variable("SHUNT_CHURN_MINUTES", SHORT_CHURN)]);
    tool.args(["--seed", &variable("SHUNT_SEED", "0")]);
    let status = tool.status().unwrap_or_else(|error| panic!("python3: {error}"));
    assert!(status.success(), "the output has the check that failed");
}

/// Otherwise the daemon would wait forever for the threads that started.
#[test]
fn a_daemon_without_control_threads_ends() {
    let strace = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    if !strace.is_ok_and(|status| status.success()) {
        print_skipped("system calls that fail need strace");
        return;
    }
    let mut daemon = Command::new("timeout");
    daemon.args(["60", "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3"]);
    // The first control thread starts, and the second one does not.
    daemon.args(["-e", "inject=clone,clone3:error=EAGAIN:when=2+"]).arg(binary("shuntd"));
    let output = daemon.output().unwrap_or_else(|error| panic!("timeout: {error}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("cannot start the 2 control threads"), "{message}");
    assert_eq!(output.status.code(), Some(1));
}

/// The tool prints each size of the page, and the first check that failed.
#[test]
fn the_window_shows_the_counters_in_a_browser() {
    if namespace_or_skip("window").is_none() {
        return;
    }
    for program in ["chromium", "ovs-ofctl"] {
        let mut command = Command::new(program);
        let version = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            print_skipped(&format!("the window in a browser needs {program}"));
            return;
        }
    }
    let mut tool = Command::new("python3");
    tool.arg(root().join("tests/tools/window.py")).arg(binary("shuntd")).arg(binary("shuntctl"));
    if let Ok(folder) = env::var("SHUNT_SCREENSHOTS") {
        tool.args(["--screenshots", &folder]);
    }
    let status = tool.status().unwrap_or_else(|error| panic!("python3: {error}"));
    assert!(status.success(), "the output has the check that failed");
}
