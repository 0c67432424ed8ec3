//! Functions for fuzz targets, which accept any bytes and check properties that always hold.

#![expect(clippy::expect_used, reason = "a panic is a finding of the fuzzer")]

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    client::{FollowedTable, OvsdbClientConfig, OvsdbClientError, OvsdbRemote, ReplicaSession},
    database::Database,
    framing::JsonFramer,
    log::{RecordReader, encode_record},
    schema,
    server::{ClientId, ClientMessage, Outbox, ServerClock, ServerConfig, ServerCore},
};

/// Sends any bytes as a client, in chunks of the length in the first byte.
///
/// Each request gets one reply with its id, or waits. Invalid bytes end only this session.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_messages(data: &[u8]) {
    let Some((length, stream)) = data.split_first() else { return };
    let mut core = core();
    let (client, other) = (ClientId(1), ClientId(2));
    let mut queues = [client, other].map(|client| {
        let (outbox, queue) = Outbox::new(1 << 20);
        let (end, ended) = oneshot::channel();
        core.connect(client, outbox, end);
        (queue, ended)
    });
    let mut framer = JsonFramer::new(1 << 16);
    'stream: for chunk in stream.chunks(usize::from(*length).max(1)) {
        framer.push(chunk);
        loop {
            let parse = |text: &[u8]| {
                let message = ClientMessage::parse(text);
                let whole: Option<Value> = serde_json::from_slice(text).ok();
                let found = message.as_ref().ok().cloned().map(ClientMessage::into_json);
                assert_eq!(found, whole);
                message
            };
            match framer.next_with(parse) {
                Ok(Some((message, _))) => core.receive_message(client, message),
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
    }
    core.expire();
    core.receive(other, json!({"id": 0, "method": "echo", "params": []}));
    let [(first, _), (second, _)] = &mut queues;
    while let Some(message) = first.try_next() {
        check_message(&message);
    }
    let mut last = None;
    while let Some(message) = second.try_next() {
        last = Some(check_message(&message));
    }
    let echo = last.expect("another client still gets replies");
    assert_eq!(echo.get("id"), Some(&Value::from(0)));
}

/// Sends any bytes as a server, after some valid replies.
///
/// The first byte of the input selects the number of valid replies.
///
/// Every row then has values of the types of its columns, and the client follows a correct server
/// afterwards.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_replies(data: &[u8]) {
    let Some((replies, stream)) = data.split_first() else { return };
    let mut session = ReplicaSession::new(Arc::new(client_config()));
    session.connected();
    for request in session.take_outgoing().into_iter().take(usize::from(*replies % 4)) {
        session.receive(reply_to(&request)).expect("the client accepts a valid reply");
    }
    for request in session.take_outgoing().into_iter().take(usize::from(*replies / 4 % 2)) {
        session.receive(reply_to(&request)).expect("the client accepts a valid reply");
    }
    let mut framer = JsonFramer::new(1 << 16);
    framer.push(stream);
    let error = loop {
        let message = match framer.next_message() {
            Ok(Some((message, _))) => message,
            Ok(None) => break OvsdbClientError::Closed,
            Err(error) => break error.into(),
        };
        if let Err(error) = session.receive(message) {
            break error;
        }
    };
    if let Some(rows) = session.state().rows {
        for table in rows.schema().tables() {
            for (row, column) in rows
                .rows(table.name())
                .flat_map(|row| table.columns().iter().map(move |column| (row, column)))
            {
                let value = row.value(column.name()).expect("a row has all columns");
                value.check(column.kind()).expect("a value has the type of its column");
            }
        }
    }
    session.disconnected(Some(&error));
    session.connected();
    for _ in 0..2 {
        for request in session.take_outgoing() {
            session.receive(reply_to(&request)).expect("the client accepts a valid reply");
        }
    }
    let state = session.state();
    assert!(state.is_writable());
    let rows = state.rows.expect("the server has sent rows");
    let names: Vec<_> = rows.rows("Bridge").filter_map(|row| row.string("name")).collect();
    assert_eq!(names, ["br0"]);
}

/// Returns settings of a client of `Open_vSwitch`.
pub(crate) fn client_config() -> OvsdbClientConfig {
    let tables = vec![
        FollowedTable { name: "Bridge", read: &["name", "ports"], written: &["datapath_id"] },
        FollowedTable {
            name: "Port",
            read: &["interfaces", "name", "other_config", "tag", "trunks"],
            written: &[],
        },
    ];
    let remote = OvsdbRemote::Unix("/nowhere".into());
    let mut config = OvsdbClientConfig::new(remote, "Open_vSwitch", tables);
    config.lock = Some("lock".to_owned());
    config
}

/// Returns the reply of a server with one bridge.
pub(crate) fn reply_to(request: &Value) -> Value {
    let result = match request.get("method").and_then(Value::as_str) {
        Some("get_schema") => schema::open_vswitch().to_json(),
        Some("lock") => json!({"locked": true}),
        _ => {
            let row = json!({"initial": {"name": "br0"}});
            let uuid = "00000000-0000-4000-8000-000000000001";
            json!([false, "00000000-0000-4000-8000-000000000002", {"Bridge": {uuid: row}}])
        }
    };
    json!({"id": request.get("id"), "result": result, "error": null})
}

/// Reads any bytes as a log.
///
/// Complete records survive another encoding, and an error is reported at the start of its record.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_log(data: &[u8]) {
    let mut reader = RecordReader::new(data);
    loop {
        let before = reader.offset();
        match reader.next_record() {
            Ok(None) => break,
            Ok(Some(record)) => {
                assert!(reader.offset() > before);
                let bytes = encode_record(&record);
                let again = RecordReader::new(&bytes).next_record();
                assert_eq!(again, Ok(Some(record)));
            }
            Err(error) => {
                assert_eq!(reader.offset(), before, "{error}");
                break;
            }
        }
    }
    let first = encode_record(&schema::open_vswitch().to_json());
    for bytes in [data, &[first.as_slice(), data].concat()] {
        let mut database = Database::new(schema::open_vswitch(), [0; 20]);
        if let Ok(read) = crate::log::replay(&mut database, bytes) {
            assert!(usize::try_from(read.length).is_ok_and(|length| length <= bytes.len()));
        }
    }
}

/// Creates a server without a log, with a clock that stands still.
#[must_use]
pub fn core() -> ServerCore {
    let clock = ServerClock { monotonic: || Duration::ZERO, date: || Duration::ZERO };
    let database = Database::new(schema::open_vswitch(), [1; 20]);
    ServerCore::new(database, None, ServerConfig::default().limits, clock, [2; 20])
}

/// Parses a message of the server. Panics if it is neither reply nor request.
fn check_message(bytes: &[u8]) -> Value {
    let message: Value = serde_json::from_slice(bytes).expect("the server writes JSON");
    assert!(message.get("id").is_some(), "{message}");
    let is_reply = message.get("result").is_some()
        != message.get("error").is_some_and(|error| !error.is_null());
    assert!(is_reply || message.get("method").is_some(), "{message}");
    message
}
