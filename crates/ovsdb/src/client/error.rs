//! Reasons why a connection to a server ends.

use std::{io, time::Duration};

use thiserror::Error;

use crate::{error::DatabaseSchemaError, framing::FramingError};

/// The reason why a connection to a server was not established, or has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OvsdbClientError {
    /// The server does not accept a connection.
    #[error("the database server cannot be reached: {0}")]
    Connect(#[source] io::Error),
    /// The connection to the server has failed.
    #[error("the connection to the database server has failed: {0}")]
    Io(#[source] io::Error),
    /// The server has closed the connection.
    #[error("the database server has closed the connection")]
    Closed,
    /// The server does not answer.
    #[error("the database server does not answer within {0:?}")]
    Silent(Duration),
    /// The server sent bytes that are no message.
    #[error("the server does not speak OVSDB: {0}")]
    Framing(#[from] FramingError),
    /// The server sent JSON that is no message of JSON-RPC.
    #[error("the server does not speak OVSDB: a message {0}")]
    Message(&'static str),
    /// The server does not have the database.
    #[error("the server has no database {0}: use the address of a server with this database")]
    NoDatabase(String),
    /// The schema that the server sent is invalid.
    #[error("the database server sent a schema that is not valid: {0}")]
    Schema(#[from] DatabaseSchemaError),
    /// The database lacks a table.
    #[error("the database {database} has no table {table}: its schema is {version}")]
    NoTable {
        /// The name of the database.
        database: String,
        /// The name of the missing table.
        table: &'static str,
        /// The version of the schema.
        version: String,
    },
    /// The server refused a request that the client needs.
    #[error("the database server refuses {method}: {reason}")]
    Refused {
        /// The method of the request.
        method: &'static str,
        /// The error of the server.
        reason: String,
    },
    /// The program has stopped the client.
    #[error("the connection to the database was ended by the daemon")]
    Stopped,
    /// An update from the server does not fit the rows or the schema.
    #[error("the database server sent a wrong update: {0}")]
    Update(String),
}

impl OvsdbClientError {
    /// Returns whether rows of the client may differ from the rows of the server.
    ///
    /// If they may differ, the next connection reads all rows.
    #[must_use]
    pub const fn may_have_wrong_rows(&self) -> bool {
        !matches!(
            self,
            Self::Connect(_) | Self::Io(_) | Self::Closed | Self::Silent(_) | Self::Stopped
        )
    }
}
