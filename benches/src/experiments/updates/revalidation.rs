//! The changes P1 to P5 compared with Open vSwitch, which revalidates all cached flows after each.
//!
//! This reproduces A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second
//! Era*, section 4.5. The iterative baseline of the paper is Open vSwitch with DPDK, so these
//! ratios are directly comparable with the published ratios.
//!
//! OVS-DPDK has the same rules and replays one packet per flow. A change is sent as a bundle, and
//! the experiment waits for the revalidators. The CPU of an equal number of revalidation rounds
//! without a change is subtracted. Then the evicted flows return. Our engine is measured before the
//! rival starts, because the rival keeps both processors busy.

use std::{fs, path::Path};

use shunt_kairo::Direct;
use shunt_pipebench::published::Figure;
use shunt_pipeline::FlowModCommand;

use super::{
    engines::PIPELINES,
    patterns::{ALL_KINDS, PATTERNS},
    workload::{Clock, UpdateWorkload, Watched, match_of},
};
use crate::{
    experiment::{Better, Row, Run, Samples},
    experiments::{
        captures::{Files, await_flows},
        forwarding::FORWARDING_CPU,
    },
    switch::{Contender, Setup, Switch},
};

/// Number of cached flows, in thousands.
const FLOWS: usize = 100;

const SPEED_UP: &str = "CPU of Open vSwitch's revalidators divided by that of Shunt's engine";
const CHANGE: &str = "CPU to find and remove stale entries after one change";
const MEAN_OF_RIVAL: &str = "CPU of Open vSwitch's revalidators after one change";
const MEAN_OF_OURS: &str = "CPU of Shunt's eviction engine after one change";
const ENTRIES: &str = "entries before a change";
const EVICTED: &str = "entries evicted by a change, with Open vSwitch";

const WHY_FASTER: &str = "the published engine keeps a copy of every table as a circuit; ours \
                          finds entries by their regions, at the cost shown";
const WHY_TIMES: &str =
    "the published value is wall-clock time on another machine, ours is CPU time";

/// Results of one update.
struct Outcome {
    title: String,
    entries: f64,
    ours: Watched,
    theirs: RivalResults,
}

/// Results of Open vSwitch.
#[derive(Default)]
struct RivalResults {
    spent_us: Samples,
    entries: Samples,
}

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() else { return Vec::new() };
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    run.begin(pipelines.len() * PATTERNS.len());
    let thousands = run.either(FLOWS, FLOWS / 20);
    let rounds = run.either(3, 1);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let measured = PATTERNS.map(|update| {
            let name =
                format!("{pipeline}:low:{thousands}k:packets={thousands}k:updates={update}@1ms");
            run.step(&name, |folder| {
                measure(&rival, &name, &format!("{pipeline} {update}"), rounds, folder)
            })
        });
        rows.extend(means(pipeline, &measured, run.is_quick));
        rows.extend(measured.iter().flat_map(|outcome| outcome.rows(&rival.name())));
    }
    let metrics = [SPEED_UP, MEAN_OF_OURS, MEAN_OF_RIVAL, CHANGE, EVICTED, ENTRIES];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn measure(
    rival: &Contender,
    workload_name: &str,
    title: &str,
    rounds: usize,
    folder: &Path,
) -> Outcome {
    let workload = UpdateWorkload::of(workload_name);
    let direct = Box::new(Direct::new(workload.pipeline.version(), 1));
    let mut ours = Watched::new(direct, workload.keys.len(), Clock::Thread);
    ours.load(&workload);
    let commands = [FlowModCommand::Add, FlowModCommand::DeleteStrict];
    for command in (0..rounds).flat_map(|_| commands) {
        ours.apply_and_restore(&workload.change(command, &workload.changing), &workload);
    }
    let files = Files::of(workload_name, folder);
    let (ports, cpu) = (files.ports, Some(FORWARDING_CPU));
    let setup = Setup { ports, cpu, keeps_entries: true, ..Setup::default() };
    let switch = rival.start(folder, &setup);
    switch.ofctl(&["--bundle"], "add-flows", &[&files.rules.display().to_string()]);
    let mut theirs = RivalResults::default();
    for command in (0..rounds).flat_map(|_| commands) {
        theirs.apply_and_restore(&*switch, &write_changes(command, &workload.changing, folder));
    }
    let title = format!("{title}, {} rules", workload.changing.len());
    Outcome { title, entries: workload.keys.len() as f64, ours, theirs }
}

/// Writes a file with the changes to some rules in the syntax of `ovs-ofctl`.
fn write_changes(command: FlowModCommand, rules: &[String], folder: &Path) -> String {
    let line = |rule: &String| match command {
        FlowModCommand::Add => format!("add {rule}\n"),
        _ => format!("delete_strict {}\n", match_of(rule)),
    };
    let file = folder.join("changes");
    let written = fs::write(&file, rules.iter().map(line).collect::<String>());
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    file.display().to_string()
}

impl RivalResults {
    /// Makes a change when all flows are cached.
    fn apply_and_restore(&mut self, switch: &dyn Switch, changes: &str) {
        switch.allow_flows();
        await_flows(switch);
        self.entries.0.push(switch.cached() as f64);
        let idle = spent_us(switch, || ());
        let spent = spent_us(switch, || {
            switch.ofctl(&["--bundle"], "add-flows", &[changes]);
        });
        // A negative difference is noise, and an equally large positive difference is noise, too.
        self.spent_us.0.push(spent - idle);
    }
}

/// Returns the CPU microseconds of the evicting threads for a change.
///
/// The change is made between two revalidation rounds.
fn spent_us(switch: &dyn Switch, change: impl FnOnce()) -> f64 {
    switch.await_revalidation_round();
    let before = switch.evicting_ns();
    change();
    switch.await_revalidation();
    switch.evicting_ns().saturating_sub(before) as f64 / 1e3
}

impl Outcome {
    fn rows(&self, rival: &str) -> [Row; 3] {
        let rival = |samples| Some((rival.to_owned(), samples));
        let share = self.ours.evicted.in_pairs().map(|evicted| 100.0 * evicted / self.entries);
        [
            Row {
                ours: self.ours.spent.in_pairs(),
                rival: rival(self.theirs.spent_us.in_pairs()),
                ..Row::new(&self.title, CHANGE, "us")
            },
            Row {
                better: Better::Neither,
                ours: self.entries.into(),
                rival: rival(self.theirs.entries.clone()),
                ..Row::new(&self.title, ENTRIES, "count")
            },
            Row { better: Better::Neither, ours: share, ..Row::new(&self.title, EVICTED, "%") },
        ]
    }
}

/// Returns the means over all updates of a pipeline, and their ratio.
///
/// Each row also has the published value.
fn means(pipeline: &str, measured: &[Outcome], is_quick: bool) -> [Row; 3] {
    let mean = |of: &dyn Fn(&Outcome) -> f64| {
        measured.iter().map(of).sum::<f64>() / measured.len().max(1) as f64
    };
    let published = |metric: &str, configuration: &str| {
        let figure = Figure::find(metric, pipeline, "-", configuration).filter(|_| !is_quick);
        figure.map(|figure| figure.value)
    };
    let name = format!("{pipeline} {ALL_KINDS}");
    let row =
        |metric, unit, value: f64| Row { ours: value.into(), ..Row::new(&name, metric, unit) };
    let middle = |samples: &Samples| samples.in_pairs().median() / 1e3;
    let ours = mean(&|one| middle(&one.ours.spent));
    let theirs = mean(&|one| middle(&one.theirs.spent_us));
    let faster = row(SPEED_UP, "x", theirs / ours);
    [
        Row { better: Better::More, ..faster }
            .beside_published(published("tte_speedup", ALL_KINDS), WHY_FASTER),
        row(MEAN_OF_OURS, "ms", ours)
            .beside_another(published("tte", "Kairo, P1 to P5"), WHY_TIMES),
        Row { better: Better::Neither, ..row(MEAN_OF_RIVAL, "ms", theirs) }
            .beside_another(published("tte", "iterative, P1 to P5"), WHY_TIMES),
    ]
}
