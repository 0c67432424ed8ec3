//! A private `ovsdb-server` of Open vSwitch, for tests of OVSDB clients.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    daemon::{output, text, wait_until},
    namespace::print_skipped,
    open_vswitch::SCHEMA,
};

/// An `ovsdb-server` with all files in a separate folder.
/// The server is killed on drop.
pub struct OvsdbServer {
    folder: TempDir,
    process: Child,
}

impl OvsdbServer {
    /// Starts a server with an empty database,
    /// or prints that `ovsdb-server` is not installed.
    ///
    /// # Panics
    ///
    /// If `ovsdb-server` is installed and does not start.
    #[must_use]
    pub fn start_or_skip() -> Option<Self> {
        Self::start_without(&[])
    }

    /// Starts a server like a server of an older version,
    /// which lacks columns of tables.
    ///
    /// # Panics
    ///
    /// If `ovsdb-server` is installed and does not start.
    #[must_use]
    pub fn start_without(columns: &[(&str, &str)]) -> Option<Self> {
        let is_installed = Command::new("ovsdb-server").arg("--version").output().is_ok();
        if !is_installed || !Path::new(SCHEMA).exists() {
            print_skipped("ovsdb-server is not installed: apt-get install openvswitch-switch");
            return None;
        }
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        fs::write(folder.path().join("schema"), schema_without(columns))
            .unwrap_or_else(|error| panic!("{error}"));
        create(folder.path());
        let process = spawn(folder.path());
        Some(Self { folder, process })
    }

    /// Returns the Unix socket for clients of the server.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }

    /// Kills the server as `kill -9` does. The database remains.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts the server again.
    ///
    /// # Panics
    ///
    /// If the server does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.folder.path());
    }

    /// Deletes the database, and starts the server with an empty database.
    ///
    /// # Panics
    ///
    /// If the server does not start.
    pub fn lose_database(&mut self) {
        self.kill();
        create(self.folder.path());
        self.process = spawn(self.folder.path());
    }

    /// Returns the lengths of the logged transactions that have a comment.
    #[must_use]
    pub fn transaction_lengths(&self, comment: &str) -> Vec<usize> {
        let log = fs::read_to_string(self.folder.path().join("conf.db")).unwrap_or_default();
        // Each record is a line with its length and checksum, and a line of JSON.
        let records = log.lines().filter(|line| line.starts_with('{') && line.contains(comment));
        records.map(str::len).collect()
    }
}

impl Drop for OvsdbServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the schema of the installed version without some columns.
fn schema_without(columns: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(SCHEMA).unwrap_or_else(|error| panic!("{SCHEMA}: {error}"));
    let mut schema: Value = serde_json::from_str(&text).unwrap_or_default();
    for (table, column) in columns {
        let columns = schema["tables"][table]["columns"].as_object_mut();
        let removed = columns.and_then(|columns| columns.remove(*column));
        assert!(removed.is_some(), "{SCHEMA} has no column {column} in {table}");
    }
    schema.to_string()
}

fn create(folder: &Path) {
    let [database, schema] = ["conf.db", "schema"].map(|name| folder.join(name));
    // A first start finds no database.
    let _ = fs::remove_file(&database);
    text(&output(Command::new("ovsdb-tool").arg("create").args([&database, &schema])));
}

fn spawn(folder: &Path) -> Child {
    let socket = folder.join("db.sock");
    // The socket of a killed server remains.
    let _ = fs::remove_file(&socket);
    let mut command = Command::new("ovsdb-server");
    command.arg(folder.join("conf.db"));
    command.arg(format!("--remote=punix:{}", socket.display()));
    command.arg(format!("--unixctl={}", folder.join("ctl").display()));
    command.args(["--no-chdir", "-vconsole:off", "-vsyslog:off"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn().unwrap_or_else(|error| panic!("ovsdb-server: {error}"));
    assert!(wait_until(|| UnixStream::connect(&socket).is_ok()), "ovsdb-server does not start");
    process
}
