//! A controller changes one rule continuously, and no packet may follow an old rule.
//!
//! After each barrier reply, the controller notes the number of the next packet. That packet and
//! all later packets were sent after the reply. So each of these packets with the number of an
//! older rule is a violation.

use std::{path::Path, time::Duration};

use super::{
    flap::{Flapper, Flapping, Window, begin, flap},
    os_ken::OsKen,
    testbed::Testbed,
};
use crate::{
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Number of Shunt's packet threads.
const THREADS: u16 = 3;
/// Number of cached flows.
const FLOWS: u32 = 100_000;
const VIOLATIONS: &str = "probe packets sent after a barrier reply that followed the old rule";
const LONGEST_STALE_TIME: &str =
    "longest time from a barrier reply to a packet that followed the old rule";
const AFTER_REPLY: &str = "probe packets sent after a barrier reply and received";
const LOST: &str = "probe packets lost";
const FLAPS: &str = "changes of the rule";
const REPLY: &str = "median time from the flow-mod to the barrier reply";

const WHY_REPLY: &str = "the rival's reply waits for its tables only; packets that followed the \
                         old rule after it are counted above";

/// The controller that changes the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControllerKind {
    /// os-ken, with one switch for the whole time.
    OsKen,
    /// The faster controller of these experiments: windows of freshly started switches.
    Own,
}

impl ControllerKind {
    const ALL: [Self; 2] = [Self::OsKen, Self::Own];

    const fn name(self) -> &'static str {
        match self {
            Self::OsKen => "os-ken",
            Self::Own => "own",
        }
    }

    /// Returns the number and the length of the windows.
    fn windows(self, run: &Run) -> (usize, Duration) {
        let (windows, seconds) = match self {
            Self::OsKen => (1, run.either(600, 10)),
            Self::Own => (2, run.either(60, 10)),
        };
        (windows, Duration::from_secs(seconds as u64))
    }
}

/// Returns the values of `--controller`.
pub(crate) fn controllers() -> Vec<&'static str> {
    ControllerKind::ALL.map(ControllerKind::name).to_vec()
}

/// Results of one window of one switch, and the number of cached flows before it.
type WindowResult = (Window, f64);

/// Runs each controller with both switches in turn.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let chosen =
        ControllerKind::ALL.into_iter().filter(|kind| run.chooses("--controller", kind.name()));
    let chosen: Vec<ControllerKind> = chosen.collect();
    let python = if chosen.contains(&ControllerKind::OsKen) { OsKen::python() } else { None };
    if contenders.is_empty() || chosen.contains(&ControllerKind::OsKen) && python.is_none() {
        return Vec::new();
    }
    let windows: usize = chosen.iter().map(|kind| kind.windows(run).0).sum();
    run.begin(windows * contenders.len());
    let rival = contenders.get(1).map(Contender::name);
    let mut rows = Vec::new();
    for kind in chosen {
        let mut measured: Vec<Vec<WindowResult>> = contenders.iter().map(|_| Vec::new()).collect();
        let (windows, time) = kind.windows(run);
        for window in 1..=windows {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                let what = format!("{}, window {window}, {}", kind.name(), contender.name());
                let flapping = Flapping { flows: FLOWS, time, seed: window as u64 };
                let python = python.as_deref().filter(|_| kind == ControllerKind::OsKen);
                let shown = run.step(&what, |folder| watch(contender, folder, python, flapping));
                measured.push(shown);
            }
        }
        rows.extend(rows_of(kind, &measured, rival.as_deref()));
    }
    rows
}

/// Runs one window of a freshly started switch.
/// The os-ken controller needs a Python with os-ken.
fn watch(
    contender: &Contender,
    folder: &Path,
    python: Option<&Path>,
    flapping: Flapping,
) -> WindowResult {
    let setup = Setup { threads: Some(THREADS), entries_max: Some(2 * FLOWS), ..Setup::default() };
    let testbed = Testbed::new(contender, folder, &setup);
    let Some(python) = python else {
        return run_flaps(&testbed, flapping, || testbed.controller());
    };
    run_flaps(&testbed, flapping, || OsKen::start(python, folder))
}

fn run_flaps<F: Flapper>(
    testbed: &Testbed,
    flapping: Flapping,
    start: impl FnOnce() -> F,
) -> WindowResult {
    let mut flapper = begin(testbed, FLOWS, start);
    let cached = testbed.switch.cached() as f64;
    (flap(testbed, &mut flapper, flapping, || true), cached)
}

fn rows_of(kind: ControllerKind, measured: &[Vec<WindowResult>], rival: Option<&str>) -> Vec<Row> {
    type MetricOf = fn(&WindowResult) -> f64;
    let row = |(of_what, metric, unit): (&str, _, _), better, of: MetricOf, sums: bool| {
        let name = format!("{}, 100K entries, {of_what}", kind.name());
        let samples = |windows: &Vec<WindowResult>| {
            let each: Vec<f64> = windows.iter().map(of).collect();
            Samples(if sums { vec![each.iter().sum()] } else { each })
        };
        let ours = measured.first().map(samples).unwrap_or_default();
        let rival = rival.map(str::to_owned).zip(measured.get(1).map(samples));
        let row = Row { better, ours, rival, ..Row::new(name, metric, unit) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        Row { reason: if is_worse && metric == REPLY { WHY_REPLY } else { "" }, ..row }
    };
    let (all, each) = ("all windows", "each window");
    vec![
        row((all, VIOLATIONS, ""), Better::Less, |(one, _)| one.judgement.violations as f64, true),
        row((all, AFTER_REPLY, ""), Better::Neither, |(one, _)| one.judgement.judged as f64, true),
        row((all, FLAPS, ""), Better::Neither, |(one, _)| one.flaps, true),
        row(
            (each, LONGEST_STALE_TIME, "ms"),
            Better::Less,
            |(one, _)| one.judgement.latest.as_secs_f64() * 1e3,
            false,
        ),
        row((each, REPLY, "us"), Better::Less, |(one, _)| one.reply_us, false),
        row((each, LOST, "%"), Better::Neither, |(one, _)| one.lost, false),
        row((each, "entries cached", ""), Better::Neither, |(_, cached)| *cached, false),
    ]
}
