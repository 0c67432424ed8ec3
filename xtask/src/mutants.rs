//! `cargo xtask mutants`: mutation testing.
//!
//! All mutants of some files are built into one binary, inactive ([`schemata`]). Then each mutant
//! is activated in turn for the tests that reach it. `docs/mutants.md` must explain every mutant
//! that no test detects. Results are kept in `target/mutants`, so an interrupted run can continue.

mod edits;
mod mutant_tests;
mod results;
mod schemata;
#[cfg(test)]
mod tests;
mod tree;
mod values;

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use mutant_tests::{Effort, MutantResult, MutantTests, in_parallel};
use results::{Explained, MutantKey, MutantResults};
use tree::MutatedTree;

use crate::shell::{TaskError, step};

/// A group of files that are tested together.
struct MutationTarget {
    name: &'static str,
    what: &'static str,
    /// Path prefixes of the files of the target.
    paths: &'static [&'static str],
    /// Packages with the tests of the target.
    packages: &'static [&'static str],
}

const TARGETS: &[MutationTarget] = &[
    MutationTarget {
        name: "translate",
        what: "translation: table decisions, and every bit they depend on",
        paths: &[
            "crates/pipeline/src/translate/",
            "crates/pipeline/src/continuations/continuation.rs",
            "crates/pipeline/src/continuations/liveness.rs",
            "crates/pipeline/src/continuations/live_fields.rs",
            "crates/pipeline/src/traversals/sub_traversal.rs",
        ],
        packages: &["shunt-pipeline"],
    },
    MutationTarget {
        name: "classifier",
        what: "classifier: lookups, and the mask bits on which their results depend",
        paths: &["crates/classifier/src/"],
        packages: &["shunt-classifier", "shunt-pipeline"],
    },
    MutationTarget {
        name: "kairo",
        what: "kairo: the entries that a change evicts",
        paths: &["crates/kairo/src/"],
        packages: &["shunt-kairo"],
    },
    MutationTarget {
        name: "gigaflow",
        what: "gigaflow: LTM rules, tags, and the chain",
        paths: &[
            "crates/gigaflow/src/adaptive.rs",
            "crates/gigaflow/src/cache.rs",
            "crates/gigaflow/src/cache/",
            "crates/gigaflow/src/ltm/",
            "crates/gigaflow/src/partition/",
            "crates/gigaflow/src/convert.rs",
            "crates/gigaflow/src/tag.rs",
            "crates/gigaflow/src/outline",
        ],
        packages: &["shunt-gigaflow"],
    },
];

/// The mutants to test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MutantsRequest {
    /// True to test unexplained survivors and timeouts again.
    again: bool,
    /// True to print only the list of mutants.
    list: bool,
    effort: Effort,
    /// Number of tests that run in parallel.
    jobs: usize,
}

/// Tests the named targets, or all targets.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let mut request = MutantsRequest { jobs: 1, ..MutantsRequest::default() };
    let mut chosen: Vec<&MutationTarget> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--jobs" => {
                let number =
                    rest.next().and_then(|text| text.parse().ok()).filter(|jobs| *jobs > 0);
                request.jobs = number.ok_or_else(|| TaskError::new("--jobs needs a number"))?;
            }
            "--again" => request.again = true,
            "--quick" => request.effort = Effort::Quick,
            "--list" => request.list = true,
            name => chosen.push(find_target(name)?),
        }
    }
    if chosen.is_empty() {
        chosen = TARGETS.iter().collect();
    }
    for target in chosen {
        step(&format!("mutants of {}: {}", target.name, target.what), || run(target, request))?;
    }
    Ok(())
}

fn find_target(name: &str) -> Result<&'static MutationTarget, TaskError> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let found = TARGETS.iter().find(|target| target.name == name);
    found
        .ok_or_else(|| TaskError::new(format!("unknown target `{name}`; choose from: {}", names())))
}

fn run(target: &MutationTarget, request: MutantsRequest) -> Result<(), TaskError> {
    let folder = tree::folder();
    let mut record = MutantResults::read(folder.join(format!("{}.tsv", target.name)));
    let mut tree = MutatedTree::copy(folder.join(target.name), target.paths)?;
    let keys = results::keys(&tree.mutants);
    for (id, key) in keys.iter().enumerate() {
        if record.verdict(key) == Some(&MutantResult::Unbuildable) {
            tree.dropped.mutants.insert(id);
        }
    }
    if request.list {
        for (file, mutant) in &tree.mutants {
            println!("{file}:{} | {} | {}", mutant.line, mutant.function, mutant.what);
        }
        return Ok(());
    }
    let programs = tree.build(target.packages)?;
    let keys = results::keys(&tree.mutants);
    for key in tree.dropped.mutants.iter().map(|id| &keys[*id]) {
        if record.verdict(key).is_none() {
            record.record(key.clone(), MutantResult::Unbuildable)?;
        }
    }
    let explained = Explained::read()?;
    let waiting: Vec<(usize, MutantKey)> = keys
        .into_iter()
        .enumerate()
        .filter(|(_, key)| match record.verdict(key) {
            None => true,
            Some(MutantResult::Survived | MutantResult::Unreached) => {
                request.again && !explained.contains(key)
            }
            Some(MutantResult::Endless(_)) => request.again,
            Some(_) => false,
        })
        .collect();
    if !waiting.is_empty() {
        let trace = folder.join(format!("{}.trace", target.name));
        let bar = Bar::new("tests without an active mutant");
        let jobs = request.jobs;
        let mutant_tests =
            MutantTests::new(programs, request.effort, &trace, jobs, |done, count| {
                bar.show(done, count, "");
            })?;
        let (bar, count) = (Bar::new("mutants"), waiting.len());
        let (done, at_large) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let kept = Mutex::new(&mut record);
        let ends = in_parallel(jobs, &waiting, |_, (id, key)| {
            let survivors = at_large.load(Ordering::Relaxed);
            bar.show(done.fetch_add(1, Ordering::Relaxed), count, &format!("{survivors} survive"));
            let verdict = mutant_tests.run_against(*id)?;
            if matches!(verdict, MutantResult::Survived | MutantResult::Unreached) {
                at_large.fetch_add(1, Ordering::Relaxed);
            }
            kept.lock().unwrap_or_else(PoisonError::into_inner).record(key.clone(), verdict)
        });
        ends.into_iter().collect::<Result<(), TaskError>>()?;
    }
    results::report(&record, &tree.mutants, &explained)
}

/// Progress of a long task.
///
/// The progress is one overwritten line on a terminal, and occasional lines elsewhere.
struct Bar {
    name: &'static str,
    start: Instant,
    is_terminal: bool,
}

impl Bar {
    fn new(name: &'static str) -> Self {
        Self { name, start: Instant::now(), is_terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, done: usize, count: usize, more: &str) {
        if !self.is_terminal && !done.is_multiple_of(100) {
            return;
        }
        let (done_u32, rest) = (u32::try_from(done).unwrap_or(u32::MAX), count - done);
        let each = self.start.elapsed().checked_div(done_u32).unwrap_or(Duration::ZERO);
        let left = each.as_secs_f64() * f64::from(u32::try_from(rest).unwrap_or(u32::MAX)) / 60.0;
        let filled = 30 * done / count.max(1);
        let bar = format!("{:.<30}", "#".repeat(filled));
        let end = if self.is_terminal { "\x1b[K\r" } else { "\n" };
        let text =
            format!("{} {bar} {done} of {count}, {left:.0} minutes left {more}{end}", self.name);
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
