//! Successive connections to a server, as a state machine without sockets and clocks.
//!
//! Messages of the server go in, and messages to the server come out. The rows outlive a
//! connection. The next connection continues after the last received transaction, if the server
//! still has its history.

use std::{collections::BTreeMap, mem, sync::Arc};

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::{
    FollowedTable, OvsdbClientConfig, OvsdbClientError, Replica, ServerMessage, UpdateFormat,
    operations::{check_results, encode, text_of_error},
};
use crate::{
    database::DatabaseSnapshot, monitor::MonitorVersion, schema::DatabaseSchema,
    transaction::RowTransaction, value::RowUuid,
};

/// The client end of the OVSDB protocol, with a replica of the rows.
#[derive(Debug)]
pub struct ReplicaSession {
    config: Arc<OvsdbClientConfig>,
    /// The last schema that the server sent.
    schema: Option<DatabaseSchema>,
    /// The rows of the followed tables.
    replica: Option<Replica>,
    /// The last transaction of the server that the rows contain.
    last_id: Option<String>,
    /// True while connected and the rows equal those of the server.
    is_current: bool,
    /// Number of connections that have sent the rows.
    connections: u64,
    /// The state of the lock that the configuration names.
    lock: ServerLock,
    /// Number of changes of which the program must be notified.
    changes: u64,
    /// The id of the last request.
    next_id: u64,
    /// Number of replies of the server, without replies to probes.
    replies: u64,
    /// The requests without a reply yet, by their ids.
    requests: BTreeMap<u64, ClientRequest>,
    /// Finished transactions with results that are not sent to the program yet.
    finished: Vec<(TransactionReply, Result<(), String>)>,
    /// The messages to send.
    outgoing: Vec<Value>,
}

/// A request that waits for its reply.
#[derive(Debug)]
enum ClientRequest {
    Schema,
    Monitor(MonitorVersion),
    Lock,
    Transaction(TransactionReply),
    Probe,
}

/// The channel for the result of a transaction; an error is the text of the server.
pub type TransactionReply = oneshot::Sender<Result<(), String>>;

/// The state of the lock in the configuration of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLock {
    /// The configuration of the client has no lock.
    NotWanted,
    /// The server has not replied to the lock request yet.
    Requested,
    /// Another client owns the lock.
    Waiting,
    /// The client owns the lock.
    Owned,
    /// Another client has stolen the lock (`steal`).
    Stolen,
}

/// The rows of a client, with the state of its connection.
#[derive(Clone, Debug)]
pub struct ReplicaState {
    /// The newest rows from the server; `None` before the first connection.
    pub rows: Option<DatabaseSnapshot>,
    /// True while the client is connected and its rows equal the rows of the server.
    pub is_current: bool,
    /// The state of the lock of the client.
    pub lock: ServerLock,
    /// Number of changes of columns that the program reads.
    /// The number grows with each change.
    pub changes: u64,
}

impl ReplicaState {
    /// Returns whether transactions can succeed.
    ///
    /// The rows must be current, and the client must own its lock, if it has one.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.is_current && matches!(self.lock, ServerLock::NotWanted | ServerLock::Owned)
    }
}

impl ReplicaSession {
    /// Creates a session that is not connected.
    #[must_use]
    pub fn new(config: Arc<OvsdbClientConfig>) -> Self {
        Self {
            config,
            schema: None,
            replica: None,
            last_id: None,
            is_current: false,
            connections: 0,
            lock: ServerLock::NotWanted,
            changes: 0,
            next_id: 0,
            replies: 0,
            requests: BTreeMap::new(),
            finished: Vec::new(),
            outgoing: Vec::new(),
        }
    }

    /// Begins a connection: requests the schema and the lock.
    pub fn connected(&mut self) {
        self.disconnected(None);
        let params = json!([self.config.database]);
        self.request("get_schema", params, ClientRequest::Schema);
        if let Some(lock) = &self.config.lock {
            let params = json!([lock]);
            self.lock = ServerLock::Requested;
            self.request("lock", params, ClientRequest::Lock);
        }
    }

    /// Ends a connection. Transactions that wait for a reply fail, and rows stay.
    pub fn disconnected(&mut self, reason: Option<&OvsdbClientError>) {
        if reason.is_some_and(OvsdbClientError::may_have_wrong_rows) {
            self.last_id = None;
        }
        self.is_current = false;
        self.outgoing.clear();
        if self.config.lock.is_some() {
            self.lock = ServerLock::Requested;
        }
        // Dropping a request notifies the caller that waits for its result.
        self.requests.clear();
    }

    /// Returns the rows and the state of the connection.
    #[must_use]
    pub fn state(&self) -> ReplicaState {
        ReplicaState {
            rows: self.replica.as_ref().map(Replica::snapshot),
            is_current: self.is_current,
            lock: self.lock,
            changes: self.changes,
        }
    }

    /// Returns whether the connection has sent the rows.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.is_current
    }

    /// Returns the number of connections that have sent the rows.
    #[must_use]
    pub const fn connections(&self) -> u64 {
        self.connections
    }

    /// Returns the number of replies so far, without replies to [`Self::probe`].
    #[must_use]
    pub const fn replies(&self) -> u64 {
        self.replies
    }

    /// Returns whether a request waits for its reply.
    ///
    /// Requests of [`Self::probe`] do not count.
    #[must_use]
    pub fn awaits_reply(&self) -> bool {
        self.requests.values().any(|request| !matches!(request, ClientRequest::Probe))
    }

    /// Returns the messages to the server since the last call.
    pub fn take_outgoing(&mut self) -> Vec<Value> {
        mem::take(&mut self.outgoing)
    }

    /// Sends the results of finished transactions to the callers that wait for them.
    ///
    /// The rows contain the changes of these transactions, so [`Self::state`] must be published
    /// before.
    pub fn send_results(&mut self) {
        for (reply, result) in self.finished.drain(..) {
            // The caller may have stopped waiting for the result.
            let _ = reply.send(result);
        }
    }

    /// Sends an `echo` request, to check that the server still answers.
    pub fn probe(&mut self) {
        self.request("echo", json!([]), ClientRequest::Probe);
    }

    /// Sends a transaction. Without a connection, rows or the lock it fails at once.
    pub fn transact(&mut self, transaction: &RowTransaction, reply: TransactionReply) {
        let config = Arc::clone(&self.config);
        let replica = self.replica.as_ref().filter(|_| self.state().is_writable());
        let Some(replica) = replica else { return };
        match encode(transaction, replica.schema(), &config.database, config.lock.as_deref()) {
            Ok(params) => self.request("transact", params, ClientRequest::Transaction(reply)),
            // The caller may have stopped waiting for the result.
            Err(error) => drop(reply.send(Err(error.to_string()))),
        }
    }

    /// Handles a message of the server.
    ///
    /// # Errors
    ///
    /// If the server breaks the protocol, or lacks the database. The connection must end.
    pub fn receive(&mut self, message: Value) -> Result<(), OvsdbClientError> {
        match ServerMessage::from_json(message)? {
            ServerMessage::Request { id, method, params } => {
                let reply = match method.as_str() {
                    "echo" => json!({"id": id, "result": params, "error": null}),
                    _ => json!({"id": id, "result": null, "error": "unknown method"}),
                };
                self.outgoing.push(reply);
                Ok(())
            }
            ServerMessage::Notification { method, params } => {
                self.handle_notification(&method, &params)
            }
            ServerMessage::Reply { id, outcome } => {
                let request = id.as_u64().and_then(|id| self.requests.remove(&id));
                let wrong = OvsdbClientError::Message("is a reply to no request");
                let request = request.ok_or(wrong)?;
                if !matches!(request, ClientRequest::Probe) {
                    self.replies = self.replies.wrapping_add(1);
                }
                self.handle_reply(request, outcome)
            }
        }
    }

    /// Sends a request, and remembers its kind until the reply.
    fn request(&mut self, method: &str, params: Value, request: ClientRequest) {
        self.next_id = self.next_id.wrapping_add(1);
        let members = [("id", self.next_id.into()), ("method", method.into()), ("params", params)];
        let members = members.map(|(name, value)| (name.to_owned(), value));
        self.outgoing.push(Value::Object(Map::from_iter(members)));
        self.requests.insert(self.next_id, request);
    }

    /// Handles the reply to a request.
    fn handle_reply(
        &mut self,
        request: ClientRequest,
        outcome: Result<Value, Value>,
    ) -> Result<(), OvsdbClientError> {
        match request {
            // An error is also an answer to a probe.
            ClientRequest::Probe => Ok(()),
            ClientRequest::Transaction(reply) => {
                self.finished.push((reply, check_results(outcome)));
                Ok(())
            }
            ClientRequest::Schema => self.take_schema(&result_of("get_schema", outcome)?),
            ClientRequest::Lock => {
                let result = result_of("lock", outcome)?;
                let locked = result.get("locked").and_then(Value::as_bool);
                let locked = locked.ok_or(OvsdbClientError::Message("has no member `locked`"))?;
                // The notification that the lock is owned may have arrived before this reply.
                if self.lock != ServerLock::Owned {
                    self.lock = if locked { ServerLock::Owned } else { ServerLock::Waiting };
                }
                Ok(())
            }
            ClientRequest::Monitor(version) => match (version, outcome) {
                (MonitorVersion::Three, Err(error)) if is_unknown_method(&error) => {
                    self.monitor(MonitorVersion::Two);
                    Ok(())
                }
                (MonitorVersion::Two, Err(error)) if is_unknown_method(&error) => {
                    self.monitor(MonitorVersion::One);
                    Ok(())
                }
                (version, outcome) => {
                    let result = result_of(method_of(version), outcome)?;
                    self.take_rows(version, &result)
                }
            },
        }
    }

    /// Handles a notification of the server, such as an update of rows.
    fn handle_notification(
        &mut self,
        method: &str,
        params: &[Value],
    ) -> Result<(), OvsdbClientError> {
        match (method, params) {
            ("update", [_, updates]) => self.update(updates, UpdateFormat::Values),
            ("update2", [_, updates]) => self.update(updates, UpdateFormat::Differences),
            ("update3", [_, id, updates]) => {
                self.update(updates, UpdateFormat::Differences)?;
                self.last_id = id.as_str().map(str::to_owned);
                Ok(())
            }
            ("locked" | "stolen", [name]) if name.as_str() == self.config.lock.as_deref() => {
                let is_owned = method == "locked";
                self.lock = if is_owned { ServerLock::Owned } else { ServerLock::Stolen };
                Ok(())
            }
            // Later versions of the protocol may have more notifications.
            _ => Ok(()),
        }
    }

    /// Stores the schema of the server, and requests the rows.
    fn take_schema(&mut self, json: &Value) -> Result<(), OvsdbClientError> {
        let database = &self.config.database;
        if json.is_null() {
            return Err(OvsdbClientError::NoDatabase(database.clone()));
        }
        let schema = DatabaseSchema::from_json(json)?;
        let is_missing = |table: &&FollowedTable| {
            !table.is_optional() && schema.find_table(table.name).is_none()
        };
        if let Some(table) = self.config.tables.iter().find(is_missing) {
            let (database, table) = (database.clone(), table.name);
            let version = schema.version().to_owned();
            return Err(OvsdbClientError::NoTable { database, table, version });
        }
        if self.schema.as_ref() != Some(&schema) {
            // The existing rows have other columns, and stay until the server sends new rows.
            self.last_id = None;
            self.schema = Some(schema);
        }
        self.monitor(MonitorVersion::Three);
        Ok(())
    }

    /// Requests the rows of the followed tables that exist, and their later changes.
    fn monitor(&mut self, version: MonitorVersion) {
        let Some(schema) = &self.schema else { return };
        let requests: Map<String, Value> = self
            .config
            .tables
            .iter()
            .filter_map(|table| {
                let (_, definition) = schema.find_table(table.name)?;
                let exists = |column: &&&str| definition.find_column(column).is_some();
                let columns: Vec<&str> =
                    table.read.iter().chain(table.written).filter(exists).copied().collect();
                Some((table.name.to_owned(), json!([{"columns": columns}])))
            })
            .collect();
        let mut params: Vec<Value> =
            vec![self.config.database.as_str().into(), MONITOR.into(), requests.into()];
        if version == MonitorVersion::Three {
            let last_id = self.last_id.clone().unwrap_or_else(|| RowUuid::NIL.to_string());
            params.push(last_id.into());
        }
        self.request(method_of(version), params.into(), ClientRequest::Monitor(version));
    }

    /// Stores the rows from the reply to a monitor request.
    fn take_rows(
        &mut self,
        version: MonitorVersion,
        result: &Value,
    ) -> Result<(), OvsdbClientError> {
        let (continues, id, updates) = match (version, result.as_array().map(Vec::as_slice)) {
            (MonitorVersion::Three, Some([Value::Bool(found), Value::String(id), updates])) => {
                (*found, Some(id.clone()), updates)
            }
            (MonitorVersion::Three, _) => {
                return Err(OvsdbClientError::Message("does not have the rows of a monitor"));
            }
            (MonitorVersion::One | MonitorVersion::Two, _) => (false, None, result),
        };
        let format = match version {
            MonitorVersion::One => UpdateFormat::Values,
            MonitorVersion::Two | MonitorVersion::Three => UpdateFormat::Differences,
        };
        if !continues || self.replica.is_none() {
            let schema = self.schema.clone().ok_or(EARLY_UPDATE)?;
            let mut replica = Replica::new(schema, &self.config.tables);
            replica.apply(updates, format).map_err(OvsdbClientError::Update)?;
            self.replica = Some(replica);
            self.changes = self.changes.wrapping_add(1);
            self.is_current = true;
        } else {
            self.is_current = true;
            self.update(updates, format)?;
        }
        self.last_id = id;
        self.connections = self.connections.wrapping_add(1);
        Ok(())
    }

    /// Applies an update notification to the rows.
    fn update(&mut self, updates: &Value, format: UpdateFormat) -> Result<(), OvsdbClientError> {
        // Before the monitor reply, an update does not fit the rows of the last connection.
        let replica = self.replica.as_mut().filter(|_| self.is_current).ok_or(EARLY_UPDATE)?;
        let is_notified = replica.apply(updates, format).map_err(OvsdbClientError::Update)?;
        self.changes = self.changes.wrapping_add(u64::from(is_notified));
        Ok(())
    }
}

/// The id of the monitor of a client.
const MONITOR: &str = "shunt";

/// An update arrived before the reply to the monitor request.
const EARLY_UPDATE: OvsdbClientError =
    OvsdbClientError::Message("updates rows before the monitor has started");

/// Returns the method that requests a monitor of a version.
const fn method_of(version: MonitorVersion) -> &'static str {
    match version {
        MonitorVersion::One => "monitor",
        MonitorVersion::Two => "monitor_cond",
        MonitorVersion::Three => "monitor_cond_since",
    }
}

/// Returns the result of a request that the client needs, or an error.
fn result_of(
    method: &'static str,
    outcome: Result<Value, Value>,
) -> Result<Value, OvsdbClientError> {
    outcome.map_err(|error| OvsdbClientError::Refused { method, reason: text_of_error(&error) })
}

/// Returns whether an error of the server means that it lacks a method.
fn is_unknown_method(error: &Value) -> bool {
    let tag = error.get("error").unwrap_or(error);
    tag.as_str() == Some("unknown method")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        testing::{client_config, reply_to},
        value::UuidGenerator,
    };

    #[test]
    fn a_result_waits_for_its_row_updates() {
        let mut session = ReplicaSession::new(Arc::new(client_config()));
        session.connected();
        for _ in 0..2 {
            for request in session.take_outgoing() {
                session.receive(reply_to(&request)).unwrap();
            }
        }
        let uuids = Arc::new(Mutex::new(UuidGenerator::new([0; 20])));
        let (reply, mut result) = oneshot::channel();
        session.transact(&RowTransaction::new("test", uuids), reply);
        let [request] = &session.take_outgoing()[..] else { panic!("the request is sent") };
        let reply = json!({"id": request["id"], "result": [{}], "error": null});
        session.receive(reply).unwrap();
        assert!(result.try_recv().is_err());
        session.send_results();
        assert_eq!(result.try_recv(), Ok(Ok(())));
    }
}
