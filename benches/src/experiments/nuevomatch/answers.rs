//! Wrong answers of the classifier, which must be none.
//!
//! Lookups by each index are compared with a linear scan of the rules, and with TupleMerge. Both
//! judges share no code with the classifier. `--headers N` compares N distinct headers of each rule
//! set with the scan, and a hundred times as many headers with TupleMerge.

use serde_json::{Value, json};
use shunt_nuevomatch::{
    StartIndexKind,
    testing::{CheckedSet, WrongAnswer},
};

use super::rule_sets::{RuleSet, names};
use crate::experiment::{Better, Choice, Progress, Row, Run, Samples};

/// The option with the number of headers of each rule set.
pub(crate) const HEADERS: Choice = Choice { option: "--headers", names: Vec::new };

/// Number of headers of each rule set that are compared with a scan by default.
const HEADERS_DEFAULT: usize = 100_000;

/// Number of headers of a quick run.
const HEADERS_QUICK: usize = 1_000;

/// Number of headers for TupleMerge, for each header that is compared with a scan.
const HEADERS_PER_SCAN: usize = 100;

/// Number of headers after which a part shows its own progress.
const HEADERS_LONG: usize = 10_000_000;

/// Number of steps of this progress.
const STEPS: usize = 50;

/// Number of wrong answers that are printed.
const PRINTED_MAX: u64 = 10;

/// The judges: name in a part, number of headers, and number of wrong answers.
const JUDGES: [(&str, &str, &str); 2] = [
    ("scan", "distinct headers compared with a linear scan", "wrong answers beside the scan"),
    ("tuple-merge", "headers compared with TupleMerge", "wrong answers beside TupleMerge"),
];

/// The indexes: name in a part, name of a row, and kind.
const INDEXES: [(&str, &str, StartIndexKind); 3] = [
    ("tree", "tree", StartIndexKind::Tree),
    ("segments", "linear segments", StartIndexKind::Segments),
    ("model", "RQ-RMI", StartIndexKind::Rqrmi),
];

/// Runs all rule sets with both judges.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let names = names(run.is_quick);
    run.begin(names.len() * JUDGES.len());
    let mut rows = Vec::new();
    for (judge, headers, wrong) in JUDGES {
        let parts: Vec<_> = names
            .iter()
            .map(|name| run.part("nuevomatch-answers", &format!("{name}:{judge}")))
            .collect();
        rows.extend(parts.iter().map(|part| headers_row(part, headers)));
        rows.extend(parts.iter().flat_map(|part| wrong_rows(part, wrong)));
    }
    rows
}

/// Returns the row with the number of compared headers.
fn headers_row(part: &Value, metric: &'static str) -> Row {
    let ours = Samples::from(part["headers"].as_f64().unwrap_or_default());
    Row { ours, better: Better::More, ..Row::new(name(part), metric, "headers") }
}

/// Returns the rows with the number of wrong answers of each index.
fn wrong_rows(part: &Value, metric: &'static str) -> Vec<Row> {
    let row = |(key, index, _)| {
        let ours = Samples::from(part[key].as_f64().unwrap_or(f64::NAN));
        Row { ours, ..Row::new(format!("{}, {index}", name(part)), metric, "answers") }
    };
    INDEXES.into_iter().map(row).collect()
}

/// Returns the name of the rule set of a part.
fn name(part: &Value) -> &str {
    part["name"].as_str().unwrap_or_default()
}

/// Compares the lookups in one rule set with one judge, and prints the numbers.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let (name, judge) = part.split_once(':').unwrap_or((part, ""));
    let default = run.either(HEADERS_DEFAULT, HEADERS_QUICK);
    let count = run.option(HEADERS.option).and_then(|text| text.parse().ok()).unwrap_or(default);
    let set = RuleSet::new(name);
    let checked = CheckedSet::new(set.rules.clone());
    let checked = checked.unwrap_or_else(|error| panic!("{}: {error}", set.name));
    let mut counts = AnswerCounts::default();
    match judge {
        "scan" => counts.compare(part, count, |advance, wrong| {
            checked.compare_with_scan(count, advance, wrong);
        }),
        "tuple-merge" => {
            let count = count.saturating_mul(HEADERS_PER_SCAN);
            counts.compare(part, count, |advance, wrong| {
                checked.compare_with_tuple_merge(count, advance, wrong);
            });
        }
        _ => panic!("{part}: there is no judge {judge}"),
    }
    println!("{}", counts.part(&set.name));
}

/// The numbers of one part.
#[derive(Debug, Default)]
struct AnswerCounts {
    /// Number of compared headers.
    headers: usize,
    /// Number of wrong answers, in the order of [`INDEXES`].
    wrong: [u64; INDEXES.len()],
}

impl AnswerCounts {
    /// Compares headers by `work`, and counts them and the wrong answers.
    ///
    /// # Panics
    ///
    /// If the judges differ from each other, so that neither can judge.
    fn compare(
        &mut self,
        part: &str,
        count: usize,
        work: impl FnOnce(&mut dyn FnMut(usize), &mut dyn FnMut(WrongAnswer)),
    ) {
        let Self { headers, wrong } = self;
        let mut progress = Progress::new(STEPS);
        let mut advance = |compared: usize| {
            let step = |headers: usize| headers.saturating_mul(STEPS) / count.max(1);
            let steps = step(*headers + compared) - step(*headers);
            *headers += compared;
            if count > HEADERS_LONG && steps > 0 {
                (0..steps).for_each(|_| progress.advance());
                progress.show(part);
            }
        };
        let mut count_wrong = |own: WrongAnswer| {
            let index = INDEXES.iter().position(|(.., kind)| Some(*kind) == own.kind);
            let index = index.unwrap_or_else(|| panic!("{part}: the judges differ: {own:?}"));
            wrong[index] += 1;
            if wrong[index] <= PRINTED_MAX {
                eprintln!("{part}: wrong answer: {own:?}");
            }
        };
        work(&mut advance, &mut count_wrong);
    }

    /// Returns the values that [`run`] reads.
    fn part(&self, name: &str) -> Value {
        let mut part = json!({ "name": name, "headers": self.headers });
        for ((key, ..), wrong) in INDEXES.iter().zip(self.wrong) {
            part[key] = wrong.into();
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_wrong_answers_of_each_index() {
        let mut counts = AnswerCounts::default();
        let answer = |kind| WrongAnswer { kind, header: [0; 5], found: None, expected: None };
        counts.compare("acl_1k:scan", 100, |advance, wrong| {
            advance(60);
            wrong(answer(Some(StartIndexKind::Rqrmi)));
            wrong(answer(Some(StartIndexKind::Rqrmi)));
            wrong(answer(Some(StartIndexKind::Segments)));
            advance(40);
        });
        let part = counts.part("acl_1k: 1000 rules");
        assert!((headers_row(&part, JUDGES[0].1).ours.median() - 100.0).abs() < 0.1);
        let rows = wrong_rows(&part, JUDGES[0].2);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let expected = ["tree", "linear segments", "RQ-RMI"];
        assert_eq!(names, expected.map(|index| format!("acl_1k: 1000 rules, {index}")));
        let wrong: Vec<f64> = rows.iter().map(|row| row.ours.median()).collect();
        assert_eq!(wrong, [0.0, 1.0, 2.0]);
    }
}
