//! What can be wrong with the file of a pipeline.

use crate::nearest::{Meant, nearest};

/// A file that is no pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// It is not the JSON that it should be.
    #[error("line {line}, column {column}: {message}{}", Meant(nearest.as_deref(), ""))]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The byte of the text.
        offset: usize,
        /// How many bytes are wrong.
        length: usize,
        /// What is wrong.
        message: String,
        /// The name that was probably meant, if a name is wrong.
        nearest: Option<String>,
    },
    /// Two tables have one number.
    #[error("two tables have the number {table}: each needs its own")]
    TwoTables {
        /// The number.
        table: u8,
    },
    /// A table is named that is not there.
    #[error("{of} goes through table {table}, which is not among `tables`")]
    NoTable {
        /// The table.
        table: u8,
        /// What names it.
        of: String,
    },
    /// There is nothing to go through.
    #[error("the pipeline has no traversal: give at least one, with its steps")]
    NoTraversal,
    /// A traversal goes nowhere.
    #[error("the traversal `{of}` has no steps")]
    NoSteps {
        /// Its id.
        of: String,
    },
    /// Two traversals have one name.
    #[error("two traversals are called `{id}`: each needs its own id")]
    TwoTraversals {
        /// The name.
        id: String,
    },
    /// Not all traversals start in the same table.
    #[error(
        "the traversal `{of}` starts in table {table}, the first one in table {start}: all packets enter by one table"
    )]
    Start {
        /// Its id.
        of: String,
        /// Where it starts.
        table: u8,
        /// Where the first one does.
        start: u8,
    },
    /// A traversal leaves the graph.
    #[error(
        "{of} goes from table {from} to {to}: add [{from}, {to}] to `edges`, or mend the steps"
    )]
    NoEdge {
        /// The traversal.
        of: String,
        /// The table before.
        from: u8,
        /// The table behind.
        to: u8,
    },
    /// A traversal visits a table too often.
    #[error("{of} visits table {table} more than {max} times")]
    Visits {
        /// The traversal.
        of: String,
        /// The table.
        table: u8,
        /// The most visits.
        max: usize,
    },
    /// Packets could circle.
    #[error(
        "the edges lead back to where they came from: {}; a table may only follow itself, on a condition",
        way(tables)
    )]
    Loop {
        /// The tables, the first one again at the end.
        tables: Vec<u8>,
    },
    /// Nothing leads to a table.
    #[error(
        "no way leads from table {start} to table {table} ({name}): add an edge to it, or remove it"
    )]
    Unreachable {
        /// The table.
        table: u8,
        /// What it is called.
        name: String,
        /// Where packets enter.
        start: u8,
    },
}

impl PipelineError {
    /// What `serde_json` says of a text, at the word that it speaks of, with the nearest of the names
    /// that it would have taken.
    pub(crate) fn json(text: &str, error: &serde_json::Error) -> Self {
        let whole = error.to_string();
        let message = whole.rsplit_once(" at line ").map_or(&*whole, |(message, _)| message);
        // It quotes what it found first, and then what may be there.
        let mut quoted = message.split('`').skip(1).step_by(2);
        let found = quoted.next();
        let unknown = message.starts_with("unknown ");
        let near = found.filter(|_| unknown).and_then(|found| nearest(found, quoted));
        let end = offset_of(text, error.line(), error.column());
        // The reader is past the word when it complains.
        let word = found.map(|found| format!("\"{found}\""));
        let place = word.as_ref().and_then(|word| text.get(..end)?.rfind(word.as_str()));
        let (offset, length) =
            place.map_or((end, 0), |place| (place, word.as_ref().map_or(0, String::len)));
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count().saturating_add(1);
        let column = before.chars().rev().take_while(|c| *c != '\n').count().saturating_add(1);
        let (message, nearest) = (message.to_owned(), near.map(str::to_owned));
        Self::Json { line, column, offset, length, message, nearest }
    }
}

/// The byte of a line and column, both from 1.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let before = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len);
    let offset = before.sum::<usize>().saturating_add(column).min(text.len());
    (0..=offset).rev().find(|offset| text.is_char_boundary(*offset)).unwrap_or(0)
}

fn way(tables: &[u8]) -> String {
    tables.iter().map(u8::to_string).collect::<Vec<_>>().join(" -> ")
}
