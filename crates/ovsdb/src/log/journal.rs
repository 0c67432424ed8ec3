//! The log of a database: opened, written, compacted.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    RecordReader, encode_record,
    file_lock::FileLock,
    storage::{FileStorage, LogStorage},
    transaction_json::{apply_record, encode_change, encode_snapshot},
};
use crate::{
    database::{ChangeSet, Database},
    error::LogError,
    schema::DatabaseSchema,
};

/// A log is compacted when it is this many times as long as its last snapshot.
pub const COMPACTION_FACTOR: u64 = 4;

/// A log that is shorter than this many bytes is not compacted.
pub const COMPACTION_BYTES_MIN: u64 = 256 * 1024;

/// The log of a database.
pub struct Journal {
    storage: Box<dyn LogStorage>,
    /// Length of the whole records in the log, in bytes.
    length: u64,
    /// Length of the log after the last compaction, in bytes.
    snapshot_length: u64,
    /// Length of the log in bytes from which on the next compaction is due.
    compaction_length: u64,
    /// True while bytes of an aborted write may follow the log.
    has_rest: bool,
    /// The lock of the file, held while the log is open.
    _lock: Option<FileLock>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the log of a database, or creates it.
    ///
    /// The seed determines the UUIDs of rows that are added later.
    ///
    /// # Errors
    ///
    /// If another process has locked the log, or the log has another schema or a damaged record.
    pub fn open(
        path: &Path,
        schema: DatabaseSchema,
        seed: [u8; 20],
    ) -> Result<(Self, Database), LogError> {
        let failed = |action| move |source| LogError::Io { path: path.to_owned(), action, source };
        let lock = FileLock::take(path)?;
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let first = encode_record(&schema.to_json());
                let storage = FileStorage::create(path, &first).map_err(failed("creation"))?;
                let database = Database::new(schema, seed);
                let journal = Self::new(Box::new(storage), size(&first), size(&first), Some(lock));
                return Ok((journal, database));
            }
            Err(error) => return Err(failed("reading")(error)),
        };
        let mut database = Database::new(schema, seed);
        let read = replay(&mut database, &bytes).map_err(|error| error.in_file(path))?;
        let mut storage = FileStorage::open(path).map_err(failed("opening"))?;
        if read.length < size(&bytes) {
            tracing::warn!(
                target: "shunt_ovsdb",
                path = %path.display(),
                offset = read.length,
                bytes = size(&bytes) - read.length,
                "log {}: cut an incomplete last record",
                path.display(),
            );
            storage.truncate(read.length).map_err(failed("cutting"))?;
            storage.sync().map_err(failed("cutting"))?;
        }
        let journal = Self::new(Box::new(storage), read.length, read.snapshot_length, Some(lock));
        Ok((journal, database))
    }

    /// Returns a log of this length, and computes when the next compaction is due.
    fn new(
        storage: Box<dyn LogStorage>,
        length: u64,
        snapshot_length: u64,
        lock: Option<FileLock>,
    ) -> Self {
        let compaction_length = compaction_length(snapshot_length);
        let has_rest = false;
        Self { storage, length, snapshot_length, compaction_length, has_rest, _lock: lock }
    }

    /// Creates a log with only the schema, on a given storage.
    ///
    /// # Errors
    ///
    /// If the schema cannot be written.
    pub fn create_on(
        mut storage: Box<dyn LogStorage>,
        schema: &DatabaseSchema,
    ) -> io::Result<Self> {
        let first = encode_record(&schema.to_json());
        storage.replace(&first)?;
        Ok(Self::new(storage, size(&first), size(&first), None))
    }

    /// Returns the number of bytes of the log.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Writes a change; a failed write leaves the log unchanged.
    ///
    /// # Errors
    ///
    /// If the change could not be written or, if it is durable, not synchronised to disk.
    pub fn write(
        &mut self,
        schema: &DatabaseSchema,
        change: &ChangeSet,
        date: Duration,
        comment: Option<&str>,
        durable: bool,
    ) -> io::Result<()> {
        let Some(record) = encode_change(schema, change, date, comment) else { return Ok(()) };
        if self.has_rest {
            self.storage.truncate(self.length)?;
            self.has_rest = false;
        }
        let bytes = encode_record(&record);
        let mut written = self.storage.write_at(&bytes, self.length);
        if written.is_ok() && durable {
            written = self.storage.sync();
        }
        match written {
            Ok(()) => self.length += size(&bytes),
            Err(_) => self.has_rest = self.storage.truncate(self.length).is_err(),
        }
        written
    }

    /// Returns whether the log has grown enough to be compacted.
    #[must_use]
    pub const fn is_compaction_due(&self) -> bool {
        self.length >= self.compaction_length
    }

    /// Replaces the log by a log with the schema and the current rows.
    ///
    /// # Errors
    ///
    /// If the new log cannot be written. The old log stays in use, and the next attempt is due when
    /// its length has doubled.
    pub fn compact(&mut self, database: &Database, date: Duration) -> io::Result<()> {
        let schema = encode_record(&database.schema().to_json());
        let rows = encode_record(&encode_snapshot(database, date));
        let contents = [schema, rows].concat();
        if let Err(error) = self.storage.replace(&contents) {
            self.compaction_length = self.length.saturating_mul(2);
            return Err(error);
        }
        self.length = size(&contents);
        self.snapshot_length = self.length;
        self.compaction_length = compaction_length(self.length);
        self.has_rest = false;
        Ok(())
    }
}

/// Returns the length from which on a log is compacted.
fn compaction_length(snapshot_length: u64) -> u64 {
    snapshot_length.saturating_mul(COMPACTION_FACTOR).max(COMPACTION_BYTES_MIN)
}

/// The readable part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadLog {
    /// Length of the whole records, in bytes.
    pub(crate) length: u64,
    /// Number of bytes of the schema and of the first transaction, often a snapshot.
    snapshot_length: u64,
}

/// The reason why a log is refused.
#[derive(Debug)]
pub(crate) enum ReplayError {
    NotALog(String),
    OtherSchema { found: String, expected: String },
    Damaged { offset: u64, reason: String },
}

impl ReplayError {
    /// Adds the path of the log to the error.
    fn in_file(self, path: &Path) -> LogError {
        let path: PathBuf = path.to_owned();
        match self {
            Self::NotALog(reason) => LogError::NotALog { path, reason },
            Self::OtherSchema { found, expected } => {
                LogError::OtherSchema { path, found, expected }
            }
            Self::Damaged { offset, reason } => LogError::Damaged { path, offset, reason },
        }
    }
}

/// Applies the records of a log to an empty database.
pub(crate) fn replay(database: &mut Database, bytes: &[u8]) -> Result<ReadLog, ReplayError> {
    let mut reader = RecordReader::new(bytes);
    let first = reader.next_record().map_err(|error| ReplayError::NotALog(error.to_string()))?;
    let first = first.ok_or_else(|| ReplayError::NotALog("it is empty".to_owned()))?;
    let found = DatabaseSchema::from_json(&first)
        .map_err(|error| ReplayError::NotALog(format!("the schema in it is wrong: {error}")))?;
    let expected = database.schema();
    if !found.has_same_tables(expected) {
        let name = |schema: &DatabaseSchema| format!("{} {}", schema.name(), schema.version());
        return Err(ReplayError::OtherSchema { found: name(&found), expected: name(expected) });
    }
    let mut records = 0_u32;
    let mut snapshot_length = length(&reader);
    loop {
        let offset = length(&reader);
        match reader.next_record() {
            Ok(None) => break,
            Err(error) if error.is_last => break,
            Err(error) => {
                return Err(ReplayError::Damaged { offset, reason: error.to_string() });
            }
            Ok(Some(record)) => {
                apply_record(database, &record)
                    .map_err(|reason| ReplayError::Damaged { offset, reason })?;
                records = records.saturating_add(1);
                if records == 1 {
                    snapshot_length = length(&reader);
                }
            }
        }
    }
    Ok(ReadLog { length: length(&reader), snapshot_length })
}

/// Returns the number of bytes that were read.
fn length(reader: &RecordReader<'_>) -> u64 {
    u64::try_from(reader.offset()).unwrap_or(u64::MAX)
}

/// Returns the length of a slice as `u64`.
fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
