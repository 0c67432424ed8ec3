//! Values of one field as text, in the format of the field.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{
    error::MatchError,
    flags,
    ports::{NoPortNames, PortNames, format_port, parse_port},
};
use crate::{
    FieldId, PortNo,
    draft::value_bits,
    field::{Format, Maskable},
};

/// Parses a value of `field` and its mask.
/// Examples: `10.0.0.0/8`, `0x5/0xf`, `+syn-ack`, `*`.
///
/// Value bits outside the mask are cleared. Ports are numbers or reserved names.
///
/// # Errors
///
/// If `text` is not a value of the field.
pub fn parse_value(field: FieldId, text: &str) -> Result<(u128, u128), MatchError> {
    parse_field_name(FieldName { field, name: field.name() }, text, &NoPortNames)
}

/// Writes a value of `field` as Open vSwitch does in actions and traces.
/// Examples: `10.0.0.0/8`, `0x5/0xf`, `syn|ack`; `ANY` under an empty mask.
#[must_use]
pub fn format_value(field: FieldId, value: u128, mask: u128) -> String {
    format_value_with(field, value, mask, &NoPortNames)
}

/// A field and the name that the user wrote, for errors.
#[derive(Clone, Copy)]
pub(super) struct FieldName {
    /// The field that the user named.
    pub(super) field: FieldId,
    /// The name that the user wrote.
    pub(super) name: &'static str,
}

/// Parses the value and mask of a field, by its name.
pub(super) fn parse_field_name(
    field_name: FieldName,
    text: &str,
    ports: &dyn PortNames,
) -> Result<(u128, u128), MatchError> {
    let FieldName { field, name } = field_name;
    if text == "*" {
        return Ok((0, 0));
    }
    let (bits, whole) = (value_bits(field), field.value_max());
    let too_wide = || MatchError::OutOfRange { name, text: text.to_owned(), bits };
    let (value, mask) = match parse_raw(field_name, text, ports) {
        Err(MatchError::BadValue { .. }) if is_wide_number(text) => return Err(too_wide()),
        raw => raw?,
    };
    if value & !bits != 0 || mask & !whole != 0 {
        return Err(too_wide());
    }
    if field.info().maskable == Maskable::Exact && mask != whole && mask != 0 {
        return Err(MatchError::Unmaskable(name));
    }
    Ok((value & mask, mask))
}

/// Parses `nw_tos` in a match.
/// The value is a whole byte without the ECN bits, and the mask is all or nothing.
pub(super) fn parse_tos(field_name: FieldName, text: &str) -> Result<(u128, u128), MatchError> {
    const BYTE: u128 = 0xff;
    if text == "*" {
        return Ok((0, 0));
    }
    let pair = parse_pair(text, BYTE, integer);
    let (value, mask) = pair.ok_or_else(|| MatchError::bad_value(field_name, text))?;
    let (name, whole) = (field_name.name, field_name.field.value_max());
    if value > BYTE {
        return Err(MatchError::OutOfRange { name, text: text.to_owned(), bits: BYTE });
    }
    match mask {
        BYTE => Ok((value & whole, whole)),
        0 => Ok((0, 0)),
        _ => Err(MatchError::Unmaskable(name)),
    }
}

/// Formats the value of a field, with its mask if bits are missing.
pub(super) fn format_value_with(
    field: FieldId,
    value: u128,
    mask: u128,
    ports: &dyn PortNames,
) -> String {
    let whole = field.value_max();
    let mask = mask & whole;
    if mask == 0 {
        return "ANY".to_owned();
    }
    let exact = mask == whole;
    let with_mask =
        |value: String, mask: String| if exact { value } else { [value, mask].join("/") };
    match field.info().format {
        Format::Decimal => with_mask(value.to_string(), hex(mask)),
        Format::Hex => with_mask(hex(value), hex(mask)),
        Format::Ethernet => with_mask(ethernet(value), ethernet(mask)),
        Format::Ipv4 => {
            with_mask(ipv4(value), prefix_len(mask, whole).unwrap_or_else(|| ipv4(mask)))
        }
        Format::Ipv6 => {
            with_mask(ipv6(value), prefix_len(mask, whole).unwrap_or_else(|| ipv6(mask)))
        }
        Format::Port => match u32::try_from(value) {
            Ok(number) if exact => format_port(PortNo::new(number), ports),
            _ => with_mask(hex(value), hex(mask)),
        },
        Format::Frag => format_frag(value, mask).to_owned(),
        Format::PacketType => format_packet_type(value),
        Format::TcpFlags | Format::TunFlags | Format::CtState => match flags::names(field) {
            Some(names) if exact => flags::format_whole(names, value),
            Some(names) => flags::format_masked(names, value, mask),
            None => with_mask(hex(value), hex(mask)),
        },
    }
}

/// Parses value and mask, which may still be too wide for the field.
fn parse_raw(
    field_name: FieldName,
    text: &str,
    ports: &dyn PortNames,
) -> Result<(u128, u128), MatchError> {
    let field = field_name.field;
    let bad = || MatchError::bad_value(field_name, text);
    let whole = field.value_max();
    match field.info().format {
        Format::Decimal | Format::Hex => parse_pair(text, whole, integer).ok_or_else(bad),
        Format::Ethernet => parse_pair(text, whole, parse_ethernet).ok_or_else(bad),
        Format::Ipv4 => parse_pair(text, whole, |text| {
            text.parse::<Ipv4Addr>().ok().map(|address| u128::from(u32::from(address)))
        })
        .or_else(|| parse_prefix(text, whole))
        .ok_or_else(bad),
        Format::Ipv6 => {
            parse_pair(text, whole, |text| text.parse::<Ipv6Addr>().ok().map(u128::from))
                .or_else(|| parse_prefix(text, whole))
                .ok_or_else(bad)
        }
        Format::Port => {
            let port = parse_port(text, ports).ok_or_else(bad)?;
            Ok((u128::from(port.number()), whole))
        }
        Format::Frag => {
            let named = FRAGS.iter().find(|(name, _, _)| *name == text);
            named.map(|(_, value, mask)| (*value, *mask)).ok_or_else(bad)
        }
        Format::PacketType => Ok((parse_packet_type(text).ok_or_else(bad)?, whole)),
        Format::TcpFlags | Format::TunFlags | Format::CtState => match flags::names(field) {
            Some(names) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
                flags::parse(field_name, names, text)
            }
            _ => parse_pair(text, whole, integer).ok_or_else(bad),
        },
    }
}

/// Parses `value` or `value/mask`, both by `parse`.
fn parse_pair(
    text: &str,
    whole: u128,
    parse: impl Fn(&str) -> Option<u128>,
) -> Option<(u128, u128)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((parse(value)?, parse(mask)?)),
        None => Some((parse(text)?, whole)),
    }
}

/// Parses an address and the length of its prefix.
/// `whole` is the mask of all bits of the address.
fn parse_prefix(text: &str, whole: u128) -> Option<(u128, u128)> {
    let (address, length) = text.split_once('/')?;
    let address = if whole == u128::MAX {
        u128::from(address.parse::<Ipv6Addr>().ok()?)
    } else {
        u128::from(u32::from(address.parse::<Ipv4Addr>().ok()?))
    };
    let length = length.parse::<u32>().ok().filter(|length| *length <= whole.count_ones())?;
    Some((address, whole & !whole.checked_shr(length).unwrap_or(0)))
}

/// Parses a number as C does: `0x` is hexadecimal, a leading zero octal.
#[must_use]
pub fn integer(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let unsigned = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    u128::from_str_radix(digits, radix).ok().filter(|_| unsigned)
}

/// Returns whether a text is a number (with or without mask) of more than 128 bits.
fn is_wide_number(text: &str) -> bool {
    let is_number = |part: &str| {
        let hex = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
        let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_decimal = || part.bytes().all(|byte| byte.is_ascii_digit());
        part.len() > 32 && hex.map_or_else(is_decimal, is_hex)
    };
    let (value, mask) = text.split_once('/').unwrap_or((text, text));
    (is_number(value) || is_number(mask))
        && [value, mask].iter().all(|part| is_number(part) || integer(part).is_some())
}

/// Parses a MAC address.
fn parse_ethernet(text: &str) -> Option<u128> {
    let octet = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u8::from_str_radix(text, 16).ok()).flatten()
    };
    let octets = text.split(':').map(octet).collect::<Option<Vec<_>>>()?;
    let octets = <[u8; 6]>::try_from(octets).ok()?;
    Some(octets.into_iter().fold(0, |address, octet| address << 8 | u128::from(octet)))
}

/// Parses a packet type: `(NAMESPACE,NUMBER)`.
fn parse_packet_type(text: &str) -> Option<u128> {
    let (space, kind) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    let half = |text: &str| integer(text.trim()).filter(|value| *value <= 0xffff);
    Some(half(space)? << 16 | half(kind)?)
}

/// Writes a number in hexadecimal.
/// Zero has no prefix, as with the `#` of C's `printf`.
#[must_use]
pub fn hex(value: u128) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

/// Writes an Ethernet address.
fn ethernet(value: u128) -> String {
    let octets = value.to_be_bytes();
    octets[10..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// Formats an IPv4 address.
#[expect(clippy::cast_possible_truncation, reason = "an IPv4 field has 32 bits")]
fn ipv4(value: u128) -> String {
    Ipv4Addr::from(value as u32).to_string()
}

/// Writes an IPv6 address as RFC 5952 does.
/// The last 32 bits of `::a.b.c.d` are dotted, as in the C library.
fn ipv6(value: u128) -> String {
    if value >> 32 == 0 && value > 0xffff {
        format!("::{}", ipv4(value))
    } else {
        Ipv6Addr::from(value).to_string()
    }
}

/// Returns the length of a mask that is a prefix of `whole`.
fn prefix_len(mask: u128, whole: u128) -> Option<String> {
    let host = whole & !mask;
    (host & host.wrapping_add(1) == 0).then(|| mask.count_ones().to_string())
}

/// Formats a match on fragments, such as `first` or `not_later`.
fn format_frag(value: u128, mask: u128) -> &'static str {
    let is = |(_, v, m): &&(_, u128, u128)| *v == value && *m == mask;
    FRAGS.iter().chain(&FRAGS_PRINTED).find(is).map_or("<error>", |(name, _, _)| name)
}

/// Formats a packet type: `(NAMESPACE,NUMBER)`.
fn format_packet_type(value: u128) -> String {
    format!("({},{})", hex_above_nine(value >> 16), hex_above_nine(value & 0xffff))
}

/// Writes a number in hexadecimal form if it is greater than nine.
fn hex_above_nine(value: u128) -> String {
    if value > 9 { format!("{value:#x}") } else { value.to_string() }
}

/// Names of fragment states: value and mask.
const FRAGS: [(&str, u128, u128); 5] =
    [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];
/// Masks of a single bit, which Open vSwitch prints, but no text parses to.
const FRAGS_PRINTED: [(&str, u128, u128); 2] = [("no", 0, 1), ("later", 2, 2)];
