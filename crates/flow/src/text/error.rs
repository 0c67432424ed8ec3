//! Errors of match text; each message explains how to correct the match.

use thiserror::Error;

use super::{protocol::Shorthand, value::FieldName};
use crate::{FieldId, field::Format};

/// The reason why a match was refused.
/// Each message names the item and the correction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MatchError {
    /// No field and no shorthand has this name.
    #[error(
        "unknown field `{name}`{}",
        .nearest.map_or_else(String::new, |nearest| format!(": is it `{nearest}`?"))
    )]
    UnknownField {
        /// The field name as the user wrote it.
        name: String,
        /// The most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// The field exists in packets, but no match can name it.
    #[error("`{0}` can be shown but not matched: leave it out of the match")]
    Unmatchable(&'static str),
    /// A field without a value.
    #[error("`{0}` needs a value: write `{0}=` and {1}")]
    MissingValue(&'static str, &'static str),
    /// A shorthand with a value.
    #[error("`{0}` takes no value: write `{0}` alone")]
    UnexpectedValue(&'static str),
    /// A value that does not have the format of the field.
    #[error("`{text}` is not a value of `{name}`: write {expected}")]
    BadValue {
        /// Name of the field.
        name: &'static str,
        /// The value as the user wrote it.
        text: String,
        /// The format of values of the field.
        expected: &'static str,
    },
    /// A number that does not fit the field.
    #[error("`{text}` does not fit `{name}`: only the bits {bits:#x} may be set")]
    OutOfRange {
        /// Name of the field.
        name: &'static str,
        /// The value as the user wrote it.
        text: String,
        /// The width of the field in bits.
        bits: u128,
    },
    /// A mask on a field that can only be matched whole.
    #[error("`{0}` can only be matched whole: leave out the mask")]
    Unmaskable(&'static str),
    /// A flag that the field does not have.
    #[error("`{flag}` is not a flag of `{name}`: it has {known}")]
    UnknownFlag {
        /// Name of the field.
        name: &'static str,
        /// The flag as the user wrote it.
        flag: String,
        /// The flags of the field.
        known: String,
    },
    /// A flag that was given twice.
    #[error("`{flag}` is given twice in `{name}`: give each flag once")]
    RepeatedFlag {
        /// Name of the field.
        name: &'static str,
        /// The flag that was given twice.
        flag: String,
    },
    /// Two items with different values for the same bits.
    #[error("`{second}` contradicts `{first}`: leave out one of them")]
    Contradiction {
        /// The item that was added first.
        first: String,
        /// The later item, which contradicts the first.
        second: String,
    },
    /// A field without its prerequisite.
    #[error("`{name}` needs {needs}: write {example}")]
    Unmet {
        /// The item as the user wrote it.
        name: String,
        /// The prerequisite, in words.
        needs: String,
        /// The item with a prerequisite, as match text.
        example: String,
    },
}

impl MatchError {
    /// Returns the error for a name that is neither a field nor a shorthand.
    #[must_use]
    pub fn unknown(name: &str) -> Self {
        Self::UnknownField { name: name.to_owned(), nearest: nearest(name) }
    }

    /// Creates the error for a value that cannot be parsed.
    pub(super) fn bad_value(field_name: FieldName, text: &str) -> Self {
        let expected = expected(field_name.field);
        Self::BadValue { name: field_name.name, text: text.to_owned(), expected }
    }

    /// Creates the error for a field without a value.
    pub(super) fn missing_value(field_name: FieldName) -> Self {
        Self::MissingValue(field_name.name, expected(field_name.field))
    }
}

/// Returns a description of the values of a field.
const fn expected(field: FieldId) -> &'static str {
    match field {
        FieldId::EthType => "a number such as 0x0800, or the name of the protocol alone, ip",
        FieldId::IpProto => "a number such as 6, or the name of the protocol alone, tcp",
        _ => expected_format(field.info().format),
    }
}

/// Returns the description of a format for error messages.
const fn expected_format(format: Format) -> &'static str {
    match format {
        Format::Decimal | Format::Hex => "a number, or number/mask: 80, 0x50, 0x50/0xfff0",
        Format::Ethernet => "an address, or address/mask: 00:11:22:33:44:55",
        Format::Ipv4 => "an address, address/length or address/mask: 10.0.0.0/8",
        Format::Ipv6 => "an address, address/length or address/mask: 2001:db8::/32",
        Format::Port => "a port's number or name: 1, LOCAL",
        Format::Frag => "no, yes, first, later or not_later",
        Format::TcpFlags => "flags: +syn-ack, syn|ack, 0x2/0x12",
        Format::TunFlags => "flags: +oam, -oam",
        Format::CtState => "flags: +trk-new, est|trk, 0x21/0x21",
        Format::PacketType => "name space and type in parentheses: (1,0x800)",
    }
}

/// Returns the field or shorthand that `name` is probably a misspelling of.
fn nearest(name: &str) -> Option<&'static str> {
    let names = FieldId::all().flat_map(|field| field.info().names.iter().copied());
    nearest_of(name, names.chain(Shorthand::names()))
}

/// Returns the known name that `name` is probably a misspelling of.
///
/// The result is the known name with the fewest spelling errors in `name`: letters inserted,
/// omitted, replaced or swapped. One error is allowed for each three letters of the shorter name,
/// rounded up. Case is ignored. A `name` of more than 64 bytes is not compared, because it may be
/// from a peer. Of names with equally many errors, one that begins with `name` is preferred. A known
/// name with `name` after its last dot is preferred to all others, as `caches.idle_ms` for `idle_ms`.
#[must_use]
pub fn nearest_of<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let slips_max = |known: &str| name.len().min(known.len()).div_ceil(3);
    let slips = |known: &str| strsim::osa_distance(&name, &known.to_lowercase());
    let scored = known.into_iter().map(|known| (slips(known), known));
    let is_part = |known: &str| {
        known.rsplit_once('.').is_some_and(|(_, part)| part.eq_ignore_ascii_case(&name))
    };
    let near = scored.filter(|(slips, known)| *slips <= slips_max(known) || is_part(known));
    // Of equally similar names, one that `name` begins is probably only not complete.
    let is_continued = |known: &str| known.to_lowercase().starts_with(&name);
    near.min_by_key(|(slips, known)| (!is_part(known), *slips, !is_continued(known)))
        .map(|(_, known)| known)
}

/// Longest name that is compared with the known names, in bytes.
const NAME_LEN_MAX: usize = 64;
