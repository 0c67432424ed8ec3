//! `shuntctl doctor`, with and without rights, and with and without a daemon.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{Daemon, errors};

/// Runs `shuntctl doctor` by a program that changes the rights of its process.
///
/// `None` if the change of rights is not permitted.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn doctor_by(program: &str, arguments: &[&str]) -> Option<(i32, String)> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).arg(env!("CARGO_BIN_EXE_shuntctl"));
    command.arg("--run-dir").arg(folder.path().join("run"));
    command.args(["doctor", "--config"]).arg(folder.path().join("none.toml"));
    let output = command.output();
    let ran = |output: &Output| !output.stdout.is_empty();
    let Some(output) = output.ok().filter(ran) else {
        eprintln!("SKIPPED: {program} may not change the rights of a program here");
        return None;
    };
    Some((output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap()))
}

#[test]
fn doctor_of_dpdk_needs_no_port() {
    let doctor = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shuntctl"));
        command.arg("doctor").args(arguments).output().unwrap()
    };
    let output = doctor(&["dpdk", "ffff:ff:1f.7"]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("huge pages for DPDK: "), "{report}");
    assert!(report.contains("missing  network card ffff:ff:1f.7: does not exist"), "{report}");
    assert!(!report.contains("CAP_NET_RAW"), "no check of other ports: {report}");
    let output = doctor(&["ffff:ff:1f.7"]);
    assert_eq!(output.status.code(), Some(2), "a card needs the word dpdk");
}

#[test]
fn doctor_prints_commands_for_missing_rights() {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let Some((code, report)) = doctor_by("setpriv", &user) else { return };
    assert_eq!(code, 1, "{report}");
    for missing in ["CAP_NET_RAW: user 65534", "CAP_NET_ADMIN: user 65534", "packet socket: "] {
        assert!(report.contains(&format!("missing  {missing}")), "{report}");
    }
    assert!(report.contains("run: systemctl enable --now shuntd"), "{report}");
    assert!(report.contains("missing  run directory "), "{report}");
    assert!(report.contains("note     daemon: no daemon runs in "), "{report}");
}

/// The root of a user namespace has all capabilities.
///
/// The root of a user namespace has no right to the network of the host.
#[test]
fn capabilities_of_a_user_namespace_are_not_enough() {
    let Some((code, report)) = doctor_by("unshare", &["--user", "--map-root-user"]) else { return };
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("ok       CAP_NET_RAW: "), "{report}");
    assert!(
        report.contains("missing  packet socket: this user may not open a packet socket"),
        "{report}"
    );
}

#[test]
fn doctor_checks_the_capabilities_of_the_daemon() {
    let daemon = Daemon::start(
        "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n",
    );
    let output = daemon.shuntctl(&["doctor"]);
    let report = String::from_utf8(output.stdout.clone()).unwrap();
    let process = format!("ok       daemon: process {} of user ", daemon.process.id());
    assert!(report.starts_with(&process), "{report}{}", errors(&output));
    // A null port needs no rights.
    assert!(!report.contains("CAP_"), "{report}");

    daemon.answer(&["add-port", "br0", "p2", "type=patch", "peer=p3"]);
    let output = daemon.shuntctl(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let port = checks.iter().find(|check| check["subject"] == "port p2").unwrap();
    assert_eq!((&port["state"], &port["detail"]), (&"missing".into(), &"no peer".into()));
}

#[test]
fn clap_accepts_the_command_line_definitions() {
    shuntd::daemon::command().debug_assert();
    shuntd::client::command().debug_assert();
}
