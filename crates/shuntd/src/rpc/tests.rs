//! Tests of the control socket.

use super::*;
use crate::connection_places::ConnectionPlaces;

/// Methods that reply with their parameters.
struct Echo;

impl Methods for Echo {
    fn is_change(&self, _: &str) -> bool {
        true
    }

    async fn call(&self, method: &str, parameters: Vec<String>) -> Result<String, String> {
        match method {
            "echo" => Ok(parameters.join(" ")),
            _ => Err(format!("\"{method}\" is not a valid command")),
        }
    }
}

/// Sends requests; returns the replies.
async fn exchange(requests: &[&[u8]]) -> String {
    let (mut client, server) = UnixStream::pair().unwrap();
    let place = ConnectionPlaces::new(1, None).insert().unwrap();
    let serving = tokio::spawn(serve(server, Arc::new(Echo), place));
    for request in requests {
        // The server may have closed the connection already, but its earlier reply can still be
        // read.
        let _ = client.write_all(request).await;
        tokio::task::yield_now().await;
    }
    let _ = client.shutdown().await;
    let mut replies = String::new();
    let _ = client.read_to_string(&mut replies).await;
    serving.await.unwrap();
    replies
}

/// `ovs-appctl --format json` sends its choice of a format first.
#[tokio::test]
async fn a_client_chooses_json_replies() {
    let replies = exchange(&[
        br#"{"method": "set-options", "params": ["--format", "json"], "id": 1}"#,
        br#"{"method": "echo", "params": ["a"], "id": 2}"#,
        br#"{"method": "no/such", "params": [], "id": 3}"#,
        br#"{"method": "set-options", "params": ["--format", "xml"], "id": 4}"#,
        br#"{"method": "set-options", "params": ["--format=text"], "id": 5}"#,
        br#"{"method": "echo", "params": ["a"], "id": 6}"#,
    ])
    .await;
    let replies: Vec<Value> =
        serde_json::Deserializer::from_str(&replies).into_iter().collect::<Result<_, _>>().unwrap();
    let plain = |text: &str| json!({"reply-format": "plain", "reply": text});
    let results: Vec<_> = replies.iter().map(|reply| reply["result"].clone()).collect();
    let null = Value::Null;
    assert_eq!(results, [plain(""), plain("a\n"), null.clone(), null, json!(""), json!("a\n")]);
    let error = replies[3]["error"].as_str().unwrap();
    assert!(error.contains("--format xml") && error.contains("--format json"), "{error}");
}

#[test]
fn a_user_can_interrupt_a_call() {
    let (stream, _silent_daemon) = BlockingStream::pair().unwrap();
    let mut client =
        RpcClient { stream, replies: Objects::default(), calls: 0, waits_longer: None };
    client.ask_while_waiting(|| false).unwrap();
    assert!(matches!(client.call("shunt/show", &[]), Err(CallError::Interrupted)));
}

#[tokio::test]
async fn a_client_that_loses_its_place_learns_why() {
    let places = ConnectionPlaces::new(1, None);
    let (client, server) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(server, Arc::new(Echo), places.insert().unwrap()));
    let _newcomer = places.insert().unwrap();
    serving.await.unwrap();
    let stream = client.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut client =
        RpcClient { stream, replies: Objects::default(), calls: 0, waits_longer: None };
    let Err(CallError::NotServed(reason)) = client.call("echo", &[]) else { panic!("closed") };
    assert!(reason.starts_with("connection closed: 64 other clients"), "{reason}");
    assert!(reason.ends_with(": connect again"), "{reason}");
}

/// Otherwise clients that never read would keep all others out.
#[tokio::test]
async fn a_client_that_does_not_read_makes_room() {
    let places = ConnectionPlaces::new(1, None);
    let (mut client, server) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(server, Arc::new(Echo), places.insert().unwrap()));
    // The buffer of the socket does not hold the reply.
    let text = "a".repeat(REQUEST_BYTES_MAX - 100);
    let request = json!({"method": "echo", "params": [text], "id": 0}).to_string();
    client.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(places.insert().is_some(), "the client without a read has kept its place");
    serving.await.unwrap();
    let mut replies = String::new();
    client.read_to_string(&mut replies).await.unwrap();
    assert!(!replies.contains("connection closed"), "a reason within the reply");
}

#[tokio::test]
async fn a_refused_client_learns_the_limit() {
    let (client, server) = UnixStream::pair().unwrap();
    refuse_new(server);
    let stream = client.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut client =
        RpcClient { stream, replies: Objects::default(), calls: 0, waits_longer: None };
    let Err(CallError::NotServed(reason)) = client.call("echo", &[]) else { panic!("served") };
    assert!(reason.contains("64 clients have a request that is not answered yet"), "{reason}");
    assert!(reason.contains("try again later"), "{reason}");
}

#[tokio::test]
async fn two_requests_in_one_write_get_two_replies() {
    let replies = exchange(&[
        br#"{"method":"echo","params":["a","b"],"id":0}{"method":"echo","params":[],"id":1}"#,
    ])
    .await;
    assert_eq!(
        replies,
        r#"{"error":null,"id":0,"result":"a b\n"}{"error":null,"id":1,"result":""}"#
    );
}

#[tokio::test]
async fn a_request_may_arrive_in_several_reads() {
    let replies = exchange(&[br#"{"method":"ec"#, br#"ho","params":["x"],"id":7}"#]).await;
    assert_eq!(replies, r#"{"error":null,"id":7,"result":"x\n"}"#);
}

#[test]
fn a_request_in_single_bytes_costs_linear_time() {
    let text =
        "{\"method\":\"\\\\\",\"params\":[\"".to_owned() + &"}\\\"]{".repeat(50_000) + "\"]}";
    let mut objects = Objects::default();
    let mut found = None;
    for byte in text.bytes() {
        assert!(found.is_none(), "the object has not ended yet");
        objects.bytes.push(byte);
        if let ParsedObject::Value(value) = objects.next() {
            found = Some(value);
        }
    }
    assert_eq!(found, serde_json::from_str(&text).ok());
    assert!(found.is_some());
}

#[test]
fn many_short_requests_at_once_are_all_taken() {
    let mut objects = Objects { bytes: b" {}\n".repeat(100_000), ..Objects::default() };
    let count = std::iter::from_fn(|| match objects.next() {
        ParsedObject::Value(value) => Some(value),
        ParsedObject::Incomplete | ParsedObject::Garbage => None,
    });
    assert_eq!(count.count(), 100_000);
    assert!(matches!(objects.next(), ParsedObject::Incomplete) && objects.bytes.is_empty());
}

#[test]
fn mismatched_brackets_are_garbage() {
    for text in ["{]", "{\"a\":[}}", "]", "{{}}"] {
        let mut objects = Objects { bytes: text.into(), ..Objects::default() };
        assert!(matches!(objects.next(), ParsedObject::Garbage), "{text}");
    }
}

#[tokio::test]
async fn a_failure_has_no_result_member() {
    let replies = exchange(&[br#"{"method":"nosuch","params":[],"id":0}"#]).await;
    assert_eq!(replies, "{\"error\":\"\\\"nosuch\\\" is not a valid command\\n\",\"id\":0}");
}

#[tokio::test]
async fn garbage_ends_the_connection_without_a_reply() {
    assert_eq!(exchange(&[b"}{ nonsense"]).await, "");
    assert_eq!(exchange(&[b"1"]).await, "");
    assert_eq!(exchange(&[b"{\"", &vec![b'a'; REQUEST_BYTES_MAX]]).await, "");
}

#[tokio::test]
async fn params_that_are_not_strings_are_refused() {
    let replies = exchange(&[
        br#"{"method":"echo","params":[1],"id":0}"#,
        br#"{"method":"echo","params":["y"],"id":1}"#,
    ])
    .await;
    assert!(replies.contains("`params` that are strings"), "{replies}");
    assert!(replies.ends_with(r#"{"error":null,"id":1,"result":"y\n"}"#), "{replies}");
}
