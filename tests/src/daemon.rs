//! A daemon for one test: started with a configuration, stopped and cleaned up on drop.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::repository::root;

/// Maximum time for any expected event, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// A running `shuntd`.
pub struct Daemon {
    process: Child,
    folder: TempDir,
}

impl Daemon {
    /// Starts a daemon and waits until it replies.
    ///
    /// # Panics
    ///
    /// If the daemon does not start.
    #[must_use]
    pub fn start(configuration: &str) -> Self {
        Self::start_with(configuration, |program| Command::new(program))
    }

    /// Starts a daemon through a command that `wrap` builds.
    ///
    /// The command may, for example, enter a namespace.
    ///
    /// # Panics
    ///
    /// If the daemon does not start.
    #[must_use]
    pub fn start_with(configuration: &str, wrap: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        fs::write(folder.path().join("shunt.toml"), configuration)
            .unwrap_or_else(|error| panic!("{error}"));
        let daemon = Self { process: spawn(folder.path(), wrap), folder };
        daemon.wait_for_reply();
        daemon
    }

    /// Sends a signal to the daemon, and starts the next daemon before this one ends.
    ///
    /// # Panics
    ///
    /// If the next daemon does not start.
    pub fn start_next(&mut self, signal: &str, wrap: impl FnOnce(&Path) -> Command) {
        let status = output(Command::new("kill").args([signal, &self.daemon_id()])).status;
        assert!(status.success(), "kill {signal}");
        let next = spawn(self.folder.path(), wrap);
        let mut last = std::mem::replace(&mut self.process, next);
        let _ = last.wait();
        self.wait_for_reply();
    }

    fn wait_for_reply(&self) {
        let answers = || self.shuntctl(&["show"]).status.success();
        assert!(wait_until(answers), "shuntd does not reply:\n{}", self.log());
    }

    /// Returns the id of the started process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the run directory of the daemon.
    #[must_use]
    pub fn run_dir(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the log of the daemon so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs `shuntctl` as a client of the daemon.
    ///
    /// # Panics
    ///
    /// If `shuntctl` cannot be run.
    #[must_use]
    pub fn shuntctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("shuntctl"));
        output(command.arg("--run-dir").arg(self.run_dir()).args(arguments))
    }

    /// Runs `ovs-ofctl -O OpenFlow13 VERB <bridge's management socket> ARGUMENTS`.
    ///
    /// # Panics
    ///
    /// If `ovs-ofctl` cannot be run.
    #[must_use]
    pub fn ovs_ofctl(&self, bridge: &str, verb: &str, arguments: &[&str]) -> Output {
        let socket = format!("unix:{}", self.run_dir().join(format!("{bridge}.mgmt")).display());
        let mut command = Command::new("ovs-ofctl");
        output(command.args(["-O", "OpenFlow13", verb, &socket]).args(arguments))
    }

    /// Runs `ovs-appctl` as a client of the daemon's control socket.
    ///
    /// # Panics
    ///
    /// If `ovs-appctl` cannot be run.
    #[must_use]
    pub fn ovs_appctl(&self, arguments: &[&str]) -> Output {
        let socket = self.run_dir().join(format!("shuntd.{}.ctl", self.daemon_id()));
        output(Command::new("ovs-appctl").arg("-t").arg(socket).args(arguments))
    }

    /// Returns the id from the daemon's pid file.
    ///
    /// The id differs from [`Self::id`] behind a wrapper.
    fn daemon_id(&self) -> String {
        let file = self.run_dir().join("shuntd.pid");
        fs::read_to_string(file).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut stop = Command::new(binary("shuntctl"));
        stop.arg("--run-dir").arg(self.run_dir()).arg("exit").stderr(Stdio::null());
        if !stop.status().is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Starts `shuntd` with the files of a folder.
///
/// `wrap` builds the command.
fn spawn(folder: &Path, wrap: impl FnOnce(&Path) -> Command) -> Child {
    let log = fs::File::create(folder.join("log")).map(Stdio::from);
    let mut command = wrap(&binary("shuntd"));
    command.arg("--config").arg(folder.join("shunt.toml")).arg("--run-dir").arg(folder);
    command.stderr(log.unwrap_or_else(|error| panic!("{error}")));
    command.spawn().unwrap_or_else(|error| panic!("shuntd: {error}"))
}

/// Returns the path of a binary of this workspace. Builds a missing binary.
///
/// # Panics
///
/// If the binary cannot be built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or_else(|| Path::new(""));
    // A test runs from target/PROFILE/deps, the demo from target/PROFILE.
    let is_test = folder.ends_with("deps");
    let folder = folder.parent().filter(|_| is_test).unwrap_or(folder);
    let path = folder.join(name);
    if !path.exists() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["build", "--quiet", "--package", "shuntd", "--bins"];
        let status = Command::new(cargo).args(arguments).current_dir(root()).status();
        assert!(status.is_ok_and(|status| status.success()), "shuntd does not build");
    }
    path
}

/// Runs a program until the program ends.
///
/// # Panics
///
/// If the program cannot be run.
pub fn output(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()))
}

/// Returns the output of a successful program.
///
/// # Panics
///
/// If the program failed.
pub fn text(output: &Output) -> String {
    let (out, err) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    out
}

/// Returns the error output of a failed program.
///
/// # Panics
///
/// If the program succeeded.
pub fn error_text(output: &Output) -> String {
    let (out, err) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(!output.status.success(), "no error output: {out}{err}");
    err
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits at most [`SOON`] until a condition is true; returns whether it is.
pub fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    #[expect(clippy::disallowed_methods, reason = "real processes need real time")]
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > SOON {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
    true
}
