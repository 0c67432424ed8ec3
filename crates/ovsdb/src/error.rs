//! Errors of schemas, transactions, the log file and the server.

use std::{fmt, io, path::PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

/// An error in a schema, or a difference from the expected schema.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DatabaseSchemaError(pub(crate) String);

impl DatabaseSchemaError {
    /// Returns an error with this message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The kind of an error, as the member `error` of a reply has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorTag {
    /// A request that is not in the form of the protocol.
    Syntax,
    /// A column that the table does not have.
    UnknownColumn,
    /// A function of a condition that does not exist.
    UnknownFunction,
    /// A mutator that does not exist.
    UnknownMutator,
    /// A database that the server does not have.
    UnknownDatabase,
    /// A value, a table or an index that breaks a constraint of the schema.
    Constraint,
    /// A reference to a row that does not exist.
    Referential,
    /// An arithmetic operation without a result.
    Domain,
    /// A number outside the range of its type.
    Range,
    /// Two rows of one transaction with one `uuid-name`.
    DuplicateName,
    /// An insert with the UUID of another row.
    DuplicateUuid,
    /// The operation `abort` ended the transaction.
    Aborted,
    /// A `wait` with a condition that was not met in time.
    TimedOut,
    /// An `assert` of a lock that the client does not own.
    NotOwner,
    /// A change of a database that only the server changes.
    NotAllowed,
    /// A request that this server never executes.
    NotSupported,
    /// More work or memory than one request may take.
    Resources,
    /// A set with equal members, or a map with equal keys.
    Duplicate,
    /// The log file could not be written.
    Io,
}

impl ErrorTag {
    /// Returns the text of the error tag in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax error",
            Self::UnknownColumn => "unknown column",
            Self::UnknownFunction => "unknown function",
            Self::UnknownMutator => "unknown mutator",
            Self::UnknownDatabase => "unknown database",
            Self::Constraint => "constraint violation",
            Self::Referential => "referential integrity violation",
            Self::Domain => "domain error",
            Self::Range => "range error",
            Self::DuplicateName => "duplicate uuid-name",
            Self::DuplicateUuid => "duplicate uuid",
            Self::Aborted => "aborted",
            Self::TimedOut => "timed out",
            Self::NotOwner => "not owner",
            Self::NotAllowed => "not allowed",
            Self::NotSupported => "not supported",
            Self::Resources => "resources exhausted",
            Self::Duplicate => "ovsdb error",
            Self::Io => "I/O error",
        }
    }
}

/// An error that a client or the owner of the server gets in place of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionError {
    /// The kind of the error.
    tag: ErrorTag,
    /// The explanation; `None` if the kind is enough.
    details: Option<String>,
    /// The part of the request that is wrong; `None` for other errors.
    syntax: Option<String>,
    /// The error of the system; `None` for other errors.
    io_error: Option<String>,
}

impl TransactionError {
    /// Returns an error with a tag and details, without the syntax that caused it.
    pub(crate) fn new(tag: ErrorTag, details: impl Into<String>) -> Self {
        Self { tag, details: Some(details.into()), syntax: None, io_error: None }
    }

    /// Creates an error that quotes the part of a request that it is about.
    pub(crate) fn quoting(tag: ErrorTag, details: impl Into<String>, part: &Value) -> Self {
        Self { syntax: Some(part.to_string()), ..Self::new(tag, details) }
    }

    /// Returns a syntax error about a part of the request.
    pub(crate) fn syntax(details: impl Into<String>, part: &Value) -> Self {
        Self::quoting(ErrorTag::Syntax, details, part)
    }

    /// Returns an error of input or output.
    pub(crate) fn io(details: impl Into<String>, error: &io::Error) -> Self {
        Self { io_error: Some(error.to_string()), ..Self::new(ErrorTag::Io, details) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub const fn tag(&self) -> ErrorTag {
        self.tag
    }

    /// Returns the explanation for people.
    #[must_use]
    pub fn details(&self) -> &str {
        self.details.as_deref().unwrap_or_default()
    }

    /// Returns the error as an `<error>` of RFC 7047.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.insert("error".to_owned(), self.tag.as_str().into());
        let optional =
            [("details", &self.details), ("syntax", &self.syntax), ("io-error", &self.io_error)];
        for (name, text) in optional {
            if let Some(text) = text {
                members.insert(name.to_owned(), text.clone().into());
            }
        }
        Value::Object(members)
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag.as_str())?;
        for part in [&self.details, &self.io_error].into_iter().flatten() {
            write!(f, ": {part}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TransactionError {}

/// An error of the log file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be read or written.
    #[error("{path}: {action} failed: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operation on the file that failed.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process has the file open.
    #[error(
        "{path}: another process has locked this database: stop ovsdb-server or the other switch, or name another file",
        path = path.display()
    )]
    Locked {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not a log of a database.
    #[error(
        "{path}: not an OVSDB log, because {reason}: name another file, or move this one away to start with an empty database",
        path = path.display()
    )]
    NotALog {
        /// Path of the file.
        path: PathBuf,
        /// The reason why the file is not a log.
        reason: String,
    },
    /// The log has another schema.
    #[error(
        "{path}: the log has schema {found}, but this server needs {expected}: convert a copy with `ovsdb-tool convert {path} SCHEMA`, or move the file away",
        path = path.display()
    )]
    OtherSchema {
        /// Path of the file.
        path: PathBuf,
        /// Name and version of the schema in the log.
        found: String,
        /// Name and version of the expected schema.
        expected: String,
    },
    /// A record before the end of the file is damaged.
    #[error(
        "{path}: the record at byte {offset} is damaged, because {reason}: restore a backup, or cut the file there with `truncate -s {offset} {path}`, which loses this and all later transactions",
        path = path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the first byte of the record in the file.
        offset: u64,
        /// The reason why the record is damaged.
        reason: String,
    },
}

/// An error of the server as a whole.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OvsdbServerError {
    /// The log could not be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The socket could not be opened.
    #[error("{path}: the socket cannot be opened: {source}", path = path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process answers on the socket.
    #[error(
        "{path}: another server answers on this socket: stop ovsdb-server, or name another socket",
        path = path.display()
    )]
    SocketInUse {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The system provides no random numbers for UUIDs.
    #[error("the system gives no random numbers: {0}")]
    Random(#[source] io::Error),
    /// The thread of the server could not be started.
    #[error("the thread of the OVSDB server cannot be started: {0}")]
    Thread(#[source] io::Error),
    /// The OVSDB server has stopped.
    #[error("the OVSDB server has stopped")]
    Stopped,
    /// The transaction was refused.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
}
