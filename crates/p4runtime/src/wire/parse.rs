//! Fast decoding of frequent messages: writes and reads of table entries.
//!
//! The hand-written decoder returns the same values as prost, several times as fast: it reads a
//! slice, and allocates each list with its final length. The decoder knows the fields that a
//! controller of a NIC uses, and requires that each nested message occurs once. For other messages
//! the decoder returns `None`; prost then decodes the message or reports the error.

use prost::{Message, bytes::Bytes};

use super::p4::v1::{
    self, CounterData, Entity, FieldMatch, ReadRequest, TableAction, TableEntry, Uint128, Update,
    WriteRequest, action, entity,
    field_match::{Exact, FieldMatchType, Ternary},
    table_action,
};

/// Decodes a write request.
pub(crate) fn write_request(whole: &Bytes) -> Option<WriteRequest> {
    let mut request = WriteRequest::default();
    request.updates.reserve_exact(count(whole, (4, BYTES))?);
    for_each(whole, |key, reader| {
        match key {
            (1, NUMBER) => request.device_id = reader.varint()?,
            (3, BYTES) => once(
                &mut request.election_id,
                decode_by_prost::<Uint128>(whole.slice_ref(reader.bytes()?))?,
            )?,
            (4, BYTES) => request.updates.push(update(whole, reader.bytes()?)?),
            (5, NUMBER) => request.atomicity = reader.small()?,
            (6, BYTES) => request.role = str::from_utf8(reader.bytes()?).ok()?.to_owned(),
            _ => return None,
        }
        Some(())
    })?;
    Some(request)
}

/// Decodes a read request.
pub(crate) fn read_request(whole: &Bytes) -> Option<ReadRequest> {
    let mut request = ReadRequest::default();
    request.entities.reserve_exact(count(whole, (2, BYTES))?);
    for_each(whole, |key, reader| {
        match key {
            (1, NUMBER) => request.device_id = reader.varint()?,
            (2, BYTES) => request.entities.push(entity(whole, reader.bytes()?)?),
            (3, BYTES) => request.role = str::from_utf8(reader.bytes()?).ok()?.to_owned(),
            _ => return None,
        }
        Some(())
    })?;
    Some(request)
}

/// Parses an update of a write request.
fn update(whole: &Bytes, bytes: &[u8]) -> Option<Update> {
    let mut update = Update::default();
    for_each(bytes, |key, reader| {
        match key {
            (1, NUMBER) => update.r#type = reader.small()?,
            (2, BYTES) => once(&mut update.entity, entity(whole, reader.bytes()?)?)?,
            _ => return None,
        }
        Some(())
    })?;
    Some(update)
}

/// Parses an entity.
fn entity(whole: &Bytes, bytes: &[u8]) -> Option<Entity> {
    let mut found = Entity::default();
    for_each(bytes, |key, reader| {
        let is_entry = key == (2, BYTES);
        let entry = is_entry.then(|| table_entry(whole, reader.bytes()?)).flatten()?;
        once(&mut found.entity, entity::Entity::TableEntry(Box::new(entry)))
    })?;
    Some(found)
}

/// Parses a `TableEntry`; `None` if it needs the general decoder.
fn table_entry(whole: &Bytes, bytes: &[u8]) -> Option<TableEntry> {
    let mut entry = TableEntry::default();
    entry.r#match.reserve_exact(count(bytes, (2, BYTES))?);
    for_each(bytes, |key, reader| {
        match key {
            (1, NUMBER) => entry.table_id = reader.small()?.cast_unsigned(),
            (2, BYTES) => entry.r#match.push(field_match(whole, reader.bytes()?)?),
            (3, BYTES) => once(&mut entry.action, table_action(whole, reader.bytes()?)?)?,
            (4, NUMBER) => entry.priority = reader.small()?,
            (5, NUMBER) => entry.controller_metadata = reader.varint()?,
            (7, BYTES) => {
                once(
                    &mut entry.counter_data,
                    decode_by_prost::<CounterData>(whole.slice_ref(reader.bytes()?))?,
                )?;
            }
            (9, NUMBER) => entry.idle_timeout_ns = reader.varint()?.cast_signed(),
            _ => return None,
        }
        Some(())
    })?;
    Some(entry)
}

/// Parses a `FieldMatch`; `None` if it needs the general decoder.
fn field_match(whole: &Bytes, bytes: &[u8]) -> Option<FieldMatch> {
    let mut field = FieldMatch::default();
    for_each(bytes, |key, reader| {
        let kind = match key {
            (1, NUMBER) => {
                field.field_id = reader.small()?.cast_unsigned();
                return Some(());
            }
            (2, BYTES) => FieldMatchType::Exact(exact(whole, reader.bytes()?)?),
            (3, BYTES) => FieldMatchType::Ternary(ternary(whole, reader.bytes()?)?),
            (4, BYTES) => FieldMatchType::Lpm(decode_by_prost(whole.slice_ref(reader.bytes()?))?),
            (6, BYTES) => FieldMatchType::Range(decode_by_prost(whole.slice_ref(reader.bytes()?))?),
            (7, BYTES) => {
                FieldMatchType::Optional(decode_by_prost(whole.slice_ref(reader.bytes()?))?)
            }
            _ => return None,
        };
        once(&mut field.field_match_type, kind)
    })?;
    Some(field)
}

/// Parses an exact match.
fn exact(whole: &Bytes, bytes: &[u8]) -> Option<Exact> {
    let mut exact = Exact::default();
    for_each(bytes, |key, reader| {
        exact.value = (key == (1, BYTES))
            .then(|| reader.bytes())
            .flatten()
            .map(|bytes| whole.slice_ref(bytes))?;
        Some(())
    })?;
    Some(exact)
}

/// Parses a ternary match.
fn ternary(whole: &Bytes, bytes: &[u8]) -> Option<Ternary> {
    let mut ternary = Ternary::default();
    for_each(bytes, |key, reader| {
        match key {
            (1, BYTES) => ternary.value = whole.slice_ref(reader.bytes()?),
            (2, BYTES) => ternary.mask = whole.slice_ref(reader.bytes()?),
            _ => return None,
        }
        Some(())
    })?;
    Some(ternary)
}

/// Parses a `TableAction`; `None` if it needs the general decoder.
fn table_action(whole: &Bytes, bytes: &[u8]) -> Option<TableAction> {
    let mut found = TableAction::default();
    for_each(bytes, |key, reader| {
        let action = (key == (1, BYTES)).then(|| action(whole, reader.bytes()?)).flatten()?;
        once(&mut found.r#type, table_action::Type::Action(action))
    })?;
    Some(found)
}

/// Parses an action.
fn action(whole: &Bytes, bytes: &[u8]) -> Option<v1::Action> {
    let mut action = v1::Action::default();
    action.params.reserve_exact(count(bytes, (4, BYTES))?);
    for_each(bytes, |key, reader| {
        match key {
            (1, NUMBER) => action.action_id = reader.small()?.cast_unsigned(),
            (4, BYTES) => action.params.push(param(whole, reader.bytes()?)?),
            _ => return None,
        }
        Some(())
    })?;
    Some(action)
}

/// Parses a parameter of an action.
fn param(whole: &Bytes, bytes: &[u8]) -> Option<action::Param> {
    let mut param = action::Param::default();
    for_each(bytes, |key, reader| {
        match key {
            (2, NUMBER) => param.param_id = reader.small()?.cast_unsigned(),
            (3, BYTES) => param.value = whole.slice_ref(reader.bytes()?),
            _ => return None,
        }
        Some(())
    })?;
    Some(param)
}

/// Decodes a rare message with prost.
fn decode_by_prost<M: Message + Default>(bytes: Bytes) -> Option<M> {
    M::decode(bytes).ok()
}

/// Stores a field that may occur once.
///
/// Prost merges two occurrences of a field, so the second occurrence is left to prost.
fn once<T>(slot: &mut Option<T>, part: T) -> Option<()> {
    slot.replace(part).is_none().then_some(())
}

/// Number and wire type of a field.
type FieldKey = (u64, u64);

/// Wire type of numbers.
const NUMBER: u64 = 0;

/// Wire type of bytes and messages.
const BYTES: u64 = 2;

/// Calls `take` for each field of a message; `take` reads the value.
fn for_each<'a>(
    bytes: &'a [u8],
    mut take: impl FnMut(FieldKey, &mut ProtoReader<'a>) -> Option<()>,
) -> Option<()> {
    let mut reader = ProtoReader(bytes);
    while !reader.0.is_empty() {
        let key = reader.varint()?;
        take((key >> 3, key & 7), &mut reader)?;
    }
    Some(())
}

/// Counts how often a field occurs in a message.
fn count(bytes: &[u8], key: FieldKey) -> Option<usize> {
    let mut count = 0;
    for_each(bytes, |found, reader| {
        count += usize::from(found == key);
        match found {
            (_, BYTES) => reader.bytes().map(drop),
            (_, NUMBER) => reader.varint().map(drop),
            _ => None,
        }
    })?;
    Some(count)
}

/// Maximum length of a number; longer numbers are negative or malformed.
const VARINT_BYTES_MAX: u32 = 9;

/// The unread bytes of a message.
struct ProtoReader<'a>(&'a [u8]);

impl<'a> ProtoReader<'a> {
    /// Reads a number of up to 63 bits.
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for slot in 0..VARINT_BYTES_MAX {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << (7 * slot);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a number of up to 31 bits.
    fn small(&mut self) -> Option<i32> {
        i32::try_from(self.varint()?).ok()
    }

    /// Reads bytes after their length.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
