//! Atoms: the scalars that sets and maps consist of (RFC 7047, section 5.1).

use std::{
    cmp::Ordering,
    fmt::{self, Write as _},
    sync::Arc,
};

use serde_json::{Number, Value};

use super::{RowUuid, SymbolTable};
use crate::{error::TransactionError, schema::AtomType};

/// A scalar value. Atoms of one type are ordered as in Open vSwitch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    /// An integer of 64 bits.
    Integer(i64),
    /// A finite floating-point number.
    Real(OrderedReal),
    /// A value that is true or false.
    Boolean(bool),
    /// A string without null bytes.
    String(Arc<str>),
    /// The UUID of a row.
    Uuid(RowUuid),
}

impl Atom {
    /// Returns the default of a type: zero, false, or empty.
    #[must_use]
    pub fn default_of(kind: AtomType) -> Self {
        match kind {
            AtomType::Integer => Self::Integer(0),
            AtomType::Real => Self::Real(OrderedReal::new(0.0)),
            AtomType::Boolean => Self::Boolean(false),
            AtomType::String => Self::String("".into()),
            AtomType::Uuid => Self::Uuid(RowUuid::NIL),
        }
    }

    /// Returns the UUID of an atom of this type.
    #[must_use]
    pub const fn as_uuid(&self) -> Option<RowUuid> {
        match self {
            Self::Uuid(uuid) => Some(*uuid),
            Self::Integer(_) | Self::Real(_) | Self::Boolean(_) | Self::String(_) => None,
        }
    }

    /// Returns whether the atom is the default of its type.
    #[must_use]
    pub fn is_default(&self) -> bool {
        match self {
            Self::Integer(number) => *number == 0,
            Self::Real(real) => *real == OrderedReal::new(0.0),
            Self::Boolean(flag) => !flag,
            Self::String(text) => text.is_empty(),
            Self::Uuid(uuid) => *uuid == RowUuid::NIL,
        }
    }

    /// Returns the type of the atom.
    #[must_use]
    pub const fn kind(&self) -> AtomType {
        match self {
            Self::Integer(_) => AtomType::Integer,
            Self::Real(_) => AtomType::Real,
            Self::Boolean(_) => AtomType::Boolean,
            Self::String(_) => AtomType::String,
            Self::Uuid(_) => AtomType::Uuid,
        }
    }

    /// Parses an `<atom>`. Named UUIDs need the symbols of a transaction.
    ///
    /// # Errors
    ///
    /// If the value has another type.
    pub fn from_json(
        json: &Value,
        kind: AtomType,
        symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self, TransactionError> {
        let expected = || TransactionError::syntax(format!("expected {}", kind.as_str()), json);
        match kind {
            AtomType::Integer => integer(json).map(Self::Integer).ok_or_else(expected),
            AtomType::Real => {
                let real = json.as_f64().filter(|real| real.is_finite());
                real.map(|real| Self::Real(OrderedReal::new(real))).ok_or_else(expected)
            }
            AtomType::Boolean => json.as_bool().map(Self::Boolean).ok_or_else(expected),
            AtomType::String => {
                let text = json.as_str().ok_or_else(expected)?;
                if text.contains('\0') {
                    let details = "strings cannot contain null bytes";
                    return Err(TransactionError::syntax(details, json));
                }
                Ok(Self::String(text.into()))
            }
            AtomType::Uuid => uuid(json, symbols).map(Self::Uuid),
        }
    }

    /// Returns the atom as an `<atom>` of RFC 7047.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Integer(number) => (*number).into(),
            Self::Real(real) => real.to_json(),
            Self::Boolean(flag) => (*flag).into(),
            Self::String(text) => Value::String(text.to_string()),
            Self::Uuid(uuid) => Value::Array(vec!["uuid".into(), uuid.to_string().into()]),
        }
    }

    /// Adds the text of [`Self::to_json`].
    pub(crate) fn write_json(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Uuid(uuid) => write!(text, "[\"uuid\",\"{uuid}\"]"),
            other => write!(text, "{}", other.to_json()),
        };
    }
}

/// The text of an atom in messages.
/// Strings that could be read as another atom have quotes.
impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Real(real) => real.value().fmt(f),
            Self::Boolean(flag) => flag.fmt(f),
            Self::String(text) if needs_quotes(text) => Value::String(text.to_string()).fmt(f),
            Self::String(text) => f.write_str(text),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

/// A finite number with a total order, in which negative zero equals zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderedReal(f64);

impl OrderedReal {
    /// Creates a real from a number.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self(value + 0.0)
    }

    /// Returns the number that the atom holds.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.0
    }

    /// Returns a whole number as a JSON integer, any other as a JSON number.
    fn to_json(self) -> Value {
        match as_integer(self.0) {
            Some(integer) => integer.into(),
            None => Number::from_f64(self.0).map_or(Value::Null, Value::Number),
        }
    }
}

impl Eq for OrderedReal {}

impl PartialOrd for OrderedReal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedReal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Returns the integer of a JSON number, which may be written as `1.0`.
fn integer(json: &Value) -> Option<i64> {
    json.as_i64().or_else(|| json.as_f64().and_then(as_integer))
}

/// Returns a number as an integer, if it is whole and exact in 53 bits.
fn as_integer(real: f64) -> Option<i64> {
    /// 2^53: up to this number, a double has every integer.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if real.fract() != 0.0 || real.abs() > EXACT_MAX {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the value is whole, and below 2^53")]
    Some(real as i64)
}

/// Parses a reference: a UUID or a name in the request.
fn uuid(json: &Value, symbols: Option<&mut SymbolTable<'_>>) -> Result<RowUuid, TransactionError> {
    let pair = json.as_array().map(Vec::as_slice);
    if let Some([Value::String(class), Value::String(text)]) = pair {
        match (class.as_str(), symbols) {
            ("uuid", _) => {
                let wrong =
                    |_| TransactionError::syntax(format!("\"{text}\" is not a valid UUID"), json);
                return text.parse().map_err(wrong);
            }
            ("named-uuid", Some(symbols)) => return Ok(symbols.refer(text)),
            _ => {}
        }
    }
    Err(TransactionError::syntax("expected [\"uuid\", <string>]", json))
}

/// Returns whether a string needs quotes in text, as Open vSwitch decides it.
fn needs_quotes(text: &str) -> bool {
    let mut bytes = text.bytes();
    let starts = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let goes_on = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    !starts || !goes_on || text == "true" || text == "false" || text.parse::<RowUuid>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reals_without_a_fraction_parse_as_integers() {
        let integer = |text: &str| {
            let json = serde_json::from_str(text).unwrap();
            Atom::from_json(&json, AtomType::Integer, None).ok()
        };
        assert_eq!(integer("1.0"), Some(Atom::Integer(1)));
        assert_eq!(integer("9223372036854775807"), Some(Atom::Integer(i64::MAX)));
        assert_eq!(integer("9223372036854775808"), None);
        assert_eq!(integer("1.5"), None);
        assert_eq!(integer("\"1\""), None);
    }

    #[test]
    fn ambiguous_strings_have_quotes() {
        let text = |text: &str| Atom::String(text.into()).to_string();
        assert_eq!(text("balance-tcp"), "balance-tcp");
        assert_eq!(text(""), "\"\"");
        assert_eq!(text("true"), "\"true\"");
        assert_eq!(text("a b"), "\"a b\"");
    }
}
