//! The rows as a Markdown table.

use std::fmt::Write as _;

use super::{Ratio, Row, Samples, Verdict, title::title};

/// Returns the table of all rows.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text =
        "| measurement | published | measured | rival | ratio | reason for the difference |
| --- | --- | --- | --- | --- | --- |
"
        .to_owned();
    for row in rows {
        let published = row.published.map_or_else(|| "-".to_owned(), number);
        let rival = row.rival.as_ref().map_or_else(
            || "-".to_owned(),
            |(name, samples)| format!("{name}: {}", spread(samples, row.unit)),
        );
        let ratio = row.ratio().map_or_else(|| beside_published(row), |one| ratio(one, row.reason));
        let _ = writeln!(
            text,
            "| {}: {} | {published} | {} | {rival} | {ratio} | {} |",
            title(&row.name),
            row.metric,
            spread(&row.ours, row.unit),
            row.reason,
        );
    }
    text
}

/// Returns a comparison of two builds in aligned columns.
///
/// The comparison lists worse rows first, then better rows, then all rows.
pub(crate) fn table_of_builds(base: &str, rows: &[Row]) -> String {
    let verdicts: Vec<_> = rows.iter().map(|row| row.ratio().map(Ratio::verdict)).collect();
    let named = |verdict| {
        let of = rows.iter().zip(&verdicts).filter(|(_, one)| **one == Some(verdict));
        of.map(|(row, _)| format!("{}, {}", row.name, row.metric)).collect::<Vec<_>>()
    };
    let mut text = String::new();
    for (verdict, word) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
        let named = named(verdict);
        let list: String = named.iter().map(|name| format!("- {name}\n")).collect();
        let _ = writeln!(text, "{} of {} values are {word}\n{list}", named.len(), rows.len());
    }
    let head = ["measurement", "this tree", base, "ratio"].map(str::to_owned);
    let mut lines = vec![head, ["---"; 4].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let other = row.rival.as_ref().map(|(_, samples)| spread(samples, row.unit));
        let ratio = row.ratio().map(|one| ratio(one, "another build"));
        let what = format!("{}, {}", row.name, row.metric);
        [what, spread(&row.ours, row.unit), other.unwrap_or_default(), ratio.unwrap_or_default()]
    }));
    text + &align(&lines)
}

/// Formats a table with columns of equal width.
fn align(lines: &[[String; 4]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        let _ = writeln!(text, "|{}", cells.collect::<String>());
    }
    text
}

/// Formats a ratio as `2.95 (2.90 to 3.01)`, and adds the conclusion.
fn ratio(ratio: Ratio, reason: &str) -> String {
    let [middle, least, most] = [ratio.middle, ratio.least, ratio.most].map(times);
    let text = format!("{middle} ({least} to {most})");
    match ratio.verdict() {
        Verdict::Better => text,
        Verdict::Worse if reason.is_empty() => format!("{text}: worse, unexplained"),
        Verdict::Worse => format!("{text}: worse"),
        Verdict::Noise => format!("{text}: within the noise"),
        Verdict::Unsure => format!("{text}: too few rounds to tell"),
    }
}

/// Formats a ratio with two decimals, or a small ratio with two significant digits.
pub(super) fn times(ratio: f64) -> String {
    if ratio >= 0.1 || ratio <= 0.0 {
        return format!("{ratio:.2}");
    }
    let decimals = (1..12).find(|digits| ratio * 10f64.powi(*digits) >= 1.0).unwrap_or(12);
    format!("{ratio:.0$}", decimals.unsigned_abs() as usize + 1)
}

/// Formats a ratio as `0.98 of published`.
///
/// A difference above 10 % without a reason has a mark.
fn beside_published(row: &Row) -> String {
    if row.published.is_some() && row.is_of_another {
        return "not comparable".to_owned();
    }
    let Some(part) = row.part_of_published() else { return "-".to_owned() };
    let lacks =
        if row.is_far_from_published() && row.reason.is_empty() { ": unexplained" } else { "" };
    format!("{} of published{lacks}", number(part))
}

/// Formats samples as `115 ns (104 to 116)`.
fn spread(samples: &Samples, unit: &str) -> String {
    let middle = number(samples.median());
    // A count is a plain number.
    let unit = if matches!(unit, "" | "count") { String::new() } else { format!(" {unit}") };
    if samples.0.len() < 2 {
        return format!("{middle}{unit}");
    }
    format!("{middle}{unit} ({} to {})", number(samples.least()), number(samples.most()))
}

/// Formats a number with at least three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10_000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a number as `1,234,567`.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ratios_keep_two_digits() {
        let texts = [2.0, 0.1, 0.0312, 0.000_45, 0.0].map(times);
        assert_eq!(texts, ["2.00", "0.10", "0.031", "0.00045", "0.00"]);
    }

    #[test]
    fn numbers_keep_significant_digits() {
        let texts = [0.0, 1.234, 45.67, 345.6, 1_234_567.0].map(number);
        assert_eq!(texts, ["0", "1.23", "45.7", "346", "1,234,567"]);
    }

    #[test]
    fn large_differences_need_a_reason() {
        let row = |value: f64, reason| Row {
            ours: Samples::from(value),
            published: Some(100.0),
            reason,
            ..Row::new("a", "rules", "")
        };
        assert_eq!(beside_published(&row(95.0, "")), "0.95 of published");
        assert_eq!(beside_published(&row(120.0, "because")), "1.20 of published");
        assert_eq!(beside_published(&row(120.0, "")), "1.20 of published: unexplained");
        assert_eq!(beside_published(&Row::new("a", "rules", "")), "-");
        let another = Row::new("a", "rules", "").beside_another(Some(1.0), "a bound");
        assert_eq!(beside_published(&another), "not comparable");
    }

    #[test]
    fn rows_of_two_builds_are_compared_worst_first() {
        let row = |name: &str, ours: f64| Row {
            ours: Samples(vec![ours; 5]),
            rival: Some((String::new(), Samples(vec![100.0; 5]))),
            ..Row::new(name, "time", "ns")
        };
        let text = table_of_builds("main (abc)", &[row("same", 100.0), row("slow", 200.0)]);
        let expected = "1 of 2 values are worse
- slow, time

0 of 2 values are better

| measurement | this tree           | main (abc)          | ratio                                   |
| ---         | ---                 | ---                 | ---                                     |
| same, time  | 100 ns (100 to 100) | 100 ns (100 to 100) | 1.00 (1.00 to 1.00): within the noise   |
| slow, time  | 200 ns (200 to 200) | 100 ns (100 to 100) | 0.50 (0.50 to 0.50): worse              |
";
        let squeezed = |text: &str| text.replace("  ", "").replace(" |", "|");
        assert_eq!(squeezed(&text), squeezed(expected));
        let bars = text.lines().filter(|line| line.starts_with('|')).map(str::len);
        assert_eq!(bars.clone().min(), bars.max(), "{text}");
    }

    #[test]
    fn a_worse_row_needs_a_reason() {
        let rival = || Some(("R".to_owned(), Samples(vec![1.0; 3])));
        let row = |reason| Row {
            ours: Samples(vec![2.0; 3]),
            rival: rival(),
            reason,
            ..Row::new("a", "b", "ns")
        };
        assert!(table(&[row("")]).contains("0.50 (0.50 to 0.50): worse, unexplained |"));
        assert!(table(&[row("because")]).contains("0.50 (0.50 to 0.50): worse | because |"));
    }

    #[test]
    fn a_difference_within_the_noise_is_marked() {
        let rival = Some(("R".to_owned(), Samples(vec![9.0, 10.0, 11.0])));
        let row =
            Row { ours: Samples(vec![10.0, 10.0, 10.0]), rival, ..Row::new("a", "time", "ns") };
        let text = table(&[row]);
        let line = text.lines().last().unwrap();
        let ratio = "1.00 (0.90 to 1.10): within the noise";
        let rival = "R: 10.0 ns (9.00 to 11.0)";
        assert_eq!(
            line,
            format!("| a: time | - | 10.0 ns (10.0 to 10.0) | {rival} | {ratio} |  |")
        );
    }
}
