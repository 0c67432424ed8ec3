//! os-ken's switch tester with the daemon: the tester loads rules over OpenFlow, and sends packets
//! through a second switch.
//!
//! For each test, the tester configures the switch under test, reads the configuration back and
//! compares the configuration as text. Then a trusted switch (Open vSwitch) injects a packet, and
//! the tester checks the other ports, the controller, or the counters for the packet.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

mod expected;
mod verdicts;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use shunt_tests::{
    daemon::{Daemon, output, text},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    open_vswitch::OpenVSwitch,
    repository::root,
};

use crate::{expected::Expected, verdicts::verdicts};

/// Variable with the Python that has the tester; `cargo xtask test` sets it.
const PYTHON: &str = "SHUNT_SWITCH_TESTER_PYTHON";
/// Listening address of the tester.
const TESTER: &str = "10.66.0.1";
/// Listening port of the tester.
const PORT: &str = "16633";

#[test]
fn actions_pass_the_switch_tester() {
    run_tests("action");
}

#[test]
fn matches_pass_the_switch_tester() {
    run_tests("match");
}

#[test]
fn groups_send_where_the_switch_tester_expects() {
    run_tests("group");
}

#[test]
fn meters_limit_as_the_switch_tester_expects() {
    run_tests("meter");
}

/// Runs the tests of one kind. Each test that is not exempt must pass.
fn run_tests(kind: &str) {
    let Some(python) = python_or_skip() else { return };
    let Some(near) = namespace_or_skip("tester") else { return };
    let Some(far) = namespace_or_skip("target") else { return };
    connect(&near, &far);
    let Some(trusted) = OpenVSwitch::start_or_skip(&near) else { return };
    add_trusted_bridge(&trusted);
    let daemon = Daemon::start_with(&configuration(), |program| far.command(&path(program)));
    let log = daemon.run_dir().join("switch-tester.log");
    run_tester(&near, &python, kind, &log);
    let log = fs::read_to_string(&log).unwrap_or_default();
    let mistakes = Expected::of(kind).mistakes(&verdicts(&log));
    assert!(mistakes.is_empty(), "{}\n{}", mistakes.join("\n"), daemon.log());
}

/// Connects three cables for packets and one cable for OpenFlow.
///
/// Only packets of the test use the cables.
fn connect(near: &Namespace, far: &Namespace) {
    for (own, other) in [("tst1", "tgt1"), ("tst2", "tgt2"), ("tst3", "tgt3"), ("ctl", "ctl")] {
        near.connect(own, far, other);
        for (namespace, device) in [(near, own), (far, other)] {
            namespace.run("ethtool", &["-K", device, "tx", "off", "rx", "off"]);
        }
    }
    near.run("ip", &["addr", "add", &format!("{TESTER}/24"), "dev", "ctl"]);
    far.run("ip", &["addr", "add", "10.66.0.2/24", "dev", "ctl"]);
}

fn add_trusted_bridge(switch: &OpenVSwitch<'_>) {
    let bridge = [
        "add-br tester -- set bridge tester datapath_type=netdev fail_mode=secure",
        "other-config:datapath-id=0000000000000002 protocols=OpenFlow13",
    ];
    let words = |line: &'static str| line.split_whitespace();
    switch.run("ovs-vsctl", &bridge.into_iter().flat_map(words).collect::<Vec<_>>());
    for (port, number) in [("tst1", "1"), ("tst2", "2"), ("tst3", "3")] {
        let request = format!("ofport_request={number}");
        let add = ["add-port", "tester", port, "--", "set", "interface", port, &request];
        switch.run("ovs-vsctl", &add);
    }
    let controller = format!("tcp:127.0.0.1:{PORT}");
    switch.run("ovs-vsctl", &["set-controller", "tester", &controller]);
    let often = ["set", "controller", "tester", "connection-mode=out-of-band", "max-backoff=1000"];
    switch.run("ovs-vsctl", &often);
}

fn configuration() -> String {
    let mut configuration = format!(
        "[[bridge]]\nname = \"br0\"\ndatapath_id = \"0000000000000001\"\n\
         controllers = [\"tcp:{TESTER}:{PORT}\"]\n"
    );
    for number in 1..=3 {
        configuration += &format!(
            "[[bridge.port]]\nname = \"tgt{number}\"\nnumber = {number}\ntype = \"af_packet\"\n"
        );
    }
    configuration
}

/// Runs the tester until the tester ends.
///
/// The tester ends itself with a signal, so the exit status has no meaning.
fn run_tester(namespace: &Namespace, python: &Path, kind: &str, log: &Path) {
    let package = "import os_ken, os; print(os.path.dirname(os_ken.__file__))";
    let package = text(&output(namespace.command(&path(python)).args(["-c", package])));
    let tests = format!("{}/tests/switch/of13/{kind}", package.trim());
    let file = fs::File::create(log).unwrap_or_else(|error| panic!("{error}"));
    let errors = file.try_clone().unwrap_or_else(|error| panic!("{error}"));
    let mut command = namespace.command("timeout");
    command.args(["1800", &path(python), "-W", "ignore", "-m", "os_ken.cmd.manager"]);
    command.args(["--ofp-tcp-listen-port", PORT, "--test-switch-dir", &tests]);
    command.args(["--test-switch-target", "0000000000000001"]);
    command.args(["--test-switch-tester", "0000000000000002"]);
    command.args(["--test-switch-target-version", "openflow13"]);
    command.args(["--test-switch-tester-version", "openflow13"]);
    command.arg(root().join("tests/tools/switch_tester.py"));
    command.env("OSKEN_HUB_TYPE", "eventlet");
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let status = command.status();
    assert!(status.is_ok(), "the switch tester does not start");
}

fn python_or_skip() -> Option<PathBuf> {
    let python = env::var_os(PYTHON).map(PathBuf::from);
    if python.is_none() {
        print_skipped(&format!("{PYTHON} is not set; `cargo xtask test tester` sets it"));
    }
    python
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
