//! Mutations of columns (RFC 7047, section 5.1).

use serde_json::Value;

use super::condition::unknown_column;
use crate::{
    database::{ColumnId, Row},
    error::{ErrorTag, TransactionError},
    schema::{AtomType, BaseType, ColumnType, Constraint, TableDefinition},
    value::{Atom, Datum, OrderedReal, SymbolTable},
};

/// A change of a column that depends on its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// Index of the column in its table.
    column: usize,
    mutator: Mutator,
    argument: Datum,
}

/// The operation of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutator {
    /// The mutator `+=`.
    Add,
    /// The mutator `-=`.
    Subtract,
    /// The mutator `*=`.
    Multiply,
    /// The mutator `/=`.
    Divide,
    /// The mutator `%=`.
    Remainder,
    /// `insert`: adds members to a set or map.
    Insert,
    /// `delete`: removes members of a set or map.
    Delete,
}

impl Mutator {
    /// All operations of mutations.
    const ALL: [Self; 7] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Remainder,
        Self::Insert,
        Self::Delete,
    ];

    /// Returns the name of the mutator in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+=",
            Self::Subtract => "-=",
            Self::Multiply => "*=",
            Self::Divide => "/=",
            Self::Remainder => "%=",
            Self::Insert => "insert",
            Self::Delete => "delete",
        }
    }
}

impl Mutation {
    /// Parses a `<mutation>`.
    ///
    /// # Errors
    ///
    /// If the mutation names an unknown column or mutator, or the mutator does not fit the column.
    pub fn from_json(
        json: &Value,
        table: &TableDefinition,
        mut symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self, TransactionError> {
        let Some([Value::String(name), Value::String(word), argument]) =
            json.as_array().map(Vec::as_slice)
        else {
            return Err(TransactionError::syntax("Parse error in mutation.", json));
        };
        let column =
            ColumnId::find(table, name).ok_or_else(|| unknown_column(name, table, json))?;
        let column = match column {
            ColumnId::Schema(index) if column.is_mutable(table) => index,
            _ => {
                let details =
                    format!("Cannot mutate immutable column {name} in table {}.", table.name());
                return Err(TransactionError::quoting(ErrorTag::Constraint, details, json));
            }
        };
        let mutator = Mutator::ALL.into_iter().find(|mutator| mutator.as_str() == word);
        let mutator = mutator.ok_or_else(|| {
            TransactionError::new(ErrorTag::UnknownMutator, format!("No mutator named {word}."))
        })?;
        let kind = ColumnId::Schema(column).kind(table);
        let mismatch = || {
            let details = format!(
                "Type mismatch: \"{word}\" operator may not be applied to column {name} of type {kind}."
            );
            TransactionError::syntax(details, json)
        };
        let argument = match mutator {
            Mutator::Insert | Mutator::Delete => {
                if kind.is_scalar() {
                    return Err(mismatch());
                }
                let max = if mutator == Mutator::Delete { usize::MAX } else { kind.max };
                let relaxed = ColumnType { min: 0, max, ..(*kind).clone() };
                let parsed = Datum::from_json(argument, &relaxed, symbols.as_deref_mut());
                match parsed {
                    Err(_) if kind.is_map() && mutator == Mutator::Delete => {
                        let keys = ColumnType { value: None, ..relaxed };
                        Datum::from_json(argument, &keys, symbols)?
                    }
                    parsed => parsed?,
                }
            }
            _ => {
                let is_integer = kind.key.kind == AtomType::Integer;
                let is_number = is_integer || kind.key.kind == AtomType::Real;
                let is_wrong_remainder = mutator == Mutator::Remainder && !is_integer;
                if kind.is_map() || !is_number || is_wrong_remainder {
                    return Err(mismatch());
                }
                let scalar = ColumnType::scalar(BaseType {
                    constraint: Constraint::None,
                    ..kind.key.clone()
                });
                Datum::from_json(argument, &scalar, symbols)?
            }
        };
        Ok(Self { column, mutator, argument })
    }

    /// Applies the mutation to a row.
    ///
    /// # Errors
    ///
    /// If the operation has no result, or the result breaks a constraint of the column.
    pub fn apply(&self, row: &mut Row, table: &TableDefinition) -> Result<(), TransactionError> {
        let kind = ColumnId::Schema(self.column).kind(table);
        let mut value = row.value(ColumnId::Schema(self.column)).into_owned();
        match self.mutator {
            Mutator::Insert => value.unite(&self.argument),
            Mutator::Delete => value.subtract(&self.argument),
            mutator => value = calculate(&value, mutator, &self.argument)?,
        }
        if !(kind.min..=kind.max).contains(&value.len()) {
            let details = format!("Attempted to store {} elements in {kind}.", value.len());
            return Err(TransactionError::new(ErrorTag::Constraint, details));
        }
        value.check(&kind)?;
        row.set(self.column, value);
        Ok(())
    }
}

/// Returns a value after an arithmetic mutator.
fn calculate(value: &Datum, mutator: Mutator, argument: &Datum) -> Result<Datum, TransactionError> {
    let Some(operand) = argument.as_scalar() else { return Ok(value.clone()) };
    let results = value.keys().iter().map(|atom| match (atom, operand) {
        (Atom::Integer(number), Atom::Integer(operand)) => {
            integer(*number, mutator, *operand).map(Atom::Integer)
        }
        (Atom::Real(number), Atom::Real(operand)) => real(number.value(), mutator, operand.value())
            .map(|real| Atom::Real(OrderedReal::new(real))),
        _ => Ok(atom.clone()),
    });
    let results = results.collect::<Result<Vec<_>, _>>()?;
    let result = Datum::set(results);
    if result.len() != value.len() {
        let details = format!("Result of \"{}\" operation contains duplicates.", mutator.as_str());
        return Err(TransactionError::new(ErrorTag::Constraint, details));
    }
    Ok(result)
}

/// Returns an integer after an arithmetic mutator.
fn integer(number: i64, mutator: Mutator, operand: i64) -> Result<i64, TransactionError> {
    let result = match mutator {
        Mutator::Add => number.checked_add(operand),
        Mutator::Subtract => number.checked_sub(operand),
        Mutator::Multiply => number.checked_mul(operand),
        Mutator::Divide | Mutator::Remainder if operand == 0 => return Err(division_by_zero()),
        Mutator::Divide => number.checked_div(operand),
        Mutator::Remainder => number.checked_rem(operand),
        Mutator::Insert | Mutator::Delete => Some(number),
    };
    let out_of_range = || {
        let details = format!("Result of \"{}\" operation is out of range.", mutator.as_str());
        TransactionError::new(ErrorTag::Range, details)
    };
    result.ok_or_else(out_of_range)
}

/// Returns a real number after an arithmetic mutator.
fn real(number: f64, mutator: Mutator, operand: f64) -> Result<f64, TransactionError> {
    let result = match mutator {
        Mutator::Add => number + operand,
        Mutator::Subtract => number - operand,
        Mutator::Multiply => number * operand,
        Mutator::Divide if operand == 0.0 => return Err(division_by_zero()),
        Mutator::Divide => number / operand,
        Mutator::Remainder | Mutator::Insert | Mutator::Delete => number,
    };
    if result.is_finite() {
        return Ok(result);
    }
    let details = format!("Result of \"{}\" operation is out of range.", mutator.as_str());
    Err(TransactionError::new(ErrorTag::Range, details))
}

/// Returns the error of a division by zero.
fn division_by_zero() -> TransactionError {
    TransactionError::new(ErrorTag::Domain, "Division by zero.")
}
