//! Tests a client with a server without a socket: both must have the same rows.

#![expect(clippy::unwrap_used, reason = "a failure of the fixture ends the test")]

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value, json};
use shunt_ovsdb::{
    client::{FollowedTable, OvsdbClientConfig, OvsdbClientError, OvsdbRemote, ReplicaSession},
    monitor::MonitorVersion,
    schema::{ColumnDefinition, open_vswitch},
    server::{ClientId, ClientQueue, Outbox, ServerCore},
    testing::core,
};
use tokio::sync::oneshot;

/// The followed tables and columns.
const TABLES: [FollowedTable; 4] = [
    FollowedTable {
        name: "Open_vSwitch",
        read: &["bridges", "next_cfg", "other_config", "no_such_column"],
        written: &["cur_cfg"],
    },
    FollowedTable { name: "Bridge", read: &["name", "ports", "flow_tables"], written: &[] },
    FollowedTable {
        name: "Port",
        read: &["name", "interfaces", "tag", "trunks", "external_ids"],
        written: &["statistics"],
    },
    FollowedTable { name: "Interface", read: &["name", "options"], written: &["ofport", "error"] },
];

/// The server's number of the session.
const SESSION: ClientId = ClientId(1);
/// The server's number of the client that writes.
const WRITER: ClientId = ClientId(2);

/// A server, a session that follows it, and a client that writes.
struct ReplicaFixture {
    core: ServerCore,
    session: ReplicaSession,
    /// The newest monitor method of the server.
    newest: MonitorVersion,
    queues: BTreeMap<ClientId, (ClientQueue, oneshot::Receiver<()>)>,
}

fn session() -> ReplicaSession {
    session_of(TABLES.to_vec())
}

/// Returns a session that follows some tables.
fn session_of(tables: Vec<FollowedTable>) -> ReplicaSession {
    let remote: OvsdbRemote = "unix:/nowhere".parse().unwrap();
    let mut config = OvsdbClientConfig::new(remote, "Open_vSwitch", tables);
    config.lock = Some("lock".to_owned());
    ReplicaSession::new(Arc::new(config))
}

impl ReplicaFixture {
    fn new(newest: MonitorVersion) -> Self {
        let mut fixture =
            Self { core: core(), session: session(), newest, queues: BTreeMap::new() };
        fixture.open(WRITER);
        fixture.connect();
        fixture
    }

    fn open(&mut self, client: ClientId) {
        let (outbox, queue) = Outbox::new(1 << 30);
        let (end, ended) = oneshot::channel();
        self.core.connect(client, outbox, end);
        self.queues.insert(client, (queue, ended));
    }

    fn connect(&mut self) {
        self.open(SESSION);
        self.session.connected();
        self.exchange();
        assert!(self.session.state().is_writable());
    }

    fn reconnect(&mut self, reason: &OvsdbClientError) {
        self.core.disconnect(SESSION);
        self.session.disconnected(Some(reason));
        assert!(!self.session.state().is_writable());
        self.connect();
    }

    /// Passes messages between session and server until no message is left.
    fn exchange(&mut self) {
        loop {
            let requests = self.session.take_outgoing();
            let is_done = requests.is_empty();
            for request in requests {
                self.request(request);
            }
            let mut received = 0;
            let (queue, _) = self.queues.get_mut(&SESSION).unwrap();
            while let Some(message) = queue.try_next() {
                self.session.receive(serde_json::from_slice(&message).unwrap()).unwrap();
                received += 1;
            }
            if is_done && received == 0 {
                return;
            }
        }
    }

    /// Sends a request of the session; refuses methods that an older server lacks.
    fn request(&mut self, request: Value) {
        let is_unknown = match (self.newest, request["method"].as_str()) {
            (MonitorVersion::One, Some("monitor_cond" | "monitor_cond_since"))
            | (MonitorVersion::Two, Some("monitor_cond_since")) => true,
            (_, _) => false,
        };
        if is_unknown {
            let error = json!({"error": "unknown method", "details": "monitor_cond"});
            let reply = json!({"id": request["id"], "result": null, "error": error});
            self.session.receive(reply).unwrap();
        } else {
            self.core.receive(SESSION, request);
        }
    }

    /// Executes operations of another client.
    fn transact(&mut self, operations: &Value) -> Value {
        let mut params = vec![Value::from("Open_vSwitch")];
        params.extend(operations.as_array().unwrap().iter().cloned());
        self.core.receive(WRITER, json!({"id": 1, "method": "transact", "params": params}));
        let (queue, _) = self.queues.get_mut(&WRITER).unwrap();
        let reply: Value = serde_json::from_slice(&queue.try_next().unwrap()).unwrap();
        reply["result"].clone()
    }

    /// Returns the followed columns of all rows, as the server selects them.
    fn select_rows(&mut self) -> BTreeMap<String, Value> {
        let mut rows = BTreeMap::new();
        for table in TABLES {
            let columns = table.read.iter().chain(table.written);
            let columns: Vec<_> = columns.filter(|name| **name != "no_such_column").collect();
            let mut named: Vec<&str> = columns.into_iter().copied().collect();
            named.push("_uuid");
            let select =
                json!([{"op": "select", "table": table.name, "where": [], "columns": named}]);
            for row in self.transact(&select)[0]["rows"].as_array().unwrap() {
                let mut row = row.clone();
                let uuid = row.as_object_mut().unwrap().remove("_uuid").unwrap();
                rows.insert(format!("{} {}", table.name, uuid[1]), row);
            }
        }
        rows
    }

    /// Returns the rows of the session in the form of [`Self::select_rows`].
    fn rows_of_session(&self) -> BTreeMap<String, Value> {
        let snapshot = self.session.state().rows.unwrap();
        let mut rows = BTreeMap::new();
        for table in snapshot.schema().tables() {
            for row in snapshot.rows(table.name()) {
                let column = |column: &ColumnDefinition| {
                    let value = row.value(column.name()).unwrap().to_json(column.kind());
                    (column.name().to_owned(), value)
                };
                let columns = table.columns().iter().map(column).collect();
                let uuid = Value::from(row.uuid().to_string());
                rows.insert(format!("{} {uuid}", table.name()), Value::Object(columns));
            }
        }
        rows
    }
}

/// A step of a test: a change by another client, or a lost connection.
#[derive(Clone, Debug)]
enum Step {
    AddBridge(u8),
    RemoveBridges,
    SetTag(u8, Option<u16>),
    SetTrunks(u8, Vec<u16>),
    PutEntry(u8, u8, u8),
    RemoveEntry(u8, u8),
    PutOption(u8, u8),
    Count,
    Reconnect,
    ReconnectAfterError,
}

fn step() -> impl Strategy<Value = Step> {
    let vlan = 0..6_u16;
    prop_oneof![
        4 => (0..4_u8).prop_map(Step::AddBridge),
        1 => Just(Step::RemoveBridges),
        2 => (0..4_u8, proptest::option::of(vlan.clone())).prop_map(|(b, tag)| Step::SetTag(b, tag)),
        3 => (0..4_u8, proptest::collection::vec(vlan, 0..5)).prop_map(|(b, ids)| Step::SetTrunks(b, ids)),
        3 => (0..4_u8, 0..3_u8, 0..3_u8).prop_map(|(b, key, value)| Step::PutEntry(b, key, value)),
        2 => (0..4_u8, 0..3_u8).prop_map(|(b, key)| Step::RemoveEntry(b, key)),
        2 => (0..4_u8, 0..3_u8).prop_map(|(b, key)| Step::PutOption(b, key)),
        2 => Just(Step::Count),
        1 => Just(Step::Reconnect),
        1 => Just(Step::ReconnectAfterError),
    ]
}

/// Returns the operations of a step.
fn operations(step: &Step) -> Value {
    let named = |bridge: &u8| json!([["name", "==", format!("br{bridge}")]]);
    let mutate = |table: &str, bridge: &u8, mutations: Value| json!([{"op": "mutate", "table": table, "where": named(bridge), "mutations": mutations}]);
    match step {
        Step::AddBridge(bridge) => {
            let name = format!("br{bridge}");
            json!([
                {"op": "insert", "table": "Interface", "uuid-name": "i", "row": {"name": name}},
                {"op": "insert", "table": "Port", "uuid-name": "p",
                    "row": {"name": name, "interfaces": ["named-uuid", "i"]}},
                {"op": "insert", "table": "Bridge", "uuid-name": "b",
                    "row": {"name": name, "ports": ["named-uuid", "p"]}},
                {"op": "mutate", "table": "Open_vSwitch", "where": [],
                    "mutations": [["bridges", "insert", ["named-uuid", "b"]]]},
            ])
        }
        // Bridges, ports and interfaces exist only as long as references to them, so all are
        // deleted.
        Step::RemoveBridges => {
            json!([{"op": "update", "table": "Open_vSwitch", "where": [], "row": {"bridges": ["set", []]}}])
        }
        Step::SetTag(bridge, tag) => {
            let tag = tag.map_or(json!(["set", []]), |tag| json!(tag));
            json!([{"op": "update", "table": "Port", "where": named(bridge), "row": {"tag": tag}}])
        }
        Step::SetTrunks(bridge, ids) => {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            json!([{"op": "update", "table": "Port", "where": named(bridge),
                "row": {"trunks": ["set", ids]}}])
        }
        Step::PutEntry(bridge, key, value) => {
            let row = json!({"external_ids": ["map", [[format!("k{key}"), format!("v{value}")]]]});
            json!([{"op": "update", "table": "Port", "where": named(bridge), "row": row}])
        }
        Step::RemoveEntry(bridge, key) => {
            let keys = json!(["set", [format!("k{key}")]]);
            mutate("Port", bridge, json!([["external_ids", "delete", keys]]))
        }
        Step::PutOption(bridge, key) => {
            let pairs = json!(["map", [[format!("k{key}"), "v"]]]);
            mutate("Interface", bridge, json!([["options", "insert", pairs]]))
        }
        Step::Count => json!([{"op": "mutate", "table": "Open_vSwitch", "where": [],
            "mutations": [["next_cfg", "+=", 1]]}]),
        Step::Reconnect | Step::ReconnectAfterError => json!([]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Other clients change rows, and connections end for each kind of reason.
    #[test]
    fn the_rows_are_those_that_the_server_selects(
        steps in proptest::collection::vec(step(), 1..40),
        newest in prop_oneof![
            Just(MonitorVersion::One), Just(MonitorVersion::Two), Just(MonitorVersion::Three)
        ],
    ) {
        let mut fixture = ReplicaFixture::new(newest);
        fixture.transact(&json!([{"op": "insert", "table": "Open_vSwitch", "row": {}}]));
        for step in &steps {
            let before = fixture.session.state().changes;
            let rows = fixture.rows_of_session();
            fixture.transact(&operations(step));
            match step {
                Step::Reconnect => fixture.reconnect(&OvsdbClientError::Closed),
                Step::ReconnectAfterError => {
                    fixture.reconnect(&OvsdbClientError::Update(String::new()));
                }
                _ => fixture.exchange(),
            }
            let expected = fixture.select_rows();
            prop_assert_eq!(fixture.rows_of_session(), expected, "{:?}", step);
            // The client is notified of each change of a column that it reads.
            let is_notified = fixture.session.state().changes != before;
            prop_assert!(is_notified || fixture.rows_of_session() == rows, "{:?}", step);
        }
    }
}

/// Columns that the client writes reach its rows without a notification.
#[test]
fn own_columns_are_followed_and_not_notified() {
    let mut fixture = ReplicaFixture::new(MonitorVersion::Three);
    fixture.transact(&json!([{"op": "insert", "table": "Open_vSwitch", "row": {}}]));
    fixture.exchange();
    let before = fixture.session.state().changes;
    let update =
        |row: Value| json!([{"op": "update", "table": "Open_vSwitch", "where": [], "row": row}]);
    fixture.transact(&update(json!({"cur_cfg": 3})));
    fixture.exchange();
    let state = fixture.session.state();
    let root = state.rows.as_ref().unwrap().rows("Open_vSwitch").next().unwrap();
    assert_eq!((root.integer("cur_cfg"), state.changes), (Some(3), before));
    fixture.transact(&update(json!({"cur_cfg": 4, "next_cfg": 4})));
    fixture.exchange();
    assert_eq!(fixture.session.state().changes, before + 1);
}

/// Without the lock the client only reads.
#[test]
fn a_session_writes_only_with_its_lock() {
    let mut fixture = ReplicaFixture::new(MonitorVersion::Three);
    fixture.core.receive(WRITER, json!({"id": 1, "method": "steal", "params": ["lock"]}));
    fixture.exchange();
    assert!(fixture.session.state().is_current && !fixture.session.state().is_writable());
    fixture.core.receive(WRITER, json!({"id": 1, "method": "unlock", "params": ["lock"]}));
    fixture.exchange();
    assert!(fixture.session.state().is_writable());
}

/// The UUID of the row of `Open_vSwitch`.
const ROW: &str = "00000000-0000-4000-8000-000000000001";

/// Ids of transactions, as the server sends them.
const IDS: [&str; 3] = [
    "00000000-0000-4000-8000-00000000000a",
    "00000000-0000-4000-8000-00000000000b",
    "00000000-0000-4000-8000-00000000000c",
];

/// Connects to a server that sends `rows`.
///
/// Returns the transaction id from which the session continues.
fn connect(session: &mut ReplicaSession, rows: &Value) -> Value {
    session.connected();
    let mut asked = Value::Null;
    for _ in 0..2 {
        for request in session.take_outgoing() {
            let result = match request["method"].as_str().unwrap() {
                "get_schema" => open_vswitch().to_json(),
                "lock" => json!({"locked": true}),
                _ => {
                    asked = request["params"][3].clone();
                    rows.clone()
                }
            };
            let reply = json!({"id": request["id"], "result": result, "error": null});
            session.receive(reply).unwrap();
        }
    }
    asked
}

/// A server with a history sends the transactions that the client has missed.
///
/// After an invalid update, all rows are read again.
#[test]
fn a_connection_continues_after_the_last_transaction() {
    let mut session = session();
    let rows =
        |kind: &str, number: i64| json!({"Open_vSwitch": {ROW: {kind: {"next_cfg": number}}}});
    let next_cfg = |session: &ReplicaSession| {
        let snapshot = session.state().rows.unwrap();
        snapshot.rows("Open_vSwitch").next().unwrap().integer("next_cfg")
    };
    let nil = "00000000-0000-0000-0000-000000000000";
    assert_eq!(connect(&mut session, &json!([false, IDS[0], rows("initial", 1)])), nil);
    let params = json!(["shunt", IDS[1], rows("modify", 2)]);
    session.receive(json!({"id": null, "method": "update3", "params": params})).unwrap();

    session.disconnected(Some(&OvsdbClientError::Closed));
    assert_eq!(connect(&mut session, &json!([true, IDS[2], rows("modify", 3)])), IDS[1]);
    assert_eq!(next_cfg(&session), Some(3));

    session.disconnected(Some(&OvsdbClientError::Update(String::new())));
    assert_eq!(connect(&mut session, &json!([false, IDS[0], rows("initial", 4)])), nil);
    assert_eq!(next_cfg(&session), Some(4));
}

/// An answer to a probe does not count as a reply to another request.
#[test]
fn a_probe_reply_answers_no_request() {
    let mut session = session();
    session.connected();
    let _ = session.take_outgoing();
    for _ in 0..3 {
        session.probe();
        let probe = session.take_outgoing().pop().unwrap();
        assert_eq!(probe["method"], "echo");
        session.receive(json!({"id": probe["id"], "result": [], "error": null})).unwrap();
        assert_eq!((session.replies(), session.awaits_reply()), (0, true));
    }
}

/// A client disconnects from a server without the database, and reports the reason.
#[test]
fn an_unsuitable_schema_ends_the_connection() {
    let wrong = |result: Value, error: Value| {
        let mut session = session();
        session.connected();
        let request = session.take_outgoing().remove(0);
        assert_eq!(request["method"], "get_schema");
        let reply = json!({"id": request["id"], "result": result, "error": error});
        session.receive(reply).unwrap_err()
    };
    use OvsdbClientError::{NoDatabase, NoTable, Refused, Schema};
    assert!(matches!(wrong(Value::Null, Value::Null), NoDatabase(_)));
    assert!(matches!(wrong(json!({"name": 3}), Value::Null), Schema(_)));
    let empty = json!({"name": "Open_vSwitch", "version": "8.3.1", "tables": {}});
    assert!(matches!(wrong(empty, Value::Null), NoTable { table: "Open_vSwitch", .. }));
    assert!(matches!(wrong(Value::Null, json!("no")), Refused { method: "get_schema", .. }));
}

/// Returns the schema without `Datapath`, as Open vSwitch 2.12 has it.
fn schema_without_datapath() -> Value {
    let mut schema = open_vswitch().to_json();
    let tables = schema["tables"].as_object_mut().unwrap();
    tables.remove("Datapath").unwrap();
    let root = tables["Open_vSwitch"]["columns"].as_object_mut().unwrap();
    root.remove("datapaths").unwrap();
    schema
}

#[test]
fn a_table_that_is_only_written_may_be_missing() {
    let columns: [(&[&str], &[&str]); 2] = [(&[], &["capabilities"]), (&["capabilities"], &[])];
    for (read, written) in columns {
        let mut tables = TABLES.to_vec();
        tables.push(FollowedTable { name: "Datapath", read, written });
        let mut session = session_of(tables);
        session.connected();
        let (mut asked, mut refused) = (Vec::new(), None);
        for _ in 0..2 {
            for request in session.take_outgoing() {
                let result = match request["method"].as_str().unwrap() {
                    "get_schema" => schema_without_datapath(),
                    "lock" => json!({"locked": true}),
                    _ => {
                        let monitored = request["params"][2].as_object().unwrap();
                        asked.extend(monitored.keys().cloned());
                        json!([false, IDS[0], {"Open_vSwitch": {ROW: {"initial": {}}}}])
                    }
                };
                let reply = json!({"id": request["id"], "result": result, "error": null});
                if let Err(error) = session.receive(reply) {
                    refused = Some(error);
                }
            }
        }
        if read.is_empty() {
            assert_eq!(asked, ["Bridge", "Interface", "Open_vSwitch", "Port"]);
            let state = session.state();
            assert!(refused.is_none() && state.is_writable(), "{refused:?}");
            let rows = state.rows.unwrap();
            assert_eq!((rows.rows("Open_vSwitch").count(), rows.rows("Datapath").count()), (1, 0));
        } else {
            use OvsdbClientError::NoTable;
            assert!(matches!(refused, Some(NoTable { table: "Datapath", .. })), "{refused:?}");
        }
    }
}
