//! Types of columns (`<type>` of RFC 7047, section 3.2).

use std::fmt;

use serde_json::{Map, Value};

use super::{BaseType, Members};
use crate::error::DatabaseSchemaError;

/// The type of a column.
///
/// A column type consists of the type of keys, the type of values (of a map), and the allowed
/// number of members.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnType {
    /// The type of atoms of a set, or of keys of a map.
    pub key: BaseType,
    /// The type of values of a map.
    pub value: Option<BaseType>,
    /// Smallest number of members: 0 or 1.
    pub min: usize,
    /// Largest number of members; `usize::MAX` means no limit.
    pub max: usize,
}

impl ColumnType {
    /// Creates the type of one atom without constraint.
    #[must_use]
    pub const fn scalar(key: BaseType) -> Self {
        Self { key, value: None, min: 1, max: 1 }
    }

    /// Returns the type of the differences between values of this type.
    ///
    /// A difference may have more members than a value, or fewer.
    #[must_use]
    pub fn of_differences(&self) -> Self {
        let max = if self.max == 1 { 1 } else { usize::MAX };
        Self { min: 0, max, ..self.clone() }
    }

    /// Parses a `<type>`.
    ///
    /// # Errors
    ///
    /// If the text is not in the form of RFC 7047.
    pub fn from_json(json: &Value) -> Result<Self, DatabaseSchemaError> {
        if json.is_string() {
            return BaseType::from_json(json).map(Self::scalar);
        }
        let failed =
            |reason| DatabaseSchemaError::new(format!("Parsing ovsdb type failed: {reason}"));
        let members = Members::of(json).ok_or_else(|| failed("Object expected.".to_owned()))?;
        let key = BaseType::from_json(members.required("key").map_err(failed)?)?;
        let value = members.find("value").map(BaseType::from_json).transpose()?;
        let min = members.find("min").map_or(Some(1), count);
        let max = match members.find("max") {
            Some(Value::String(word)) if word == "unlimited" => Some(usize::MAX),
            other => other.map_or(Some(1), count),
        };
        members.finish().map_err(failed)?;
        match (min, max) {
            (Some(min @ 0..=1), Some(max)) if max >= 1 => Ok(Self { key, value, min, max }),
            _ => Err(failed("ovsdb type fails constraint checks".to_owned())),
        }
    }

    /// Returns the type as a `<type>`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let key = self.key.to_json();
        if self.is_scalar() && key.is_string() {
            return key;
        }
        let mut members = Map::from_iter([("key".to_owned(), key)]);
        if let Some(value) = &self.value {
            members.insert("value".to_owned(), value.to_json());
        }
        if self.min != 1 {
            members.insert("min".to_owned(), self.min.into());
        }
        if self.max == usize::MAX {
            members.insert("max".to_owned(), "unlimited".into());
        } else if self.max != 1 {
            members.insert("max".to_owned(), self.max.into());
        }
        Value::Object(members)
    }

    /// Returns whether a value is exactly one atom.
    #[must_use]
    pub const fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == 1
    }

    /// Returns whether a value is one atom or none.
    #[must_use]
    pub const fn is_optional_scalar(&self) -> bool {
        self.value.is_none() && self.min == 0 && self.max == 1
    }

    /// Returns whether a value is a map.
    #[must_use]
    pub const fn is_map(&self) -> bool {
        self.value.is_some()
    }
}

/// The text of a type in messages.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.kind.as_str();
        let (class, member) = match &self.value {
            None if self.is_scalar() => return f.write_str(key),
            None => ("set", format!("{key}s")),
            Some(value) => ("map", format!("({key}, {}) pairs", value.kind.as_str())),
        };
        match (self.min, self.max) {
            (0, usize::MAX) => write!(f, "{class} of {member}"),
            (min, usize::MAX) => write!(f, "{class} of {min} or more {member}"),
            (0, max) => write!(f, "{class} of up to {max} {member}"),
            (min, max) => write!(f, "{class} of {min} to {max} {member}"),
        }
    }
}

/// Parses the `min` or `max` of a column type.
fn count(json: &Value) -> Option<usize> {
    json.as_u64().and_then(|count| usize::try_from(count).ok())
}
