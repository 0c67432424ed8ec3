//! Results of mutants, which are kept between runs and compared with the explanations in the docs.
//!
//! A mutant is identified by file, function, change, and an index among equal mutants. So line
//! numbers may change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::PathBuf,
};

use super::{mutant_tests::MutantResult, schemata::Mutant};
use crate::shell::{TaskError, root};

/// Identity of a mutant: file, function, change, and index among equal mutants.
pub(super) type MutantKey = (String, String, String, usize);

/// Results of a target, in a file.
pub(super) struct MutantResults {
    path: PathBuf,
    verdicts: BTreeMap<MutantKey, MutantResult>,
}

impl MutantResults {
    pub(super) fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let verdicts = text.lines().filter_map(parse).collect();
        Self { path, verdicts }
    }

    pub(super) fn verdict(&self, key: &MutantKey) -> Option<&MutantResult> {
        self.verdicts.get(key)
    }

    /// Stores a result immediately, so that a run may be interrupted.
    pub(super) fn record(
        &mut self,
        key: MutantKey,
        verdict: MutantResult,
    ) -> Result<(), TaskError> {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.path)?;
        let (file_name, function, what, nth) = &key;
        let (word, by) = words(&verdict);
        writeln!(file, "{file_name}\t{function}\t{what}\t{nth}\t{word}\t{by}")?;
        self.verdicts.insert(key, verdict);
        Ok(())
    }
}

/// Returns the keys of mutants in order.
pub(super) fn keys(mutants: &[(String, Mutant)]) -> Vec<MutantKey> {
    let mut seen: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let key = |(file, mutant): &(String, Mutant)| {
        let (function, what) = (mutant.function.clone(), mutant.what.clone());
        let nth = seen.entry((file.clone(), function.clone(), what.clone())).or_default();
        *nth += 1;
        (file.clone(), function, what, *nth)
    };
    mutants.iter().map(key).collect()
}

fn words(verdict: &MutantResult) -> (&'static str, &str) {
    match verdict {
        MutantResult::Detected(by) => ("detected", by),
        MutantResult::Endless(by) => ("endless", by),
        MutantResult::Survived => ("survived", ""),
        MutantResult::Unreached => ("unreached", ""),
        MutantResult::Unbuildable => ("unbuildable", ""),
    }
}

fn parse(line: &str) -> Option<(MutantKey, MutantResult)> {
    let mut cells = line.split('\t').map(str::to_owned);
    let mut next = || cells.next();
    let key = (next()?, next()?, next()?, next()?.parse().ok()?);
    let (word, by) = (next()?, next()?);
    let verdict = match word.as_str() {
        "detected" | "found" => MutantResult::Detected(by),
        "endless" => MutantResult::Endless(by),
        "survived" => MutantResult::Survived,
        "unreached" => MutantResult::Unreached,
        "unbuildable" => MutantResult::Unbuildable,
        _ => return None,
    };
    Some((key, verdict))
}

/// Survivors that the docs explain: file, function and change.
///
/// Each survivor is a row of a table in the docs.
pub(super) struct Explained(BTreeSet<(String, String, String)>);

impl Explained {
    pub(super) fn read() -> Result<Self, TaskError> {
        let text = fs::read_to_string(root().join(PAGE))?;
        Ok(Self(text.lines().filter_map(row).collect()))
    }

    pub(super) fn contains(&self, key: &MutantKey) -> bool {
        self.0.contains(&table_cells(key))
    }
}

/// Returns a mutant in the form of table cells.
fn table_cells(key: &MutantKey) -> (String, String, String) {
    (key.0.clone(), key.1.clone(), key.2.replace('|', "¦"))
}

/// Parses a row of a table of survivors: `| file | function | what | why |`.
fn row(line: &str) -> Option<(String, String, String)> {
    let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<&str> = line.split(" | ").collect();
    let [file, function, what, _] = cells.as_slice() else { return None };
    let plain = |cell: &&str| cell.trim().trim_matches('`').to_owned();
    Some((plain(file), plain(function), (*what).to_owned()))
}

/// Number of mutants of a file by result.
#[derive(Default)]
struct FileCounts {
    found: usize,
    endless: usize,
    explained: usize,
    survived: usize,
    unbuildable: usize,
}

/// Prints all results. Returns an error if a survivor is not explained.
pub(super) fn report(
    results: &MutantResults,
    mutants: &[(String, Mutant)],
    explained: &Explained,
) -> Result<(), TaskError> {
    let keys = keys(mutants);
    let mut lines: BTreeMap<&str, FileCounts> = BTreeMap::new();
    let (mut survivors, mut at_large) = (Vec::new(), BTreeSet::new());
    for (key, (_, mutant)) in keys.iter().zip(mutants) {
        let line = lines.entry(&key.0).or_default();
        match results.verdict(key) {
            Some(MutantResult::Detected(_)) => line.found += 1,
            Some(MutantResult::Endless(_)) => line.endless += 1,
            Some(MutantResult::Unbuildable) => line.unbuildable += 1,
            Some(MutantResult::Survived | MutantResult::Unreached) if explained.contains(key) => {
                line.explained += 1;
                at_large.insert(table_cells(key));
            }
            Some(MutantResult::Survived | MutantResult::Unreached) => {
                line.survived += 1;
                survivors.push((key, mutant.line));
            }
            None => {}
        }
    }
    println!("\n| file | found | endless | explained | survived | does not build |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (file, line) in &lines {
        let FileCounts { found, endless, explained, survived, unbuildable } = line;
        println!("| {file} | {found} | {endless} | {explained} | {survived} | {unbuildable} |");
    }
    let sum = |count: fn(&FileCounts) -> usize| lines.values().map(count).sum::<usize>();
    let all = [
        sum(|line| line.found),
        sum(|line| line.endless),
        sum(|line| line.explained),
        sum(|line| line.survived),
        sum(|line| line.unbuildable),
    ];
    println!("| all | {} |", all.map(|count| count.to_string()).join(" | "));
    for row in &explained.0 {
        let (file, function, what) = row;
        if lines.contains_key(file.as_str()) && !at_large.contains(row) {
            println!("explained in {PAGE} but not a survivor: {file} | {function} | {what}");
        }
    }
    for ((file, function, what, _), line) in &survivors {
        println!("survived: {file}:{line} | `{function}` | {what}");
    }
    if survivors.is_empty() {
        return Ok(());
    }
    Err(TaskError::new(format!(
        "{} mutants that no test found are not explained in {PAGE}",
        survivors.len()
    )))
}

/// The page that explains survivors.
const PAGE: &str = "docs/mutants.md";
