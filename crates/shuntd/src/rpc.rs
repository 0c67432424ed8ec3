//! The control socket: server and client of the JSON-RPC 1.0 of `ovs-appctl`.
//!
//! Requests and replies are JSON objects that follow each other without framing. A request is
//! `{"method": .., "params": [text, ..], "id": ..}`. The reply has the same id, and either a
//! `result` text or an `error` text.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod reply_format;

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream as BlockingStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use shunt_switch::ControlTask;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

pub(crate) use self::reply_format::ReplyFormat;
use crate::connection_places::ConnectionPlace;

/// Maximum number of clients at a time.
///
/// A further client takes the place of the one that has waited longest without a request.
pub(crate) const CLIENTS_MAX: usize = 64;

/// Maximum length of a request; it permits a packet of 64 KiB in hexadecimal.
const REQUEST_BYTES_MAX: usize = 1 << 18;

/// Handler of the requests of a control socket.
pub(crate) trait Methods: Send + Sync + 'static {
    /// Runs the method of a request.
    ///
    /// The answer and the error are texts for users; an error has no full stop or newline.
    fn call(
        &self,
        method: &str,
        parameters: Vec<String>,
    ) -> impl Future<Output = Result<String, String>> + Send;

    /// Runs a method that has an answer in JSON; `None` if it has only a text.
    fn call_json(
        &self,
        _method: &str,
        _parameters: &[String],
    ) -> impl Future<Output = Option<Result<Value, String>>> + Send {
        std::future::ready(None)
    }

    /// Returns whether a method changes the daemon; calls of such methods are logged.
    fn is_change(&self, method: &str) -> bool;
}

/// Serves one connection until it closes, sends invalid data, or loses its place.
pub(crate) async fn serve(
    mut stream: UnixStream,
    methods: Arc<impl Methods>,
    place: ConnectionPlace,
) {
    let mut progress = ReplyProgress::Sent;
    tokio::select! {
        () = serve_requests(&mut stream, &*methods, &place, &mut progress) => return,
        () = place.wait_for_removal() => {}
    }
    if progress == ReplyProgress::Unread {
        // A reason within the reply would make both unreadable.
        tracing::debug!(
            "control socket: the connection of a client is closed, because it does \
             not read its reply"
        );
        return;
    }
    tracing::debug!(
        "control socket: the connection of a client is closed, because it sent no \
         request"
    );
    refuse(
        stream,
        &format!(
            "connection closed: {CLIENTS_MAX} other clients are connected, the maximum, and this \
             client had waited longest without a request: connect again"
        ),
    );
}

/// The state of the reply to the last request of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplyProgress {
    /// The reply is sent as a whole, or there was no request.
    Sent,
    /// The client has not read the whole reply.
    Unread,
}

/// Refuses a new connection, because all other clients have a request.
pub(crate) fn refuse_new(stream: UnixStream) {
    refuse(
        stream,
        &format!(
            "connection refused: {CLIENTS_MAX} clients have a request that is not answered yet, the \
             maximum: try again later, or end some of these clients (`ss -xp` lists them)"
        ),
    );
}

/// Sends an error without the id of a request, and closes the connection.
fn refuse(stream: UnixStream, error: &str) {
    let reply = json!({"id": null, "error": end_with_newline(error.to_owned())});
    // Nobody waits for a client: the bytes that its buffer does not take are lost.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(reply.to_string().as_bytes());
    }
}

/// Answers requests until the connection closes or sends invalid data.
///
/// A request that has arrived as a whole keeps the place until it is answered. A client that does
/// not read its reply may lose the place.
async fn serve_requests(
    stream: &mut UnixStream,
    methods: &impl Methods,
    place: &ConnectionPlace,
    progress: &mut ReplyProgress,
) {
    let (mut objects, mut format) = (Objects::default(), ReplyFormat::default());
    loop {
        match objects.next() {
            ParsedObject::Value(request) => {
                if !place.note_request() {
                    // The caller sends the reason.
                    std::future::pending::<()>().await;
                }
                log_change(stream, methods, &request);
                let reply = answer(methods, &request, &mut format).await;
                place.note_idle();
                *progress = ReplyProgress::Unread;
                if stream.write_all(reply.to_string().as_bytes()).await.is_err() {
                    return;
                }
                *progress = ReplyProgress::Sent;
            }
            ParsedObject::Garbage => return,
            ParsedObject::Incomplete if objects.bytes.len() > REQUEST_BYTES_MAX => return,
            ParsedObject::Incomplete => {
                place.note_idle();
                match stream.read_buf(&mut objects.bytes).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        }
    }
}

/// Logs a request that changes the daemon, with the process of the client.
fn log_change(stream: &UnixStream, methods: &impl Methods, request: &Value) {
    let method = request["method"].as_str().unwrap_or_default();
    if methods.is_change(method) && tracing::enabled!(tracing::Level::DEBUG) {
        let parameters = parse_texts(&request["params"]).unwrap_or_default().join(" ");
        let peer = stream.peer_cred().ok();
        let pid = peer.and_then(|peer| peer.pid());
        let uid = peer.map(|peer| peer.uid());
        tracing::debug!(pid, uid, "control socket: {method} {parameters}");
    }
}

/// The result of parsing the start of a stream.
pub(crate) enum ParsedObject {
    /// A complete JSON object.
    Value(Value),
    /// The first object is not complete yet.
    Incomplete,
    /// The stream does not start with a JSON object.
    Garbage,
}

/// A parser for JSON objects in a stream without framing.
///
/// Every byte is examined once, and an object is parsed only when it is complete.
#[derive(Default)]
pub(crate) struct Objects {
    /// Received bytes that are not parsed yet.
    ///
    /// After [`ParsedObject::Incomplete`], the reader of the stream appends bytes.
    pub(crate) bytes: Vec<u8>,
    /// Start of the current object in `bytes`.
    start: usize,
    /// Number of examined bytes.
    seen: usize,
    /// Number of open braces and brackets.
    depth: usize,
    /// Position of the last examined byte relative to a string.
    text: StringState,
}

/// The position of a byte of JSON: inside or outside of a string.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum StringState {
    #[default]
    Outside,
    Inside,
    /// After a backslash: the next byte does not end the string.
    Escaped,
}

impl Objects {
    /// Removes and returns the first complete object.
    pub(crate) fn next(&mut self) -> ParsedObject {
        while let Some(byte) = self.bytes.get(self.seen).copied() {
            self.seen = self.seen.saturating_add(1);
            if self.depth == 0 && byte.is_ascii_whitespace() {
                self.start = self.seen;
                continue;
            }
            // Values other than objects have no visible end: `1` may be the beginning of `12`.
            if self.depth == 0 && byte != b'{' {
                return ParsedObject::Garbage;
            }
            self.step(byte);
            if self.depth == 0 {
                let object = self.bytes.get(self.start..self.seen).unwrap_or_default();
                let object = serde_json::from_slice(object);
                self.start = self.seen;
                return object.map_or(ParsedObject::Garbage, ParsedObject::Value);
            }
        }
        // Parsed bytes are removed once for each read, not for each object.
        self.bytes.drain(..self.start);
        self.seen = self.seen.saturating_sub(self.start);
        self.start = 0;
        ParsedObject::Incomplete
    }

    /// Reads one byte, and follows strings and braces.
    const fn step(&mut self, byte: u8) {
        self.text = match (self.text, byte) {
            (StringState::Outside, b'"') | (StringState::Escaped, _) => StringState::Inside,
            (StringState::Outside, b'{' | b'[') => {
                self.depth = self.depth.saturating_add(1);
                StringState::Outside
            }
            (StringState::Outside, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                StringState::Outside
            }
            (StringState::Inside, b'\\') => StringState::Escaped,
            (StringState::Inside, b'"') => StringState::Outside,
            (text, _) => text,
        };
    }
}

/// Returns the reply to a request; `format` is that of the connection.
pub(crate) async fn answer(
    methods: &impl Methods,
    request: &Value,
    format: &mut ReplyFormat,
) -> Value {
    let id = &request["id"];
    let result = match (request["method"].as_str(), parse_texts(&request["params"])) {
        (Some(ReplyFormat::METHOD), Some(parameters)) => {
            ReplyFormat::parse(&parameters).map(|chosen| {
                *format = chosen;
                chosen.result(String::new())
            })
        }
        (Some(method), Some(parameters)) => {
            let call = call_in(methods, method, parameters, *format);
            ControlTask::new(format!("command {method}"), call).await
        }
        _ => Err("a request needs a `method`, and `params` that are strings".to_owned()),
    };
    match result {
        Ok(result) => json!({"id": id, "result": result, "error": null}),
        // Open vSwitch omits the result of a failed call, and `ovs-appctl` rejects a null result.
        Err(text) => json!({"id": id, "error": end_with_newline(text)}),
    }
}

/// Runs a method, and returns its result in a format.
async fn call_in(
    methods: &impl Methods,
    method: &str,
    parameters: Vec<String>,
    format: ReplyFormat,
) -> Result<Value, String> {
    if format == ReplyFormat::Json
        && let Some(result) = methods.call_json(method, &parameters).await
    {
        return result;
    }
    let answer = methods.call(method, parameters).await?;
    Ok(format.result(end_with_newline(answer)))
}

/// Parses an array of strings; `null` is an empty array.
fn parse_texts(value: &Value) -> Option<Vec<String>> {
    if value.is_null() {
        return Some(Vec::new());
    }
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Returns a text that ends with a newline.
fn end_with_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The reason why a call failed.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// No daemon uses the run directory.
    #[error("no daemon runs in {folder}: {reason}")]
    NoDaemon {
        /// Path of the run directory.
        folder: String,
        /// The missing file, or the error of the operating system.
        reason: String,
    },
    /// The daemon does not accept connections.
    #[error("cannot connect to the daemon at {path}: {source}")]
    Unreachable {
        /// Path of the control socket.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The daemon has left its files, and does not listen any more.
    #[error(
        "no daemon listens at {path}: process {process} was killed, or is ending; start shuntd again \
         (`journalctl -u shuntd` may have the reason)"
    )]
    Ended {
        /// Path of the control socket.
        path: String,
        /// Process id of the daemon.
        process: String,
    },
    /// The user may not access the files of the daemon.
    #[error("permission denied: {path}; run shuntctl as root or as the user of shuntd")]
    NotPermitted {
        /// Path of the file or socket.
        path: String,
    },
    /// The daemon has not ended within the time limit.
    #[error(
        "the daemon still runs {seconds} s after the request to exit: read the log of the daemon"
    )]
    StillRuns {
        /// Time that the client has waited, in seconds.
        seconds: u64,
    },
    /// The connection was closed, or the reply is not valid.
    #[error("the daemon closed the connection without a reply: read the log of the daemon")]
    Broken,
    /// The user ended the wait for a reply.
    #[error("the daemon has not replied so far: it may still carry out the command")]
    Interrupted,
    /// The daemon does not serve this client, for the reason that it sent.
    #[error("{0}")]
    NotServed(String),
    /// The daemon refused the call.
    #[error("{0}")]
    Refused(String),
}

/// Returns the process id in the name of a socket, such as `shuntd.4711.ctl`.
fn process_of(socket: &Path) -> Option<String> {
    let name = socket.file_name()?.to_str()?;
    let id = name.strip_prefix("shuntd.")?.strip_suffix(".ctl")?;
    id.parse::<u32>().is_ok().then(|| id.to_owned())
}

/// Interval at which a call without a reply asks whether to wait longer.
const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The client end of the control socket.
pub(crate) struct RpcClient {
    /// The connection to the daemon.
    stream: BlockingStream,
    /// Splits the received bytes into replies.
    replies: Objects,
    /// Number of calls, which is the id of the last call.
    calls: u64,
    /// Returns whether a call waits longer for its reply.
    waits_longer: Option<fn() -> bool>,
}

impl RpcClient {
    /// Connects to a daemon's control socket.
    pub(crate) fn connect(path: &Path) -> Result<Self, CallError> {
        let failed = |source: io::Error| {
            let owner = process_of(path);
            let path = path.display().to_string();
            match (source.kind(), owner) {
                (io::ErrorKind::PermissionDenied, _) => CallError::NotPermitted { path },
                (io::ErrorKind::ConnectionRefused, Some(process)) => {
                    CallError::Ended { path, process }
                }
                _ => CallError::Unreachable { path, source },
            }
        };
        let stream = BlockingStream::connect(path).map_err(failed)?;
        Ok(Self { stream, replies: Objects::default(), calls: 0, waits_longer: None })
    }

    /// Makes calls without a reply ask ten times a second whether to wait longer.
    ///
    /// A call fails with [`CallError::Interrupted`] when the answer is `false`.
    pub(crate) fn ask_while_waiting(
        &mut self,
        waits_longer: fn() -> bool,
    ) -> Result<(), CallError> {
        self.waits_longer = Some(waits_longer);
        let set = self.stream.set_read_timeout(Some(WAIT_CHECK_INTERVAL));
        set.map_err(|_| CallError::Broken)
    }

    /// Calls a method and waits for its reply.
    pub(crate) fn call(&mut self, method: &str, parameters: &[&str]) -> Result<String, CallError> {
        self.calls = self.calls.wrapping_add(1);
        let request = json!({"method": method, "params": parameters, "id": self.calls});
        // A daemon that has closed the connection may have sent the reason before. The wait for the
        // reply then finds the reason or the end, so an error of the write is ignored.
        let _ = self.stream.write_all(request.to_string().as_bytes());
        let reply = self.reply()?;
        if let Some(error) = reply.get("error").and_then(Value::as_str) {
            let error = error.trim_end().to_owned();
            let is_of_call = reply.get("id").is_some_and(|id| !id.is_null());
            return Err(if is_of_call {
                CallError::Refused(error)
            } else {
                CallError::NotServed(error)
            });
        }
        let result = reply.get("result").and_then(Value::as_str);
        result.map(str::to_owned).ok_or(CallError::Broken)
    }

    /// Waits until the daemon closes the connection because it has ended.
    pub(crate) fn wait_for_end(mut self, longest: Duration) -> Result<(), CallError> {
        let mut rest = [0; 1];
        let waited = self.stream.set_read_timeout(Some(longest));
        match waited.and_then(|()| self.stream.read(&mut rest)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(CallError::StillRuns { seconds: longest.as_secs() })
            }
            // A reset of the connection also means that the daemon has ended.
            _ => Ok(()),
        }
    }

    /// Receives the reply to the last request.
    fn reply(&mut self) -> Result<Value, CallError> {
        let mut chunk = [0; 65536];
        loop {
            match self.replies.next() {
                ParsedObject::Value(value) => return Ok(value),
                ParsedObject::Garbage => return Err(CallError::Broken),
                ParsedObject::Incomplete => {}
            }
            let count = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(CallError::Broken),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.waits_longer.is_some_and(|waits_longer| !waits_longer()) {
                        return Err(CallError::Interrupted);
                    }
                    continue;
                }
                // With a timeout, a signal such as SIGWINCH ends the read.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(CallError::Broken),
            };
            self.replies.bytes.extend_from_slice(chunk.get(..count).unwrap_or(&chunk));
        }
    }
}

#[cfg(test)]
mod tests;
