//! Errors of pipeline files.

use serde::Deserialize;
use serde_json::value::RawValue;

use shunt_flow::text::nearest_of;

use crate::nearest::Suggestion;

/// The reason why a pipeline file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The file is not valid JSON of the expected form.
    #[error("line {line}, column {column}: {message}{}", Suggestion(nearest.as_deref(), ""))]
    Json {
        /// The number of the line, from 1 on.
        line: usize,
        /// The number of the column, from 1 on.
        column: usize,
        /// The byte offset in the text.
        offset: usize,
        /// The number of wrong bytes.
        length: usize,
        /// The message of the JSON parser.
        message: String,
        /// The nearest name, if a name is wrong.
        nearest: Option<String>,
    },
    /// The tables, edges and traversals of the file are inconsistent.
    #[error("line {line}, column {column}: {fault}")]
    Fault {
        /// The number of the line, from 1 on.
        line: usize,
        /// The number of the column, from 1 on.
        column: usize,
        /// The byte offset in the text.
        offset: usize,
        /// The number of affected bytes in that line.
        length: usize,
        /// The inconsistency in the pipeline.
        fault: PipelineFault,
    },
}

/// An inconsistency of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineFault {
    /// Two tables have the same number.
    #[error("two tables have the number {table}: give each its own")]
    TwoTables {
        /// The number that both tables have.
        table: u8,
    },
    /// A referenced table does not exist.
    #[error("{of} goes through table {table}, which is not among `tables`")]
    NoTable {
        /// Number of the missing table.
        table: u8,
        /// The part of the file that refers to the table.
        of: String,
    },
    /// The file has no traversal.
    #[error("the pipeline has no traversal: give at least one, with its steps")]
    NoTraversal,
    /// A traversal has no steps.
    #[error("the traversal `{of}` has no steps: add one")]
    NoSteps {
        /// Id of the traversal.
        of: String,
    },
    /// Two traversals have the same id.
    #[error("two traversals have the id `{id}`: give each its own")]
    TwoTraversals {
        /// The id that both traversals have.
        id: String,
    },
    /// The traversals do not start in the same table.
    #[error(
        "the traversal `{of}` starts in table {table}, the first one in table {start}: all \
         traversals must start in one table"
    )]
    Start {
        /// Id of the traversal.
        of: String,
        /// First table of the traversal.
        table: u8,
        /// First table of the first traversal.
        start: u8,
    },
    /// A traversal uses a missing edge.
    #[error(
        "{of} goes from table {from} to {to}: add [{from}, {to}] to `edges`, or correct the steps"
    )]
    NoEdge {
        /// Name of the traversal, or its number in the file.
        of: String,
        /// The table from which the step leads.
        from: u8,
        /// The table to which the step leads.
        to: u8,
    },
    /// A traversal matches a field that its table does not match.
    #[error(
        "{of} matches {field} in table {table}, which has the `match_fields` {has}: add \
         {field} to these, or remove it from the step"
    )]
    NoField {
        /// Name of the traversal, or its number in the file.
        of: String,
        /// Number of the table.
        table: u8,
        /// Name of the field.
        field: String,
        /// The fields of the table.
        has: String,
    },
    /// A traversal writes a field that its table does not write.
    #[error(
        "{of} writes {field} in table {table}, which has the `writes` {has}: add {field} to \
         these, or remove it from the step"
    )]
    NoWrite {
        /// Name of the traversal, or its number in the file.
        of: String,
        /// Number of the table.
        table: u8,
        /// Name of the field.
        field: String,
        /// The fields of the table.
        has: String,
    },
    /// A traversal visits a table too often.
    #[error("{of} visits table {table} more than {max} times, which is the limit: remove visits")]
    Visits {
        /// Name of the traversal, or its number in the file.
        of: String,
        /// Number of the table that is visited too often.
        table: u8,
        /// The largest number of visits.
        max: usize,
    },
    /// The edges form a loop.
    #[error(
        "the edges form a loop: {}; a table may only follow itself, on a condition",
        path_text(tables)
    )]
    Loop {
        /// The tables of the loop, with the first table again at the end.
        tables: Vec<u8>,
    },
    /// A table cannot be reached from the first one.
    #[error(
        "there is no path from table {start} to table {table} ({name}): add an edge to it, or \
         remove it"
    )]
    Unreachable {
        /// Number of the table that no path reaches.
        table: u8,
        /// Name of the table.
        name: String,
        /// The table in which traversals start.
        start: u8,
    },
}

impl PipelineError {
    /// Converts an error of `serde_json` to a position and a suggestion.
    pub(crate) fn json(text: &str, error: &serde_json::Error) -> Self {
        let whole = error.to_string();
        let message = whole.rsplit_once(" at line ").map_or(&*whole, |(message, _)| message);
        // The message of `serde_json` quotes the wrong word first, and then the valid names.
        let mut quoted = message.split('`').skip(1).step_by(2);
        let found = quoted.next();
        let unknown = message.starts_with("unknown ");
        let near = found.filter(|_| unknown).and_then(|found| nearest_of(found, quoted));
        let end = offset_of(text, error.line(), error.column());
        // The parser reports a word after it has read the word.
        let word = found.map(|found| format!("\"{found}\""));
        let place = word.as_ref().and_then(|word| text.get(..end)?.rfind(word.as_str()));
        let (offset, length) =
            place.map_or((end, 0), |place| (place, word.as_ref().map_or(0, String::len)));
        let (line, column) = line_and_column(text, offset);
        // Table numbers are the only numbers of this width.
        let message = message.replace("expected u8", "expected the number of a table: 0 to 255");
        let nearest = near.map(str::to_owned);
        Self::Json { line, column, offset, length, message, nearest }
    }

    /// Creates a fault at the position of its part in the text.
    pub(crate) fn inconsistency(text: &str, inconsistency: Inconsistency) -> Self {
        let Inconsistency { part, fault } = inconsistency;
        let part = FileParts::of(text).and_then(|parts| parts.find(part)).unwrap_or(text);
        let offset = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let (line, column) = line_and_column(text, offset);
        let length = part.lines().next().map_or(0, str::len);
        Self::Fault { line, column, offset, length, fault }
    }
}

/// An inconsistency, with the part of the file that causes it.
#[derive(Debug)]
pub(crate) struct Inconsistency {
    pub(crate) part: FilePart,
    pub(crate) fault: PipelineFault,
}

/// A part of a file, by its index in its list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilePart {
    PipelineTable(usize),
    Edge(usize),
    PipelineTraversal(usize),
    Traversals,
}

impl FilePart {
    /// Creates an inconsistency of this part.
    pub(crate) const fn inconsistency(self, fault: PipelineFault) -> Inconsistency {
        Inconsistency { part: self, fault }
    }
}

/// The parts of a pipeline file as slices of its text.
#[derive(Deserialize)]
struct FileParts<'a> {
    #[serde(borrow)]
    tables: Vec<&'a RawValue>,
    #[serde(borrow)]
    edges: Vec<&'a RawValue>,
    #[serde(borrow)]
    traversals: &'a RawValue,
}

impl<'a> FileParts<'a> {
    /// Splits the text of a pipeline file; `None` if it is not JSON.
    fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of a part of the file.
    fn find(&self, part: FilePart) -> Option<&'a str> {
        let traversals = self.traversals.get();
        match part {
            FilePart::PipelineTable(index) => self.tables.get(index).map(|table| table.get()),
            FilePart::Edge(index) => self.edges.get(index).map(|edge| edge.get()),
            FilePart::Traversals => Some(traversals),
            FilePart::PipelineTraversal(index) => {
                let list: Vec<&RawValue> = serde_json::from_str(traversals).ok()?;
                list.get(index).map(|traversal| traversal.get())
            }
        }
    }
}

/// Returns line and column of a byte, both from 1.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count().saturating_add(1);
    let column = before.chars().rev().take_while(|c| *c != '\n').count().saturating_add(1);
    (line, column)
}

/// Returns the byte of a line and column, both from 1.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let before = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len);
    let offset = before.sum::<usize>().saturating_add(column).min(text.len());
    (0..=offset).rev().find(|offset| text.is_char_boundary(*offset)).unwrap_or(0)
}

/// Formats a list of tables as a path.
fn path_text(tables: &[u8]) -> String {
    tables.iter().map(u8::to_string).collect::<Vec<_>>().join(" -> ")
}
