//! The state of a daemon survives its end.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

use crate::{Daemon, errors, shuntctl, shuntd, until};

/// A folder with a configuration, and daemons that keep their state in it.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(configuration: &str) -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap() };
        host.write(configuration);
        host
    }

    fn write(&self, configuration: &str) {
        fs::write(self.folder.path().join("shunt.toml"), configuration).unwrap();
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state.json")
    }

    fn start(&self) -> Child {
        let mut command = shuntd(self.folder.path());
        command.arg("--config").arg(self.folder.path().join("shunt.toml"));
        command.arg("--state").arg(self.state());
        let daemon = command.stderr(Stdio::null()).spawn().unwrap();
        let answers = || shuntctl(self.folder.path(), &["show"]).status.success();
        assert!(until(answers), "shuntd does not answer");
        daemon
    }

    fn answer(&self, arguments: &[&str]) -> String {
        let output = shuntctl(self.folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn exit(&self, mut daemon: Child) {
        self.answer(&["exit"]);
        daemon.wait().unwrap();
    }
}

const BRIDGE: &str = "[[bridge]]\nname = \"br0\"\n";
const PORT: &str = "[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n";

#[test]
fn what_was_added_at_run_time_comes_back() {
    let host = Host::new(BRIDGE);
    let daemon = host.start();
    host.answer(&["add-br", "br1"]);
    host.answer(&["add-port", "br1", "q1", "type=null", "number=9"]);
    host.answer(&["set", "caches.idle_ms=7000"]);
    host.exit(daemon);
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("port 9 q1"), "{shown}");
    assert!(host.answer(&["settings"]).contains("7000"));
    host.exit(daemon);
}

#[test]
fn a_killed_daemon_comes_back_with_its_last_write() {
    let host = Host::new(BRIDGE);
    let mut daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    let is_written = || fs::read_to_string(host.state()).is_ok_and(|text| text.contains("q1"));
    assert!(until(is_written), "the change is written within seconds");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let daemon = host.start();
    assert!(host.answer(&["show"]).contains("q1"));
    host.exit(daemon);
}

#[test]
fn a_changed_configuration_file_wins() {
    let host = Host::new(&format!("{BRIDGE}{PORT}"));
    let daemon = host.start();
    host.answer(&["add-port", "br0", "q1", "type=null"]);
    host.exit(daemon);
    host.write(&format!("[caches]\nidle_ms = 8000\n{BRIDGE}{}", PORT.replace("p1", "p2")));
    let daemon = host.start();
    let shown = host.answer(&["show"]);
    assert!(shown.contains("q1") && shown.contains("p2"), "{shown}");
    assert!(!shown.contains("p1"), "the file has removed it: {shown}");
    assert!(host.answer(&["settings"]).contains("8000"));
    host.exit(daemon);
}

#[test]
fn a_file_that_is_not_a_state_stops_the_start() {
    let host = Host::new(BRIDGE);
    fs::write(host.state(), "{}").unwrap();
    let mut command = shuntd(host.folder.path());
    let output = command.arg("--state").arg(host.state()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = errors(&output);
    assert!(error.contains("is not a state file of shuntd"), "{error}");
    assert!(error.contains("move the file away"), "{error}");
    assert_eq!(fs::read_to_string(host.state()).unwrap(), "{}");
}

#[test]
fn save_and_restore_carry_rules_to_another_daemon() {
    let one = Daemon::start(BRIDGE);
    one.answer(&["add-port", "br0", "q1", "type=null"]);
    let file = one.run_dir().join("saved.json");
    one.answer(&["save", file.to_str().unwrap()]);
    let two = Daemon::start("");
    let report = two.answer(&["restore", file.to_str().unwrap()]);
    assert!(report.contains("bridge br0: added\nport q1: added to br0\n"), "{report}");
    assert!(two.answer(&["show"]).contains("q1"));
    let missing = two.error_text(&["restore", "/nowhere/saved.json"]);
    assert!(missing.contains("/nowhere/saved.json does not exist"), "{missing}");
}
