//! The execution of a whole `transact` request.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    operation::{Executor, Stop},
    requested_operation::RequestedOperation,
};
use crate::{
    database::{ChangeSet, Database},
    error::{ErrorTag, TransactionError},
    schema::Members,
    value::SymbolTable,
};

/// The operations that a client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseAccess {
    /// The client may use all operations.
    ReadWrite,
    /// The client may use only operations that change nothing.
    ReadOnly,
}

/// A `transact` request.
#[derive(Clone, Copy)]
pub struct TransactionRequest<'a> {
    /// The operations, in the order of the request.
    pub operations: &'a [RequestedOperation],
    /// The operations that the client may use.
    pub access: DatabaseAccess,
    /// Returns whether the client owns a lock.
    pub owns_lock: &'a dyn Fn(&str) -> bool,
    /// Time since the request arrived, for `wait` with a timeout.
    pub waited: Duration,
}

/// The state of a request after an attempt.
#[derive(Debug)]
pub enum TransactionExecution {
    /// The request was executed, with these results.
    Done(TransactionOutcome),
    /// The condition of a `wait` is not met: repeat the request after each change.
    Blocked {
        /// Time after the arrival of the request at which the `wait` fails.
        timeout: Option<Duration>,
    },
}

/// The results of a request, and the change that the caller logs and applies.
#[derive(Debug)]
pub struct TransactionOutcome {
    /// One result for each operation; `null` for operations after an error.
    pub results: Vec<Value>,
    /// The change, which is empty if an operation failed.
    pub change: ChangeSet,
    /// True if the change must be on disk before the reply.
    pub durable: bool,
    /// The comments of the request.
    pub comment: Option<String>,
}

/// Executes a request on a database, without changing it.
pub fn execute(database: &mut Database, request: &TransactionRequest<'_>) -> TransactionExecution {
    let (set, uuids) = database.begin();
    let mut executor = Executor {
        set,
        symbols: SymbolTable::new(uuids),
        access: request.access,
        owns_lock: request.owns_lock,
        waited: request.waited,
        durable: false,
        comments: Vec::new(),
    };
    let total = request.operations.len();
    let mut results = Vec::with_capacity(total + 1);
    let mut failed = false;
    for (index, operation) in request.operations.iter().enumerate() {
        if let RequestedOperation::Check(check) = operation
            && executor.is_met(check)
        {
            results.push(Value::Object(Map::new()));
            continue;
        }
        let json = operation.to_json();
        let error = match execute_operation(&mut executor, &json) {
            Ok(result) => {
                results.push(result);
                continue;
            }
            Err(Stop::Wait(timeout)) => return TransactionExecution::Blocked { timeout },
            Err(Stop::Failure(error)) => error,
            Err(Stop::Members(reason)) => {
                let details =
                    format!("Parsing ovsdb operation {} of {total} failed: {reason}", index + 1);
                if json.is_object() {
                    TransactionError::syntax(details, &json)
                } else {
                    TransactionError::new(ErrorTag::Syntax, details)
                }
            }
        };
        results.push(error.to_json());
        results.resize(total, Value::Null);
        failed = true;
        break;
    }
    let Executor { set, mut symbols, durable, comments, .. } = executor;
    let comment = (!comments.is_empty()).then(|| comments.join("\n"));
    let mut change = ChangeSet::default();
    if !failed {
        match set.finish(&mut || symbols.generate()) {
            Ok(complete) => change = complete,
            Err(error) => results.push(error.to_json()),
        }
    }
    TransactionExecution::Done(TransactionOutcome { results, change, durable, comment })
}

/// Executes one operation of a transaction.
fn execute_operation(executor: &mut Executor<'_, '_>, json: &Value) -> Result<Value, Stop> {
    let members = Members::of(json).ok_or_else(|| "Object expected.".to_owned())?;
    let name = members.string("op")?;
    executor.execute(name, json, &members).map(Value::Object)
}
