//! What can be wrong with the file of a pipeline.

use serde::Deserialize;
use serde_json::value::RawValue;

use shunt_flow::text::nearest_of;

use crate::nearest::Meant;

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
    /// Its tables, edges and traversals do not fit together.
    #[error("line {line}, column {column}: {fault}")]
    Fault {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The byte of the text.
        offset: usize,
        /// How many bytes of that line are meant.
        length: usize,
        /// What does not fit.
        fault: PipelineFault,
    },
}

/// What does not fit together in a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineFault {
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
    /// A traversal matches in a table what that table does not match.
    #[error(
        "{of} matches {field} in table {table}, whose `match_fields` are {has}: add it there, or mend the step"
    )]
    NoField {
        /// The traversal.
        of: String,
        /// The table.
        table: u8,
        /// The field.
        field: String,
        /// Those that the table has.
        has: String,
    },
    /// A traversal writes in a table what that table does not write.
    #[error(
        "{of} writes {field} in table {table}, whose `writes` are {has}: add it there, or mend the step"
    )]
    NoWrite {
        /// The traversal.
        of: String,
        /// The table.
        table: u8,
        /// The field.
        field: String,
        /// Those that the table has.
        has: String,
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
        let near = found.filter(|_| unknown).and_then(|found| nearest_of(found, quoted));
        let end = offset_of(text, error.line(), error.column());
        // The reader is past the word when it complains.
        let word = found.map(|found| format!("\"{found}\""));
        let place = word.as_ref().and_then(|word| text.get(..end)?.rfind(word.as_str()));
        let (offset, length) =
            place.map_or((end, 0), |place| (place, word.as_ref().map_or(0, String::len)));
        let (line, column) = line_and_column(text, offset);
        // Numbers of tables are the only ones of this width.
        let message = message.replace("expected u8", "expected the number of a table: 0 to 255");
        let nearest = near.map(str::to_owned);
        Self::Json { line, column, offset, length, message, nearest }
    }

    /// A fault, at the place in the text where its part stands.
    pub(crate) fn misfit(text: &str, misfit: Misfit) -> Self {
        let Misfit { part, fault } = misfit;
        let part = Parts::of(text).and_then(|parts| parts.find(part)).unwrap_or(text);
        let offset = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let (line, column) = line_and_column(text, offset);
        let length = part.lines().next().map_or(0, str::len);
        Self::Fault { line, column, offset, length, fault }
    }
}

/// What does not fit, and which part of the file says so.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) part: Part,
    pub(crate) fault: PipelineFault,
}

/// A part of a file, by its place in its list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Table(usize),
    Edge(usize),
    Traversal(usize),
    Traversals,
}

impl Part {
    /// What does not fit in this part.
    pub(crate) const fn misfit(self, fault: PipelineFault) -> Misfit {
        Misfit { part: self, fault }
    }
}

/// The parts of a file as they are written: slices of its text.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    tables: Vec<&'a RawValue>,
    #[serde(borrow)]
    edges: Vec<&'a RawValue>,
    #[serde(borrow)]
    traversals: &'a RawValue,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn find(&self, part: Part) -> Option<&'a str> {
        let traversals = self.traversals.get();
        match part {
            Part::Table(index) => self.tables.get(index).map(|table| table.get()),
            Part::Edge(index) => self.edges.get(index).map(|edge| edge.get()),
            Part::Traversals => Some(traversals),
            Part::Traversal(index) => {
                let list: Vec<&RawValue> = serde_json::from_str(traversals).ok()?;
                list.get(index).map(|traversal| traversal.get())
            }
        }
    }
}

/// Line and column of a byte, both from 1.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count().saturating_add(1);
    let column = before.chars().rev().take_while(|c| *c != '\n').count().saturating_add(1);
    (line, column)
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
