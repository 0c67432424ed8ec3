//! The control socket: the JSON-RPC 1.0 of `ovs-appctl`, both ends.
//!
//! Requests and replies are JSON objects that follow one another without framing. A request is
//! `{"method": .., "params": [text, ..], "id": ..}`; its reply carries the same id and either a
//! `result` text or an `error` text, never both.

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
    let mut buffer = Vec::new();
    loop {
        match next_value(&mut buffer) {
            Parsed::Value(request) => {
                let reply = answer(&*methods, &request).await;
                if stream.write_all(reply.to_string().as_bytes()).await.is_err() {
                    return;
                }
            }
            Parsed::Garbage => return,
            Parsed::Incomplete if buffer.len() > REQUEST_BYTES_MAX => return,
            Parsed::Incomplete => match stream.read_buf(&mut buffer).await {
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

/// Takes the first whole JSON object off the front of `buffer`.
pub(crate) fn next_value(buffer: &mut Vec<u8>) -> Parsed {
    // Of other values one cannot tell where they end: `1` may be the beginning of `12`.
    if buffer.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Parsed::Garbage;
    }
    let mut values = serde_json::Deserializer::from_slice(buffer).into_iter::<Value>();
    match values.next() {
        None => Parsed::Incomplete,
        Some(Ok(value)) => {
            let used = values.byte_offset();
            buffer.drain(..used);
            Parsed::Value(value)
        }
        Some(Err(error)) if error.is_eof() => Parsed::Incomplete,
        Some(Err(_)) => Parsed::Garbage,
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
    buffer: Vec<u8>,
    calls: u64,
}

impl Client {
    /// Connects to a daemon's control socket.
    pub(crate) fn connect(path: &Path) -> Result<Self, CallError> {
        let stream = BlockingStream::connect(path).map_err(|source| CallError::Unreachable {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Self { stream, buffer: Vec::new(), calls: 0 })
    }

    /// Calls a method and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, parameters: &[&str]) -> Result<String, CallError> {
        self.calls += 1;
        let request = json!({"method": method, "params": parameters, "id": self.calls});
        let sent = self.stream.write_all(request.to_string().as_bytes());
        sent.map_err(|_| CallError::Broken)?;
        let reply = self.reply()?;
        if let Some(error) = reply["error"].as_str() {
            return Err(CallError::Refused(error.trim_end().to_owned()));
        }
        reply["result"].as_str().map(str::to_owned).ok_or(CallError::Broken)
    }

    fn reply(&mut self) -> Result<Value, CallError> {
        let mut chunk = [0; 65536];
        loop {
            match next_value(&mut self.buffer) {
                Parsed::Value(value) => return Ok(value),
                Parsed::Garbage => return Err(CallError::Broken),
                Parsed::Incomplete => {}
            }
            let count = self.stream.read(&mut chunk).map_err(|_| CallError::Broken)?;
            if count == 0 {
                return Err(CallError::Broken);
            }
            self.buffer.extend_from_slice(&chunk[..count]);
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
