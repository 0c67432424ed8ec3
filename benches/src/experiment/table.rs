//! The figures as a table in Markdown.

use std::fmt::Write as _;

use super::{Ratio, Row, Samples, Verdict};

/// The table of all rows.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = "\
| what | published | measured | rival | ratio | why different |
| --- | --- | --- | --- | --- | --- |
"
    .to_owned();
    for row in rows {
        let published = row.published.map_or_else(|| "-".to_owned(), number);
        let rival = row.rival.as_ref().map_or_else(
            || "-".to_owned(),
            |(name, samples)| format!("{name}: {}", spread(samples, row.unit)),
        );
        let ratio = row.ratio().map_or_else(|| beside_published(row), |one| ratio(one, row.why));
        let _ = writeln!(
            text,
            "| {}, {} | {published} | {} | {rival} | {ratio} | {} |",
            row.name,
            row.metric,
            spread(&row.ours, row.unit),
            row.why,
        );
    }
    text
}

/// `2.95 (2.90 to 3.01)`, or that this says nothing.
fn ratio(ratio: Ratio, why: &str) -> String {
    let text = format!("{:.2} ({:.2} to {:.2})", ratio.middle, ratio.least, ratio.most);
    match ratio.verdict() {
        Verdict::Better => text,
        Verdict::Worse if why.is_empty() => format!("{text}: worse, not explained"),
        Verdict::Worse => format!("{text}: worse"),
        Verdict::Noise => format!("{text}: within the noise"),
        Verdict::Unsure => format!("{text}: too few rounds to tell"),
    }
}

/// `0.98 of the published`; beyond a tenth there must be a reason, or the table says that it lacks.
fn beside_published(row: &Row) -> String {
    let Some(part) = row.part_of_published() else { return "-".to_owned() };
    let is_far = (part - 1.0).abs() > 0.10;
    let lacks = if is_far && row.why.is_empty() { ": not explained" } else { "" };
    format!("{part:.2} of the published{lacks}")
}

/// `115 ns (104 to 116)`.
fn spread(samples: &Samples, unit: &str) -> String {
    let middle = number(samples.median());
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    if samples.0.len() < 2 {
        return format!("{middle}{unit}");
    }
    format!("{middle}{unit} ({} to {})", number(samples.least()), number(samples.most()))
}

/// A number with three or more significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10_000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `1,234,567`.
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
    fn numbers_keep_the_digits_that_matter() {
        let texts = [0.0, 1.234, 45.67, 345.6, 1_234_567.0].map(number);
        assert_eq!(texts, ["0", "1.23", "45.7", "346", "1,234,567"]);
    }

    #[test]
    fn what_differs_by_more_than_a_tenth_needs_a_reason() {
        let row = |value: f64, why| Row {
            ours: Samples::from(value),
            published: Some(100.0),
            why,
            ..Row::new("a", "rules", "")
        };
        assert_eq!(beside_published(&row(95.0, "")), "0.95 of the published");
        assert_eq!(beside_published(&row(120.0, "because")), "1.20 of the published");
        assert_eq!(beside_published(&row(120.0, "")), "1.20 of the published: not explained");
        assert_eq!(beside_published(&Row::new("a", "rules", "")), "-");
    }

    #[test]
    fn what_is_worse_than_a_rivals_needs_a_reason() {
        let rival = || Some(("R".to_owned(), Samples(vec![1.0; 3])));
        let row = |why| Row {
            ours: Samples(vec![2.0; 3]),
            rival: rival(),
            why,
            ..Row::new("a", "b", "ns")
        };
        assert!(table(&[row("")]).contains("0.50 (0.50 to 0.50): worse, not explained |"));
        assert!(table(&[row("because")]).contains("0.50 (0.50 to 0.50): worse | because |"));
    }

    #[test]
    fn a_difference_within_the_noise_is_said_to_be_one() {
        let rival = Some(("R".to_owned(), Samples(vec![9.0, 10.0, 11.0])));
        let row =
            Row { ours: Samples(vec![10.0, 10.0, 10.0]), rival, ..Row::new("a", "time", "ns") };
        let text = table(&[row]);
        let line = text.lines().last().unwrap();
        let ratio = "1.00 (0.90 to 1.10): within the noise";
        let rival = "R: 10.0 ns (9.00 to 11.0)";
        assert_eq!(
            line,
            format!("| a, time | - | 10.0 ns (10.0 to 10.0) | {rival} | {ratio} |  |")
        );
    }
}
