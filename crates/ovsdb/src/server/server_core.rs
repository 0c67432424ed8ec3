//! The protocol of the server, without sockets and clocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::oneshot;

use super::{
    ServerClock, ServerLimits, client_log::ClientLog, client_message::ClientMessage,
    json_bytes::json_bytes, lock_table::LockTable, outbox::Outbox, subscription::PendingChanges,
};
use crate::{
    database::{ChangeSet, Database, DatabaseSnapshot},
    error::{OvsdbServerError, TransactionError},
    json_object::json_object,
    log::Journal,
    monitor::{InitialTexts, MonitorVersion, RowMonitor},
    schema,
    transaction::{
        DatabaseAccess, RequestedOperation, RowTransaction, TransactionExecution,
        TransactionRequest, execute,
    },
    value::{Datum, RowUuid, UuidGenerator},
};

/// A client of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// The kind of socket by which a client has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOrigin {
    /// A Unix socket of this host.
    Local,
    /// The client connected to a TCP port.
    Remote,
}

/// The reason why the server ends a session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Disconnect {
    /// The client sent a message that is not JSON-RPC 1.0.
    #[error("the client sent a message that is not JSON-RPC 1.0: {0}")]
    Protocol(&'static str),
    /// The client reads too slowly.
    #[error("the client does not read its replies: more than {0} bytes wait for it")]
    SlowReader(usize),
}

/// Databases, sessions and locks.
///
/// The caller delivers messages in order, and calls [`expire`](Self::expire) when
/// [`next_expiry`](Self::next_expiry) is due.
#[derive(Debug)]
pub struct ServerCore {
    pub(super) databases: BTreeMap<String, ServedDatabase>,
    pub(super) sessions: BTreeMap<ClientId, ClientSession>,
    pub(super) locks: LockTable,
    /// The UUID that `get_server_id` returns.
    pub(super) server_id: RowUuid,
    pub(super) limits: ServerLimits,
    /// The database of the owner.
    name: String,
    clock: ServerClock,
    /// The transactions that wait for a change.
    blocked: Vec<BlockedTransaction>,
    /// The subscriptions of the owner.
    subscribers: Vec<Arc<PendingChanges>>,
    /// Sessions that end after the current event.
    pub(super) ended: Vec<(ClientId, Disconnect)>,
    /// True if a database has changed since waiting transactions were retried.
    has_changed: bool,
    /// Number of connections and messages so far.
    events: u64,
    /// Log of clients that were disconnected.
    log: ClientLog,
}

/// A database with its log.
#[derive(Debug)]
pub(super) struct ServedDatabase {
    pub(super) database: Database,
    /// The log; `None` for a database that is kept in memory only.
    journal: Option<Journal>,
    /// The operations that clients may use.
    pub(super) access: DatabaseAccess,
    /// Texts of rows for new monitors.
    pub(super) texts: InitialTexts,
}

/// The state of a client.
#[derive(Debug)]
pub(super) struct ClientSession {
    origin: ClientOrigin,
    pub(super) outbox: Outbox,
    /// Dropping the sender wakes the connection when the session ends.
    _end: oneshot::Sender<()>,
    pub(super) monitors: BTreeMap<String, ClientMonitor>,
    /// The number of the last event of the client, by which idle sessions are found.
    last_event: u64,
}

/// A monitor with its id and database.
#[derive(Debug)]
pub(super) struct ClientMonitor {
    pub(super) id: Value,
    pub(super) database: String,
    pub(super) monitor: RowMonitor,
}

/// A transaction that waits for a change.
#[derive(Debug)]
struct BlockedTransaction {
    client: ClientId,
    /// The id of the request, which the reply repeats.
    id: Value,
    database: String,
    operations: Vec<RequestedOperation>,
    /// Number of bytes of memory of the id and the operations.
    bytes: usize,
    /// The time of arrival by the monotonic clock.
    arrived: Duration,
    /// The time at which the wait ends by the same clock; `None` for no limit.
    expiry: Option<Duration>,
}

impl ServerCore {
    /// Creates a server of one database and of `_Server`, which describes both.
    #[must_use]
    pub fn new(
        database: Database,
        journal: Option<Journal>,
        limits: ServerLimits,
        clock: ServerClock,
        seed: [u8; 20],
    ) -> Self {
        let name = database.schema().name().to_owned();
        let own = own_database(&database, seed);
        let mut uuids = UuidGenerator::new(seed);
        let served = ServedDatabase::new(database, journal, DatabaseAccess::ReadWrite);
        let own = ServedDatabase::new(own, None, DatabaseAccess::ReadOnly);
        let own_name = own.database.schema().name().to_owned();
        Self {
            databases: BTreeMap::from([(name.clone(), served), (own_name, own)]),
            sessions: BTreeMap::new(),
            locks: LockTable::default(),
            server_id: uuids.generate(),
            limits,
            name,
            clock,
            blocked: Vec::new(),
            subscribers: Vec::new(),
            ended: Vec::new(),
            has_changed: false,
            events: 0,
            log: ClientLog::default(),
        }
    }

    /// Starts the session of a client. The sender is dropped when the session ends.
    pub fn connect(&mut self, client: ClientId, outbox: Outbox, end: oneshot::Sender<()>) {
        self.connect_from(client, ClientOrigin::Local, outbox, end);
    }

    /// Starts the session of a client of a local or remote socket.
    ///
    /// `end` is dropped when the session ends.
    pub(super) fn connect_from(
        &mut self,
        client: ClientId,
        origin: ClientOrigin,
        outbox: Outbox,
        end: oneshot::Sender<()>,
    ) {
        self.events = self.events.saturating_add(1);
        let (monitors, last_event) = (BTreeMap::new(), self.events);
        let session = ClientSession { origin, outbox, _end: end, monitors, last_event };
        self.sessions.insert(client, session);
    }

    /// Ends the session of a client.
    pub fn disconnect(&mut self, client: ClientId) {
        self.sessions.remove(&client);
        self.blocked.retain(|blocked| blocked.client != client);
        for (next, name) in self.locks.disconnect(client) {
            self.notify(next, "locked", &json!([name]));
        }
        self.end_sessions();
    }

    /// Ends the session that has sent nothing for the longest time.
    ///
    /// Sessions with a monitor, a lock or a waiting transaction stay, and so do local ones if the new
    /// client is a remote one. Returns whether a session was ended.
    pub fn end_idle(&mut self, newcomer: ClientOrigin) -> bool {
        let waiting: BTreeSet<_> = self.blocked.iter().map(|blocked| blocked.client).collect();
        let idle = self.sessions.iter().filter(|(client, session)| {
            let has_lock = self.locks.count(**client) > 0;
            let may_go = newcomer == ClientOrigin::Local || session.origin == newcomer;
            may_go && session.monitors.is_empty() && !has_lock && !waiting.contains(client)
        });
        let Some((client, _)) = idle.min_by_key(|(_, session)| session.last_event) else {
            return false;
        };
        let client = *client;
        self.log.warn(&format!(
            "client {}: disconnected, because it is idle and another client needs its place",
            client.0
        ));
        self.disconnect(client);
        true
    }

    /// Handles a message of a client.
    pub fn receive(&mut self, client: ClientId, message: Value) {
        self.receive_message(client, ClientMessage::Json(message));
    }

    /// Handles a message that was parsed by its kind, as [`Self::receive`].
    pub(crate) fn receive_message(&mut self, client: ClientId, message: ClientMessage) {
        if let Some(session) = self.sessions.get_mut(&client) {
            self.events = self.events.saturating_add(1);
            session.last_event = self.events;
            let handled = match message {
                ClientMessage::Json(message) => self.dispatch(client, message),
                ClientMessage::Transact(request) => {
                    self.transact_message(client, request);
                    Ok(())
                }
            };
            if let Err(reason) = handled {
                self.ended.push((client, reason));
            }
            self.settle();
        }
    }

    /// Executes a transaction of the owner.
    ///
    /// # Errors
    ///
    /// If the transaction breaks a rule of the schema, or the log cannot be written.
    pub fn transact(&mut self, transaction: &RowTransaction) -> Result<(), TransactionError> {
        let name = self.name.clone();
        let Some(served) = self.databases.get_mut(&name) else { return Ok(()) };
        let change = transaction.execute(&mut served.database)?;
        let comment = Some(transaction.comment()).filter(|comment| !comment.is_empty());
        self.apply(&name, &change, false, comment)?;
        self.settle();
        Ok(())
    }

    /// Returns the rows of the owner's database.
    ///
    /// # Errors
    ///
    /// If the server no longer has a database.
    pub fn snapshot(&self) -> Result<DatabaseSnapshot, OvsdbServerError> {
        let served = self.databases.get(&self.name).ok_or(OvsdbServerError::Stopped)?;
        Ok(served.database.snapshot())
    }

    /// Adds a subscriber to the changes of clients.
    pub(super) fn subscribe(&mut self, pending: Arc<PendingChanges>) {
        self.subscribers.push(pending);
    }

    /// Returns the time at which the next waiting transaction times out.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Duration> {
        self.blocked.iter().filter_map(|blocked| blocked.expiry).min()
    }

    /// Fails the waiting transactions that have timed out.
    pub fn expire(&mut self) {
        let now = (self.clock.monotonic)();
        self.retry(|blocked| blocked.expiry.is_some_and(|expiry| expiry <= now));
        self.settle();
    }

    /// Executes a `transact` request, or keeps it until the next change.
    pub(super) fn transact_request(
        &mut self,
        client: ClientId,
        id: &Value,
        database: &str,
        operations: Vec<RequestedOperation>,
    ) {
        let waiting = self.blocked.iter().filter(|blocked| blocked.client == client).count();
        if waiting >= self.limits.blocked {
            let details = format!(
                "{waiting} transactions of this client already wait for a change of the \
                 database, which is the limit"
            );
            let error = TransactionError::new(crate::ErrorTag::Resources, details);
            self.reply(client, &json!({"id": id, "error": error.to_json()}));
            return;
        }
        let blocked = BlockedTransaction {
            client,
            id: id.clone(),
            database: database.to_owned(),
            operations,
            bytes: 0,
            arrived: (self.clock.monotonic)(),
            expiry: None,
        };
        let Some(mut blocked) = self.attempt(blocked) else { return };
        let operations = blocked.operations.iter().map(|own| json_bytes(&own.to_json()));
        blocked.bytes = operations.fold(json_bytes(id), usize::saturating_add);
        let others = self.blocked.iter().filter(|blocked| blocked.client == client);
        let bytes = others.fold(blocked.bytes, |sum, other| sum.saturating_add(other.bytes));
        let limit = self.limits.blocked_bytes;
        if bytes > limit {
            let details =
                format!("waiting transactions of a client take at most {limit} bytes of memory");
            let error = TransactionError::new(crate::ErrorTag::Resources, details);
            self.reply(client, &json!({"id": id, "error": error.to_json()}));
            return;
        }
        self.blocked.push(blocked);
    }

    /// Cancels a waiting transaction.
    pub(super) fn cancel(&mut self, client: ClientId, id: &Value) {
        let is_it = |blocked: &BlockedTransaction| blocked.client == client && blocked.id == *id;
        if let Some(place) = self.blocked.iter().position(is_it) {
            self.blocked.remove(place);
            self.reply(client, &json!({"id": id, "error": "canceled"}));
        }
    }

    /// Executes a transaction; returns the transaction if it must wait.
    fn attempt(&mut self, mut transaction: BlockedTransaction) -> Option<BlockedTransaction> {
        let now = (self.clock.monotonic)();
        let (locks, client) = (&self.locks, transaction.client);
        let served = self.databases.get_mut(&transaction.database)?;
        let request = TransactionRequest {
            operations: &transaction.operations,
            access: served.access,
            owns_lock: &|name| locks.is_owner(name, client),
            waited: now.saturating_sub(transaction.arrived),
        };
        let mut outcome = match execute(&mut served.database, &request) {
            TransactionExecution::Done(outcome) => outcome,
            TransactionExecution::Blocked { timeout } => {
                transaction.expiry =
                    timeout.map(|timeout| transaction.arrived.saturating_add(timeout));
                return Some(transaction);
            }
        };
        let applied = self.apply(
            &transaction.database,
            &outcome.change,
            outcome.durable,
            outcome.comment.as_deref(),
        );
        match applied {
            Ok(()) => self.notify_subscribers(&transaction.database, &outcome.change),
            Err(error) => outcome.results.push(error.to_json()),
        }
        let results = Value::Array(outcome.results);
        let reply =
            json_object([("id", transaction.id), ("result", results), ("error", Value::Null)]);
        self.reply(client, &reply);
        None
    }

    /// Logs a change, applies it, and sends it to the monitors.
    fn apply(
        &mut self,
        name: &str,
        change: &ChangeSet,
        durable: bool,
        comment: Option<&str>,
    ) -> Result<(), TransactionError> {
        let Some(served) = self.databases.get_mut(name).filter(|_| !change.is_empty()) else {
            return Ok(());
        };
        served.write(change, (self.clock.date)(), comment, durable)?;
        served.database.apply(change);
        served.compact_if_due((self.clock.date)());
        self.has_changed = true;
        let schema = Arc::clone(served.database.schema());
        let mut updates = Vec::new();
        for (client, session) in &self.sessions {
            for monitor in session.monitors.values().filter(|monitor| monitor.database == name) {
                if let Some(update) = monitor.monitor.update(&schema, change) {
                    updates.push((*client, monitor.notification(update)));
                }
            }
        }
        for (client, update) in updates {
            self.reply(client, &update);
        }
        Ok(())
    }

    /// Gives a change to each subscription of the database.
    fn notify_subscribers(&mut self, database: &str, change: &ChangeSet) {
        if database == self.name && !change.is_empty() {
            self.subscribers.retain(|subscriber| subscriber.add(change));
        }
    }

    /// Repeats waiting transactions after a change, and ends sessions.
    fn settle(&mut self) {
        // Each repetition with a change completes a transaction, so the loop ends.
        while std::mem::take(&mut self.has_changed) {
            self.retry(|_| true);
        }
        self.end_sessions();
    }

    /// Executes the blocked transactions that are due once more.
    fn retry(&mut self, is_due: impl Fn(&BlockedTransaction) -> bool) {
        for blocked in std::mem::take(&mut self.blocked) {
            let kept = if is_due(&blocked) { self.attempt(blocked) } else { Some(blocked) };
            self.blocked.extend(kept);
        }
    }

    /// Disconnects the clients of which the sessions must end.
    fn end_sessions(&mut self) {
        while let Some((client, reason)) = self.ended.pop() {
            if self.sessions.contains_key(&client) {
                self.log.warn(&format!("client {}: disconnected: {reason}", client.0));
                self.disconnect(client);
            }
        }
    }

    /// Sends a notification to a client.
    pub(super) fn notify(&mut self, client: ClientId, method: &str, params: &Value) {
        self.reply(client, &json!({"id": null, "method": method, "params": params}));
    }

    /// Sends a message to a client. A client with a full queue is disconnected.
    pub(super) fn reply(&mut self, client: ClientId, message: &Value) {
        self.send(client, message.to_string());
    }

    /// Sends a message, as text, to a client; disconnects a client with a full queue.
    pub(super) fn send(&mut self, client: ClientId, text: String) {
        let Some(session) = self.sessions.get(&client) else { return };
        // A closed connection has its own reason, and its session ends a moment later.
        if !session.outbox.send(text) && !session.outbox.is_closed() {
            self.ended.push((client, Disconnect::SlowReader(self.limits.queued_bytes)));
        }
    }
}

impl ServedDatabase {
    /// Returns a database. Without a `journal` it is kept in memory only.
    fn new(database: Database, journal: Option<Journal>, access: DatabaseAccess) -> Self {
        Self { database, journal, access, texts: InitialTexts::default() }
    }

    /// Appends a change to the log, if the database has one.
    fn write(
        &mut self,
        change: &ChangeSet,
        date: Duration,
        comment: Option<&str>,
        durable: bool,
    ) -> Result<(), TransactionError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let written = journal.write(self.database.schema(), change, date, comment, durable);
        written.map_err(|error| {
            tracing::error!(target: "shunt_ovsdb", %error, "log: a transaction could not be written, and is refused: {error}");
            TransactionError::io("the log could not be written, so nothing is changed", &error)
        })
    }

    /// Compacts the log if it has grown enough.
    fn compact_if_due(&mut self, date: Duration) {
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.is_compaction_due())
        else {
            return;
        };
        let before = journal.length();
        match journal.compact(&self.database, date) {
            Ok(()) => tracing::info!(
                target: "shunt_ovsdb",
                before,
                after = journal.length(),
                "log: compacted"
            ),
            Err(error) => {
                tracing::warn!(target: "shunt_ovsdb", %error, "log: cannot compact, retrying later");
            }
        }
    }
}

impl ClientMonitor {
    /// Returns the notification that sends an update to the client.
    pub(super) fn notification(&self, update: Value) -> Value {
        let id = self.id.clone();
        let (method, params) = match self.monitor.version() {
            MonitorVersion::One => ("update", vec![id, update]),
            MonitorVersion::Two => ("update2", vec![id, update]),
            MonitorVersion::Three => ("update3", vec![id, RowUuid::NIL.to_string().into(), update]),
        };
        let params = Value::Array(params);
        json_object([("id", Value::Null), ("method", method.into()), ("params", params)])
    }
}

/// Returns the database `_Server`, which describes itself and `other`.
fn own_database(other: &Database, seed: [u8; 20]) -> Database {
    let mut seed = seed;
    // The reversed seed gives another sequence of UUIDs than that of the other database.
    seed.reverse();
    if let Some(byte) = seed.first_mut() {
        *byte ^= 0xff;
    }
    let mut database = Database::new(schema::server_schema(), seed);
    let schemas = [Arc::clone(other.schema()), Arc::clone(database.schema())];
    let mut uuids = UuidGenerator::new(seed);
    let change = {
        let (mut set, fresh) = database.begin();
        let table = set.schema().find_table("Database");
        for schema in schemas {
            let Some((index, table)) = table else { continue };
            let mut row = crate::database::Row::new(uuids.generate(), table);
            let columns = [
                ("name", Datum::string(schema.name())),
                ("model", Datum::string("standalone")),
                ("connected", Datum::boolean(true)),
                ("leader", Datum::boolean(true)),
                ("schema", Datum::string(&schema.to_json().to_string())),
            ];
            for (name, value) in columns {
                if let Some((column, _)) = table.find_column(name) {
                    row.set(column, value);
                }
            }
            set.put(index, row);
        }
        set.finish(&mut || fresh.generate()).unwrap_or_default()
    };
    database.apply(&change);
    database
}
