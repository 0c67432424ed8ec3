//! A controller that changes one rule again and again, and packets that must not go by the old one.
//!
//! After each barrier reply the controller notes which number the next packet will get: that packet and
//! all after it were sent after the reply was read, so each of them that carries an older rule's number
//! is a violation.

use std::{path::Path, time::Duration};

use super::{
    bed::Bed,
    flap::{Flapper, Flapping, Window, begin, flap},
    os_ken::OsKen,
};
use crate::{
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Packet threads of Shunt.
const THREADS: u16 = 3;
/// Cached flows.
const FLOWS: u32 = 100_000;
const VIOLATIONS: &str = "packets sent after the barrier reply that left by the old rule";
const LATEST: &str = "longest time after the reply at which such a packet was sent";
const JUDGED: &str = "packets sent after a barrier reply and received";
const LOST: &str = "packets with numbers that were lost";
const FLAPS: &str = "changes of the rule";
const REPLY: &str = "from sending the flow-mod to the barrier reply, median";

const WHY_REPLY: &str = "the rival's reply waits for its tables, not for its cache: the packets that \
                         went by the old rule after it are counted above";

/// Who changes the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// os-ken: one switch for all of the time.
    OsKen,
    /// The controller of these experiments, which is faster: windows of switches that have just started.
    Own,
}

impl Who {
    const ALL: [Self; 2] = [Self::OsKen, Self::Own];

    const fn name(self) -> &'static str {
        match self {
            Self::OsKen => "os-ken",
            Self::Own => "own",
        }
    }

    /// How many windows there are, and how long each is.
    fn windows(self, run: &Run) -> (usize, Duration) {
        let (windows, seconds) = match self {
            Self::OsKen => (1, run.either(600, 10)),
            Self::Own => (2, run.either(60, 10)),
        };
        (windows, Duration::from_secs(seconds as u64))
    }
}

/// Who may be chosen.
pub(crate) fn controllers() -> Vec<&'static str> {
    Who::ALL.map(Who::name).to_vec()
}

/// What one window of one switch showed, and how many flows it had cached before.
type Shown = (Window, f64);

/// Each controller with both switches, in turns.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let chosen = Who::ALL.into_iter().filter(|who| run.chooses("--controller", who.name()));
    let chosen: Vec<Who> = chosen.collect();
    let python = if chosen.contains(&Who::OsKen) { OsKen::python() } else { None };
    if contenders.is_empty() || chosen.contains(&Who::OsKen) && python.is_none() {
        return Vec::new();
    }
    let windows: usize = chosen.iter().map(|who| who.windows(run).0).sum();
    run.begin(windows * contenders.len());
    let rival = contenders.get(1).map(Contender::name);
    let mut rows = Vec::new();
    for who in chosen {
        let mut measured: Vec<Vec<Shown>> = contenders.iter().map(|_| Vec::new()).collect();
        let (windows, time) = who.windows(run);
        for window in 1..=windows {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                let what = format!("{}, window {window}, {}", who.name(), contender.name());
                let flapping = Flapping { flows: FLOWS, time, seed: window as u64 };
                let python = python.as_deref().filter(|_| who == Who::OsKen);
                let shown = run.step(&what, |folder| watch(contender, folder, (python, flapping)));
                measured.push(shown);
            }
        }
        rows.extend(rows_of(who, &measured, rival.as_deref()));
    }
    rows
}

/// One window of a switch that has just been started, with os-ken where there is a Python that has it.
fn watch(
    contender: &Contender,
    folder: &Path,
    (python, flapping): (Option<&Path>, Flapping),
) -> Shown {
    let setup = Setup { threads: Some(THREADS), entries_max: Some(2 * FLOWS), ..Setup::default() };
    let bed = Bed::new(contender, folder, &setup);
    let Some(python) = python else {
        return flapped(&bed, flapping, || bed.controller());
    };
    flapped(&bed, flapping, || OsKen::start(python, folder))
}

fn flapped<F: Flapper>(bed: &Bed, flapping: Flapping, start: impl FnOnce() -> F) -> Shown {
    let mut flapper = begin(bed, FLOWS, start);
    let cached = bed.switch.cached() as f64;
    (flap((bed, &mut flapper), flapping, || true), cached)
}

fn rows_of(who: Who, measured: &[Vec<Shown>], rival: Option<&str>) -> Vec<Row> {
    type Of = fn(&Shown) -> f64;
    let row = |(of_what, metric, unit): (&str, _, _), better, of: Of, sums: bool| {
        let name = format!("{}, 100K entries, {of_what}", who.name());
        let samples = |windows: &Vec<Shown>| {
            let each: Vec<f64> = windows.iter().map(of).collect();
            Samples(if sums { vec![each.iter().sum()] } else { each })
        };
        let ours = measured.first().map(samples).unwrap_or_default();
        let rival = rival.map(str::to_owned).zip(measured.get(1).map(samples));
        let row = Row { better, ours, rival, ..Row::new(name, metric, unit) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        Row { why: if is_worse && metric == REPLY { WHY_REPLY } else { "" }, ..row }
    };
    let (all, each) = ("all windows", "each window");
    vec![
        row((all, VIOLATIONS, ""), Better::Less, |(one, _)| one.judgement.violations as f64, true),
        row((all, JUDGED, ""), Better::Neither, |(one, _)| one.judgement.judged as f64, true),
        row((all, FLAPS, ""), Better::Neither, |(one, _)| one.flaps, true),
        row(
            (each, LATEST, "ms"),
            Better::Less,
            |(one, _)| one.judgement.latest.as_secs_f64() * 1e3,
            false,
        ),
        row((each, REPLY, "us"), Better::Less, |(one, _)| one.reply_us, false),
        row((each, LOST, "%"), Better::Neither, |(one, _)| one.lost, false),
        row((each, "entries cached", ""), Better::Neither, |(_, cached)| *cached, false),
    ]
}
