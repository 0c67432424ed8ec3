//! Matches and fields, and their error codes.
//!
//! [`shunt_flow::oxm`] encodes the fields themselves. The module has the frame of a match
//! (`ofp_match`, OpenFlow 1.3.5, 7.2.3.1), the field headers of Nicira actions, and the error
//! codes.

use bytes::BufMut;
use shunt_flow::{
    FieldId, Match,
    oxm::{self, OxmError, OxmField, OxmHeader},
};

use super::length;
use crate::{
    error::ErrorCode,
    wire::{ByteReader, MessageLengthError},
};

/// `OFPMT_OXM`.
const MATCH_OXM: u16 = 1;

/// Reads an `ofp_match` with its padding.
pub(crate) fn read_match(reader: &mut ByteReader<'_>) -> Result<Match, ErrorCode> {
    let (kind, tlvs) = match_frame(reader).map_err(|MessageLengthError| ErrorCode::MatchLength)?;
    if kind != MATCH_OXM {
        return Err(ErrorCode::MatchType);
    }
    oxm::decode_match(tlvs).map_err(match_error)
}

/// Returns the first mistake in the fields of an `ofp_match`, for the log.
pub(crate) fn find_bad_field(mut reader: ByteReader<'_>) -> Option<OxmError> {
    let (kind, tlvs) = match_frame(&mut reader).ok()?;
    if kind == MATCH_OXM { oxm::decode_match(tlvs).err() } else { None }
}

/// Returns the mistake in one field with its value, for the log.
pub(super) fn find_bad_value(entry: &[u8]) -> Option<OxmError> {
    oxm::decode_field(entry).err()
}

/// Splits a match into its type and its OXM fields.
fn match_frame<'a>(reader: &mut ByteReader<'a>) -> Result<(u16, &'a [u8]), MessageLengthError> {
    let (kind, length) = (reader.u16()?, reader.u16()?);
    let tlvs = reader.bytes(usize::from(length).checked_sub(4).ok_or(MessageLengthError)?)?;
    reader.skip(length::padding(usize::from(length)))?;
    Ok((kind, tlvs))
}

/// Writes an `ofp_match` with its padding.
pub(crate) fn put_match(out: &mut Vec<u8>, matching: &Match) {
    let start = out.len();
    out.put_u16(MATCH_OXM);
    let length_at = length::reserve(out);
    oxm::encode_match(matching, out);
    length::fill(out, length_at, start);
    length::pad(out, start);
}

/// Reads one field with its value.
pub(super) fn read_field(reader: &mut ByteReader<'_>) -> Result<OxmField, ErrorCode> {
    let (field, length) = oxm::decode_field(reader.rest()).map_err(|error| match error {
        OxmError::BadField(header) if header.body_len() > 0 && is_known_number(header) => {
            ErrorCode::SetFieldLength
        }
        error => action_error(error),
    })?;
    reader.skip(length)?;
    Ok(field)
}

/// Returns whether the header would name a field if it had another length.
fn is_known_number(header: OxmHeader) -> bool {
    let (class, number) = (header.word() >> 16, header.word() >> 9 & 0x7f);
    FieldId::all().flat_map(|field| field.info().oxms).any(|oxm| {
        u32::from(oxm.class.number()) == class
            && u32::from(oxm.number) == number
            && oxm.class.experimenter() == header.experimenter()
    })
}

/// Writes one field with its value, and its mask unless all bits are set.
pub(super) fn put_field(out: &mut Vec<u8>, field: FieldId, value: u128, mask: u128) {
    // Fields without a wire number were replaced by their equivalents.
    let is_written = oxm::encode_field(field, value, Some(mask), out);
    debug_assert!(is_written, "{} has no wire number", field.name());
}

/// Reads a field header without a value.
pub(super) fn read_header(reader: &mut ByteReader<'_>) -> Result<FieldId, ErrorCode> {
    let header = OxmHeader::read(reader.rest()).map_err(action_error)?;
    reader.skip(header.header_len())?;
    header.find_field().ok_or(ErrorCode::SetFieldType)
}

/// Reads a field header without a value, and reports errors as match errors.
///
/// Open vSwitch reports match errors for the actions that use this function.
pub(super) fn pull_header(reader: &mut ByteReader<'_>) -> Result<FieldId, ErrorCode> {
    let header = OxmHeader::read(reader.rest()).map_err(match_error)?;
    reader.skip(header.header_len())?;
    if header.has_mask() {
        return Err(ErrorCode::MatchMask);
    }
    header.find_field().ok_or(ErrorCode::MatchField)
}

/// Writes a field header without a value.
///
/// The header has the first number of the field, which is the Nicira number if there is one. Open
/// vSwitch does the same in actions of every version.
pub(super) fn put_header(out: &mut Vec<u8>, field: FieldId) {
    let Some(oxm) = field.info().oxms.first() else { return };
    let value_len = oxm.wire_len(field.width());
    let id = oxm.class.experimenter();
    let length = if id.is_some() { value_len.saturating_add(4) } else { value_len };
    out.put_u16(oxm.class.number());
    out.put_u8(oxm.number << 1);
    // No field is longer than 124 bytes.
    out.put_u8(u8::try_from(length).unwrap_or(u8::MAX));
    if let Some(id) = id {
        out.put_u32(id);
    }
}

/// Returns the error code of an invalid match.
pub(in crate::wire) const fn match_error(error: OxmError) -> ErrorCode {
    match error {
        OxmError::BadLength { .. } => ErrorCode::MatchLength,
        OxmError::BadMask { .. } => ErrorCode::MatchMask,
        OxmError::BadValue { .. } => ErrorCode::MatchValue,
        OxmError::BadPrereq(_) => ErrorCode::MatchPrerequisite,
        OxmError::DupField(_) => ErrorCode::MatchDuplicate,
        OxmError::BadWildcards(_) => ErrorCode::MatchWildcards,
        // The last variant of `OxmError`, and variants that are added later.
        _ => ErrorCode::MatchField,
    }
}

/// Returns the error code of an invalid field in an action.
const fn action_error(error: OxmError) -> ErrorCode {
    match error {
        OxmError::BadLength { .. } => ErrorCode::SetFieldLength,
        OxmError::BadMask { .. } => ErrorCode::SetFieldMask,
        OxmError::BadValue { .. } => ErrorCode::SetFieldArgument,
        OxmError::BadWildcards(_) => ErrorCode::MatchWildcards,
        _ => ErrorCode::SetFieldType,
    }
}
