//! Fields with named bits: `+syn-ack` under a mask, `syn|ack` as a whole value.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{error::MatchError, value::FieldName};
use crate::FieldId;

/// Returns the names of the bits of a field, lowest first.
/// `None` if the bits have no names.
pub(super) const fn names(field: FieldId) -> Option<&'static [&'static str]> {
    Some(match field {
        FieldId::TcpFlags => &[
            "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
        ],
        FieldId::CtState => &["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"],
        FieldId::TunFlags => &["oam"],
        _ => return None,
    })
}

/// Parses `+syn-ack` (only the named bits) or `syn|ack` (all bits of the field).
pub(super) fn parse(
    field_name: FieldName,
    names: &[&str],
    text: &str,
) -> Result<(u128, u128), MatchError> {
    let bit = |name: &str| match names.iter().position(|known| *known == name) {
        Some(index) => Ok(1_u128 << index),
        None => Err(MatchError::UnknownFlag {
            name: field_name.name,
            flag: name.to_owned(),
            known: names.join(", "),
        }),
    };
    if !text.starts_with(['+', '-']) {
        let value = text.split('|').map(bit).try_fold(0, |value, bit| Ok(value | bit?))?;
        return Ok((value, field_name.field.value_max()));
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let after = &rest[sign.len_utf8()..];
        let end = after.find(['+', '-']).unwrap_or(after.len());
        let (name, next) = after.split_at(end);
        let bit = bit(name)?;
        if mask & bit != 0 {
            let flag = name.to_owned();
            return Err(MatchError::RepeatedFlag { name: field_name.name, flag });
        }
        mask |= bit;
        value |= if sign == '+' { bit } else { 0 };
        rest = next;
    }
    Ok((value, mask))
}

/// Writes a value of all bits of a field, as the names of the set bits.
pub(super) fn format_whole(names: &[&str], value: u128) -> String {
    let set = names.iter().enumerate().filter(|(index, _)| value >> index & 1 == 1);
    let text = set.map(|(_, name)| *name).collect::<Vec<_>>().join("|");
    if text.is_empty() { "0".to_owned() } else { text }
}

/// Writes the bits of a mask, each with its sign.
pub(super) fn format_masked(names: &[&str], value: u128, mask: u128) -> String {
    let masked = names.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1);
    let sign = |index: usize| if value >> index & 1 == 1 { '+' } else { '-' };
    masked.map(|(index, name)| format!("{}{name}", sign(index))).collect()
}
