//! What a change of many entries does to what is forwarded: the dip, and how repair fills it.
//!
//! Packets come at a steady rate, and what comes out is counted every ten milliseconds. A rule sends
//! 8,192 cached flows another way; their entries go, and each is translated again by its next packet,
//! or by repair before that. Open vSwitch gives its entries other actions in their places, some time
//! after it has answered; so it forwards on, by the old rule for that time.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use shunt_pipeline::FlowModCommand::Add;

use super::{
    bed::{Bed, rule},
    judge::{Dip, dip},
    probe::Way,
    traffic::{Rates, Stream, under_traffic},
};
use crate::{
    controller::{Controller, flow_mod},
    experiment::{Better, Curve, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Cached flows.
const FLOWS: u32 = 100_000;
/// Those that a change is about.
const CHANGED: u32 = 8192;
/// Packets a second.
const RATE: u32 = 100_000;

/// Time that a bucket is long.
const BUCKET: Duration = Duration::from_millis(10);
/// Buckets before the change, and after it.
const BEFORE: usize = 40;
const AFTER: usize = 120;
/// Buckets at either end that are not looked at.
const MARGIN: usize = 10;
const PRIORITY: u16 = 45_000;

const DEPTH: &str = "dip after the change: worst 10 ms, below the mean before";
const LENGTH: &str = "dip after the change: until within a tenth for 50 ms";
const MISSING: &str = "dip after the change: packets missing, in time at the rate before";
const BUCKETS: &str = "packets forwarded of those sent, every 10 ms";
const BEFOREHAND: &str = "packets forwarded of those sent, before the change";
const FATES: &str = "entries in all changes of a round";

/// What becomes of entries with repair on, as `shuntctl evict` counts it: those that were evicted are the
/// sum of the others, but for those that wait still, went by a flush, or were hit by nobody within the
/// last second.
const FATE_COUNTS: [(&str, &str); 5] = [
    ("evicted", "evicted"),
    ("repaired_same", "repaired, actions the same"),
    ("repaired_changed", "repaired, actions others"),
    ("repair_covered", "not repaired, as others took their packets"),
    ("repair_dropped", "not repaired, as they waited for too long"),
];

const WHY: &str = "the rival's entries get other actions in their places: no packet waits, and until \
                   then packets go by the old rule";

const WHY_REPAIR: &str = "repair translates what was hit of late beside the packets that miss, half of what \
                          a turn may translate and an eighth while packets wait; without it each waits \
                          for its next packet";

/// Which flows the packets are of.
const CASES: [(&str, u32); 2] =
    [("8K of 100K, all hit", FLOWS), ("8K of 100K, these hit", CHANGED)];

/// What one change did.
struct Shown {
    dip: Dip,
    /// Percent of what was sent, in each bucket.
    buckets: Vec<f64>,
}

/// What had been sent and what had come out at a moment.
#[derive(Clone, Copy)]
struct Count {
    at: Instant,
    sent: f64,
    arrived: f64,
}

/// Repair off, repair on, and Open vSwitch, in turns.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let Some((ours, rivals)) = contenders.split_first() else { return Vec::new() };
    let mut subjects = vec![
        (ours, Some("off"), "Shunt, repair off".to_owned()),
        (ours, Some("on"), "Shunt, repair on".to_owned()),
    ];
    subjects.extend(rivals.iter().map(|rival| (rival, None, rival.name())));
    let (rounds, changes) = (run.either(5, 2), run.either(4, 2));
    run.begin(rounds * subjects.len());
    // By case, by subject, by round.
    let none = || -> Vec<Vec<Vec<Shown>>> { subjects.iter().map(|_| Vec::new()).collect() };
    let mut measured = CASES.map(|_| none());
    let mut fates = FATE_COUNTS.map(|_| Samples::default());
    for _ in 0..rounds {
        for (at, (contender, repair, name)) in subjects.iter().enumerate() {
            let shown = run.step(name, |folder| {
                let entries_max = Some(2 * FLOWS);
                let setup = Setup { repair: *repair, entries_max, ..Setup::default() };
                let bed = Bed::new(contender, folder, &setup);
                bed.cache(0..FLOWS);
                let mut controller = bed.controller();
                let shown = CASES.map(|(_, flows)| {
                    (0..changes).map(|turn| change(&bed, &mut controller, (flows, turn))).collect()
                });
                if let Some(shuntctl) = bed.switch.shuntctl().filter(|_| *repair == Some("on")) {
                    let evict = shuntctl.json("evict");
                    for ((key, _), samples) in FATE_COUNTS.iter().zip(&mut fates) {
                        samples.0.extend(evict[*key].as_f64());
                    }
                }
                shown
            });
            for (measured, shown) in measured.iter_mut().zip(shown) {
                measured[at].push(shown);
            }
        }
    }
    let names: Vec<&str> = subjects.iter().map(|(_, _, name)| name.as_str()).collect();
    let cases = CASES.iter().zip(&measured);
    let mut rows: Vec<Row> =
        cases.flat_map(|((case, _), measured)| rows_of(case, &names, measured)).collect();
    rows.extend(FATE_COUNTS.iter().zip(fates).map(|((_, name), ours)| Row {
        better: Better::Neither,
        ours,
        ..Row::new(*name, FATES, "count")
    }));
    let order = [BUCKETS, DEPTH, LENGTH, MISSING, BEFOREHAND, FATES];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// Changes the rule under traffic of so many flows, and counts what comes out.
fn change(bed: &Bed, controller: &mut Controller, (flows, turn): (u32, usize)) -> Shown {
    // All are cached by the rule that goes.
    let way = |turn: usize| if turn.is_multiple_of(2) { Way::A } else { Way::B };
    controller.change(&[flow_mod(Add, &rule(PRIORITY, CHANGED, way(turn)))]);
    controller.rest(Duration::from_millis(500));
    bed.cache(0..CHANGED);
    let change = flow_mod(Add, &rule(PRIORITY, CHANGED, way(turn + 1)));
    let others = &[Stream { rate: RATE, flows }];
    under_traffic(bed, Rates { numbered: None, others }, |traffic| {
        let stop = AtomicBool::new(false);
        let around = |buckets: usize| BUCKET * u32::try_from(buckets).unwrap_or(u32::MAX);
        let sent = traffic.sent;
        scope(|scope| {
            let counter = scope.spawn(|| count(bed, sent, &stop));
            controller.rest(around(BEFORE + 2 * MARGIN));
            let changed = controller.change(&[change]).sent;
            controller.rest(around(AFTER + MARGIN));
            stop.store(true, Ordering::Relaxed);
            let buckets = buckets(&counter.join().unwrap_or_default(), changed);
            Shown { dip: dip(&buckets, BEFORE), buckets }
        })
    })
}

/// How many packets had been sent and had come out at many moments.
fn count(bed: &Bed, sent: &AtomicU64, stop: &AtomicBool) -> Vec<Count> {
    let mut counts = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let (sent, arrived) = (sent.load(Ordering::Relaxed) as f64, f64::from(bed.arrived()));
        counts.push(Count { at: Instant::now(), sent, arrived });
        sleep(BUCKET / 4);
    }
    counts
}

/// What part of what was sent came out in each bucket around a change, in percent; between two
/// moments packets are sent and come evenly. A bucket in which less than half of what was due was sent,
/// as others had the CPU, says nothing, and counts as the one before.
fn buckets(counts: &[Count], changed: Instant) -> Vec<f64> {
    let edge = |edge: usize| {
        let bucket = BUCKET * u32::try_from(edge).unwrap_or(u32::MAX);
        let before = BUCKET * u32::try_from(BEFORE).unwrap_or(u32::MAX);
        let moment = changed + bucket - before;
        let after = counts.partition_point(|count| count.at <= moment);
        let earlier = after.checked_sub(1).and_then(|at| counts.get(at));
        let (Some(low), Some(high)) = (earlier, counts.get(after)) else {
            return counts.last().map_or((0.0, 0.0), |last| (last.sent, last.arrived));
        };
        let part = (moment - low.at).as_secs_f64() / (high.at - low.at).as_secs_f64();
        let between = |low: f64, high: f64| low + part * (high - low);
        (between(low.sent, high.sent), between(low.arrived, high.arrived))
    };
    let due = f64::from(RATE) * BUCKET.as_secs_f64();
    let mut known = 0.0;
    let share = |at: usize| {
        let ((sent, arrived), (sent_after, arrived_after)) = (edge(at), edge(at + 1));
        if sent_after - sent >= due / 2.0 {
            known = 100.0 * (arrived_after - arrived) / (sent_after - sent);
        }
        known
    };
    (0..BEFORE + AFTER).map(share).collect()
}

fn rows_of(case: &str, names: &[&str], measured: &[Vec<Vec<Shown>>]) -> Vec<Row> {
    let samples = |who: usize, of: fn(&Shown) -> f64| {
        let round = |round: &Vec<Shown>| Samples(round.iter().map(of).collect()).median();
        Samples(measured[who].iter().map(round).collect())
    };
    let row = |(who, rival): (usize, Option<usize>), (metric, unit, better), of| {
        let repair = if who == 0 { "repair off" } else { "repair on" };
        let beside = if rival == Some(0) { " beside off" } else { "" };
        let rival = rival.filter(|rival| *rival < names.len());
        let rival = rival.map(|rival| (names[rival].to_owned(), samples(rival, of)));
        let name = format!("{case}, {repair}{beside}");
        let row = Row { better, ours: samples(who, of), rival, ..Row::new(name, metric, unit) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        let why = if beside.is_empty() { WHY } else { WHY_REPAIR };
        Row { why: if is_worse { why } else { "" }, ..row }
    };
    let length_ms = |shown: &Shown| shown.dip.length as f64 * BUCKET.as_secs_f64() * 1e3;
    let missing_ms = |shown: &Shown| shown.dip.missing * BUCKET.as_secs_f64() * 1e3;
    let mut rows = vec![Row {
        better: Better::Neither,
        ours: samples(0, |shown| shown.dip.before),
        curves: (0..names.len()).map(|who| curve(names[who], &measured[who])).collect(),
        ..Row::new(case, BUCKETS, "%")
    }];
    for pair in [(0, Some(2)), (1, Some(2)), (1, Some(0))] {
        rows.push(row(pair, (DEPTH, "%", Better::Less), |shown| shown.dip.depth));
        rows.push(row(pair, (LENGTH, "ms", Better::Less), length_ms));
        rows.push(row(pair, (MISSING, "ms", Better::Less), missing_ms));
    }
    for who in [0, 1] {
        let before = (BEFOREHAND, "%", Better::Neither);
        rows.push(row((who, Some(2)), before, |shown| shown.dip.before));
    }
    rows
}

/// The mean of all changes, bucket by bucket.
fn curve(name: &str, rounds: &[Vec<Shown>]) -> Curve {
    let all: Vec<&Vec<f64>> = rounds.iter().flatten().map(|shown| &shown.buckets).collect();
    let mean = |at: usize| all.iter().map(|one| one[at]).sum::<f64>() / all.len().max(1) as f64;
    let time = |at: usize| (at as f64 + 0.5 - BEFORE as f64) * BUCKET.as_secs_f64() * 1e3;
    let points = (0..BEFORE + AFTER).map(|at| (time(at), mean(at))).collect();
    Curve { name: name.to_owned(), points }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_in_the_bucket_that_they_came_out_in() {
        let begin = Instant::now();
        let changed = begin + BUCKET * 50;
        // 100 packets a millisecond, none comes out for 20 ms after the change.
        let out = |ms: u32| 100.0 * f64::from(ms.min(500) + ms.saturating_sub(520));
        let look = |ms: u32| Count {
            at: begin + Duration::from_millis(ms.into()),
            sent: 100.0 * f64::from(ms),
            arrived: out(ms),
        };
        let counts: Vec<Count> = (0..2000).step_by(4).map(look).collect();
        let buckets = buckets(&counts, changed);
        assert_eq!(buckets.len(), BEFORE + AFTER);
        let rounded: Vec<f64> = buckets.iter().map(|share| share.round()).collect();
        assert_eq!(rounded[BEFORE - 1..BEFORE + 3], [100.0, 0.0, 0.0, 100.0]);
        let dip = dip(&buckets, BEFORE);
        assert_eq!((dip.length, dip.depth.round()), (2, 100.0));
        // Nothing is sent for 20 ms before the change, so nothing comes out: that is no dip.
        let still = |count: &Count| {
            let is_before = count.at >= changed - 2 * BUCKET;
            let missing = if is_before {
                (count.at + 2 * BUCKET - changed).min(2 * BUCKET)
            } else {
                Duration::ZERO
            };
            let missing = 100_000.0 * missing.as_secs_f64();
            Count { sent: count.sent - missing, arrived: count.sent - missing, ..*count }
        };
        let counts: Vec<Count> = counts.iter().map(still).collect();
        let buckets = super::buckets(&counts, changed);
        assert!(buckets.iter().all(|share| share.round() == 100.0), "{buckets:?}");
    }
}
