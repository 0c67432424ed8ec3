//! Flow-mods over a real OpenFlow connection: one by one and as a bundle, for small and large
//! tables.
//!
//! `ovs-ofctl` sends the same file to both switches in alternating rounds, each to a fresh daemon.
//! Rates use wall time and include the time of `ovs-ofctl`. CPU is the sum over all threads of the
//! switch. Memory is the growth of the process.

use std::{fs, path::Path};

use super::tables;
use crate::{
    cpu::{self, Account, TimeSpent},
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup, Switch},
};

/// A table size: a bundle fills the empty table, and single flow-mods follow.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    rules: usize,
    /// Number of rules that are added, modified and deleted one by one.
    singles: usize,
    rounds: usize,
}

/// Rule-sets of a full run.
const FULL: &[Size] = &[
    Size { name: "10K rules", rules: 10_000, singles: 2_000, rounds: 5 },
    Size { name: "100K rules", rules: 100_000, singles: 2_000, rounds: 3 },
    Size { name: "500K rules", rules: 500_000, singles: 2_000, rounds: 3 },
];

/// Rule-sets of a quick run.
const QUICK: &[Size] = &[Size { name: "10K rules", rules: 10_000, singles: 500, rounds: 3 }];

const RATE: &str = "flow-mods per second, with ovs-ofctl";
const CPU: &str = "CPU of the switch per flow-mod";
const SHARE: &str = "CPU share of the switch during flow-mods";
const MEMORY: &str = "memory of a rule";

/// Results of one kind of change in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    rate: f64,
    cpu_us: f64,
    share: f64,
}

/// The kinds of change, in order.
const CHANGE_KINDS: [&str; 4] = [
    "one bundle into an empty table",
    "added one by one",
    "modified one by one",
    "deleted one by one",
];

/// Results of one round of flow-mods.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    change_kinds: [Figures; CHANGE_KINDS.len()],
    bytes: f64,
}

const fn sizes(run: &Run) -> &'static [Size] {
    if run.is_quick { QUICK } else { FULL }
}

/// Returns the number of progress steps for each switch.
pub(crate) fn steps(run: &Run) -> usize {
    sizes(run).iter().map(|size| size.rounds).sum()
}

/// Runs all sizes in alternating rounds.
pub(crate) fn rows(run: &mut Run, contenders: &[Contender]) -> Vec<Row> {
    let mut rows: Vec<Vec<Row>> = vec![Vec::new(); 4];
    for size in sizes(run) {
        let files = Files::write(run.folder.path(), size);
        let mut rounds = vec![Vec::new(); contenders.len()];
        for _ in 0..size.rounds {
            for (contender, rounds) in contenders.iter().zip(&mut rounds) {
                let what = format!("flow-mods, {}, {}", size.name, contender.name());
                rounds.push(run.step(&what, |folder| measure(contender, folder, &files)));
            }
        }
        let rival = contenders.get(1).map(Contender::name);
        for (metric, rows) in rows.iter_mut().enumerate() {
            rows.extend(metric_rows(metric, size, &rounds, rival.as_deref()));
        }
    }
    rows.concat()
}

/// Returns the rows of one metric for one size.
fn metric_rows(metric: usize, size: &Size, rounds: &[Vec<Round>], rival: Option<&str>) -> Vec<Row> {
    let row = |name: String, (metric, unit, better), of: &dyn Fn(&Round) -> f64| {
        let samples = |rounds_of: &Vec<Round>| Samples(rounds_of.iter().map(of).collect());
        let ours = rounds.first().map(samples).unwrap_or_default();
        let rival = rival.map(str::to_owned).zip(rounds.get(1).map(samples));
        Row { better, ours, rival, ..Row::new(name, metric, unit) }
    };
    if metric == 3 {
        let memory = (MEMORY, "bytes", Better::Less);
        return vec![row(size.name.to_owned(), memory, &|round| round.bytes)];
    }
    let rows = CHANGE_KINDS.iter().enumerate().map(|(change_kind, what)| {
        let name = if change_kind == 0 {
            format!("{}: {what}", size.name)
        } else {
            format!("in a table of {}: {what}", size.name)
        };
        let name = name.replace(" rules:", ":");
        match metric {
            0 => row(name, (RATE, "1/s", Better::More), &|round| {
                round.change_kinds[change_kind].rate
            }),
            1 => row(name, (CPU, "us", Better::Less), &|round| {
                round.change_kinds[change_kind].cpu_us
            }),
            _ => row(name, (SHARE, "%", Better::Neither), &|round| {
                round.change_kinds[change_kind].share
            }),
        }
    });
    rows.collect()
}

/// Input files of `ovs-ofctl`.
struct Files {
    all: String,
    added: String,
    changed: String,
    removed: String,
    rules: usize,
    singles: usize,
}

impl Files {
    fn write(folder: &Path, size: &Size) -> Self {
        let Size { rules, singles: count, .. } = *size;
        let mut lines = tables::rules_with_many_masks(rules + count);
        let singles = lines.split_off(rules);
        let matches = singles.iter().map(|line| line.split(",actions").next().unwrap_or_default());
        let changed: Vec<String> =
            matches.clone().map(|rule| format!("modify_strict {rule},actions=output:3")).collect();
        let removed: Vec<String> = matches.map(|rule| format!("delete_strict {rule}")).collect();
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            path.display().to_string()
        };
        Self {
            all: write("all", lines.join("\n")),
            added: write("added", singles.join("\n")),
            changed: write("changed", changed.join("\n")),
            removed: write("removed", removed.join("\n")),
            rules,
            singles: count,
        }
    }
}

/// Runs one round of one switch.
fn measure(contender: &Contender, folder: &Path, files: &Files) -> Round {
    let switch = contender.start(folder, &Setup::default());
    let before = cpu::resident_bytes(switch.id());
    let timed = |options: &[&str], file: &str, count: usize| {
        let account = Account::open(switch.id());
        switch.ofctl(options, "add-flows", &[file]);
        figures(account.spent(), count)
    };
    let bundle = timed(&["--bundle"], &files.all, files.rules);
    assert_eq!(flow_count(&*switch), files.rules, "{} has all rules", contender.name());
    let bytes = (cpu::resident_bytes(switch.id()) - before) / files.rules as f64;
    let added = timed(&[], &files.added, files.singles);
    assert_eq!(
        flow_count(&*switch),
        files.rules + files.singles,
        "{} added all rules",
        contender.name()
    );
    let changed = timed(&[], &files.changed, files.singles);
    let removed = timed(&[], &files.removed, files.singles);
    assert_eq!(flow_count(&*switch), files.rules, "{} deleted them again", contender.name());
    Round { change_kinds: [bundle, added, changed, removed], bytes }
}

fn figures(spent: TimeSpent, count: usize) -> Figures {
    let count = count as f64;
    Figures {
        rate: count / spent.seconds,
        cpu_us: spent.run_ns / 1e3 / count,
        share: spent.share(),
    }
}

/// Returns the number of rules that a switch reports.
fn flow_count(switch: &dyn Switch) -> usize {
    let text = switch.ofctl(&[], "dump-aggregate", &[]);
    let count = text.split("flow_count=").nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|count| count.parse().ok()).unwrap_or_default()
}
