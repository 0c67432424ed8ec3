//! An overview table of the published pipelines: measured and published values.

use std::fmt::Write as _;

use shunt_pipebench::pipeline_file::{BUILTIN, Builtin};

use super::{Row, table::number, title::title};

/// Minimum number of pipelines for an overview.
/// The table of all rows shows fewer pipelines well.
const PIPELINES_MIN: usize = 3;

/// Returns a table with a row per published metric and a column per pipeline.
///
/// Returns `None` if there are fewer than [`PIPELINES_MIN`] pipelines.
#[must_use]
pub(super) fn overview(rows: &[Row]) -> Option<String> {
    let cells: Vec<Cell> = rows.iter().filter_map(Cell::of).collect();
    let has = |pipeline: &&Builtin| cells.iter().any(|cell| cell.pipeline == pipeline.name);
    let pipelines: Vec<&str> = BUILTIN.iter().filter(has).map(|one| one.name).collect();
    if pipelines.len() < PIPELINES_MIN {
        return None;
    }
    let mut lines: Vec<&str> = Vec::new();
    for cell in &cells {
        if !lines.contains(&&*cell.what) {
            lines.push(&cell.what);
        }
    }
    let mut text = format!(
        "Measured / published values. Bold: they differ by more than 10 %; the table below gives \
         the reason.\n\n| measurement | {} |\n| --- |{}\n",
        pipelines.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>().join(" | "),
        " --- |".repeat(pipelines.len()),
    );
    for what in lines {
        let words = |pipeline: &&str| {
            let of = |cell: &&Cell| cell.pipeline == *pipeline && cell.what == what;
            cells.iter().find(of).map_or("-", |cell| &cell.words)
        };
        let words: Vec<&str> = pipelines.iter().map(words).collect();
        let _ = writeln!(text, "| {what} | {} |", words.join(" | "));
    }
    Some(text)
}

/// A measured value in words, with its pipeline and its subject.
struct Cell {
    pipeline: &'static str,
    what: String,
    words: String,
}

impl Cell {
    /// Returns the cell of a row that begins with a pipeline, as in `ofd:high, 32K`.
    fn of(row: &Row) -> Option<Self> {
        let published = row.published_alike()?;
        let end = row.name.find([':', ',', ' ']).unwrap_or(row.name.len());
        let (pipeline, detail) = row.name.split_at(end);
        let pipeline = Builtin::find(pipeline)?.name;
        let unit = if matches!(row.unit, "" | "count") {
            String::new()
        } else {
            format!(" [{}]", row.unit)
        };
        let detail = title(detail.trim_start_matches([':', ',', ' ']));
        let comma = if detail.is_empty() { "" } else { ", " };
        let words = format!("{} / {}", number(row.ours.median()), number(published));
        let words = if row.is_far_from_published() { format!("**{words}**") } else { words };
        Some(Self { pipeline, what: format!("{}{comma}{detail}{unit}", row.metric), words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Samples;

    fn row(name: &str, value: f64) -> Row {
        let ours = Samples::from(value);
        Row { ours, published: Some(100.0), ..Row::new(name, "hits", "%") }
    }

    #[test]
    fn pipelines_are_columns_in_their_own_order() {
        let of_all = [row("psc:high, 8K", 95.0), row("ofd:high, 8K", 89.0), row("otl low", 100.0)];
        let others = [row("acl:high, 8K", 95.0), Row { published: None, ..row("ant", 1.0) }];
        let rows: Vec<Row> = of_all.into_iter().chain(others).collect();
        let text = overview(&rows).unwrap();
        let table: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "| measurement | OFD | PSC | OTL |",
            "| --- | --- | --- | --- |",
            "| hits, high locality, 8K [%] | **89.0 / 100** | 95.0 / 100 | - |",
            "| hits, low locality [%] | - | - | 100 / 100 |",
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn an_overview_needs_more_than_two_pipelines() {
        assert_eq!(overview(&[row("ofd", 1.0), row("psc", 1.0), row("acl", 1.0)]), None);
    }
}
