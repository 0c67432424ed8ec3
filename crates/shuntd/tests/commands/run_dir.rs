//! A run directory is used by one daemon, also after a crash of an earlier daemon.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::{Daemon, errors, reload::signal, shuntctl, shuntd, wait_until};

const BRIDGE: &str = "[[bridge]]\nname = \"br0\"\n";

#[test]
fn daemon_starts_right_after_a_kill() {
    let mut daemon = Daemon::start(BRIDGE);
    for _ in 0..3 {
        let mut killed = daemon.kill_and_start_again();
        let pid = fs::read_to_string(daemon.run_dir().join("shuntd.pid")).unwrap();
        assert_eq!(pid.trim(), daemon.process.id().to_string());
        let old = format!("shuntd.{}.ctl", killed.id());
        assert!(!daemon.run_dir().join(old).exists(), "the socket of the killed daemon is removed");
        killed.wait().unwrap();
    }
    assert!(daemon.answer(&["show"]).contains("br0"));
}

#[test]
fn a_daemon_waits_for_one_that_ends() {
    let (mut daemon, lock) = waiting_daemon();
    assert!(daemon.process.try_wait().unwrap().is_none());
    drop(lock);
    daemon.wait_for_answer();
    assert_eq!(daemon.log().matches("waiting for").count(), 1, "{}", daemon.log());
}

/// Starts a daemon that waits for a lock; returns it with the lock.
///
/// The test holds the lock and has no control socket, like a daemon that is ending.
fn waiting_daemon() -> (Daemon, fs::File) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shunt.toml"), BRIDGE).unwrap();
    let pid = folder.path().join("shuntd.pid");
    let id = std::process::id();
    fs::write(&pid, format!("{id}\n")).unwrap();
    let lock = fs::File::open(&pid).unwrap();
    lock.lock().unwrap();
    let daemon = Daemon { process: crate::spawn(folder.path()), folder };
    let expected = format!("waiting for process {id}");
    assert!(wait_until(|| daemon.log().contains(&expected)), "{}", daemon.log());
    (daemon, lock)
}

#[test]
fn a_daemon_that_waits_reloads_after_its_start() {
    let (mut daemon, lock) = waiting_daemon();
    signal(&daemon, "HUP");
    signal(&daemon, "USR1");
    fs::write(daemon.run_dir().join("shunt.toml"), format!("{BRIDGE}mac_entries = 77\n")).unwrap();
    assert!(daemon.process.try_wait().unwrap().is_none(), "the signal killed it");
    drop(lock);
    daemon.wait_for_answer();
    assert!(wait_until(|| daemon.log().contains("mac_entries")), "{}", daemon.log());
    assert!(daemon.log().contains("the signal SIGUSR1 is ignored"), "{}", daemon.log());
}

#[test]
fn a_daemon_that_waits_can_be_stopped() {
    let (mut daemon, lock) = waiting_daemon();
    signal(&daemon, "TERM");
    assert!(daemon.process.wait().unwrap().success());
    assert!(daemon.log().contains("stopped by a signal while it waited"), "{}", daemon.log());
    assert!(daemon.run_dir().join("shuntd.pid").exists(), "the file of the other daemon stays");
    drop(lock);
}

#[test]
fn a_second_daemon_is_refused() {
    let daemon = Daemon::start(BRIDGE);
    let refused = shuntd(daemon.run_dir()).output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    let message = errors(&refused);
    assert!(message.contains(&format!("process {}", daemon.process.id())), "{message}");
    assert!(daemon.answer(&["show"]).contains("br0"));
}

#[test]
fn a_stopped_daemon_leaves_no_files() {
    let mut daemon = Daemon::start(BRIDGE);
    daemon.answer(&["exit"]);
    assert!(daemon.process.wait().unwrap().success());
    let left = fs::read_dir(daemon.run_dir()).unwrap();
    let mut names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["log", "shunt.toml"]);
}

#[test]
fn shuntctl_reports_a_missing_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("shuntd.pid");
    let ask = || {
        let output = shuntctl(folder.path(), &["show"]);
        assert_eq!(output.status.code(), Some(3));
        errors(&output)
    };
    let message = ask();
    assert!(message.contains(&format!("{} does not exist", pid.display())), "{message}");
    fs::write(&pid, "").unwrap();
    assert!(ask().contains("shuntd.pid is empty"));
    fs::write(&pid, "1\n").unwrap();
    assert!(ask().contains("cannot connect to the daemon at"));
}

#[test]
fn shuntctl_names_a_killed_daemon() {
    let mut daemon = Daemon::start(BRIDGE);
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    let output = shuntctl(daemon.run_dir(), &["show"]);
    assert_eq!(output.status.code(), Some(3));
    let message = errors(&output);
    let expected = format!("process {} was killed, or is ending", daemon.process.id());
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn a_missing_configuration_file_gives_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = shuntd(folder.path());
    let output = command.arg("--config").arg(folder.path().join("none.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
    assert!(message.contains("none.toml"), "{message}");
}

#[test]
fn system_error_at_start_gives_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = shuntd(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = errors(&output);
    assert_eq!(message.matches("cannot create").count(), 1, "{message}");
}

#[test]
fn top_clears_no_screen_where_there_is_none() {
    let daemon = Daemon::start(BRIDGE);
    let look = daemon.answer(&["top", "--count", "1"]);
    assert!(look.contains("packets/s received") && !look.contains('\u{1b}'), "{look:?}");
}

/// A signal ends the screen, and the terminal shows its earlier content.
#[test]
fn top_restores_the_terminal_after_a_signal() {
    let daemon = Daemon::start(BRIDGE);
    let [output, pid] = ["terminal", "top.pid"].map(|name| daemon.run_dir().join(name));
    let top = format!(
        "echo $$ > {}; exec {} --run-dir {} top",
        pid.display(),
        env!("CARGO_BIN_EXE_shuntctl"),
        daemon.run_dir().display(),
    );
    for name in ["TERM", "HUP", "INT"] {
        let _ = fs::remove_file(&output);
        let mut script = Command::new("script");
        script.args(["-qefc", &top]).arg(&output).env("TERM", "xterm").env("SHELL", "/bin/sh");
        // The end of its input would end the terminal.
        let mut terminal = script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let has = |code: &str| {
            String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).contains(code)
        };
        assert!(wait_until(|| has("\u{1b}[?1049h")), "{name}: no screen");
        let process = fs::read_to_string(&pid).unwrap();
        assert!(
            Command::new("kill").args(["-s", name, process.trim()]).status().unwrap().success()
        );
        assert!(wait_until(|| terminal.try_wait().unwrap().is_some()), "{name}: the screen stays");
        assert!(terminal.wait().unwrap().success(), "{name}");
        assert!(has("\u{1b}[?1049l"), "{name}: the terminal is not restored");
    }
}

#[test]
fn the_log_has_each_controller_address() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\nlisten = [\"ptcp:0:127.0.0.1\"]\n");
    assert!(wait_until(|| daemon.log().contains("listening for controllers")), "{}", daemon.log());
}
