//! Fast encoding of frequent messages, which are written part by part as bytes.
//!
//! The hand-written encoder writes the same bytes as prost, several times as fast. The encoder
//! writes a nested message first and its length afterwards; prost computes nested lengths once per
//! level.

use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint},
};

use super::p4::v1::{
    Action, FieldMatch, TableEntry, field_match::FieldMatchType, table_action, update,
};
use crate::value;

/// The bytes of a message in progress.
#[derive(Debug, Default)]
pub(crate) struct ProtoWriter(Vec<u8>);

impl ProtoWriter {
    /// Creates an empty message with room for a typical entry.
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(ENTRY_BYTES))
    }

    /// Returns the encoded message.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.0
    }

    /// Returns the bytes written so far.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Writes an update of the entry that `entry` writes.
    pub(crate) fn update<T>(
        &mut self,
        kind: update::Type,
        entry: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.number(1, i64::from(kind as i32).cast_unsigned());
        self.nested(2, |writer| writer.entity(entry))
    }

    /// Writes an entity with the entry that `entry` writes.
    pub(crate) fn entity<T>(&mut self, entry: impl FnOnce(&mut Self) -> T) -> T {
        self.nested(2, entry)
    }

    /// Appends bytes that are encoded already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends the fields of a message.
    pub(crate) fn message(&mut self, message: &impl Message) {
        message.encode_raw(&mut self.0);
    }

    /// Writes the name of an entry and its idle timeout.
    pub(crate) fn name_and_timeout(&mut self, metadata: u64, idle_timeout_ns: i64) {
        self.number(5, metadata);
        self.number(9, idle_timeout_ns.cast_unsigned());
    }

    /// Writes the request for the counter of an entry.
    pub(crate) fn counter_request(&mut self) {
        self.nested(7, |_| {});
    }

    /// Writes a table entry.
    pub(crate) fn entry(&mut self, entry: &TableEntry) {
        let TableEntry {
            table_id,
            r#match,
            action,
            priority,
            controller_metadata,
            meter_config: None,
            counter_data: None,
            is_default_action: false,
            idle_timeout_ns,
            time_since_last_hit: None,
            metadata,
            meter_counter_data: None,
            is_const: false,
        } = entry
        else {
            return self.message(entry);
        };
        self.number(1, (*table_id).into());
        r#match.iter().for_each(|field| self.nested(2, |writer| writer.field_match(field)));
        if let Some(action) = action {
            self.nested(3, |writer| match &action.r#type {
                Some(table_action::Type::Action(action)) => {
                    writer.nested(1, |writer| writer.action(action));
                }
                _ => writer.message(action),
            });
        }
        self.number(4, i64::from(*priority).cast_unsigned());
        self.name_and_timeout(*controller_metadata, *idle_timeout_ns);
        self.bytes(11, metadata);
    }

    /// Writes the message `FieldMatch`.
    fn field_match(&mut self, field: &FieldMatch) {
        match &field.field_match_type {
            Some(FieldMatchType::Exact(exact)) => {
                self.number(1, field.field_id.into());
                self.nested(2, |writer| writer.bytes(1, &exact.value));
            }
            Some(FieldMatchType::Ternary(ternary)) => {
                self.number(1, field.field_id.into());
                self.nested(3, |writer| {
                    writer.bytes(1, &ternary.value);
                    writer.bytes(2, &ternary.mask);
                });
            }
            _ => self.message(field),
        }
    }

    /// Writes the message `Action`.
    fn action(&mut self, action: &Action) {
        self.number(1, action.action_id.into());
        for param in &action.params {
            self.nested(4, |writer| {
                writer.number(2, param.param_id.into());
                writer.bytes(3, &param.value);
            });
        }
    }

    /// Writes a number; zero is the default and is left out.
    pub(crate) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            encode_key(field, WireType::Varint, &mut self.0);
            encode_varint(number, &mut self.0);
        }
    }

    /// Writes a number in canonical form.
    pub(crate) fn value(&mut self, field: u32, number: u128) {
        self.bytes(field, value::canonical(&number.to_be_bytes()));
    }

    /// Writes bytes; empty bytes are left out.
    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            encode_key(field, WireType::LengthDelimited, &mut self.0);
            encode_varint(bytes.len() as u64, &mut self.0);
            self.0.extend_from_slice(bytes);
        }
    }

    /// Writes a nested message and then its length.
    ///
    /// One byte is reserved for the length, which usually suffices; otherwise the content is moved.
    pub(crate) fn nested<T>(&mut self, field: u32, content: impl FnOnce(&mut Self) -> T) -> T {
        encode_key(field, WireType::LengthDelimited, &mut self.0);
        let start = self.0.len();
        self.0.push(0);
        let raw = content(self);
        let content = start + 1;
        let length = (self.0.len() - content) as u64;
        let more = encoded_len_varint(length) - 1;
        if more > 0 {
            let end = self.0.len();
            self.0.resize(end + more, 0);
            self.0.copy_within(content..end, content + more);
        }
        encode_varint(length, &mut &mut self.0[start..content + more]);
        raw
    }
}

/// Length of a typical entry in bytes.
const ENTRY_BYTES: usize = 256;
