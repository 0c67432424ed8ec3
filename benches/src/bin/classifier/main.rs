//! The classifier beside that of Open vSwitch: large tables, the same rules and packets, one run.
//!
//! ```text
//! classifier [--rival PROGRAM] [--classbench FOLDER] [--packets COUNT] [--megaflows] [--only TABLE]
//! ```
//!
//! `--rival` is what `benches/rival/build.sh` made; without it ours is measured alone.
//! Both answer every packet alike, or it stops. Times are of the CPU, the least of the rounds, which
//! take turns. Each table has a process of its own, so that the memory counted is its own.
//! `--megaflows` measures no time: it counts the entries that a cache makes of the packets.

#![expect(clippy::panic, reason = "an experiment that cannot be set up says why and stops")]
#![expect(clippy::print_stdout, reason = "it reports to its user")]

mod ours;
mod rival;
mod workload;

use std::{path::PathBuf, process::Command};

use ours::Ours;
use rival::Rival;
use shunt_classifier::testing::workload::Priorities;
use workload::Workload;

/// Rounds of each measurement.
const ROUNDS: usize = 5;

/// Sets whose lookups are timed.
const TIMED: &[&str] = &["acl1_10k", "fw1_10k", "ipc1_10k", "acl1_100k", "fw1_100k", "ipc1_100k"];

/// Sets of which packets meet the same entries again.
const COUNTED: &[&str] = &["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"];

/// What one classifier needed for one workload.
#[derive(Clone, Copy, Debug)]
struct Figures {
    masked_ns: f64,
    plain_ns: f64,
    insert_ns: f64,
    remove_ns: f64,
    bytes: f64,
}

/// What the command line asks for.
struct Options {
    rival: Option<PathBuf>,
    class_bench: Option<PathBuf>,
    packets_count: usize,
    counts_megaflows: bool,
    only: Option<String>,
}

impl Options {
    fn read() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let value = |name: &str| {
            let pair = arguments.windows(2).find(|pair| pair[0] == name);
            pair.map(|pair| pair[1].clone())
        };
        Self {
            rival: value("--rival").map(PathBuf::from),
            class_bench: value("--classbench").map(PathBuf::from),
            packets_count: value("--packets").and_then(|n| n.parse().ok()).unwrap_or(20_000),
            counts_megaflows: arguments.iter().any(|argument| argument == "--megaflows"),
            only: value("--only"),
        }
    }

    fn tables(&self) -> impl Iterator<Item = &'static str> {
        let sets = if self.counts_megaflows { COUNTED } else { TIMED };
        ["random", "specific"].iter().chain(sets).copied()
    }

    /// The table of a name; `None` where the folder of ClassBench does not have it.
    fn workload(&self, name: &str) -> Option<Workload> {
        let (rules, masks) = if self.counts_megaflows { (1000, 100) } else { (100_000, 600) };
        let synthetic =
            |priorities| Some(workload::synthetic(rules, masks, priorities, self.packets_count));
        match name {
            "random" => synthetic(Priorities::Random),
            "specific" => synthetic(Priorities::Specific),
            name => workload::class_bench(self.class_bench.as_deref()?, name, self.packets_count),
        }
    }
}

fn main() {
    let options = Options::read();
    if let Some(name) = &options.only {
        match options.workload(name) {
            Some(workload) if options.counts_megaflows => count_megaflows(&workload, &options),
            Some(workload) => compare_times(&workload, &options),
            None => println!("| {name} | SKIPPED: not in the folder of --classbench |"),
        }
        return;
    }
    if options.rival.is_none() {
        println!("no --rival: measuring Shunt alone (benches/rival/build.sh makes it)");
    }
    println!("{}", if options.counts_megaflows { MEGAFLOWS_HEAD } else { TIMES_HEAD });
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("no program: {error}"));
    for name in options.tables() {
        let mut alone = Command::new(&program);
        let status = alone.args(std::env::args().skip(1)).args(["--only", name]).status();
        assert!(status.is_ok_and(|status| status.success()), "{name} was not measured");
    }
}

const MEGAFLOWS_HEAD: &str = "\
| table | rules | masks of rules | packets | entries | masks of entries | Open vSwitch: entries | masks |
| --- | --- | --- | --- | --- | --- | --- | --- |";

/// Counts the entries of one workload.
fn count_megaflows(workload: &Workload, options: &Options) {
    let (entries, masks) = Ours::new(workload).megaflows();
    let rivals = with_rival(workload, options, |rival| rival.ask::<usize>("megaflows"));
    let rivals = rivals.unwrap_or_default();
    println!(
        "| {} | {} | {} | {} | {entries} | {masks} | {} |",
        workload.name,
        workload.rules.len(),
        workload.masks_count(),
        workload.packets.len(),
        rivals.iter().map(usize::to_string).collect::<Vec<_>>().join(" | "),
    );
}

const TIMES_HEAD: &str = "\
| table | rules | masks | who | lookup with mask | without | insert | remove | bytes a rule |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Measures the times of one workload, and prints a row for each classifier.
fn compare_times(workload: &Workload, options: &Options) {
    let mut ours = Ours::new(workload);
    let (mut least, mut rivals) = (ours.figures(), None);
    let measured = with_rival(workload, options, |rival| {
        assert_eq!(rival.ask::<i32>("answers"), ours.answers(), "both answer alike");
        let mut figures = rival_figures(rival);
        for _ in 0..ROUNDS {
            least = least.least(ours.figures());
            figures = figures.least(rival_figures(rival));
        }
        rivals = Some(figures);
    });
    if measured.is_none() {
        (0..ROUNDS).for_each(|_| least = least.least(ours.figures()));
    }
    let name = format!("{} | {}", workload.name, workload.rules.len());
    let name = format!("{name} | {}", workload.masks_count());
    println!("| {name} | Shunt | {} |", least.text(" ns", 0));
    if let Some(rivals) = rivals {
        println!("| {name} | Open vSwitch | {} |", rivals.text(" ns", 0));
        println!("| {name} | ratio | {} |", rivals.over(least).text("", 2));
    }
}

/// Runs on the rival with a workload, if there is one.
fn with_rival<T>(
    workload: &Workload,
    options: &Options,
    run: impl FnOnce(&mut Rival) -> T,
) -> Option<T> {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
    let program = options.rival.as_deref();
    program.map(|program| run(&mut Rival::start(program, workload, folder.path())))
}

/// The rival's figures, by its commands.
fn rival_figures(rival: &mut Rival) -> Figures {
    let mut first = |command: &str| rival.ask::<f64>(command).first().copied().unwrap_or_default();
    let (rules_count, packets_count) = (first("rules"), first("packets"));
    let (masked, plain, bytes) = (first("masked"), first("plain"), first("bytes"));
    let rebuild: Vec<f64> = rival.ask("rebuild");
    let Some([remove, insert]) = rebuild.first_chunk() else {
        panic!("the rival answers with too few numbers");
    };
    Figures {
        masked_ns: masked / packets_count,
        plain_ns: plain / packets_count,
        insert_ns: insert / rules_count,
        remove_ns: remove / rules_count,
        bytes: bytes / rules_count,
    }
}

impl Figures {
    /// The least of each.
    fn least(self, other: Self) -> Self {
        self.zip(other, f64::min)
    }

    fn over(self, other: Self) -> Self {
        self.zip(other, |ours, others| ours / others)
    }

    fn zip(self, other: Self, both: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            masked_ns: both(self.masked_ns, other.masked_ns),
            plain_ns: both(self.plain_ns, other.plain_ns),
            insert_ns: both(self.insert_ns, other.insert_ns),
            remove_ns: both(self.remove_ns, other.remove_ns),
            bytes: both(self.bytes, other.bytes),
        }
    }

    fn text(self, unit: &str, digits: usize) -> String {
        let times = [self.masked_ns, self.plain_ns, self.insert_ns, self.remove_ns];
        let times: String = times.map(|time| format!("{time:.digits$}{unit} | ")).concat();
        format!("{times}{:.digits$}", self.bytes)
    }
}
