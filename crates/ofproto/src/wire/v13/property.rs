//! Properties: type, length, value, and padding to eight bytes (OpenFlow 1.4.1, 7.1.3).
//!
//! If a value is longer than its type, only its first bytes are read. Open vSwitch counts the two
//! padding bytes after a 16-bit value as part of the property, and so does this code.

use bytes::BufMut;

use super::length;
use crate::{
    error::ErrorCode,
    wire::{ByteReader, MessageLengthError},
};

/// Reads type and value of the next property, and its padding.
pub(in crate::wire) fn read<'a>(
    reader: &mut ByteReader<'a>,
) -> Result<(u16, ByteReader<'a>), ErrorCode> {
    frame(reader).map_err(|MessageLengthError| ErrorCode::PropertyLength)
}

/// Splits the next property into its type and its value.
fn frame<'a>(reader: &mut ByteReader<'a>) -> Result<(u16, ByteReader<'a>), MessageLengthError> {
    let (kind, length) = (reader.u16()?, reader.u16()?);
    let value = reader.bytes(usize::from(length).checked_sub(4).ok_or(MessageLengthError)?)?;
    reader.skip(length::padding(usize::from(length)))?;
    Ok((kind, ByteReader::new(value)))
}

/// Reads the next 8 bits of a property.
pub(in crate::wire) fn u8(value: &mut ByteReader<'_>) -> Result<u8, ErrorCode> {
    value.u8().map_err(|MessageLengthError| ErrorCode::PropertyLength)
}

/// Reads the next 16 bits of a property.
pub(in crate::wire) fn u16(value: &mut ByteReader<'_>) -> Result<u16, ErrorCode> {
    value.u16().map_err(|MessageLengthError| ErrorCode::PropertyLength)
}

/// Reads the next 32 bits of a property.
pub(in crate::wire) fn u32(value: &mut ByteReader<'_>) -> Result<u32, ErrorCode> {
    value.u32().map_err(|MessageLengthError| ErrorCode::PropertyLength)
}

/// Reads the next 64 bits of a property.
pub(in crate::wire) fn u64(value: &mut ByteReader<'_>) -> Result<u64, ErrorCode> {
    value.u64().map_err(|MessageLengthError| ErrorCode::PropertyLength)
}

/// Writes a property.
pub(in crate::wire) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let start = out.len();
    out.put_u16(kind);
    let length_at = length::reserve(out);
    out.extend_from_slice(value);
    length::fill(out, length_at, start);
    length::pad(out, start);
}

/// Writes a property with a 16-bit value.
pub(in crate::wire) fn put_u16(out: &mut Vec<u8>, kind: u16, value: u16) {
    let [high, low] = value.to_be_bytes();
    put(out, kind, &[high, low, 0, 0]);
}
