//! Tests of the log file after crashes, with damaged records, and on a full disk.

#![expect(clippy::unwrap_used, reason = "a failure of the fixture ends the test")]

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use shunt_ovsdb::{
    LogError,
    database::Database,
    log::{COMPACTION_BYTES_MIN, Journal, LogStorage},
    schema::{DatabaseSchema, open_vswitch},
    server::{ClientId, Outbox, ServerClock, ServerConfig, ServerCore},
};
use tokio::sync::oneshot;

/// A clock that stands still.
const CLOCK: ServerClock = ServerClock { monotonic: || Duration::ZERO, date: || Duration::ZERO };
/// The server's number of the client.
const CLIENT: ClientId = ClientId(1);

/// A server with one client.
struct LogFixture {
    core: ServerCore,
    queue: shunt_ovsdb::server::ClientQueue,
    _ended: oneshot::Receiver<()>,
}

impl LogFixture {
    fn new(database: Database, journal: Journal) -> Self {
        let limits = ServerConfig::default().limits;
        let mut core = ServerCore::new(database, Some(journal), limits, CLOCK, [5; 20]);
        let (outbox, queue) = Outbox::new(limits.queued_bytes);
        let (end, ended) = oneshot::channel();
        core.connect(CLIENT, outbox, end);
        Self { core, queue, _ended: ended }
    }

    /// Inserts a row into `QoS`. Returns whether the client got a UUID and no error.
    fn insert(&mut self, name: &str) -> bool {
        let operation = json!({"op": "insert", "table": "QoS", "row": {"type": name}});
        let commit = json!({"op": "commit", "durable": true});
        let params = json!(["Open_vSwitch", operation, commit]);
        self.core.receive(CLIENT, json!({"id": 1, "method": "transact", "params": params}));
        let reply: Value = serde_json::from_slice(&self.queue.try_next().unwrap()).unwrap();
        let results = reply["result"].as_array().unwrap();
        results.iter().all(|result| result.get("error").is_none())
    }

    fn names(&self) -> Vec<String> {
        names(&self.core.snapshot().unwrap())
    }
}

fn names(snapshot: &shunt_ovsdb::DatabaseSnapshot) -> Vec<String> {
    let mut names: Vec<String> =
        snapshot.rows("QoS").filter_map(|row| row.string("type").map(str::to_owned)).collect();
    names.sort();
    names
}

fn open(path: &Path) -> Result<(Journal, Database), LogError> {
    // Each start has another seed, so that no UUID occurs twice.
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let mut seed = [9; 20];
    seed[..4].copy_from_slice(&STARTS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Journal::open(path, open_vswitch(), seed)
}

/// A log in memory, on a disk of limited size.
#[derive(Clone, Default)]
struct SmallDisk(Arc<Mutex<Disk>>);

/// A storage in memory with a limited size.
#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    size: usize,
    refuses_cuts: bool,
}

impl LogStorage for SmallDisk {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        let room = disk.size.saturating_sub(offset).min(bytes.len());
        disk.bytes.truncate(offset);
        disk.bytes.extend_from_slice(&bytes[..room]);
        if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if disk.refuses_cuts {
            return Err(io::ErrorKind::Other.into());
        }
        disk.bytes.truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, contents: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if contents.len() > disk.size {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.bytes = contents.to_vec();
        Ok(())
    }
}

/// The log has every acknowledged transaction, and no other transaction.
#[test]
fn a_full_disk_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    for (step, refuses_cuts) in (0..120).flat_map(|step| [(step, false), (step, true)]) {
        let disk = SmallDisk::default();
        disk.0.lock().unwrap().size = usize::MAX;
        let journal = Journal::create_on(Box::new(disk.clone()), &open_vswitch()).unwrap();
        let length = usize::try_from(journal.length()).unwrap();
        let mut fixture = LogFixture::new(Database::new(open_vswitch(), [9; 20]), journal);
        disk.0.lock().unwrap().size = length + 400 + step * 3;
        disk.0.lock().unwrap().refuses_cuts = refuses_cuts;
        let mut acknowledged: Vec<String> = (0..6)
            .map(|number| format!("row{number}"))
            .filter(|name| fixture.insert(name))
            .collect();
        assert!((1..6).contains(&acknowledged.len()), "{acknowledged:?}");
        assert_eq!(fixture.names(), acknowledged);
        // The bytes on disk at this point, as after a crash, have the acknowledged rows.
        let path = folder.path().join(format!("log{step}{refuses_cuts}"));
        std::fs::write(&path, &disk.0.lock().unwrap().bytes).unwrap();
        assert_eq!(names(&open(&path).unwrap().1.snapshot()), acknowledged);
        // When the disk has room again, the server accepts transactions.
        disk.0.lock().unwrap().size = usize::MAX;
        disk.0.lock().unwrap().refuses_cuts = false;
        assert!(fixture.insert("row9"));
        acknowledged.push("row9".to_owned());
        std::fs::write(&path, &disk.0.lock().unwrap().bytes).unwrap();
        assert_eq!(names(&open(&path).unwrap().1.snapshot()), acknowledged);
    }
}

#[test]
fn a_torn_last_record_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf.db");
    let (journal, database) = open(&path).unwrap();
    let mut fixture = LogFixture::new(database, journal);
    assert!(fixture.insert("one"));
    let whole = std::fs::read(&path).unwrap().len();
    assert!(fixture.insert("two"));
    drop(fixture);
    let bytes = std::fs::read(&path).unwrap();
    for length in whole..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let (journal, database) = open(&path).unwrap();
        assert_eq!(names(&database.snapshot()), ["one"], "cut at {length}");
        let mut fixture = LogFixture::new(database, journal);
        assert!(fixture.insert("three"));
        assert_eq!(names(&open(&path).unwrap().1.snapshot()), ["one", "three"]);
    }
}

#[test]
fn damage_in_the_middle_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf.db");
    let (journal, database) = open(&path).unwrap();
    let start = std::fs::read(&path).unwrap().len();
    let mut fixture = LogFixture::new(database, journal);
    assert!(fixture.insert("one"));
    let end = std::fs::read(&path).unwrap().len();
    assert!(fixture.insert("two"));
    drop(fixture);
    let bytes = std::fs::read(&path).unwrap();
    for place in start..end {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x04;
        std::fs::write(&path, &damaged).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, LogError::Damaged { .. }), "{place}: {error}");
        let message = error.to_string();
        assert!(message.contains(&format!("truncate -s {start}")), "{message}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged, "the file is unchanged");
    }
}

#[test]
fn other_files_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf.db");
    let other = open_vswitch().to_json().to_string().replace("8.8.0", "8.3.1");
    let other = other.replace("\"template_interval\"", "\"template\"");
    drop(Journal::open(&path, DatabaseSchema::from_text(&other).unwrap(), [0; 20]).unwrap());
    let message = open(&path).unwrap_err().to_string();
    assert!(message.contains("Open_vSwitch 8.3.1"), "{message}");
    assert!(message.contains("ovsdb-tool convert"), "{message}");
    for text in ["", "hello\n", "OVSDB JSON 3 5f36b2ea290645ee34d943220a14b54ee5ea5be5\n{}\n"] {
        std::fs::write(&path, text).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, LogError::NotALog { .. }), "{text:?}: {error}");
    }
}

#[test]
fn a_long_log_becomes_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf.db");
    let (journal, database) = open(&path).unwrap();
    let mut fixture = LogFixture::new(database, journal);
    assert!(fixture.insert("kept"));
    let mut longest = 0;
    let text = "x".repeat(2000);
    for number in 0..300 {
        let row = json!({"other_config": ["map", [["key", format!("{number}{text}")]]]});
        let operation = json!({"op": "update", "table": "QoS", "where": [], "row": row});
        let params = json!(["Open_vSwitch", operation]);
        fixture.core.receive(CLIENT, json!({"id": 1, "method": "transact", "params": params}));
        fixture.queue.try_next().unwrap();
        longest = longest.max(std::fs::metadata(&path).unwrap().len());
    }
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(longest < COMPACTION_BYTES_MIN + 10_000, "{longest}");
    assert!(length < longest, "{length}");
    assert_eq!(names(&open(&path).unwrap().1.snapshot()), ["kept"]);
}
