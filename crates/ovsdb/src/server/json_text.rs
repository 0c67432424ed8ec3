//! Reading JSON without JSON values.
//!
//! A function that returns `None` has read something else than it expects. The caller then reads
//! the whole text again as a JSON value, so that only frequent forms need functions here.

use serde_json::Value;

use crate::value::RowUuid;

/// The part of a JSON text that is not parsed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonText<'a> {
    /// The part that is not parsed yet.
    rest: &'a str,
}

impl<'a> JsonText<'a> {
    /// Returns the whole text as the rest to read.
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Reads a byte of punctuation, or a digit.
    pub(super) fn token(&mut self, token: u8) -> Option<()> {
        self.skip_blank();
        if self.rest.as_bytes().first() != Some(&token) {
            return None;
        }
        self.rest = self.rest.get(1..)?;
        Some(())
    }

    /// Reads the end of the text.
    pub(super) fn end(mut self) -> Option<()> {
        self.skip_blank();
        self.rest.is_empty().then_some(())
    }

    /// Skips the space between two parts of the text, which is mostly absent.
    fn skip_blank(&mut self) {
        if self.rest.as_bytes().first().is_some_and(|byte| *byte <= b' ') {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        }
    }

    /// Reads a string without escapes.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        self.token(b'"')?;
        let is_end = |byte: u8| byte == b'"' || byte == b'\\' || byte < b' ';
        let end = self.rest.bytes().position(is_end)?;
        let (text, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.strip_prefix('"')?;
        Some(text)
    }

    /// Reads a string that must be `word`.
    pub(super) fn word(&mut self, word: &str) -> Option<()> {
        (self.string()? == word).then_some(())
    }

    /// Reads a JSON value of any type.
    pub(super) fn value(&mut self) -> Option<Value> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        self.rest = self.rest.get(values.byte_offset()..)?;
        Some(value)
    }

    /// Reads an object that has members. `member` reads the value of each name.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        self.token(b'{')?;
        loop {
            let name = self.string()?;
            self.token(b':')?;
            member(self, name)?;
            if self.token(b',').is_none() {
                return self.token(b'}');
            }
        }
    }

    /// Reads `["uuid", UUID]`, of which the digits are as a UUID writes them.
    pub(super) fn uuid(&mut self) -> Option<RowUuid> {
        self.token(b'[')?;
        self.word("uuid")?;
        self.token(b',')?;
        let text = self.string()?;
        self.token(b']')?;
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        text.parse().ok()
    }
}
