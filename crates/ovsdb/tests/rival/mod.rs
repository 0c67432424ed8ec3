//! Runs this server and `ovsdb-server` side by side, for comparisons.

use std::{
    ffi::OsStr,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

/// The two servers, each with an empty database of one schema.
pub(crate) struct Pair {
    pub(crate) ours: Side,
    pub(crate) theirs: Side,
}

/// One of the two servers.
pub(crate) struct Side {
    folder: TempDir,
    log: PathBuf,
    kind: Kind,
    process: Option<Child>,
}

/// The kind of a server: the server under test, or `ovsdb-server`.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Ours,
    Theirs,
}

impl Pair {
    /// Starts both servers, or prints that the tools of Open vSwitch are missing.
    pub(crate) fn start() -> Option<Self> {
        let has = |tool: &str| find(tool).is_some();
        if !["ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-vsctl"].into_iter().all(has) {
            let line =
                "SKIPPED: the tools of Open vSwitch are missing; install openvswitch-switch\n";
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return None;
        }
        Some(Self { ours: Side::start(Kind::Ours), theirs: Side::start(Kind::Theirs) })
    }

    pub(crate) fn each<T>(&self, run: impl Fn(&Side) -> T) -> [T; 2] {
        [run(&self.ours), run(&self.theirs)]
    }
}

impl Side {
    fn start(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("conf.db");
        if kind == Kind::Theirs {
            output("ovsdb-tool", &["create", log.to_str().unwrap(), SCHEMA]);
        }
        let mut side = Self { folder, log, kind, process: None };
        side.restart();
        side
    }

    pub(crate) fn restart(&mut self) {
        let socket = self.socket();
        let mut command = match self.kind {
            Kind::Ours => {
                let mut command = Command::new(example());
                command.arg(&socket).arg(&self.log);
                command
            }
            Kind::Theirs => {
                let mut command = Command::new("ovsdb-server");
                let remote = format!("--remote=punix:{}", socket.display());
                let control = format!("--unixctl={}", self.folder.path().join("ctl").display());
                command.arg(&self.log).args([remote, control, "--no-chdir".to_owned()]);
                command.stderr(Stdio::null());
                command
            }
        };
        self.process = Some(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let is_up = (0..ATTEMPTS).any(|_| {
            std::thread::sleep(PAUSE);
            UnixStream::connect(&socket).is_ok()
        });
        assert!(is_up, "the server does not answer");
    }

    pub(crate) fn restart_with(&mut self, log: &Path) {
        self.log = log.to_owned();
        self.restart();
    }

    /// Ends the server.
    /// The example server ends with its input, `ovsdb-server` by a signal.
    pub(crate) fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        drop(process.stdin.take());
        if self.kind == Kind::Theirs {
            process.kill().unwrap();
        }
        process.wait().unwrap();
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Runs a command line; returns its exit code and its sorted output.
    ///
    /// The order of rows in the output has no meaning.
    pub(crate) fn command(&self, line: &str) -> (Option<i32>, String) {
        let database = format!("unix:{}", self.socket().display());
        let words = line.split_whitespace().map(|word| word.replace("DB", &database));
        let words: Vec<String> = words.collect();
        let result = Command::new(&words[0]).args(&words[1..]).output().unwrap();
        let text = [result.stdout, result.stderr].concat();
        let text = String::from_utf8(text).unwrap().replace(&database, "DB");
        let text = without_uuids(&without_times(&text));
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        (result.status.code(), lines.join("\n"))
    }

    /// Returns all rows of all tables, sorted, without UUIDs.
    pub(crate) fn dump(&self) -> String {
        let database = format!("unix:{}", self.socket().display());
        sort_dump(&output("ovsdb-client", &["-f", "json", "dump", &database, "Open_vSwitch"]))
    }

    /// As [`dump`](Self::dump), without the columns that are lost when a server stops.
    pub(crate) fn dump_persistent(&self) -> String {
        let mut client = self.connect();
        let mut dump = String::new();
        for table in ["Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "QoS"] {
            let columns = r#"["external_ids","other_config"]"#;
            let request = format!(
                r#"{{"id":1,"method":"transact","params":["Open_vSwitch",{{"op":"select","table":"{table}","where":[],"columns":{columns}}}]}}"#
            );
            dump.push_str(&client.call(&request).join("\n"));
        }
        dump
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.socket()).unwrap();
        Client { stream, received: Vec::new() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that sends JSON-RPC by hand.
pub(crate) struct Client {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Client {
    /// Sends a request.
    ///
    /// Returns the notifications before its reply, sorted, and the reply.
    pub(crate) fn call(&mut self, request: &str) -> Vec<String> {
        self.stream.write_all(request.as_bytes()).unwrap();
        let id = serde_json::from_str::<Value>(request).unwrap()["id"].clone();
        let mut messages = Vec::new();
        loop {
            let message = self.receive();
            let is_reply = message["id"] == id;
            messages.push(without_uuids(&without_times(&sorted_rows(message).to_string())));
            if is_reply {
                let notifications = messages.len() - 1;
                messages[..notifications].sort();
                return messages;
            }
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.received).into_iter();
            if let Some(Ok(value)) = values.next() {
                let length = values.byte_offset();
                self.received.drain(..length);
                return value;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the server has ended the connection");
            self.received.extend_from_slice(&bytes[..count]);
        }
    }
}

/// Runs a tool of Open vSwitch. Returns its output.
pub(crate) fn output(tool: &str, arguments: &[&str]) -> String {
    let result = Command::new(tool).args(arguments).output().unwrap();
    let text = String::from_utf8([result.stdout, result.stderr].concat()).unwrap();
    assert!(result.status.success(), "{tool} {arguments:?}: {text}");
    text
}

/// Returns the path of the example server, which Cargo builds before it runs tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let path = folder.join("examples/server");
    assert!(path.exists(), "build the example first: cargo build -p shunt-ovsdb --examples");
    path
}

fn find(tool: impl AsRef<OsStr>) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths)
        .map(|folder| folder.join(tool.as_ref()))
        .find(|path| path.exists())
}

/// Replaces all UUIDs, which are random, by one word.
fn without_uuids(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if rest.get(..36).is_some_and(is_uuid) {
            result.push_str("<uuid>");
            rest = &rest[36..];
        } else {
            result.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    result
}

fn is_uuid(word: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    word.bytes().enumerate().all(|(index, byte)| {
        if dashes.contains(&index) { byte == b'-' } else { byte.is_ascii_hexdigit() }
    })
}

/// Removes times, and the random order of two rows.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("  First row, with UUID") {
        Some((before, after)) => {
            let rest = after.split_once("transaction.\"").map_or("", |(_, rest)| rest);
            format!("{before}{rest}")
        }
        None => without_time(line),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn without_time(line: &str) -> String {
    if let Some((_, rest)) = line.split_once("Z|") {
        return rest.to_owned();
    }
    match line.split_once("timed out after ") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|character: char| character.is_ascii_digit());
            format!("{before}timed out after{after}")
        }
        None => line.to_owned(),
    }
}

/// Sorts rows by their contents: their order has no meaning.
fn sorted_rows(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().map(sorted_rows).collect();
            items.into()
        }
        Value::Object(members) => {
            let mut sorted = serde_json::Map::new();
            let mut rows: Vec<(String, Value)> =
                members.into_iter().map(|(name, value)| (name, sorted_rows(value))).collect();
            let is_by_row = rows.iter().all(|(name, _)| is_uuid(name));
            if is_by_row {
                rows.sort_by_key(|(_, value)| without_uuids(&value.to_string()));
                let rows: Vec<Value> = rows.into_iter().map(|(_, value)| value).collect();
                return rows.into();
            }
            for (name, value) in rows {
                let value = match value {
                    Value::Array(mut rows) if name == "rows" => {
                        rows.sort_by_key(|row| without_uuids(&row.to_string()));
                        Value::Array(rows)
                    }
                    value => value,
                };
                sorted.insert(name, value);
            }
            sorted.into()
        }
        value => value,
    }
}

/// Sorts the rows of a dump without their UUIDs.
fn sort_dump(dump: &str) -> String {
    let mut tables: Vec<String> = dump
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let mut table: Value = serde_json::from_str(line).unwrap();
            let rows = table["data"].as_array_mut().unwrap();
            let mut rows: Vec<String> =
                rows.iter().map(|row| without_uuids(&row.to_string())).collect();
            rows.sort();
            format!("{} {}\n{}\n", table["caption"], table["headings"], rows.join("\n"))
        })
        .collect();
    tables.sort();
    tables.concat()
}

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/vswitch.ovsschema");

/// Number of attempts to connect to a new server.
const ATTEMPTS: u32 = 500;
/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);
