//! One figure beside its target, and tables of them.

use serde::Serialize;

/// A figure that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of what.
    pub what: String,
    /// How much.
    pub value: f64,
    /// In what; empty for a number of something.
    pub unit: &'static str,
    /// What it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

/// What a figure should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// How much.
    pub value: f64,
    /// Who says so.
    pub whose: String,
}

impl Row {
    /// A figure without a target.
    #[must_use]
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, target: None }
    }

    /// A number of something.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub fn count(what: impl Into<String>, count: usize) -> Self {
        Self::new(what, count as f64, "")
    }

    /// The same with a target.
    #[must_use]
    pub fn against(mut self, value: f64, whose: impl Into<String>) -> Self {
        self.target = Some(Target { value, whose: whose.into() });
        self
    }
}

/// The figures as a table for people.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        let value = format!("{} {}", number(row.value), row.unit).trim_end().to_owned();
        let target = row.target.as_ref();
        let of = target.map_or_else(String::new, |target| number(target.value));
        let whose = target.map_or_else(String::new, |target| target.whose.clone());
        [row.what.clone(), value, of, whose]
    });
    let head = ["", "measured", "target", "by"].map(str::to_owned);
    let cells: Vec<[String; 4]> = std::iter::once(head).chain(cells).collect();
    let width = |column: usize| {
        let lengths = cells.iter().filter_map(|row| row.get(column));
        lengths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (first, second, third) = (width(0), width(1), width(2));
    let line = |[what, value, target, whose]: &[String; 4]| {
        let line = format!("{what:<first$}  {value:>second$}  {target:>third$}  {whose}");
        line.trim_end().to_owned() + "\n"
    };
    cells.iter().map(line).collect()
}

/// A number in four digits or so.
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
    fn a_table_lines_up_and_leaves_empty_what_has_no_target() {
        let rows = [
            Row::count("flows", 100).against(100.0, "the name"),
            Row::new("mean gap", 1.683, "us").against(1.68, "CAIDA"),
            Row::new("masks", 7.0, ""),
        ];
        let expected = "          measured  target  by\n\
                        flows          100     100  the name\n\
                        mean gap   1.68 us    1.68  CAIDA\n\
                        masks            7\n";
        assert_eq!(table(&rows), expected);
    }
}
