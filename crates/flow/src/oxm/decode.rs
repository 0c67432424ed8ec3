//! Decoding of a match.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{OxmError, OxmHeader};
use crate::{
    FieldId, Match, PortNo, draft,
    draft::MatchDraft,
    field::{Maskable, OxmClass},
};

/// Highest port of a switch; in 16 bits, all higher numbers are reserved.
const PORT_MAX: u128 = PortNo::MAX.number() as u128;

/// One entry: a field, its value and its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OxmField {
    /// The field that the entry names.
    pub field: FieldId,
    /// The value, right-aligned; zero outside `mask`.
    pub value: u128,
    /// The mask; all bits of the field if there is no mask on the wire.
    pub mask: u128,
    /// True if the entry carried a mask.
    pub has_mask: bool,
}

/// Decodes a sequence of entries.
///
/// # Errors
///
/// The first error of the first wrong entry.
pub fn decode_match(tlvs: &[u8]) -> Result<Match, OxmError> {
    let mut draft = MatchDraft::default();
    let mut fields = Vec::new();
    let mut rest = tlvs;
    while !rest.is_empty() {
        let (entry, length) = decode_field(rest)?;
        rest = rest.get(length..).unwrap_or_default();
        if !draft.has_prerequisite(entry.field) {
            return Err(OxmError::BadPrereq(entry.field));
        }
        if draft.asks(entry.field) {
            return Err(OxmError::DupField(entry.field));
        }
        draft.add(entry.field, entry.value, entry.mask);
        if entry.mask != 0 {
            fields.push(entry.field);
        }
    }
    match fields.into_iter().find(|field| !draft.has_prerequisite(*field)) {
        Some(field) => Err(OxmError::BadPrereq(field)),
        None => Ok(draft.finish()),
    }
}

/// Decodes the entry at the start of `bytes`, and returns its length in bytes.
///
/// The function checks the entry alone. Prerequisites and duplicates depend on the whole match.
///
/// # Errors
///
/// The first of these errors that applies: [`OxmError::BadLength`], [`OxmError::BadWildcards`],
/// [`OxmError::BadField`], [`OxmError::Unbound`], [`OxmError::BadMask`], [`OxmError::BadValue`].
pub fn decode_field(bytes: &[u8]) -> Result<(OxmField, usize), OxmError> {
    let header = OxmHeader::read(bytes)?;
    let length = header.entry_len();
    let body = bytes.get(header.header_len()..length);
    let body = body.ok_or(OxmError::BadLength { needed: length, present: bytes.len() })?;
    let (value, mask) = body.split_at(header.value_len());
    if header.has_mask() && value.iter().zip(mask).any(|(value, mask)| value & !mask != 0) {
        return Err(OxmError::BadWildcards(header));
    }
    let field = header.find_number().ok_or(OxmError::BadField(header))?;
    if field.tunnel_option().is_some() {
        return Err(OxmError::Unbound(field));
    }
    let mask = if header.has_mask() { checked_mask(field, mask)? } else { field.value_max() };
    let value = checked_value(field, &header, number(value), mask)?;
    Ok((OxmField { field, value, mask, has_mask: header.has_mask() }, length))
}

/// Returns the mask without bits outside the field, which Open vSwitch ignores.
///
/// A field that cannot be masked must have all bits on the wire or none.
fn checked_mask(field: FieldId, mask: &[u8]) -> Result<u128, OxmError> {
    let uniform = mask.iter().all(|byte| *byte == 0) || mask.iter().all(|byte| *byte == 0xff);
    let mask = number(mask);
    if !uniform && field.info().maskable == Maskable::Exact {
        return Err(OxmError::BadMask { field, mask });
    }
    // A mask of all ones covers the whole field, also for a port that has only 16 bits on the wire.
    let is_whole = mask != 0 && field.info().maskable == Maskable::Exact;
    Ok(if is_whole { field.value_max() } else { mask & field.value_max() })
}

/// Returns the value of a field, widened, or an error if it is illegal.
fn checked_value(
    field: FieldId,
    header: &OxmHeader,
    value: u128,
    mask: u128,
) -> Result<u128, OxmError> {
    // The NXM port has 16 bits; its reserved values are those from 0xff00.
    let short_port = header.word() >> 16 == u32::from(OxmClass::Nxm0.number());
    let is_reserved = field == FieldId::InPort && short_port && value > PORT_MAX;
    let value = if is_reserved { value | 0xffff_0000 } else { value };
    if draft::is_legal(field, value, mask) {
        Ok(value)
    } else {
        Err(OxmError::BadValue { field, value })
    }
}

/// A number of up to 16 bytes in network order.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}
