//! Numbers and bytes as `ovs-ofctl` reads and prints them.

use shunt_flow::text::integer;

use super::{RuleTextError, RuleTextProblem, slice::TextSlice};
use crate::id::{GroupId, MeterId, TableId};

/// Reads a number up to `max`; `of` names the number in the error.
pub(super) fn parse_as<T: TryFrom<u128>>(
    slice: TextSlice<'_>,
    of: &'static str,
    max: T,
) -> Result<T, RuleTextError>
where
    u128: From<T>,
{
    let max = u128::from(max);
    let value = integer(slice.text()).filter(|value| *value <= max);
    value.and_then(|value| T::try_from(value).ok()).ok_or_else(|| {
        let text = slice.text().to_owned();
        slice.error(RuleTextProblem::BadNumber { of, text, max })
    })
}

/// Reads the number of a table that rules may name.
pub(super) fn table(slice: TextSlice<'_>) -> Result<TableId, RuleTextError> {
    let number = integer(slice.text()).and_then(|number| u8::try_from(number).ok());
    number.and_then(TableId::new).ok_or_else(|| {
        let (text, max) = (slice.text().to_owned(), TableId::MAX.number().into());
        slice.error(RuleTextProblem::BadNumber { text, of: "a table", max })
    })
}

/// Reads a valid group number.
pub(super) fn group(slice: TextSlice<'_>) -> Result<GroupId, RuleTextError> {
    parse_as(slice, "a group", GroupId::MAX.number()).map(GroupId::new)
}

/// Reads a valid meter number.
pub(super) fn meter(slice: TextSlice<'_>) -> Result<MeterId, RuleTextError> {
    match parse_as(slice, "a meter", MeterId::MAX.number())? {
        0 => Err(slice.bad("meter", "a number from 1 on")),
        id => Ok(MeterId::new(id)),
    }
}

/// Reads a cookie, or a mask of one: a number, or -1 for all bits.
pub(super) fn cookie(slice: TextSlice<'_>) -> Result<u64, RuleTextError> {
    match slice.text() {
        "-1" => Ok(u64::MAX),
        _ => parse_as(slice, "a cookie", u64::MAX),
    }
}

/// Prints bytes as `01.02.03`, the format of notes and user data.
pub(super) fn dotted_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(".")
}

/// Reads bytes of two hexadecimal digits each, with dots between them or without.
pub(super) fn parse_dotted_hex(slice: TextSlice<'_>) -> Result<Box<[u8]>, RuleTextError> {
    let bad = || slice.error(RuleTextProblem::BadHex { text: slice.text().to_owned() });
    let mut digits = slice.text();
    let mut bytes = Vec::new();
    while !digits.is_empty() {
        let (byte, rest) = digits.split_at_checked(2).ok_or_else(bad)?;
        if !byte.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(bad());
        }
        bytes.push(u8::from_str_radix(byte, 16).map_err(|_| bad())?);
        digits = rest.strip_prefix('.').unwrap_or(rest);
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_are_printed() {
        let slice = TextSlice::whole("01.ff.a0");
        let bytes = parse_dotted_hex(slice).unwrap();
        assert_eq!(&*bytes, [1, 0xff, 0xa0]);
        assert_eq!(dotted_hex(&bytes), slice.text());
        assert_eq!(parse_dotted_hex(TextSlice::whole("01ffa0")).unwrap(), bytes);
        for text in ["1", "0g", "01.2", "+1", "0ü"] {
            assert!(parse_dotted_hex(TextSlice::whole(text)).is_err(), "{text}");
        }
    }
}
