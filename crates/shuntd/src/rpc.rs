//! The control socket: the JSON-RPC 1.0 of `ovs-appctl`, both ends.
//!
//! Requests and replies are JSON objects that follow one another without framing. A request is
//! `{"method": .., "params": [text, ..], "id": ..}`; its reply carries the same id and either a
//! `result` text or an `error` text, never both.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream as BlockingStream,
    path::Path,
    sync::Arc,
};

use serde_json::{Value, json};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// Longest request: a packet of 64 KiB in hexadecimal, and room.
const REQUEST_BYTES_MAX: usize = 1 << 18;

/// What answers requests.
pub(crate) trait Methods: Send + Sync + 'static {
    /// Runs a method. Both texts are for people; an error needs no full stop or newline.
    fn call(
        &self,
        method: &str,
        parameters: Vec<String>,
    ) -> impl Future<Output = Result<String, String>> + Send;
}

/// Serves one connection until it closes or sends what is not JSON-RPC.
pub(crate) async fn serve(mut stream: UnixStream, methods: Arc<impl Methods>) {
    let mut objects = Objects::default();
    loop {
        match objects.next() {
            Parsed::Value(request) => {
                let reply = answer(&*methods, &request).await;
                if stream.write_all(reply.to_string().as_bytes()).await.is_err() {
                    return;
                }
            }
            Parsed::Garbage => return,
            Parsed::Incomplete if objects.bytes.len() > REQUEST_BYTES_MAX => return,
            Parsed::Incomplete => match stream.read_buf(&mut objects.bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
        }
    }
}

/// What stands at the front of a stream.
pub(crate) enum Parsed {
    /// A whole object.
    Value(Value),
    /// The beginning of one.
    Incomplete,
    /// Neither.
    Garbage,
}

/// The JSON objects of a stream, which follow one another without framing.
///
/// Every byte is looked at once, however the stream is cut into pieces, and an object is parsed when
/// the whole of it is there.
#[derive(Default)]
pub(crate) struct Objects {
    /// What has arrived and is not parsed: whoever reads the stream appends to it, after
    /// [`Parsed::Incomplete`].
    pub(crate) bytes: Vec<u8>,
    /// Where the object begins that is looked at.
    start: usize,
    /// What was looked at.
    seen: usize,
    /// How many braces and brackets are open.
    depth: usize,
    /// Where in a text the last byte was.
    text: Text,
}

/// Whether a byte of JSON is part of a text.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// Behind a backslash: the next byte does not end the text.
    Escaped,
}

impl Objects {
    /// Takes the first whole object off the front.
    pub(crate) fn next(&mut self) -> Parsed {
        while let Some(byte) = self.bytes.get(self.seen).copied() {
            self.seen = self.seen.saturating_add(1);
            if self.depth == 0 && byte.is_ascii_whitespace() {
                self.start = self.seen;
                continue;
            }
            // Of other values one cannot tell where they end: `1` may be the beginning of `12`.
            if self.depth == 0 && byte != b'{' {
                return Parsed::Garbage;
            }
            self.step(byte);
            if self.depth == 0 {
                let object = self.bytes.get(self.start..self.seen).unwrap_or_default();
                let object = serde_json::from_slice(object);
                self.start = self.seen;
                return object.map_or(Parsed::Garbage, Parsed::Value);
            }
        }
        // What was taken is forgotten once for every read, and not for every object.
        self.bytes.drain(..self.start);
        self.seen = self.seen.saturating_sub(self.start);
        self.start = 0;
        Parsed::Incomplete
    }

    const fn step(&mut self, byte: u8) {
        self.text = match (self.text, byte) {
            (Text::Outside, b'"') | (Text::Escaped, _) => Text::Inside,
            (Text::Outside, b'{' | b'[') => {
                self.depth = self.depth.saturating_add(1);
                Text::Outside
            }
            (Text::Outside, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                Text::Outside
            }
            (Text::Inside, b'\\') => Text::Escaped,
            (Text::Inside, b'"') => Text::Outside,
            (text, _) => text,
        };
    }
}

/// The reply to a request.
pub(crate) async fn answer(methods: &impl Methods, request: &Value) -> Value {
    let id = &request["id"];
    let result = match (request["method"].as_str(), texts(&request["params"])) {
        (Some(method), Some(parameters)) => methods.call(method, parameters).await,
        _ => Err("a request has a method, and params that are texts".to_owned()),
    };
    match result {
        Ok(text) => json!({"id": id, "result": ended(text), "error": null}),
        // Open vSwitch leaves the result out of a failure, and `ovs-appctl` minds a null there.
        Err(text) => json!({"id": id, "error": ended(text)}),
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    if value.is_null() {
        return Some(Vec::new());
    }
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Why a call came to nothing.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// No daemon says that it is there.
    #[error("no daemon runs in {folder}: {why}")]
    NoDaemon {
        /// The run directory.
        folder: String,
        /// What is missing.
        why: String,
    },
    /// Nobody listens.
    #[error("no daemon answers at {path}: {source}")]
    Unreachable {
        /// The socket.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The connection broke, or what came is no reply.
    #[error("the daemon closed the connection without a reply")]
    Broken,
    /// The daemon refused.
    #[error("{0}")]
    Refused(String),
}

/// A client's end of the control socket.
pub(crate) struct Client {
    stream: BlockingStream,
    replies: Objects,
    calls: u64,
}

impl Client {
    /// Connects to a daemon's control socket.
    pub(crate) fn connect(path: &Path) -> Result<Self, CallError> {
        let stream = BlockingStream::connect(path).map_err(|source| CallError::Unreachable {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Self { stream, replies: Objects::default(), calls: 0 })
    }

    /// Calls a method and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, parameters: &[&str]) -> Result<String, CallError> {
        self.calls = self.calls.wrapping_add(1);
        let request = json!({"method": method, "params": parameters, "id": self.calls});
        let sent = self.stream.write_all(request.to_string().as_bytes());
        sent.map_err(|_| CallError::Broken)?;
        let reply = self.reply()?;
        if let Some(error) = reply.get("error").and_then(Value::as_str) {
            return Err(CallError::Refused(error.trim_end().to_owned()));
        }
        let result = reply.get("result").and_then(Value::as_str);
        result.map(str::to_owned).ok_or(CallError::Broken)
    }

    fn reply(&mut self) -> Result<Value, CallError> {
        let mut chunk = [0; 65536];
        loop {
            match self.replies.next() {
                Parsed::Value(value) => return Ok(value),
                Parsed::Garbage => return Err(CallError::Broken),
                Parsed::Incomplete => {}
            }
            let count = self.stream.read(&mut chunk).map_err(|_| CallError::Broken)?;
            if count == 0 {
                return Err(CallError::Broken);
            }
            self.replies.bytes.extend_from_slice(chunk.get(..count).unwrap_or(&chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Methods for Echo {
        async fn call(&self, method: &str, parameters: Vec<String>) -> Result<String, String> {
            match method {
                "echo" => Ok(parameters.join(" ")),
                _ => Err(format!("\"{method}\" is not a valid command")),
            }
        }
    }

    async fn exchange(requests: &[&[u8]]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        let serving = tokio::spawn(serve(server, Arc::new(Echo)));
        for request in requests {
            // The server may have closed by now: what it said before is what counts.
            let _ = client.write_all(request).await;
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
        let mut replies = String::new();
        let _ = client.read_to_string(&mut replies).await;
        serving.await.unwrap();
        replies
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
    async fn a_request_may_come_in_pieces() {
        let replies = exchange(&[br#"{"method":"ec"#, br#"ho","params":["x"],"id":7}"#]).await;
        assert_eq!(replies, r#"{"error":null,"id":7,"result":"x\n"}"#);
    }

    #[test]
    fn a_long_request_byte_by_byte_costs_no_more_than_at_once() {
        let text =
            "{\"method\":\"\\\\\",\"params\":[\"".to_owned() + &"}\\\"]{".repeat(50_000) + "\"]}";
        let mut objects = Objects::default();
        let mut found = None;
        for byte in text.bytes() {
            assert!(found.is_none(), "the object has not ended yet");
            objects.bytes.push(byte);
            if let Parsed::Value(value) = objects.next() {
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
            Parsed::Value(value) => Some(value),
            Parsed::Incomplete | Parsed::Garbage => None,
        });
        assert_eq!(count.count(), 100_000);
        assert!(matches!(objects.next(), Parsed::Incomplete) && objects.bytes.is_empty());
    }

    #[test]
    fn what_is_open_and_closed_by_another_sign_is_garbage() {
        for text in ["{]", "{\"a\":[}}", "]", "{{}}"] {
            let mut objects = Objects { bytes: text.into(), ..Objects::default() };
            assert!(matches!(objects.next(), Parsed::Garbage), "{text}");
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
    async fn params_that_are_no_texts_are_refused_and_the_connection_lives() {
        let replies = exchange(&[
            br#"{"method":"echo","params":[1],"id":0}"#,
            br#"{"method":"echo","params":["y"],"id":1}"#,
        ])
        .await;
        assert!(replies.contains("params that are texts"), "{replies}");
        assert!(replies.ends_with(r#"{"error":null,"id":1,"result":"y\n"}"#), "{replies}");
    }
}
