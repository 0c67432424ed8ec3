//! A client commits while a pass over another client's rows is applied.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, OpenOptions},
    io::Write,
    os::unix::{fs::OpenOptionsExt, net::UnixStream},
    path::Path,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use nix::{libc::O_NONBLOCK, sys::stat::Mode, unistd::mkfifo};
use serde_json::{Deserializer, StreamDeserializer, Value, de::IoRead, json};
use shunt_ovsdb::{OvsdbHandle, Server, ServerConfig, schema};
use shunt_switch::{
    Switch,
    config::{BridgeOptions, Config, PortOptions, PortType},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{Follower, ReportedPorts};
use crate::ovsdb::{database::SwitchDatabase, problem::DatabaseProblem};

/// Longest time for a reply of the server, and for the start of a change.
const DEADLINE: Duration = Duration::from_secs(20);

/// A client on the socket of the server.
struct RequestingClient {
    socket: UnixStream,
    messages: StreamDeserializer<'static, IoRead<UnixStream>, Value>,
    /// The updates of the monitor that were received, in order.
    updates: Vec<Value>,
}

impl RequestingClient {
    fn connect(path: &Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let messages = Deserializer::from_reader(socket.try_clone().unwrap()).into_iter();
        Self { socket, messages, updates: Vec::new() }
    }

    /// Sends a request and returns its result; keeps the updates before the reply.
    fn request(&mut self, method: &str, params: &Value) -> Value {
        let request = json!({"method": method, "id": method, "params": params});
        self.socket.write_all(request.to_string().as_bytes()).unwrap();
        loop {
            let message = self.messages.next().unwrap().unwrap();
            if message["method"] == "update" {
                self.updates.push(message["params"][1].clone());
            } else if message.get("method").is_none() && message["id"] == method {
                assert!(message["error"].is_null(), "{message}");
                return message["result"].clone();
            }
        }
    }

    /// Commits a transaction, which must not be refused.
    fn transact(&mut self, operations: &[Value]) {
        let database = [json!("Open_vSwitch")];
        let params: Vec<_> = database.iter().chain(operations).cloned().collect();
        let results = self.request("transact", &json!(params));
        let is_done = |result: &Value| result.get("error").is_none_or(Value::is_null);
        assert!(results.as_array().unwrap().iter().all(is_done), "{results}");
    }
}

/// The rows that a client sees.
#[derive(Default)]
struct SeenRows {
    rows: BTreeMap<String, Value>,
    /// The number of updates of the client that these rows contain.
    updates: usize,
}

/// The number of the applied configuration, and the number and error of each port.
type SeenState = (i64, BTreeMap<String, (Option<i64>, Option<String>)>);

impl SeenRows {
    fn apply(&mut self, tables: &Value) {
        let rows =
            tables.as_object().unwrap().values().flat_map(|table| table.as_object().unwrap());
        for (uuid, row) in rows {
            match row.get("new") {
                Some(new) => self.rows.insert(uuid.clone(), new.clone()),
                None => self.rows.remove(uuid),
            };
        }
    }

    /// Returns the state after each update since the last call.
    fn states(&mut self, client: &mut RequestingClient) -> Vec<SeenState> {
        // The reply follows the updates of all earlier transactions.
        client.request("echo", &json!([]));
        let new: Vec<_> = client.updates.iter().skip(self.updates).cloned().collect();
        self.updates = client.updates.len();
        let after = |update: &Value| {
            self.apply(update);
            self.state()
        };
        new.iter().map(after).collect()
    }

    fn state(&self) -> SeenState {
        let applied = self.rows.values().find_map(|row| row["cur_cfg"].as_i64());
        let port = |row: &Value| {
            let error = row["error"].as_str().map(str::to_owned);
            Some((row["name"].as_str()?.to_owned(), (row["ofport"].as_i64(), error)))
        };
        (applied.unwrap_or_default(), self.rows.values().filter_map(port).collect())
    }
}

/// Returns the operations that insert ports, and the set of their rows.
fn ports(ports: &[(&str, &str)]) -> (Vec<Value>, Value) {
    let mut operations = Vec::new();
    for (name, kind) in ports {
        let interface = format!("interface_{name}");
        operations.push(json!({"op": "insert", "table": "Interface", "uuid-name": interface,
            "row": {"name": name, "type": kind}}));
        operations
            .push(json!({"op": "insert", "table": "Port", "uuid-name": format!("port_{name}"),
            "row": {"name": name, "interfaces": ["named-uuid", interface]}}));
    }
    let rows = ports.iter().map(|(name, _)| json!(["named-uuid", format!("port_{name}")]));
    (operations, json!(["set", rows.collect::<Vec<_>>()]))
}

/// Holds all changes of the switch until the returned file is dropped.
///
/// Until then, the bridge `own` gets a port that waits for its capture file.
async fn hold_changes(switch: &Arc<Switch>, folder: &Path) -> (File, JoinHandle<()>) {
    let rx = folder.join("fifo");
    mkfifo(&rx, Mode::S_IRWXU).unwrap();
    let (owner, name, kind) = (Arc::clone(switch), "own1".to_owned(), PortType::Pcap);
    let port = PortOptions { name, kind, rx: rx.clone(), ..PortOptions::default() };
    let adding = tokio::spawn(async move {
        // An empty file is no capture, so the port is refused in the end.
        assert!(owner.add_port("own", port).await.is_err());
    });
    let end = Instant::now() + DEADLINE;
    loop {
        // Without a reader, the call fails (ENXIO).
        match OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&rx) {
            Ok(file) => return (file, adding),
            Err(error) => assert!(Instant::now() < end, "no port is being opened: {error}"),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Starts a server at `socket`, and a switch with the bridge `own` that follows it.
async fn start(socket: &Path) -> (OvsdbHandle, Arc<Switch>, Follower) {
    let server = Server::open(schema::open_vswitch(), None, ServerConfig::default()).unwrap();
    let handle = server.listen(socket).unwrap().start().unwrap();
    let mut root = handle.transaction("the root");
    root.insert("Open_vSwitch", []);
    handle.transact(root).await.unwrap();
    let switch = Arc::new(Switch::start(&Config::default(), None, 1).await.unwrap());
    let own = BridgeOptions { name: "own".to_owned(), ..BridgeOptions::default() };
    switch.add_bridge(&own).await.unwrap();
    let database = SwitchDatabase::embedded(handle.clone()).await.unwrap();
    let mut follower = Follower::new(database, Arc::clone(&switch), DatabaseProblem::default());
    let first = handle.snapshot().await.unwrap();
    follower.update(&first, &ReportedPorts::All).await.unwrap();
    (handle, switch, follower)
}

/// Returns the operations that add the bridge `br0` with the port `p1`.
fn first_commit() -> Vec<Value> {
    let (mut operations, rows) = ports(&[("p1", "null")]);
    operations.push(json!({"op": "insert", "table": "Bridge", "uuid-name": "bridge",
        "row": {"name": "br0", "ports": rows}}));
    operations.push(json!({"op": "update", "table": "Open_vSwitch", "where": [],
        "row": {"bridges": ["named-uuid", "bridge"], "next_cfg": 1}}));
    operations
}

/// Returns the operations that add the ports `p2`, which is refused, and `p3`.
fn second_commit() -> Vec<Value> {
    let (mut operations, rows) = ports(&[("p2", "gre"), ("p3", "null")]);
    operations.push(json!({"op": "mutate", "table": "Bridge",
        "where": [["name", "==", "br0"]], "mutations": [["ports", "insert", rows]]}));
    operations.push(json!({"op": "mutate", "table": "Open_vSwitch", "where": [],
        "mutations": [["next_cfg", "+=", 1]]}));
    operations
}

/// The number of a configuration appears with the results of all its ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_during_pass_waits_for_next_pass() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db.sock");
    let (handle, switch, mut follower) = start(&socket).await;
    let [mut one, mut two] = [(); 2].map(|()| RequestingClient::connect(&socket));
    let columns = json!({"Open_vSwitch": {"columns": ["cur_cfg"]},
        "Interface": {"columns": ["name", "ofport", "error"]}});
    let mut seen = SeenRows::default();
    let initial = one.request("monitor", &json!(["Open_vSwitch", "seen", columns]));
    seen.apply(&initial);
    let mut states = vec![seen.state()];
    one.transact(&first_commit());

    let rows = handle.snapshot().await.unwrap();
    let changed = ReportedPorts::Changed(BTreeSet::new());
    let (file, adding) = hold_changes(&switch, folder.path()).await;
    {
        let mut pass = pin!(follower.update(&rows, &changed));
        tokio::select! {
            biased;
            _ = &mut pass => unreachable!("changes of the switch are held, so the pass waits"),
            () = async { two.transact(&second_commit()) } => {}
        }
        states.extend(seen.states(&mut one));
        let (applied, of_ports) = states.last().unwrap();
        assert_eq!((*applied, of_ports.len()), (0, 3), "{states:?}");
        assert!(of_ports.values().all(|port| *port == (None, None)), "{states:?}");
        drop(file);
        pass.await.unwrap();
        adding.await.unwrap();
    }
    states.extend(seen.states(&mut one));
    let (applied, of_ports) = states.last().unwrap();
    let is_unknown = ["p2", "p3"].iter().all(|name| of_ports[*name] == (None, None));
    assert!(*applied == 1 && is_unknown, "a pass reports only its own rows: {states:?}");

    let rows = handle.snapshot().await.unwrap();
    follower.update(&rows, &changed).await.unwrap();
    states.extend(seen.states(&mut one));
    let mut numbers: Vec<_> = states.iter().map(|(applied, _)| *applied).collect();
    numbers.dedup();
    assert_eq!(numbers, [0, 1, 2], "{states:?}");
    for (applied, of_ports) in &states {
        let has_number =
            |name: &str| of_ports.get(name).is_some_and(|(number, _)| *number > Some(0));
        let is_refused = of_ports.get("p2").is_some_and(|(number, error)| {
            *number == Some(-1) && error.as_ref().is_some_and(|error| error.contains("gre"))
        });
        assert!(*applied < 1 || has_number("p1"), "{states:?}");
        assert!(*applied < 2 || has_number("p3") && is_refused, "{states:?}");
    }
    handle.stop().await;
}
