//! Tests of the client over sockets, with servers that restart or break the protocol.

#![expect(clippy::unwrap_used, reason = "a failure of the fixture ends the test")]

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use shunt_ovsdb::{
    JsonFramer, OvsdbHandle, Server, ServerConfig,
    client::{ClientTransactionError, FollowedTable, OvsdbClient, OvsdbClientConfig, OvsdbRemote},
    schema::open_vswitch,
    value::Datum,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
};

fn client(socket: &Path) -> OvsdbClient {
    let table = FollowedTable { name: "Open_vSwitch", read: &["next_cfg"], written: &["cur_cfg"] };
    let remote = OvsdbRemote::Unix(socket.to_owned());
    let mut config = OvsdbClientConfig::new(remote, "Open_vSwitch", vec![table]);
    config.lock = Some("lock".to_owned());
    config.message_bytes = 1 << 20;
    config.reply_time_max = Duration::from_millis(500);
    config.probe_interval = Duration::from_millis(200);
    config.pause_min = Duration::from_millis(1);
    config.pause_max = Duration::from_millis(20);
    OvsdbClient::start(config)
}

fn server(socket: &Path) -> OvsdbHandle {
    let server = Server::open(open_vswitch(), None, ServerConfig::default()).unwrap();
    server.listen(socket).unwrap().start().unwrap()
}

/// Waits for a state of the client; a test that waits in vain times out.
async fn wait(client: &mut OvsdbClient, is_there: impl Fn(&OvsdbClient) -> bool) {
    while !is_there(client) {
        client.changed().await.unwrap();
    }
}

fn next_cfg(client: &OvsdbClient) -> Option<i64> {
    client.state().rows?.rows("Open_vSwitch").next()?.integer("next_cfg")
}

async fn insert(server: &OvsdbHandle, number: i64) {
    let mut transaction = server.transaction("a configuration");
    transaction.insert("Open_vSwitch", [("next_cfg", Datum::integer(number))]);
    server.transact(transaction).await.unwrap();
}

/// Rows stay without a connection, until the rows of the next server replace them.
#[tokio::test]
async fn a_server_that_returns_is_followed_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db.sock");
    let mut client = client(&socket);
    assert_eq!(
        client.transact(client.transaction("too early")).await,
        Err(ClientTransactionError::NotWritable)
    );
    let first = server(&socket);
    insert(&first, 1).await;
    wait(&mut client, |client| next_cfg(client) == Some(1)).await;
    first.stop().await;
    wait(&mut client, |client| !client.state().is_current).await;
    assert_eq!(next_cfg(&client), Some(1));

    let second = server(&socket);
    wait(&mut client, |client| client.state().is_writable()).await;
    assert_eq!(next_cfg(&client), None);
    insert(&second, 2).await;
    wait(&mut client, |client| next_cfg(client) == Some(2)).await;
    client.stop();
    assert_eq!(client.changed().await, Err(ClientTransactionError::Stopped));
    second.stop().await;
}

/// When a transaction returns, the rows of the client have its changes.
#[tokio::test]
async fn transaction_is_in_rows_when_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db.sock");
    let server = server(&socket);
    insert(&server, 1).await;
    let mut client = client(&socket);
    wait(&mut client, |client| client.state().is_writable()).await;
    let root = client.state().rows.unwrap().rows("Open_vSwitch").next().unwrap().uuid();
    for number in 2..20 {
        let mut transaction = client.transaction("applied");
        transaction.update("Open_vSwitch", root, [("cur_cfg", Datum::integer(number))]);
        client.transact(transaction).await.unwrap();
        let rows = client.state().rows.unwrap();
        assert_eq!(rows.row("Open_vSwitch", root).unwrap().integer("cur_cfg"), Some(number));
    }
    let refused = |result: Result<(), ClientTransactionError>, words: &str| {
        let Err(ClientTransactionError::Refused(reason)) = result else { return false };
        reason.contains(words)
    };
    let mut transaction = client.transaction("a second root");
    transaction.insert("Open_vSwitch", []);
    assert!(refused(client.transact(transaction).await, "constraint violation"));
    let mut transaction = client.transaction("a column that is not followed");
    transaction.update("Open_vSwitch", root, [("ovs_version", Datum::string("1"))]);
    assert!(refused(client.transact(transaction).await, "No column ovs_version"));
    client.stop();
    server.stop().await;
}

/// A client disconnects from a server that breaks the protocol.
///
/// The client then follows the next server.
#[tokio::test]
async fn a_bad_server_loses_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("db.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut client = client(&socket);
    let schema = open_vswitch().to_json();
    let long = format!("{{\"a\":\"{}", "x".repeat(2 << 20));
    let bad: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n".to_vec(),
        b"{\"id\":1,\"result\":{\"name\":\"Open_vSwitch\"".to_vec(),
        long.into_bytes(),
        // The server sends nothing, so the probe ends the connection.
        Vec::new(),
    ];
    for bytes in &bad {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(bytes).await.unwrap_or_default();
        if bytes.starts_with(b"{\"id\":1,\"result\":{\"name\":\"Open") {
            // The server closes the connection in the middle of a message.
            continue;
        }
        let mut rest = Vec::new();
        // The client ends the connection, perhaps before it has read all bytes.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(!client.state().is_current);
    }
    // The next server sends valid rows, and then an update of a row that it never sent.
    let (mut stream, _) = listener.accept().await.unwrap();
    serve_rows(&mut stream, &schema).await;
    wait(&mut client, |client| next_cfg(client) == Some(7)).await;
    let row = json!({"00000000-0000-4000-8000-000000000009": {"modify": {"next_cfg": 8}}});
    let params = json!(["shunt", "00000000-0000-4000-8000-000000000001", {"Open_vSwitch": row}]);
    let update = json!({"id": null, "method": "update3", "params": params});
    stream.write_all(update.to_string().as_bytes()).await.unwrap();
    wait(&mut client, |client| !client.state().is_current).await;
    assert_eq!(next_cfg(&client), Some(7));
    client.stop();
}

/// Replies to the requests of a client with one row.
async fn serve_rows(stream: &mut UnixStream, schema: &Value) {
    let mut framer = JsonFramer::new(1 << 20);
    let mut bytes = [0; 4096];
    loop {
        while let Some((request, _)) = framer.next_message().unwrap() {
            let method = request["method"].as_str().unwrap().to_owned();
            let row = json!({"00000000-0000-4000-8000-000000000001": {"initial": {"next_cfg": 7}}});
            let id = "00000000-0000-4000-8000-000000000002";
            let result = match method.as_str() {
                "get_schema" => schema.clone(),
                "lock" => json!({"locked": true}),
                "monitor_cond_since" => json!([false, id, {"Open_vSwitch": row}]),
                _ => json!([]),
            };
            let reply = json!({"id": request["id"], "result": result, "error": null});
            stream.write_all(reply.to_string().as_bytes()).await.unwrap();
            if method == "monitor_cond_since" {
                return;
            }
        }
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0, "the client has closed the connection");
        framer.push(&bytes[..count]);
    }
}
