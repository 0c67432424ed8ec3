//! Conditions on rows (RFC 7047, section 5.1).

use std::cmp::Ordering;

use serde_json::Value;

use crate::{
    database::{ColumnId, Row},
    error::{ErrorTag, TransactionError},
    schema::{AtomType, TableDefinition},
    value::{Datum, RowUuid, SymbolTable},
};

/// A list of clauses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condition {
    clauses: Vec<Clause>,
}

/// A test of one column of a row, or a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Clause {
    /// True for all rows, or for none.
    Constant(bool),
    /// A comparison of a column with a value.
    Comparison {
        /// The column of the row.
        column: ColumnId,
        /// The comparison of the column with the value.
        function: ConditionFunction,
        /// The value that the column is compared with.
        value: Datum,
    },
}

/// A comparison of a column with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionFunction {
    /// The function `<`.
    Less,
    /// The function `<=`.
    AtMost,
    /// The function `==`.
    Equal,
    /// The function `!=`.
    NotEqual,
    /// The function `>=`.
    AtLeast,
    /// The function `>`.
    Greater,
    /// `includes`: the column has all members of the value.
    Includes,
    /// `excludes`: the column has no member of the value.
    Excludes,
}

impl Condition {
    /// Parses a list of clauses.
    ///
    /// # Errors
    ///
    /// If a clause names no column or function, or its value has the wrong type.
    pub fn from_json(
        clauses: &[Value],
        table: &TableDefinition,
        mut symbols: Option<&mut SymbolTable<'_>>,
    ) -> Result<Self, TransactionError> {
        let clauses = clauses.iter().map(|json| clause(json, table, symbols.as_deref_mut()));
        Ok(Self { clauses: clauses.collect::<Result<_, _>>()? })
    }

    /// Returns whether all clauses are true, as in operations.
    #[must_use]
    pub fn matches_all(&self, row: &Row) -> bool {
        self.clauses.iter().all(|clause| clause.matches(row))
    }

    /// Returns whether a clause is true or the list is empty, as in monitors.
    #[must_use]
    pub fn matches_any(&self, row: &Row) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|clause| clause.matches(row))
    }

    /// Returns whether a monitor has no condition: the list is empty, or only `true`.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.clauses.as_slice(), [] | [Clause::Constant(true)])
    }

    /// Returns the only row that can match, if a clause requires a `_uuid`.
    #[must_use]
    pub fn named_row(&self) -> Option<RowUuid> {
        self.clauses.iter().find_map(|clause| match clause {
            Clause::Comparison {
                column: ColumnId::Uuid,
                function: ConditionFunction::Equal,
                value,
            } => match value.as_scalar() {
                Some(crate::value::Atom::Uuid(uuid)) => Some(*uuid),
                _ => None,
            },
            _ => None,
        })
    }
}

impl Clause {
    /// Returns whether a row satisfies the clause.
    fn matches(&self, row: &Row) -> bool {
        let (column, function, value) = match self {
            Self::Constant(result) => return *result,
            Self::Comparison { column, function, value } => (*column, *function, value),
        };
        let actual = row.value(column);
        let order = || Some(actual.as_scalar()?.cmp(value.as_scalar()?));
        match function {
            ConditionFunction::Less => order().is_some_and(Ordering::is_lt),
            ConditionFunction::AtMost => order().is_some_and(Ordering::is_le),
            ConditionFunction::Equal => *actual == *value,
            ConditionFunction::NotEqual => *actual != *value,
            ConditionFunction::AtLeast => order().is_some_and(Ordering::is_ge),
            ConditionFunction::Greater => order().is_some_and(Ordering::is_gt),
            ConditionFunction::Includes => actual.includes(value),
            ConditionFunction::Excludes => actual.excludes(value),
        }
    }
}

impl ConditionFunction {
    /// All functions of conditions.
    const ALL: [Self; 8] = [
        Self::Less,
        Self::AtMost,
        Self::Equal,
        Self::NotEqual,
        Self::AtLeast,
        Self::Greater,
        Self::Includes,
        Self::Excludes,
    ];

    /// Returns the name of the function in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::AtLeast => ">=",
            Self::Greater => ">",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }

    /// Returns whether the function compares by order, such as `<`.
    const fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::AtMost | Self::AtLeast | Self::Greater)
    }
}

/// Parses a clause: column, function and value.
fn clause(
    json: &Value,
    table: &TableDefinition,
    symbols: Option<&mut SymbolTable<'_>>,
) -> Result<Clause, TransactionError> {
    if let Some(constant) = json.as_bool() {
        return Ok(Clause::Constant(constant));
    }
    let Some([Value::String(name), Value::String(word), value]) =
        json.as_array().map(Vec::as_slice)
    else {
        return Err(TransactionError::syntax("Parse error in condition.", json));
    };
    let column = ColumnId::find(table, name).ok_or_else(|| unknown_column(name, table, json))?;
    let function = ConditionFunction::ALL.into_iter().find(|function| function.as_str() == word);
    let function = function.ok_or_else(|| {
        TransactionError::new(ErrorTag::UnknownFunction, format!("No function named {word}."))
    })?;
    let mut kind = column.kind(table).into_owned();
    match function {
        function if function.is_order() => {
            let is_number = matches!(kind.key.kind, AtomType::Integer | AtomType::Real);
            let is_scalar = kind.is_scalar() || kind.is_optional_scalar();
            if !is_number || !is_scalar {
                let details = format!(
                    "Type mismatch: \"{word}\" operator may not be applied to column {name} of type {kind}."
                );
                return Err(TransactionError::syntax(details, json));
            }
        }
        ConditionFunction::Includes if !kind.is_scalar() => kind.min = 0,
        ConditionFunction::Excludes if !kind.is_scalar() => {
            kind.min = 0;
            kind.max = usize::MAX;
        }
        _ => {}
    }
    let value = Datum::from_json(value, &kind, symbols)?;
    Ok(Clause::Comparison { column, function, value })
}

/// Returns the error of a column that the table lacks.
pub(super) fn unknown_column(
    name: &str,
    table: &TableDefinition,
    part: &Value,
) -> TransactionError {
    let details = format!("No column {name} in table {}.", table.name());
    TransactionError::quoting(ErrorTag::UnknownColumn, details, part)
}
