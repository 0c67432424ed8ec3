//! The stream of JSON objects that a peer sends, without any separator between them.

use serde_json::Value;
use thiserror::Error;

/// Finds whole JSON objects in a stream of bytes.
#[derive(Debug)]
pub struct JsonFramer {
    /// The received bytes that are not returned yet.
    bytes: Vec<u8>,
    /// Number of buffered bytes that are already scanned for the end of a message.
    scanned: usize,
    /// The nesting at the end of the scanned bytes.
    nesting: JsonNesting,
    /// Maximum number of bytes of a message.
    bytes_max: usize,
}

/// The place of a byte in the nested arrays, objects and strings of a message.
#[derive(Debug)]
struct JsonNesting {
    /// Number of open arrays and objects.
    depth: usize,
    /// True inside of a string.
    in_string: bool,
    /// True directly after a backslash in a string.
    is_escaped: bool,
}

/// Received bytes that are no message, which ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FramingError {
    /// A message does not start with a brace.
    #[error(
        "the peer sent a message that starts with byte 0x{0:02x}: a JSON-RPC 1.0 message is a \
         JSON object"
    )]
    NotAnObject(u8),
    /// A message is longer than the limit.
    #[error("the peer sent a message that is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// A message is nested deeper than the limit.
    #[error("the peer sent a message that is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// A message is not JSON.
    #[error("the peer sent a message that is not JSON: {0}")]
    NotJson(String),
}

/// Maximum nesting depth of arrays and objects in a message.
const DEPTH_MAX: usize = 100;

/// Bytes of memory that a framer keeps between messages.
const CAPACITY_KEPT: usize = 16 * 1024;

impl JsonFramer {
    /// Creates a framer for messages of at most a number of bytes.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        let nesting = JsonNesting { depth: 0, in_string: false, is_escaped: false };
        Self { bytes: Vec::new(), scanned: 0, nesting, bytes_max }
    }

    /// Adds bytes that the peer sent.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of bytes of an incomplete message.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the next whole message with its length.
    ///
    /// `None` means that more bytes must arrive.
    ///
    /// # Errors
    ///
    /// If the bytes are no message. In that case no further message can be found in the stream.
    pub fn next_message(&mut self) -> Result<Option<(Value, usize)>, FramingError> {
        self.next_with(|text| serde_json::from_slice(text))
    }

    /// Returns the next whole message in the form of `parse`.
    ///
    /// See [`Self::next_message`].
    pub(crate) fn next_with<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<Option<(T, usize)>, FramingError> {
        if self.scanned == 0 {
            let blank = self.bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.bytes.drain(..blank);
        }
        let Some(length) = self.find_end()? else { return Ok(None) };
        let value = parse(self.bytes.get(..length).unwrap_or_default());
        self.bytes.drain(..length);
        self.scanned = 0;
        self.shrink();
        let value = value.map_err(|error| FramingError::NotJson(error.to_string()))?;
        Ok(Some((value, length)))
    }

    /// Returns the length of the first message; `None` if its end has not arrived.
    ///
    /// Each byte is scanned once.
    fn find_end(&mut self) -> Result<Option<usize>, FramingError> {
        let Self { bytes, scanned, nesting, bytes_max } = self;
        if let (0, Some(byte)) = (*scanned, bytes.first().filter(|byte| **byte != b'{')) {
            return Err(FramingError::NotAnObject(*byte));
        }
        let mut rest = bytes.get(*scanned..bytes.len().min(*bytes_max)).unwrap_or_default();
        let end = scanned.saturating_add(rest.len());
        while let Some((byte, after)) = rest.split_at(nesting.plain_bytes(rest)).1.split_first() {
            if nesting.add_byte(*byte)? {
                return Ok(Some(end.saturating_sub(after.len())));
            }
            rest = after;
        }
        *scanned = bytes.len();
        if bytes.len() > *bytes_max {
            return Err(FramingError::TooLong(*bytes_max));
        }
        Ok(None)
    }

    /// Returns the memory of a long message to the system.
    fn shrink(&mut self) {
        let needed = self.bytes.len().max(CAPACITY_KEPT);
        // Without the factor 2, a buffer that shrinks slowly would be copied for each message.
        if self.bytes.capacity() > needed.saturating_mul(2) {
            self.bytes.shrink_to(needed);
        }
    }
}

impl JsonNesting {
    /// Returns the number of first bytes that only continue a string.
    fn plain_bytes(&self, bytes: &[u8]) -> usize {
        if !self.in_string || self.is_escaped {
            return 0;
        }
        // Most bytes of a long message are in strings, and this search is a short loop.
        let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        end.unwrap_or(bytes.len())
    }

    /// Adds a byte, and returns whether it ends the message.
    fn add_byte(&mut self, byte: u8) -> Result<bool, FramingError> {
        if self.is_escaped {
            self.is_escaped = false;
            return Ok(false);
        }
        match byte {
            b'\\' if self.in_string => self.is_escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(FramingError::TooDeep);
                }
            }
            b'}' | b']' if !self.in_string => {
                self.depth = self.depth.saturating_sub(1);
                return Ok(self.depth == 0);
            }
            _ => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the messages in chunks of a stream.
    fn messages(chunks: &[&[u8]]) -> Result<Vec<Value>, FramingError> {
        let mut framer = JsonFramer::new(1000);
        let mut messages = Vec::new();
        for chunk in chunks {
            framer.push(chunk);
            while let Some((message, _)) = framer.next_message()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    proptest! {
        #[test]
        fn a_message_may_arrive_in_any_chunks(length in 1..20_usize) {
            let stream = br#"{"a": "}\"]{"} {"b": [1, {"c": []}]}{"d":"\\"}"#;
            let chunks: Vec<&[u8]> = stream.chunks(length).collect();
            let found = messages(&chunks).unwrap();
            prop_assert_eq!(found.len(), 3);
            prop_assert_eq!(Ok(found), messages(&[stream]));
        }
    }

    /// Finds the end of a message byte by byte.
    fn slow_end(bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let mut nesting = JsonNesting { depth: 0, in_string: false, is_escaped: false };
        for (position, byte) in bytes.iter().enumerate() {
            if nesting.add_byte(*byte)? {
                return Ok(Some(position + 1));
            }
        }
        Ok(None)
    }

    proptest! {
        /// The end is the same as in a search byte by byte, for any chunks.
        #[test]
        fn the_end_of_a_message_is_found(
            rest in prop::collection::vec(prop::sample::select(&b"{}[]\"\"\\ab"[..]), 0..80),
            length in 1..20_usize,
        ) {
            let stream = [b"{", rest.as_slice()].concat();
            let mut framer = JsonFramer::new(1000);
            let mut found = Ok(None);
            for chunk in stream.chunks(length) {
                framer.push(chunk);
                found = framer.find_end();
                if found != Ok(None) {
                    break;
                }
            }
            prop_assert_eq!(found, slow_end(&stream));
        }
    }

    #[test]
    fn a_long_message_leaves_no_memory_behind() {
        let mut framer = JsonFramer::new(1 << 20);
        framer.push(format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 19)).as_bytes());
        assert!(framer.next_message().unwrap().is_some());
        assert!(framer.bytes.capacity() <= 2 * CAPACITY_KEPT, "{}", framer.bytes.capacity());
    }

    #[test]
    fn exceeding_a_limit_ends_the_stream() {
        assert_eq!(messages(&[b" x"]), Err(FramingError::NotAnObject(b'x')));
        let deep = format!("{{\"a\":{}", "[".repeat(100));
        assert_eq!(messages(&[deep.as_bytes()]), Err(FramingError::TooDeep));
        let long = format!("{{\"a\":\"{}", "x".repeat(1000));
        assert_eq!(messages(&[long.as_bytes()]), Err(FramingError::TooLong(1000)));
        assert!(matches!(messages(&[b"{]"]), Err(FramingError::NotJson(_))));
    }
}
