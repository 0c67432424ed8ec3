//! Tests of the server over its socket: limits, locks, waits, and the handle of the owner.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure of the fixture ends the test")]

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use serde_json::{Value, json};
use shunt_ovsdb::{
    OvsdbHandle, RemoteTimes, RemoteTransport, Server, ServerConfig, ServerRemote,
    schema::open_vswitch,
    server::ServerLimits,
    value::{Atom, Datum},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A server in memory with its socket.
struct ServerFixture {
    runtime: Runtime,
    handle: OvsdbHandle,
    socket: PathBuf,
    _folder: TempDir,
}

impl ServerFixture {
    fn new(limits: ServerLimits) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.sock");
        let config = ServerConfig { limits, ..ServerConfig::default() };
        let handle = runtime.block_on(async {
            Server::open(open_vswitch(), None, config).unwrap().listen(&socket).unwrap().start()
        });
        Self { runtime, handle: handle.unwrap(), socket, _folder: folder }
    }

    fn connect(&self) -> Client {
        Client { stream: UnixStream::connect(&self.socket).unwrap(), received: Vec::new() }
    }
}

impl Drop for ServerFixture {
    fn drop(&mut self) {
        self.runtime.block_on(self.handle.stop());
        assert!(!self.socket.exists(), "the socket is removed");
    }
}

/// A client that sends JSON-RPC by hand.
struct Client<S = UnixStream> {
    stream: S,
    received: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    fn send(&mut self, message: &Value) {
        self.stream.write_all(message.to_string().as_bytes()).unwrap();
    }

    /// Returns the next message, or `None` at the end of the connection.
    fn receive(&mut self) -> Option<Value> {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.received).into_iter();
            if let Some(Ok(value)) = values.next() {
                let length = values.byte_offset();
                self.received.drain(..length);
                return Some(value);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.received.extend_from_slice(&bytes[..count]),
                _ => return None,
            }
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({"id": "call", "method": method, "params": params}));
        self.receive().unwrap()
    }

    fn transact(&mut self, operations: Value) -> Value {
        let Value::Array(mut params) = operations else { panic!("not a list") };
        params.insert(0, "Open_vSwitch".into());
        self.call("transact", &params.into())["result"].clone()
    }
}

#[test]
fn garbage_ends_only_its_connection() {
    let fixture =
        ServerFixture::new(ServerLimits { message_bytes: 1000, ..ServerLimits::default() });
    let mut healthy = fixture.connect();
    let deep = format!("{{\"a\":{}", "[".repeat(200));
    let long = format!("{{\"a\":\"{}", "x".repeat(2000));
    for garbage in ["x", "{]", "[]", "{}", "{\"id\":1,\"method\":1,\"params\":[]}", &deep, &long] {
        let mut client = fixture.connect();
        client.stream.write_all(garbage.as_bytes()).unwrap();
        assert_eq!(client.receive(), None, "{garbage}");
        assert_eq!(healthy.call("echo", &json!([1]))["result"], json!([1]));
    }
}

/// An address with a port that the system chooses.
const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// Times with a probe after a few milliseconds.
const SHORT_PROBES: RemoteTimes = RemoteTimes {
    probe_interval: Some(Duration::from_millis(5)),
    backoff_max: Duration::from_millis(5),
};

impl ServerFixture {
    fn listen(&self, address: SocketAddr, times: RemoteTimes) -> std::io::Result<ServerRemote> {
        let _runtime = self.runtime.enter();
        self.handle.listen_tcp(TcpListener::bind(address)?, RemoteTransport::Tcp, times)
    }

    fn connect_to(&self, listener: &TcpListener, times: RemoteTimes) -> ServerRemote {
        let _runtime = self.runtime.enter();
        self.handle.connect_tcp(listener.local_addr().unwrap(), RemoteTransport::Tcp, times)
    }
}

#[test]
fn tcp_port_serves_clients_until_closed() {
    let fixture = ServerFixture::new(ServerLimits::default());
    let remote = fixture.listen(ANY_PORT.into(), RemoteTimes::default()).unwrap();
    let address = remote.address();
    assert!(fixture.listen(address, RemoteTimes::default()).is_err(), "the port is in use");
    let stream = TcpStream::connect(address).unwrap();
    let mut client = Client { stream, received: Vec::new() };
    assert_eq!(client.call("list_dbs", &json!([]))["result"], json!(["Open_vSwitch", "_Server"]));
    assert_eq!(remote.status().connections, 1);
    fixture.runtime.block_on(remote.close());
    // The port is free at once, though the session may end a moment later.
    let next = fixture.listen(address, RemoteTimes::default()).unwrap();
    assert_eq!(client.receive(), None, "the session has ended");
    assert_eq!(next.status().connections, 0);
    // Other sockets go on.
    assert_eq!(fixture.connect().call("echo", &json!([1]))["result"], json!([1]));
}

#[test]
fn a_server_connects_to_its_client_again() {
    let fixture = ServerFixture::new(ServerLimits::default());
    let listener = TcpListener::bind(SocketAddr::from(ANY_PORT)).unwrap();
    let remote = fixture.connect_to(&listener, SHORT_PROBES);
    remote.set_times(RemoteTimes { probe_interval: None, ..SHORT_PROBES });
    for number in 0..3 {
        let (stream, _) = listener.accept().unwrap();
        let mut client = Client { stream, received: Vec::new() };
        // The first session may have begun before the times changed.
        let mut answer = client.call("echo", &json!([1]));
        while answer["method"] == "echo" {
            answer = client.receive().unwrap();
        }
        assert_eq!(answer["result"], json!([1]));
        let status = remote.status();
        assert_eq!((status.connections, status.last_error, status.is_connecting), (1, None, false));
        assert_eq!(
            (status.since_connect.is_some(), status.since_disconnect.is_some()),
            (true, number > 0)
        );
    }
    let (stream, _) = listener.accept().unwrap();
    drop(remote);
    let mut client = Client { stream, received: Vec::new() };
    assert_eq!(client.receive(), None);
}

/// A host that loses its power closes no connection.
#[test]
fn a_client_without_probe_replies_is_disconnected() {
    let fixture = ServerFixture::new(ServerLimits::default());
    let listener = TcpListener::bind(SocketAddr::from(ANY_PORT)).unwrap();
    let remote = fixture.connect_to(&listener, SHORT_PROBES);
    let (stream, _) = listener.accept().unwrap();
    let mut silent = Client { stream, received: Vec::new() };
    let probe = silent.receive().unwrap();
    assert_eq!(probe, json!({"id": "echo", "method": "echo", "params": []}));
    assert_eq!(silent.receive(), None);
    // The server connects again, and its status has the reason meanwhile.
    let (stream, _) = listener.accept().unwrap();
    drop(stream);
    let listening = fixture.listen(ANY_PORT.into(), SHORT_PROBES).unwrap();
    let stream = TcpStream::connect(listening.address()).unwrap();
    let mut silent = Client { stream, received: Vec::new() };
    assert_eq!(silent.receive().unwrap()["method"], "echo");
    assert_eq!(silent.receive(), None);
    while listening.status().connections > 0 {
        std::thread::yield_now();
    }
    let reason = listening.status().last_error.unwrap();
    assert_eq!(reason, "no answer to an inactivity probe within 0.005 s");
    drop(remote);
}

#[test]
fn a_slow_reader_is_disconnected() {
    let fixture =
        ServerFixture::new(ServerLimits { queued_bytes: 100_000, ..ServerLimits::default() });
    let mut healthy = fixture.connect();
    let mut slow = fixture.connect();
    slow.call("monitor", &json!(["Open_vSwitch", 1, {"QoS": {}}]));
    healthy.transact(json!([{"op": "insert", "table": "QoS", "row": {"type": "a"}}]));
    let text = "x".repeat(10_000);
    for number in 0..200 {
        let row = json!({"type": format!("{number}{text}")});
        let update = json!([{"op": "update", "table": "QoS", "where": [], "row": row}]);
        assert_eq!(healthy.transact(update)[0]["count"], 1);
    }
    // The slow reader gets a part of the updates, and is then disconnected.
    let mut received = 0;
    while slow.receive().is_some() {
        received += 1;
    }
    assert!(received < 150, "{received}");
}

#[test]
fn new_client_gets_place_of_idle_one() {
    let fixture = ServerFixture::new(ServerLimits { clients: 3, ..ServerLimits::default() });
    let [mut locker, mut older, mut newer] =
        [fixture.connect(), fixture.connect(), fixture.connect()];
    locker.call("lock", &json!(["l"]));
    older.call("echo", &json!([]));
    newer.call("echo", &json!([]));
    let mut monitoring = fixture.connect();
    monitoring.call("monitor", &json!(["Open_vSwitch", 1, {"QoS": {}}]));
    assert_eq!(older.receive(), None);
    newer.call("lock", &json!(["other"]));

    // No client is idle now, so the new client is refused.
    assert_eq!(fixture.connect().receive(), None);
    for client in [&mut locker, &mut newer, &mut monitoring] {
        assert_eq!(client.call("echo", &json!([1]))["result"], json!([1]));
    }
}

/// A client with a monitor stays connected, and a new client is served.
#[test]
fn half_open_connections_keep_nobody_out() {
    let fixture = ServerFixture::new(ServerLimits { clients: 64, ..ServerLimits::default() });
    let mut monitoring = fixture.connect();
    monitoring.call("monitor", &json!(["Open_vSwitch", 1, {"QoS": {}}]));
    let mut half_open = VecDeque::new();
    for _ in 0..10_000 {
        let mut client = fixture.connect();
        // The server may close a connection at any time.
        let _ = client.stream.write_all(br#"{"method":"ec"#);
        half_open.push_back(client);
        if half_open.len() > 128 {
            half_open.pop_front();
        }
    }
    assert_eq!(fixture.connect().call("echo", &json!([1]))["result"], json!([1]));
    assert_eq!(monitoring.call("echo", &json!([2]))["result"], json!([2]));
}

#[test]
fn clients_over_tcp_leave_room_for_local_ones() {
    let fixture = ServerFixture::new(ServerLimits { clients: 8, ..ServerLimits::default() });
    let remote = fixture.listen(ANY_PORT.into(), RemoteTimes::WITHOUT_PROBES).unwrap();
    let connect = || {
        let stream = TcpStream::connect(remote.address()).unwrap();
        Client { stream, received: Vec::new() }
    };
    let mut clients: Vec<_> = (0..7).map(|_| connect()).collect();
    for client in &mut clients {
        client.call("monitor", &json!(["Open_vSwitch", 1, {"QoS": {}}]));
    }
    let mut local = fixture.connect();
    assert_eq!(local.call("echo", &json!([1]))["result"], json!([1]));
    assert_eq!(connect().receive(), None, "a local client keeps its place");
    // Among the clients over TCP, an idle one gives its place to a new one.
    clients[0].call("monitor_cancel", &json!([1]));
    assert_eq!(connect().call("echo", &json!([1]))["result"], json!([1]));
    assert_eq!(clients[0].receive(), None);
    assert_eq!(local.call("echo", &json!([1]))["result"], json!([1]));
}

#[test]
fn client_locks_and_bytes_are_limited() {
    let limits = ServerLimits { locks: 2, blocked_bytes: 10_000, ..ServerLimits::default() };
    let fixture = ServerFixture::new(limits);
    let mut client = fixture.connect();
    client.call("lock", &json!(["a"]));
    client.call("steal", &json!(["b"]));
    assert_eq!(client.call("lock", &json!(["c"]))["error"]["error"], "resources exhausted");
    client.call("unlock", &json!(["a"]));
    assert_eq!(client.call("lock", &json!(["c"]))["result"]["locked"], true);
    assert!(client.call("lock", &json!(["x".repeat(256)]))["error"].is_object());

    let wait = |text: &str| {
        json!(["Open_vSwitch", {"op": "wait", "table": "QoS", "where": [], "columns": ["type"],
            "until": "==", "rows": [{"type": text}]}])
    };
    let small = json!({"id": 1, "method": "transact", "params": wait("a")});
    client.send(&small);
    let refused = client.call("transact", &wait(&"x".repeat(10_000)));
    assert_eq!(refused["error"]["error"], "resources exhausted", "{refused}");
}

#[test]
fn locks_pass_from_client_to_client() {
    let fixture = ServerFixture::new(ServerLimits::default());
    let [mut one, mut two, mut three] = [fixture.connect(), fixture.connect(), fixture.connect()];
    assert_eq!(one.call("lock", &json!(["l"]))["result"]["locked"], true);
    assert_eq!(two.call("lock", &json!(["l"]))["result"]["locked"], false);
    assert_eq!(three.call("steal", &json!(["l"]))["result"]["locked"], true);
    assert_eq!(one.receive().unwrap()["method"], "stolen");
    let assert = json!([{"op": "assert", "lock": "l"}]);
    assert_eq!(one.transact(assert.clone())[0]["error"], "not owner");
    assert_eq!(three.transact(assert), json!([{}]));
    drop(three);
    assert_eq!(one.receive().unwrap()["method"], "locked");
    one.call("unlock", &json!(["l"]));
    assert_eq!(two.receive().unwrap()["params"], json!(["l"]));
}

#[test]
fn a_wait_ends_by_a_change_or_timeout() {
    let fixture = ServerFixture::new(ServerLimits::default());
    let [mut waiting, mut writer] = [fixture.connect(), fixture.connect()];
    let wait = |timeout: Value| {
        let mut wait = json!({"op": "wait", "table": "QoS", "where": [], "columns": ["type"],
            "until": "==", "rows": [{"type": "a"}]});
        wait["timeout"] = timeout;
        json!({"id": 1, "method": "transact", "params": ["Open_vSwitch", wait]})
    };
    waiting.send(&wait(json!(20)));
    let reply = waiting.receive().unwrap();
    assert_eq!(reply["result"][0]["error"], "timed out", "{reply}");
    waiting.send(&wait(json!(1_000_000)));
    writer.transact(json!([{"op": "insert", "table": "QoS", "row": {"type": "a"}}]));
    assert_eq!(waiting.receive().unwrap()["result"], json!([{}]));
}

#[test]
fn the_owner_follows_and_answers_clients() {
    let fixture = ServerFixture::new(ServerLimits::default());
    let mut client = fixture.connect();
    let mut changes = fixture.runtime.block_on(fixture.handle.subscribe()).unwrap();
    let insert = json!({"op": "insert", "table": "Open_vSwitch", "row": {"next_cfg": 1}});
    client.transact(json!([insert]));
    let monitor = json!({"Open_vSwitch": {"columns": ["cur_cfg"], "select": {"initial": false}}});
    client.call("monitor", &json!(["Open_vSwitch", 1, monitor]));
    fixture.runtime.block_on(async {
        let change = changes.next().await.unwrap();
        let root = change.snapshot.rows("Open_vSwitch").next().unwrap();
        assert_eq!(change.rows[0].uuid, root.uuid());
        let mut transaction = fixture.handle.transaction("applied");
        transaction.update("Open_vSwitch", root.uuid(), [("cur_cfg", Datum::integer(1))]);
        let key = |key: &str| Atom::String(key.into());
        let entry = Datum::map([(key("a"), key("b"))]);
        transaction.insert_members("Open_vSwitch", root.uuid(), [("statistics", entry)]);
        fixture.handle.transact(transaction).await.unwrap();
    });
    let update = client.receive().unwrap();
    assert_eq!(update["method"], "update");
    assert!(update.to_string().contains("\"cur_cfg\":1"), "{update}");
    // A transaction with a value of another type is refused as a whole.
    let snapshot = fixture.runtime.block_on(fixture.handle.snapshot()).unwrap();
    let root = snapshot.rows("Open_vSwitch").next().unwrap().uuid();
    let mut transaction = fixture.handle.transaction("wrong");
    transaction.update("Open_vSwitch", root, [("cur_cfg", Datum::string("x"))]);
    fixture.runtime.block_on(fixture.handle.transact(transaction)).unwrap_err();
}
