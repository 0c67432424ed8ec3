//! A controller that changes one rule again and again, and packets that must not go by the old one.
//!
//! After each barrier reply the controller notes which number the next packet will get: that packet and
//! all after it were sent after the reply was read, so each of them that carries an older rule's number
//! is a violation.

use std::time::Duration;

use super::{
    bed::Bed,
    flap::{Flapping, Window, begin, flap},
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

/// What one window of one switch showed, and how many flows it had cached before.
type Shown = (Window, f64);

/// Windows of both switches, in turns.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    if contenders.is_empty() {
        return Vec::new();
    }
    // Ten minutes of each.
    let windows = run.either(10, 2);
    let time = Duration::from_secs(run.either(60, 10) as u64);
    run.begin(windows * contenders.len());
    let mut measured: Vec<Vec<Shown>> = contenders.iter().map(|_| Vec::new()).collect();
    for window in 1..=windows {
        for (contender, measured) in contenders.iter().zip(&mut measured) {
            let what = format!("window {window}, {}", contender.name());
            let shown = run.step(&what, |folder| {
                let entries_max = Some(2 * FLOWS);
                let setup = Setup { threads: Some(THREADS), entries_max, ..Setup::default() };
                let bed = Bed::new(contender, folder, &setup);
                let mut controller = begin(&bed, FLOWS);
                let cached = bed.switch.cached() as f64;
                let flapping = Flapping { flows: FLOWS, time, seed: window as u64 };
                (flap((&bed, &mut controller), flapping, || true), cached)
            });
            measured.push(shown);
        }
    }
    rows_of(&measured, contenders.get(1).map(Contender::name).as_deref())
}

fn rows_of(measured: &[Vec<Shown>], rival: Option<&str>) -> Vec<Row> {
    type Of = fn(&Shown) -> f64;
    let row = |(name, metric, unit): (&str, _, _), better, of: Of, sums: bool| {
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
    let all = "100K entries, all windows";
    let each = "100K entries, each window";
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
