//! Values of columns: sorted sets and maps of atoms (RFC 7047, section 5.1).

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use serde_json::Value;

use super::{Atom, RowUuid, SymbolTable};
use crate::{
    error::{ErrorTag, TransactionError},
    json_object::json_members,
    schema::ColumnType,
};

/// The value of a column: a set of atoms, or a map between atoms.
///
/// The keys are sorted and distinct. A scalar is a set of one atom. The type of a column decides if
/// a value is a set or a map; in a map each key has its value at the same position.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Datum {
    /// The atoms of a set, or the keys of a map.
    pub(super) keys: Vec<Atom>,
    /// The value of each key of a map; empty for a set.
    pub(super) values: Vec<Atom>,
}

impl Datum {
    /// Returns the empty set, which also is the empty map.
    #[must_use]
    pub const fn empty() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// Creates a set of one atom, the value of a scalar column.
    #[must_use]
    pub fn scalar(atom: Atom) -> Self {
        Self { keys: vec![atom], values: Vec::new() }
    }

    /// Creates the value of an integer column.
    #[must_use]
    pub fn integer(value: i64) -> Self {
        Self::scalar(Atom::Integer(value))
    }

    /// Creates the value of a boolean column.
    #[must_use]
    pub fn boolean(value: bool) -> Self {
        Self::scalar(Atom::Boolean(value))
    }

    /// Creates the value of a string column.
    #[must_use]
    pub fn string(value: &str) -> Self {
        Self::scalar(Atom::String(value.into()))
    }

    /// Creates a reference to a row.
    #[must_use]
    pub fn uuid(value: RowUuid) -> Self {
        Self::scalar(Atom::Uuid(value))
    }

    /// Creates a set. Equal atoms count once.
    #[must_use]
    pub fn set(atoms: impl IntoIterator<Item = Atom>) -> Self {
        let mut keys: Vec<Atom> = atoms.into_iter().collect();
        keys.sort();
        keys.dedup();
        Self { keys, values: Vec::new() }
    }

    /// Creates a map. The last value of a key counts.
    #[must_use]
    pub fn map(pairs: impl IntoIterator<Item = (Atom, Atom)>) -> Self {
        let pairs: BTreeMap<Atom, Atom> = pairs.into_iter().collect();
        let (keys, values) = pairs.into_iter().unzip();
        Self { keys, values }
    }

    /// Creates a set of strings.
    #[must_use]
    pub fn strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::set(texts.into_iter().map(|text| Atom::String(text.into())))
    }

    /// Creates a map between strings.
    #[must_use]
    pub fn string_map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let atom = |text: &str| Atom::String(Arc::from(text));
        Self::map(pairs.into_iter().map(|(key, value)| (atom(key), atom(value))))
    }

    /// Returns the default: empty if the type allows it; otherwise one default value.
    #[must_use]
    pub fn default_of(kind: &ColumnType) -> Self {
        if kind.min == 0 {
            return Self::empty();
        }
        let values = kind.value.iter().map(|value| Atom::default_of(value.kind)).collect();
        Self { keys: vec![Atom::default_of(kind.key.kind)], values }
    }

    /// Returns whether the value is the default of its type.
    #[must_use]
    pub fn is_default(&self, kind: &ColumnType) -> bool {
        if kind.min == 0 {
            return self.is_empty();
        }
        let is_default = |atoms: &[Atom]| matches!(atoms, [atom] if atom.is_default());
        let has_value = kind.value.is_some();
        is_default(&self.keys)
            && if has_value { is_default(&self.values) } else { self.values.is_empty() }
    }

    /// Returns the number of atoms, or of pairs.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether the set or map is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the atoms of a set, or the keys of a map, in ascending order.
    #[must_use]
    pub fn keys(&self) -> &[Atom] {
        &self.keys
    }

    /// Returns the values of a map, in the order of their keys.
    #[must_use]
    pub fn values(&self) -> &[Atom] {
        &self.values
    }

    /// Returns the keys with their values; the members of a set have no values.
    pub fn pairs(&self) -> impl Iterator<Item = (&Atom, Option<&Atom>)> {
        self.keys.iter().enumerate().map(|(index, key)| (key, self.values.get(index)))
    }

    /// Returns the atom of a scalar.
    #[must_use]
    pub fn as_scalar(&self) -> Option<&Atom> {
        match self.keys.as_slice() {
            [atom] => Some(atom),
            _ => None,
        }
    }

    /// Returns the value of a key of a map.
    #[must_use]
    pub fn find_value(&self, key: &Atom) -> Option<&Atom> {
        let index = self.keys.binary_search(key).ok()?;
        self.values.get(index)
    }

    /// Parses a `<value>` of a type, with all constraints.
    ///
    /// # Errors
    ///
    /// If the value has another type, or breaks a constraint.
    pub fn from_json(
        json: &Value,
        kind: &ColumnType,
        mut symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self, TransactionError> {
        let class = json.as_array().and_then(|array| array.first()).and_then(Value::as_str);
        if kind.value.is_none() && class != Some("set") {
            let atom = Atom::from_json(json, kind.key.kind, symbols)?;
            kind.key.check(&atom)?;
            return Ok(Self::scalar(atom));
        }
        let class = if kind.value.is_some() { "map" } else { "set" };
        let members = unwrap(json, class)?;
        check_size(members.len(), kind, Some(json))?;
        let mut pairs = Vec::with_capacity(members.len());
        for member in members {
            let (key, value) = match &kind.value {
                None => (member, None),
                Some(value) => match member.as_array().map(Vec::as_slice) {
                    Some([key, json]) => (key, Some((value, json))),
                    _ => return Err(TransactionError::syntax("expected 2-element array", member)),
                },
            };
            let key = Atom::from_json(key, kind.key.kind, symbols.as_deref_mut())?;
            kind.key.check(&key)?;
            let value = match value {
                None => None,
                Some((base, json)) => {
                    let value = Atom::from_json(json, base.kind, symbols.as_deref_mut())?;
                    base.check(&value)?;
                    Some(value)
                }
            };
            pairs.push((key, value));
        }
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        if pairs.windows(2).any(|pair| matches!(pair, [one, other] if one.0 == other.0)) {
            let member = if kind.value.is_some() { " key" } else { "" };
            let details = format!("{class} contains duplicate{member}");
            return Err(TransactionError::new(ErrorTag::Duplicate, details));
        }
        let (keys, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        Ok(Self { keys, values: values.into_iter().flatten().collect() })
    }

    /// Returns the value as a `<value>` of RFC 7047.
    #[must_use]
    pub fn to_json(&self, kind: &ColumnType) -> Value {
        if kind.value.is_some() {
            let pair = |(key, value): (&Atom, Option<&Atom>)| {
                Value::Array(vec![key.to_json(), value.map_or(Value::Null, Atom::to_json)])
            };
            return json_members("map", self.pairs().map(pair).collect());
        }
        match self.as_scalar() {
            Some(atom) => atom.to_json(),
            None => json_members("set", self.keys.iter().map(Atom::to_json).collect()),
        }
    }

    /// Adds the text of [`Self::to_json`], without a JSON value for each UUID.
    pub(crate) fn write_json(&self, kind: &ColumnType, text: &mut String) {
        if let (false, Some(atom)) = (kind.is_map(), self.as_scalar()) {
            atom.write_json(text);
            return;
        }
        text.push_str(if kind.is_map() { "[\"map\",[" } else { "[\"set\",[" });
        for (index, (key, value)) in self.pairs().enumerate() {
            if index > 0 {
                text.push(',');
            }
            if kind.is_map() {
                text.push('[');
                key.write_json(text);
                text.push(',');
                match value {
                    Some(value) => value.write_json(text),
                    None => text.push_str("null"),
                }
                text.push(']');
            } else {
                key.write_json(text);
            }
        }
        text.push_str("]]");
    }

    /// Checks a value that a program built.
    ///
    /// # Errors
    ///
    /// If the value has another type, or breaks a constraint.
    pub fn check(&self, kind: &ColumnType) -> Result<(), TransactionError> {
        check_size(self.len(), kind, None)?;
        let is_map = kind.value.is_some() && !self.keys.is_empty();
        let sides = [(&self.keys, Some(&kind.key)), (&self.values, kind.value.as_ref())];
        for (atoms, base) in sides {
            for atom in atoms {
                let base = base.filter(|base| base.kind == atom.kind()).ok_or_else(|| {
                    let details = format!("{atom} does not fit a column of type {kind}");
                    TransactionError::new(ErrorTag::Constraint, details)
                })?;
                base.check(atom)?;
            }
        }
        if is_map && self.values.len() != self.keys.len() {
            let details = format!("a set does not fit a column of type {kind}");
            return Err(TransactionError::new(ErrorTag::Constraint, details));
        }
        Ok(())
    }

    /// Returns the text of a value in messages: `a`, `[a, b]` or `{a=b}`.
    #[must_use]
    pub fn to_text(&self, kind: &ColumnType) -> String {
        let is_map = kind.value.is_some();
        let braces = match (is_map, self.len()) {
            (true, _) => ("{", "}"),
            (false, 1) => ("", ""),
            (false, _) => ("[", "]"),
        };
        let mut text = braces.0.to_owned();
        for (index, (key, value)) in self.pairs().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = match value {
                Some(value) => write!(text, "{comma}{key}={value}"),
                None => write!(text, "{comma}{key}"),
            };
        }
        text.push_str(braces.1);
        text
    }
}

/// Returns the members of `["set", [..]]` or `["map", [..]]`.
fn unwrap<'a>(json: &'a Value, class: &str) -> Result<&'a [Value], TransactionError> {
    match json.as_array().map(Vec::as_slice) {
        Some([Value::String(name), Value::Array(members)]) if name == class => Ok(members),
        _ => {
            let details = format!("expected [\"{class}\", <array>]");
            Err(TransactionError::syntax(details, json))
        }
    }
}

/// Refuses a set or map with too few or too many members.
fn check_size(len: usize, kind: &ColumnType, json: Option<&Value>) -> Result<(), TransactionError> {
    if (kind.min..=kind.max).contains(&len) {
        return Ok(());
    }
    let class = if kind.value.is_some() { "map" } else { "set" };
    let details = if (kind.min, kind.max) == (1, 1) {
        format!("{class} must have exactly one member but {len} are present")
    } else {
        // The message has no word for "unlimited", and Open vSwitch writes this number.
        let max = u32::try_from(kind.max).unwrap_or(u32::MAX);
        format!("{class} must have {} to {max} members but {len} are present", kind.min)
    };
    Err(match json {
        Some(json) => TransactionError::syntax(details, json),
        None => TransactionError::new(ErrorTag::Constraint, details),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::OrderedReal;

    fn parse_datum(kind: &str, value: &str) -> Result<Datum, TransactionError> {
        let kind = ColumnType::from_json(&serde_json::from_str(kind).unwrap()).unwrap();
        Datum::from_json(&serde_json::from_str(value).unwrap(), &kind, None)
    }

    #[test]
    fn sets_are_sorted_and_have_no_duplicates() {
        let kind = r#"{"key": "integer", "min": 0, "max": 3}"#;
        assert_eq!(parse_datum(kind, "[\"set\", [3, 1]]").unwrap().keys().len(), 2);
        assert_eq!(parse_datum(kind, "[\"set\", [3, 1]]"), parse_datum(kind, "[\"set\", [1, 3]]"));
        assert!(parse_datum(kind, "[\"set\", [1, 1]]").is_err());
        assert!(parse_datum(kind, "[\"set\", [1, 2, 3, 4]]").is_err());
        assert!(parse_datum(kind, "[\"map\", []]").is_err());
    }

    #[test]
    fn a_written_value_is_its_json() {
        let texts = ["\"a\"", "b", "\n"].map(|text| Atom::String(text.into()));
        let uuids = [1, 2, u128::MAX].map(|bits| Atom::Uuid(RowUuid::from_bits(bits)));
        let pairs = texts.clone().into_iter().zip(uuids.clone());
        for (kind, value) in [
            (r#""integer""#, Datum::integer(-7)),
            (r#""boolean""#, Datum::boolean(true)),
            (r#""real""#, Datum::scalar(Atom::Real(OrderedReal::new(0.25)))),
            (r#""string""#, Datum::string("\u{1}\"x")),
            (r#"{"key": "string", "min": 0, "max": 3}"#, Datum::set(texts)),
            (r#"{"key": "uuid", "min": 0, "max": 3}"#, Datum::set(uuids)),
            (r#"{"key": "uuid", "min": 0, "max": 3}"#, Datum::uuid(RowUuid::NIL)),
            (r#"{"key": "uuid", "min": 0, "max": 3}"#, Datum::empty()),
            (r#"{"key": "string", "value": "uuid", "min": 0, "max": 3}"#, Datum::map(pairs)),
            (r#"{"key": "string", "value": "string", "min": 0}"#, Datum::string_map([("a", "b")])),
            (r#"{"key": "string", "value": "string", "min": 0}"#, Datum::empty()),
        ] {
            let kind = ColumnType::from_json(&serde_json::from_str(kind).unwrap()).unwrap();
            let mut text = String::new();
            value.write_json(&kind, &mut text);
            assert_eq!(text, value.to_json(&kind).to_string());
        }
    }

    #[test]
    fn a_default_is_recognised_without_its_value() {
        for kind in [
            r#""integer""#,
            r#""real""#,
            r#""boolean""#,
            r#""string""#,
            r#""uuid""#,
            r#"{"key": "string", "min": 0}"#,
            r#"{"key": "integer", "value": "string", "min": 1, "max": 2}"#,
        ] {
            let kind = ColumnType::from_json(&serde_json::from_str(kind).unwrap()).unwrap();
            let default = Datum::default_of(&kind);
            assert!(default.is_default(&kind), "{kind}");
            for other in [
                Datum::integer(1),
                Datum::scalar(Atom::Boolean(true)),
                Datum::string("a"),
                Datum::uuid(RowUuid::from_bits(1)),
                Datum::map([(Atom::Integer(0), Atom::String("a".into()))]),
                Datum::map([(Atom::Integer(1), Atom::String("".into()))]),
            ] {
                assert_eq!(other.is_default(&kind), other == default, "{kind}");
            }
        }
    }

    #[test]
    fn values_outside_column_constraints_are_refused() {
        let kind = r#"{"key": {"type": "integer", "minInteger": 0, "maxInteger": 4095}}"#;
        let error = parse_datum(kind, "4096").unwrap_err();
        assert_eq!(error.details(), "4096 is not in the valid range 0 to 4095 (inclusive)");
        assert!(parse_datum(kind, "4095").is_ok());
    }
}
