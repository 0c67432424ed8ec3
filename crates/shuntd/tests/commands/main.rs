//! Tests of `shuntd` and `shuntctl`, run as by an operator. The tests need no privileges.

#![expect(
    clippy::unwrap_used,
    reason = "a daemon that cannot be built fails the test that needs it"
)]

mod appctl;
mod clients;
mod controllers;
mod datapath_flows;
mod doctor;
mod evict;
mod http;
mod json_replies;
mod multicast;
mod nic;
mod ports;
mod reload;
mod rights;
mod run_dir;
mod sandbox;
mod service_manager;
mod state;
mod trace;
mod window;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use tempfile::TempDir;

/// A daemon and its directory; dropping the value kills the daemon.
struct Daemon {
    process: Child,
    folder: TempDir,
}

impl Daemon {
    /// Starts a daemon with a configuration, and waits until it answers.
    fn start(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shunt.toml"), configuration).unwrap();
        let daemon = Self { process: spawn(folder.path()), folder };
        daemon.wait_for_answer();
        daemon
    }

    /// Kills the daemon; starts another before the kernel has released the files.
    fn kill_and_start_again(&mut self) -> Child {
        self.process.kill().unwrap();
        let next = spawn(self.run_dir());
        let killed = std::mem::replace(&mut self.process, next);
        self.wait_for_answer();
        killed
    }

    fn wait_for_answer(&self) {
        let answers = || self.shuntctl(&["show"]).status.success();
        assert!(wait_until(answers), "shuntd does not answer: {}", self.log());
    }

    fn run_dir(&self) -> &Path {
        self.folder.path()
    }

    fn socket(&self) -> PathBuf {
        self.run_dir().join(format!("shuntd.{}.ctl", self.process.id()))
    }

    /// Returns the log of the daemon, including error messages.
    fn log(&self) -> String {
        fs::read_to_string(self.run_dir().join("log")).unwrap()
    }

    fn shuntctl(&self, arguments: &[&str]) -> Output {
        shuntctl(self.run_dir(), arguments)
    }

    /// Returns the output of a `shuntctl` command that must succeed.
    fn answer(&self, arguments: &[&str]) -> String {
        let output = self.shuntctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a `shuntctl` command that must fail.
    fn error_text(&self, arguments: &[&str]) -> String {
        let output = self.shuntctl(arguments);
        assert!(!output.status.success(), "{arguments:?} was taken");
        errors(&output)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a daemon with the file `shunt.toml` of a directory.
/// The directory is also the run directory of the daemon.
fn spawn(folder: &Path) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = shuntd(folder);
    command.arg("--config").arg(folder.join("shunt.toml"));
    command.stderr(Stdio::from(log)).spawn().unwrap()
}

fn shuntd(run_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shuntd"));
    command.arg("--run-dir").arg(run_dir);
    command
}

fn shuntctl(run_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shuntctl"));
    command.arg("--run-dir").arg(run_dir).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits up to 20 seconds for a condition; returns whether it holds.
fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    (0..1000).any(|_| {
        let now = holds();
        if !now {
            sleep(Duration::from_millis(20));
        }
        now
    })
}

/// Returns the error of `shuntd --check` for a configuration.
pub(crate) fn check(configuration: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shunt.toml");
    fs::write(&file, configuration).unwrap();
    let output = shuntd(folder.path()).arg("--check").arg("--config").arg(&file).output().unwrap();
    errors(&output)
}
