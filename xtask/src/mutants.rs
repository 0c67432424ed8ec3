//! `cargo xtask mutants`: would the tests fail if the code were wrong?
//!
//! All mutants of some files are built at once, asleep ([`schemata`]); then each is woken in turn
//! for the tests that reach it. What no test notices must be explained in `docs/mutants.md`. What
//! became of each is kept in `target/mutants`, so a run may be interrupted and goes on.

mod edits;
mod judges;
mod record;
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

use judges::{Effort, Judges, Verdict, in_parallel};
use record::{Explained, Key, Record};
use tree::Tree;

use crate::shell::{Failure, step};

/// Files that are tried together.
struct Target {
    name: &'static str,
    what: &'static str,
    /// What the paths of its files begin with.
    paths: &'static [&'static str],
    /// Packages whose tests judge.
    packages: &'static [&'static str],
}

const TARGETS: &[Target] = &[
    Target {
        name: "translate",
        what: "what tables decide, and every bit that it depended on",
        paths: &[
            "crates/pipeline/src/translate/",
            "crates/pipeline/src/continuations/continuation.rs",
            "crates/pipeline/src/continuations/liveness.rs",
            "crates/pipeline/src/continuations/live_fields.rs",
            "crates/pipeline/src/traversals/sub_traversal.rs",
        ],
        packages: &["shunt-pipeline"],
    },
    Target {
        name: "classifier",
        what: "lookups, and the bits that prove them",
        paths: &["crates/classifier/src/"],
        packages: &["shunt-classifier", "shunt-pipeline"],
    },
    Target {
        name: "kairo",
        what: "what a change ends",
        paths: &["crates/kairo/src/"],
        packages: &["shunt-kairo"],
    },
    Target {
        name: "gigaflow",
        what: "rules of pieces, tags, and the chain",
        paths: &[
            "crates/gigaflow/src/adaptive.rs",
            "crates/gigaflow/src/cache.rs",
            "crates/gigaflow/src/cache/",
            "crates/gigaflow/src/draw.rs",
            "crates/gigaflow/src/ltm/",
            "crates/gigaflow/src/partition/",
            "crates/gigaflow/src/plan.rs",
            "crates/gigaflow/src/rule_of.rs",
            "crates/gigaflow/src/tag.rs",
            "crates/gigaflow/src/way.rs",
        ],
        packages: &["shunt-gigaflow"],
    },
];

/// Which mutants are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    /// Those that survived and nobody has explained, or that did not end, once more.
    again: bool,
    /// Nothing but the list.
    list: bool,
    effort: Effort,
    /// How many tests are run at once.
    jobs: usize,
}

/// Tries the targets that are named, or all.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let mut request = Request { jobs: 1, ..Request::default() };
    let mut chosen: Vec<&Target> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--jobs" => {
                let number =
                    rest.next().and_then(|text| text.parse().ok()).filter(|jobs| *jobs > 0);
                request.jobs = number.ok_or_else(|| Failure::new("--jobs needs a number"))?;
            }
            "--again" => request.again = true,
            "--quick" => request.effort = Effort::Quick,
            "--list" => request.list = true,
            name => chosen.push(target(name)?),
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

fn target(name: &str) -> Result<&'static Target, Failure> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let found = TARGETS.iter().find(|target| target.name == name);
    found.ok_or_else(|| {
        Failure::new(format!("no target is called `{name}`; there are: {}", names()))
    })
}

fn run(target: &Target, request: Request) -> Result<(), Failure> {
    let folder = tree::folder();
    let mut record = Record::read(folder.join(format!("{}.tsv", target.name)));
    let mut tree = Tree::copy(folder.join(target.name), target.paths)?;
    let keys = record::keys(&tree.mutants);
    for (id, key) in keys.iter().enumerate() {
        if record.verdict(key) == Some(&Verdict::Unbuildable) {
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
    let keys = record::keys(&tree.mutants);
    for key in tree.dropped.mutants.iter().map(|id| &keys[*id]) {
        if record.verdict(key).is_none() {
            record.keep(key.clone(), Verdict::Unbuildable)?;
        }
    }
    let explained = Explained::read()?;
    let waiting: Vec<(usize, Key)> = keys
        .into_iter()
        .enumerate()
        .filter(|(_, key)| match record.verdict(key) {
            None => true,
            Some(Verdict::Survived | Verdict::Unreached) => request.again && !explained.holds(key),
            Some(Verdict::Endless(_)) => request.again,
            Some(_) => false,
        })
        .collect();
    if !waiting.is_empty() {
        let trace = folder.join(format!("{}.trace", target.name));
        let bar = Bar::new("tests asleep");
        let jobs = request.jobs;
        let judges = Judges::new(programs, request.effort, &trace, jobs, |done, count| {
            bar.tell(done, count, "");
        })?;
        let (bar, count) = (Bar::new("mutants"), waiting.len());
        let (done, at_large) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let kept = Mutex::new(&mut record);
        let ends = in_parallel(jobs, &waiting, |_, (id, key)| {
            let survivors = at_large.load(Ordering::Relaxed);
            bar.tell(done.fetch_add(1, Ordering::Relaxed), count, &format!("{survivors} survive"));
            let verdict = judges.judge(*id)?;
            if matches!(verdict, Verdict::Survived | Verdict::Unreached) {
                at_large.fetch_add(1, Ordering::Relaxed);
            }
            kept.lock().unwrap_or_else(PoisonError::into_inner).keep(key.clone(), verdict)
        });
        ends.into_iter().collect::<Result<(), Failure>>()?;
    }
    record::report(&record, &tree.mutants, &explained)
}

/// How far a long piece of work is: on a terminal a line that is written over, else now and then.
struct Bar {
    name: &'static str,
    start: Instant,
    is_terminal: bool,
}

impl Bar {
    fn new(name: &'static str) -> Self {
        Self { name, start: Instant::now(), is_terminal: std::io::stderr().is_terminal() }
    }

    fn tell(&self, done: usize, count: usize, more: &str) {
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
