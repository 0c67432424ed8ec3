//! What became of each mutant: kept from run to run, and compared with what the docs explain.
//!
//! A mutant is known by its file, its function, what it changes, and which of equals it is; so
//! lines may move.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::PathBuf,
};

use super::{judges::Verdict, schemata::Mutant};
use crate::shell::{Failure, root};

/// How a mutant is known: file, function, what, and which of equals.
pub(super) type Key = (String, String, String, usize);

/// Results of a target, in a file.
pub(super) struct Record {
    path: PathBuf,
    verdicts: BTreeMap<Key, Verdict>,
}

impl Record {
    pub(super) fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let verdicts = text.lines().filter_map(parse).collect();
        Self { path, verdicts }
    }

    pub(super) fn verdict(&self, key: &Key) -> Option<&Verdict> {
        self.verdicts.get(key)
    }

    /// Keeps a verdict at once, so that a run may be interrupted.
    pub(super) fn keep(&mut self, key: Key, verdict: Verdict) -> Result<(), Failure> {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.path)?;
        let (file_name, function, what, nth) = &key;
        let (word, by) = words(&verdict);
        writeln!(file, "{file_name}\t{function}\t{what}\t{nth}\t{word}\t{by}")?;
        self.verdicts.insert(key, verdict);
        Ok(())
    }
}

/// The keys of mutants, in their order.
pub(super) fn keys(mutants: &[(String, Mutant)]) -> Vec<Key> {
    let mut seen: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let key = |(file, mutant): &(String, Mutant)| {
        let (function, what) = (mutant.function.clone(), mutant.what.clone());
        let nth = seen.entry((file.clone(), function.clone(), what.clone())).or_default();
        *nth += 1;
        (file.clone(), function, what, *nth)
    };
    mutants.iter().map(key).collect()
}

fn words(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Found(by) => ("found", by),
        Verdict::Endless(by) => ("endless", by),
        Verdict::Survived => ("survived", ""),
        Verdict::Unreached => ("unreached", ""),
        Verdict::Unbuildable => ("unbuildable", ""),
    }
}

fn parse(line: &str) -> Option<(Key, Verdict)> {
    let mut cells = line.split('\t').map(str::to_owned);
    let mut next = || cells.next();
    let key = (next()?, next()?, next()?, next()?.parse().ok()?);
    let (word, by) = (next()?, next()?);
    let verdict = match word.as_str() {
        "found" => Verdict::Found(by),
        "endless" => Verdict::Endless(by),
        "survived" => Verdict::Survived,
        "unreached" => Verdict::Unreached,
        "unbuildable" => Verdict::Unbuildable,
        _ => return None,
    };
    Some((key, verdict))
}

/// Survivors that the docs explain: file, function and what, from the rows of its tables.
pub(super) struct Explained(BTreeSet<(String, String, String)>);

impl Explained {
    pub(super) fn read() -> Result<Self, Failure> {
        let text = fs::read_to_string(root().join(PAGE))?;
        Ok(Self(text.lines().filter_map(row).collect()))
    }

    pub(super) fn holds(&self, key: &Key) -> bool {
        self.0.contains(&as_told(key))
    }
}

/// A mutant as a cell of a table can tell it.
fn as_told(key: &Key) -> (String, String, String) {
    (key.0.clone(), key.1.clone(), key.2.replace('|', "¦"))
}

/// A row of a table of survivors: `| file | function | what | why |`.
fn row(line: &str) -> Option<(String, String, String)> {
    let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<&str> = line.split(" | ").collect();
    let [file, function, what, _] = cells.as_slice() else { return None };
    let plain = |cell: &&str| cell.trim().trim_matches('`').to_owned();
    Some((plain(file), plain(function), (*what).to_owned()))
}

/// How many mutants of a file had each end.
#[derive(Default)]
struct Line {
    found: usize,
    endless: usize,
    explained: usize,
    survived: usize,
    unbuildable: usize,
}

/// Prints what became of all; an error if some survivor is not explained.
pub(super) fn report(
    record: &Record,
    mutants: &[(String, Mutant)],
    explained: &Explained,
) -> Result<(), Failure> {
    let keys = keys(mutants);
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    let (mut survivors, mut at_large) = (Vec::new(), BTreeSet::new());
    for (key, (_, mutant)) in keys.iter().zip(mutants) {
        let line = lines.entry(&key.0).or_default();
        match record.verdict(key) {
            Some(Verdict::Found(_)) => line.found += 1,
            Some(Verdict::Endless(_)) => line.endless += 1,
            Some(Verdict::Unbuildable) => line.unbuildable += 1,
            Some(Verdict::Survived | Verdict::Unreached) if explained.holds(key) => {
                line.explained += 1;
                at_large.insert(as_told(key));
            }
            Some(Verdict::Survived | Verdict::Unreached) => {
                line.survived += 1;
                survivors.push((key, mutant.line));
            }
            None => {}
        }
    }
    println!("\n| file | found | endless | explained | survived | does not build |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (file, line) in &lines {
        let Line { found, endless, explained, survived, unbuildable } = line;
        println!("| {file} | {found} | {endless} | {explained} | {survived} | {unbuildable} |");
    }
    let sum = |count: fn(&Line) -> usize| lines.values().map(count).sum::<usize>();
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
            println!("explained in {PAGE} but no survivor: {file} | {function} | {what}");
        }
    }
    for ((file, function, what, _), line) in &survivors {
        println!("survived: {file}:{line} | `{function}` | {what}");
    }
    if survivors.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("{} survivors are not explained in {PAGE}", survivors.len())))
}

/// The page that explains survivors.
const PAGE: &str = "docs/mutants.md";
