//! Replays the OVSDB session of `ovn-controller` 23.03 with `ovsdb-server` 3.1.
//!
//! Each answer must equal the recorded answer. A server chooses the UUIDs of new rows, so the
//! recorded ones are added to the requests as `uuid` of `insert`. Another client makes the changes
//! of `ovs-vswitchd` and `ovs-vsctl`, which the recorded updates describe.

#![expect(clippy::unwrap_used, reason = "a failure of the fixture ends the test")]

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use shunt_ovsdb::{
    server::{ClientId, ClientQueue, Outbox, ServerCore},
    testing::core,
};
use tokio::sync::oneshot;

/// Lines with a time, a connection, a direction, and a message.
const RECORDING: &str = include_str!("data/ovn-controller.ovsdbtrace");

const CONTROLLER: ClientId = ClientId(1);
const SWITCH: ClientId = ClientId(2);

/// The id of the request for the rows of `Open_vSwitch`.
const MONITOR_ID: u64 = 3;

/// The id of the request for the rows of `_Server`.
const SERVER_MONITOR_ID: u64 = 2;

/// A recorded message.
struct RecordedMessage {
    is_request: bool,
    message: Value,
}

/// A server with two clients.
struct OvnFixture {
    core: ServerCore,
    controller: (ClientQueue, oneshot::Receiver<()>),
    switch: (ClientQueue, oneshot::Receiver<()>),
    /// Messages to the controller that are not compared yet.
    received: VecDeque<Value>,
}

fn recorded_messages() -> Vec<RecordedMessage> {
    let message = |line: &str| {
        let mut parts = line.splitn(4, ' ').skip(2);
        let is_request = parts.next() == Some(">");
        RecordedMessage {
            is_request,
            message: serde_json::from_str(parts.next().unwrap()).unwrap(),
        }
    };
    RECORDING.lines().map(message).collect()
}

fn open(core: &mut ServerCore, client: ClientId) -> (ClientQueue, oneshot::Receiver<()>) {
    let (outbox, queue) = Outbox::new(1 << 20);
    let (end, ended) = oneshot::channel();
    core.connect(client, outbox, end);
    (queue, ended)
}

fn next(queue: &mut ClientQueue) -> Option<Value> {
    queue.try_next().map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

impl OvnFixture {
    fn new() -> Self {
        let mut core = core();
        let controller = open(&mut core, CONTROLLER);
        let switch = open(&mut core, SWITCH);
        Self { core, controller, switch, received: VecDeque::new() }
    }

    /// Sends a request of the controller.
    fn request(&mut self, message: Value) {
        self.core.receive(CONTROLLER, message);
        self.received.extend(std::iter::from_fn(|| next(&mut self.controller.0)));
    }

    /// Changes rows as the other client.
    fn write(&mut self, operations: Vec<Value>) {
        let params: Vec<_> = std::iter::once("Open_vSwitch".into()).chain(operations).collect();
        self.core.receive(SWITCH, json!({"id": 0, "method": "transact", "params": params}));
        let reply = next(&mut self.switch.0).unwrap();
        let results = reply["result"].as_array().unwrap();
        assert!(results.iter().all(|result| result.get("error").is_none()), "{reply}");
        self.received.extend(std::iter::from_fn(|| next(&mut self.controller.0)));
    }
}

/// Returns the operations that make the changes of an update.
///
/// The recorded changes only add members to sets and maps.
fn operations(update: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    for (table, rows) in update.as_object().unwrap() {
        for (uuid, change) in rows.as_object().unwrap() {
            for (kind, columns) in change.as_object().unwrap() {
                if kind != "modify" {
                    operations.push(
                        json!({"op": "insert", "table": table, "uuid": uuid, "row": columns}),
                    );
                    continue;
                }
                let row = json!([["_uuid", "==", ["uuid", uuid]]]);
                for (column, value) in columns.as_object().unwrap() {
                    operations.push(if value.is_array() {
                        let mutations = json!([[column, "insert", value]]);
                        json!({"op": "mutate", "table": table, "where": row, "mutations": mutations})
                    } else {
                        let new = json!({column: value});
                        json!({"op": "update", "table": table, "where": row, "row": new})
                    });
                }
            }
        }
    }
    operations
}

/// Puts the UUIDs of new rows, which are in the reply, into a request.
fn with_uuids(request: &Value, reply: &Value) -> Value {
    let mut request = request.clone();
    if request["method"] != "transact" {
        return request;
    }
    let mut names = BTreeMap::new();
    let operations = request["params"].as_array_mut().unwrap().iter_mut().skip(1);
    for (operation, result) in operations.zip(reply["result"].as_array().unwrap()) {
        if operation["op"] == "insert" {
            let uuid = &result["uuid"];
            operation["uuid"] = uuid[1].clone();
            names.insert(operation["uuid-name"].as_str().unwrap().to_owned(), uuid.clone());
        }
    }
    // A name that is used before its row is inserted would get another UUID.
    without_names(&request, &names)
}

fn without_names(value: &Value, names: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), without_names(value, names)))
            .collect(),
        Value::Array(values) => match values.as_slice() {
            [Value::String(kind), Value::String(name)] if kind == "named-uuid" => {
                names[name].clone()
            }
            values => values.iter().map(|value| without_names(value, names)).collect(),
        },
        value => value.clone(),
    }
}

/// Returns a message without the order of sets and maps.
///
/// The rows of `_Server` are compared without their UUIDs and without the text of the schema, which
/// has another version.
fn comparable(message: &Value) -> Value {
    let mut message = with_sorted_members(message);
    if message["id"] == SERVER_MONITOR_ID {
        let rows = message["result"]["Database"].as_object().unwrap().values();
        let mut rows: Vec<_> = rows.cloned().collect();
        for row in &mut rows {
            row["initial"].as_object_mut().unwrap().remove("schema");
        }
        rows.sort_by_key(Value::to_string);
        message["result"]["Database"] = rows.into();
    }
    message
}

fn with_sorted_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), with_sorted_members(value))).collect()
        }
        Value::Array(values) => match values.as_slice() {
            [Value::String(kind), Value::Array(members)] if ["set", "map"].contains(&&**kind) => {
                let mut members: Vec<_> = members.iter().map(with_sorted_members).collect();
                members.sort_by_key(Value::to_string);
                json!([kind, members])
            }
            values => values.iter().map(with_sorted_members).collect(),
        },
        value => value.clone(),
    }
}

#[test]
fn ovn_controller_gets_the_recorded_answers() {
    let recorded = recorded_messages();
    let reply_to = |request: &Value| {
        let mut replies = recorded.iter().filter(|other| !other.is_request);
        &replies.find(|reply| reply.message["id"] == request["id"]).unwrap().message
    };
    let mut fixture = OvnFixture::new();
    fixture.write(operations(&reply_to(&json!({"id": MONITOR_ID}))["result"][2]));
    for RecordedMessage { is_request, message } in &recorded {
        if *is_request {
            fixture.request(with_uuids(message, reply_to(message)));
            continue;
        }
        // Messages that the controller did not cause are changes of other clients.
        if fixture.received.is_empty() {
            fixture.write(operations(&message["params"][2]));
        }
        let answer = fixture.received.pop_front().unwrap_or_default();
        assert_eq!(comparable(&answer), comparable(message));
    }
    assert_eq!(fixture.received, [] as [Value; 0]);
    assert_eq!(recorded.len(), 55);
}
