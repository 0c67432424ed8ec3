//! Types of keys and values with their constraints (`<base-type>` of RFC 7047, section 3.2).

use serde_json::{Map, Value, json};

use super::{AtomType, Members};
use crate::{
    error::{DatabaseSchemaError, ErrorTag, TransactionError},
    value::{Atom, OrderedReal},
};

/// The type of the keys or the values of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseType {
    /// The type of the atoms.
    pub kind: AtomType,
    /// The constraint on each atom.
    pub constraint: Constraint,
}

/// A constraint on atoms.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// Any atom of the type is allowed.
    None,
    /// The allowed atoms, in ascending order.
    Enum(Vec<Atom>),
    /// An integer in a range that includes both ends.
    Integer {
        /// The smallest allowed number.
        min: i64,
        /// The largest allowed number.
        max: i64,
    },
    /// A real number in a range that includes both ends.
    Real {
        /// The smallest allowed number.
        min: Option<OrderedReal>,
        /// The largest allowed number.
        max: Option<OrderedReal>,
    },
    /// A string with a number of characters in a range that includes both ends.
    Length {
        /// The smallest allowed length.
        min: usize,
        /// The largest allowed length.
        max: usize,
    },
    /// A reference to a row of a table.
    Reference {
        /// The table of the row.
        table: String,
        /// The effect of the reference on the row.
        strength: ReferenceStrength,
    },
}

/// The effect of a reference on the referenced row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceStrength {
    /// The row must exist, and is kept as long as the reference exists.
    Strong,
    /// The reference is removed together with the row.
    Weak,
}

impl BaseType {
    /// Creates a type without constraint.
    #[must_use]
    pub const fn plain(kind: AtomType) -> Self {
        Self { kind, constraint: Constraint::None }
    }

    /// Parses a `<base-type>`.
    ///
    /// # Errors
    ///
    /// If the text is not in the form of RFC 7047.
    pub fn from_json(json: &Value) -> Result<Self, DatabaseSchemaError> {
        if let Some(word) = json.as_str() {
            return Ok(Self::plain(atom_type(word)?));
        }
        let failed =
            |reason| DatabaseSchemaError::new(format!("Parsing ovsdb type failed: {reason}"));
        let members = Members::of(json).ok_or_else(|| failed("Object expected.".to_owned()))?;
        let kind = atom_type(members.string("type").map_err(failed)?)?;
        let constraint = match members.find("enum") {
            Some(json) => Constraint::Enum(enumeration(json, kind)?),
            None => constraint(&members, kind).map_err(failed)?,
        };
        members.finish().map_err(failed)?;
        Ok(Self { kind, constraint })
    }

    /// Returns the type as a `<base-type>`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut members = Map::from_iter([("type".to_owned(), self.kind.as_str().into())]);
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        match &self.constraint {
            Constraint::None => return self.kind.as_str().into(),
            Constraint::Enum(atoms) => match atoms.as_slice() {
                [atom] => drop(put("enum", atom.to_json())),
                atoms => {
                    let atoms: Vec<Value> = atoms.iter().map(Atom::to_json).collect();
                    put("enum", json!(["set", atoms]));
                }
            },
            Constraint::Integer { min, max } => {
                if *min != i64::MIN {
                    put("minInteger", (*min).into());
                }
                if *max != i64::MAX {
                    put("maxInteger", (*max).into());
                }
            }
            Constraint::Real { min, max } => {
                for (name, bound) in [("minReal", min), ("maxReal", max)] {
                    if let Some(bound) = bound {
                        put(name, Atom::Real(*bound).to_json());
                    }
                }
            }
            Constraint::Length { min, max } => {
                if *min != 0 {
                    put("minLength", (*min).into());
                }
                if *max != usize::MAX {
                    put("maxLength", (*max).into());
                }
            }
            Constraint::Reference { table, strength } => {
                put("refTable", table.as_str().into());
                if *strength == ReferenceStrength::Weak {
                    put("refType", "weak".into());
                }
            }
        }
        Value::Object(members)
    }

    /// Checks an atom of this type.
    ///
    /// # Errors
    ///
    /// If the atom breaks the constraint. The existence of rows is not checked here.
    pub fn check(&self, atom: &Atom) -> Result<(), TransactionError> {
        let problem = match (&self.constraint, atom) {
            (Constraint::Enum(atoms), atom) if !atoms.contains(atom) => {
                let allowed: Vec<String> = atoms.iter().map(Atom::to_string).collect();
                let allowed = match allowed.as_slice() {
                    [only] => only.clone(),
                    all => format!("[{}]", all.join(", ")),
                };
                format!("{atom} is not one of the allowed values ({allowed})")
            }
            (Constraint::Integer { min, max }, Atom::Integer(number)) => {
                match integer_problem(*number, *min, *max) {
                    Some(problem) => problem,
                    None => return Ok(()),
                }
            }
            (Constraint::Real { min, max }, Atom::Real(real)) => {
                let below = min.is_some_and(|min| *real < min);
                let above = max.is_some_and(|max| *real > max);
                if !below && !above {
                    return Ok(());
                }
                let bound = |bound: Option<OrderedReal>, none: &str| {
                    bound.map_or_else(|| none.to_owned(), |bound| bound.value().to_string())
                };
                let (min, max) = (bound(*min, "-infinity"), bound(*max, "infinity"));
                format!("{atom} is not in the valid range {min} to {max} (inclusive)")
            }
            (Constraint::Length { min, max }, Atom::String(text)) => match text.chars().count() {
                length if length < *min => {
                    format!("\"{text}\" length {length} is less than minimum allowed length {min}")
                }
                length if length > *max => format!(
                    "\"{text}\" length {length} is greater than maximum allowed length {max}"
                ),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(TransactionError::new(ErrorTag::Constraint, problem))
    }

    /// Returns the table and the strength of references of this type.
    #[must_use]
    pub fn reference(&self) -> Option<(&str, ReferenceStrength)> {
        match &self.constraint {
            Constraint::Reference { table, strength } => Some((table, *strength)),
            _ => None,
        }
    }
}

/// Returns the error text of an integer outside of its limits.
fn integer_problem(number: i64, min: i64, max: i64) -> Option<String> {
    if (min..=max).contains(&number) {
        return None;
    }
    Some(match (min, max) {
        (i64::MIN, max) => format!("{number} is greater than maximum allowed value {max}"),
        (min, i64::MAX) => format!("{number} is less than minimum allowed value {min}"),
        _ => format!("{number} is not in the valid range {min} to {max} (inclusive)"),
    })
}

/// Returns the atomic type with a name.
fn atom_type(word: &str) -> Result<AtomType, DatabaseSchemaError> {
    AtomType::from_word(word)
        .ok_or_else(|| DatabaseSchemaError::new(format!("\"{word}\" is not an atomic-type")))
}

/// Parses the `enum` of a base type.
fn enumeration(json: &Value, kind: AtomType) -> Result<Vec<Atom>, DatabaseSchemaError> {
    let members = match json.as_array().map(Vec::as_slice) {
        Some([Value::String(class), Value::Array(members)]) if class == "set" => members.as_slice(),
        _ => std::slice::from_ref(json),
    };
    let atoms: Result<Vec<Atom>, _> =
        members.iter().map(|member| Atom::from_json(member, kind, None)).collect();
    let mut atoms = atoms.map_err(|error| DatabaseSchemaError::new(error.to_string()))?;
    atoms.sort();
    let len = atoms.len();
    atoms.dedup();
    if atoms.is_empty() || atoms.len() != len {
        return Err(DatabaseSchemaError::new("\"enum\" needs one or more different values"));
    }
    Ok(atoms)
}

/// Parses the limits of a base type, such as `minInteger`.
fn constraint(members: &Members<'_>, kind: AtomType) -> Result<Constraint, String> {
    Ok(match kind {
        AtomType::Integer => {
            let min = members.find_integer("minInteger")?;
            let max = members.find_integer("maxInteger")?;
            if min.is_none() && max.is_none() {
                return Ok(Constraint::None);
            }
            let (min, max) = (min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX));
            if min > max {
                return Err("minInteger exceeds maxInteger".to_owned());
            }
            Constraint::Integer { min, max }
        }
        AtomType::Real => {
            let bound = |name| members.find(name).and_then(Value::as_f64).map(OrderedReal::new);
            let (min, max) = (bound("minReal"), bound("maxReal"));
            if let (Some(min), Some(max)) = (min, max)
                && min > max
            {
                return Err("minReal exceeds maxReal".to_owned());
            }
            if min.is_none() && max.is_none() {
                return Ok(Constraint::None);
            }
            Constraint::Real { min, max }
        }
        AtomType::Boolean => Constraint::None,
        AtomType::String => {
            let min = members.find_integer("minLength")?;
            let max = members.find_integer("maxLength")?;
            if min.is_none() && max.is_none() {
                return Ok(Constraint::None);
            }
            let length = |bound: i64| usize::try_from(bound).map_err(|_| "negative length");
            let (min, max) = (length(min.unwrap_or(0))?, max.map(length).transpose()?);
            let max = max.unwrap_or(usize::MAX);
            if min > max {
                return Err("minLength exceeds maxLength".to_owned());
            }
            Constraint::Length { min, max }
        }
        AtomType::Uuid => {
            let Some(table) = members.find_string("refTable")? else {
                return Ok(Constraint::None);
            };
            let strength = match members.find_string("refType")? {
                None | Some("strong") => ReferenceStrength::Strong,
                Some("weak") => ReferenceStrength::Weak,
                Some(_) => {
                    return Err("refType must be \"strong\" or \"weak\"".to_owned());
                }
            };
            Constraint::Reference { table: table.to_owned(), strength }
        }
    })
}
