//! Measured values with their targets, and tables of them.

use serde::Serialize;

/// A measured value with its name, unit and target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticRow {
    /// The name of the value.
    pub what: String,
    /// The value that was measured.
    pub value: f64,
    /// The unit; empty for a count.
    pub unit: &'static str,
    /// The target of the value, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<RowTarget>,
}

/// A target value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowTarget {
    /// The value that a generated workload aims at.
    pub value: f64,
    /// The source of the target.
    pub source: String,
}

impl StatisticRow {
    /// Creates a row without a target.
    #[must_use]
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, target: None }
    }

    /// Creates a row for a count.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub fn count(what: impl Into<String>, count: usize) -> Self {
        Self::new(what, count as f64, "")
    }

    /// Adds a target to the row.
    #[must_use]
    pub fn against(mut self, value: f64, source: impl Into<String>) -> Self {
        self.target = Some(RowTarget { value, source: source.into() });
        self
    }
}

/// Formats the values as a table for people.
#[must_use]
pub fn table(rows: &[StatisticRow]) -> String {
    let cells = rows.iter().map(|row| {
        let value = format!("{} {}", number(row.value), row.unit).trim_end().to_owned();
        let target = row.target.as_ref();
        let of = target.map_or_else(String::new, |target| number(target.value));
        let source = target.map_or_else(String::new, |target| target.source.clone());
        [row.what.clone(), value, of, source]
    });
    let head = ["", "measured", "target", "by"].map(str::to_owned);
    let cells: Vec<[String; 4]> = std::iter::once(head).chain(cells).collect();
    let width = |column: usize| {
        let lengths = cells.iter().filter_map(|row| row.get(column));
        lengths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (first, second, third) = (width(0), width(1), width(2));
    let line = |[what, value, target, source]: &[String; 4]| {
        let line = format!("{what:<first$}  {value:>second$}  {target:>third$}  {source}");
        line.trim_end().to_owned() + "\n"
    };
    cells.iter().map(line).collect()
}

/// Formats a number with about four digits.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1000.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else if magnitude >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_with_empty_targets() {
        let rows = [
            StatisticRow::count("flows", 100).against(100.0, "the name"),
            StatisticRow::new("mean gap", 1.683, "us").against(1.68, "CAIDA"),
            StatisticRow::new("masks", 7.0, ""),
        ];
        let expected = "          measured  target  by\n\
                        flows          100     100  the name\n\
                        mean gap   1.68 us    1.68  CAIDA\n\
                        masks            7\n";
        assert_eq!(table(&rows), expected);
    }
}
