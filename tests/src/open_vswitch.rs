//! A private Open vSwitch, for tests that need a second switch from another project.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    daemon::{output, text, wait_until},
    namespace::{Namespace, print_skipped},
};

/// The program of the installed version.
const SWITCH: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
/// The database schema of the installed version.
pub const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// `ovsdb-server` and `ovs-vswitchd` with all files in a separate folder.
///
/// Both programs are stopped on drop.
pub struct OpenVSwitch<'a> {
    /// The namespace of the daemons; `None` for the namespace of the test.
    namespace: Option<&'a Namespace>,
    folder: TempDir,
}

impl<'a> OpenVSwitch<'a> {
    /// Starts Open vSwitch in a namespace,
    /// or prints that Open vSwitch is not installed.
    ///
    /// # Panics
    ///
    /// If Open vSwitch is installed and does not start.
    #[must_use]
    pub fn start_or_skip(namespace: &'a Namespace) -> Option<Self> {
        Self::start(Some(namespace), &[])
    }

    fn start(namespace: Option<&'a Namespace>, arguments: &[&str]) -> Option<Self> {
        if !Path::new(SWITCH).exists() || !Path::new(SCHEMA).exists() {
            print_skipped("Open vSwitch is not installed: apt-get install openvswitch-switch");
            return None;
        }
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let switch = Self { namespace, folder };
        let database = switch.path("conf.db");
        switch.run("ovsdb-tool", &["create", &database, SCHEMA]);
        let remote = format!("--remote=punix:{}", switch.path("db.sock"));
        switch.run_daemon("ovsdb-server", "ovsdb-server", &[&remote, &database]);
        switch.run("ovs-vsctl", &["--no-wait", "init"]);
        switch.run_daemon(SWITCH, "ovs-vswitchd", arguments);
        Some(switch)
    }

    /// Runs a program of Open vSwitch as a client of the daemons; returns the output.
    ///
    /// # Panics
    ///
    /// If the program fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        text(&output(self.command(program).args(arguments)))
    }

    /// Runs `ovs-vsctl` with the words of a line; returns the output.
    ///
    /// # Panics
    ///
    /// If the program fails.
    pub fn vsctl(&self, line: &str) -> String {
        self.run("ovs-vsctl", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// Sends a signal to the process of the switch.
    ///
    /// After `-STOP` and `-CONT`, the links of the switch remain up.
    ///
    /// # Panics
    ///
    /// If the process does not run.
    pub fn signal(&self, signal: &str) {
        self.run("kill", &[signal, &self.process("ovs-vswitchd")]);
    }

    /// Returns the folder with the sockets of the daemons.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn run_daemon(&self, program: &str, name: &str, arguments: &[&str]) {
        let files = [
            format!("--pidfile={}", self.path(&format!("{name}.pid"))),
            format!("--log-file={}", self.path(&format!("{name}.log"))),
        ];
        let mut command = self.command(program);
        command.args(["--detach", "--no-chdir", "-vconsole:off", "-vsyslog:off"]);
        // The daemon keeps inherited files open, so no file may be a pipe that a test reads until
        // its end.
        command.args(files).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status();
        assert!(status.is_ok_and(|status| status.success()), "{name} does not start");
    }

    fn command(&self, program: &str) -> Command {
        let beside = || Command::new(program);
        let mut command = self.namespace.map_or_else(beside, |inside| inside.command(program));
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.folder.path());
        }
        command
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns the process id from the pid file of a daemon, or an empty string.
    #[must_use]
    pub fn process(&self, name: &str) -> String {
        let id = fs::read_to_string(self.path(&format!("{name}.pid"))).unwrap_or_default();
        id.trim().to_owned()
    }
}

impl OpenVSwitch<'static> {
    /// Starts Open vSwitch with dummy ports (`--enable-dummy`).
    ///
    /// Prints a message if Open vSwitch is not installed. The daemons need no namespace, because
    /// the daemons affect nothing outside of their folder.
    ///
    /// # Panics
    ///
    /// If Open vSwitch is installed and does not start.
    #[must_use]
    pub fn dummy_or_skip() -> Option<Self> {
        Self::start(None, &["--enable-dummy", "--disable-system"])
    }
}

impl Drop for OpenVSwitch<'_> {
    fn drop(&mut self) {
        for name in ["ovs-vswitchd", "ovsdb-server"] {
            let id = self.process(name);
            if !id.is_empty() {
                let _ = output(Command::new("kill").arg(&id));
                let process = format!("/proc/{id}");
                let _ = wait_until(|| !Path::new(&process).exists());
            }
        }
    }
}
