//! The throughput dip after a change of many entries, with and without repair.
//!
//! Packets are sent at a constant rate, and the output is counted every ten milliseconds. A rule
//! moves 8,192 cached flows to another exit. The entries of these flows are evicted. The next
//! packet of a flow translates its entry again, or repair translates it earlier. Open vSwitch
//! updates the actions of its entries in place, some time after the reply, and forwards by the old
//! rule until then.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use shunt_pipeline::FlowModCommand::Add;

use super::{
    judge::{Dip, dip},
    probe::Exit,
    testbed::{Testbed, rule},
    traffic::{Rates, Stream, under_traffic},
};
use crate::{
    controller::{Controller, flow_mod},
    experiment::{Better, Curve, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Number of cached flows.
const FLOWS: u32 = 100_000;
/// Number of flows that a change affects.
const CHANGED: u32 = 8192;
/// Packets per second.
const RATE: u32 = 100_000;

/// Length of a bucket.
const BUCKET: Duration = Duration::from_millis(10);
/// Number of buckets before the change.
const BEFORE: usize = 40;
/// Number of buckets after the change.
const AFTER: usize = 120;
/// Number of ignored buckets at either end.
const MARGIN: usize = 10;
/// Priority of the changed rule.
const PRIORITY: u16 = 45_000;

const DIP_DEPTH: &str = "depth of the dip: the worst 10 ms, below the mean before the change";
const DIP_LENGTH: &str = "length of the dip: time until 50 ms stay within 10 % of the mean before";
const PACKETS_MISSING: &str = "packets missing in the dip, as time at the rate before the change";
const BUCKETS: &str = "forwarded share of the packets sent, every 10 ms";
const SHARE_BEFORE: &str = "forwarded share of the packets sent, before the change";
const OUTCOMES: &str = "evicted entries in all changes of a round";

/// Counters of `shuntctl evict` for evicted entries with repair on.
///
/// The counters add up to the evicted entries, except for entries that still wait, were flushed, or
/// had no hit within the last second.
const OUTCOME_COUNTERS: [(&str, &str); 5] = [
    ("evicted", "evicted"),
    ("repaired_same", "repaired, same actions"),
    ("repaired_changed", "repaired, other actions"),
    ("repair_covered", "not repaired, already retranslated after a miss"),
    ("repair_dropped", "not repaired, waited too long"),
];

const WHY: &str = "the rival updates entries in place: no packet waits, and packets follow the \
                   old rule until then";

const WHY_REPAIR: &str = "repair translates recently hit entries in addition to misses, with \
                          half of the translations of an iteration, or an eighth while packets \
                          wait; without it each entry waits for its next packet";

/// The flows of the traffic.
const CASES: [(&str, u32); 2] =
    [("8K of 100K, traffic hits all", FLOWS), ("8K of 100K, traffic hits the 8K", CHANGED)];

/// The dip of the traffic after one change of the rules.
struct ChangeResult {
    dip: Dip,
    /// Percentage of the packets sent, for each bucket.
    buckets: Vec<f64>,
}

/// Packets sent and received up to a time.
#[derive(Clone, Copy)]
struct Count {
    at: Instant,
    sent: f64,
    arrived: f64,
}

/// Runs repair off, repair on, and Open vSwitch in turn.
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
    // The results by case, by subject and by round.
    let none = || -> Vec<Vec<Vec<ChangeResult>>> { subjects.iter().map(|_| Vec::new()).collect() };
    let mut measured = CASES.map(|_| none());
    let mut fates = OUTCOME_COUNTERS.map(|_| Samples::default());
    for _ in 0..rounds {
        for (at, (contender, repair, name)) in subjects.iter().enumerate() {
            let shown = run.step(name, |folder| {
                let entries_max = Some(2 * FLOWS);
                let setup = Setup { repair: *repair, entries_max, ..Setup::default() };
                let testbed = Testbed::new(contender, folder, &setup);
                testbed.cache(0..FLOWS);
                let mut controller = testbed.controller();
                let shown = CASES.map(|(_, flows)| {
                    (0..changes)
                        .map(|turn| change(&testbed, &mut controller, flows, turn))
                        .collect()
                });
                if let Some(shuntctl) = testbed.switch.shuntctl().filter(|_| *repair == Some("on"))
                {
                    let evict = shuntctl.json("evict");
                    for ((key, _), samples) in OUTCOME_COUNTERS.iter().zip(&mut fates) {
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
    rows.extend(OUTCOME_COUNTERS.iter().zip(fates).map(|((_, name), ours)| Row {
        better: Better::Neither,
        ours,
        ..Row::new(*name, OUTCOMES, "count")
    }));
    let order = [BUCKETS, DIP_DEPTH, DIP_LENGTH, PACKETS_MISSING, SHARE_BEFORE, OUTCOMES];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// Changes the rule under traffic, and counts the output.
fn change(testbed: &Testbed, controller: &mut Controller, flows: u32, turn: usize) -> ChangeResult {
    // The rule that will be replaced has cached all flows.
    let exit = |turn: usize| if turn.is_multiple_of(2) { Exit::A } else { Exit::B };
    controller.change(&[flow_mod(Add, &rule(PRIORITY, CHANGED, exit(turn)))]);
    controller.wait(Duration::from_millis(500));
    testbed.cache(0..CHANGED);
    let change = flow_mod(Add, &rule(PRIORITY, CHANGED, exit(turn + 1)));
    let others = &[Stream { rate: RATE, flows }];
    under_traffic(testbed, Rates { numbered: None, others }, |traffic| {
        let stop = AtomicBool::new(false);
        let measure_barriers = |buckets: usize| BUCKET * u32::try_from(buckets).unwrap_or(u32::MAX);
        let sent = traffic.sent;
        scope(|scope| {
            let counter = scope.spawn(|| count(testbed, sent, &stop));
            controller.wait(measure_barriers(BEFORE + 2 * MARGIN));
            let changed = controller.change(&[change]).sent;
            controller.wait(measure_barriers(AFTER + MARGIN));
            stop.store(true, Ordering::Relaxed);
            let buckets = buckets(&counter.join().unwrap_or_default(), changed);
            ChangeResult { dip: dip(&buckets, BEFORE), buckets }
        })
    })
}

/// Samples the numbers of packets sent and received.
fn count(testbed: &Testbed, sent: &AtomicU64, stop: &AtomicBool) -> Vec<Count> {
    let mut counts = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let (sent, arrived) = (sent.load(Ordering::Relaxed) as f64, f64::from(testbed.arrived()));
        counts.push(Count { at: Instant::now(), sent, arrived });
        sleep(BUCKET / 4);
    }
    counts
}

/// Returns the received percentage of the sent packets for each bucket.
///
/// Rates are constant between two samples. If the sender lacked CPU and sent less than half of the
/// due packets, a bucket copies the previous bucket.
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

fn rows_of(case: &str, names: &[&str], measured: &[Vec<Vec<ChangeResult>>]) -> Vec<Row> {
    let samples = |kind: usize, of: fn(&ChangeResult) -> f64| {
        let round = |round: &Vec<ChangeResult>| Samples(round.iter().map(of).collect()).median();
        Samples(measured[kind].iter().map(round).collect())
    };
    let row = |(kind, rival): (usize, Option<usize>), (metric, unit, better), of| {
        let repair = if kind == 0 { "repair off" } else { "repair on" };
        let beside = if rival == Some(0) { " against off" } else { "" };
        let rival = rival.filter(|rival| *rival < names.len());
        let rival = rival.map(|rival| (names[rival].to_owned(), samples(rival, of)));
        let name = format!("{case}, {repair}{beside}");
        let row = Row { better, ours: samples(kind, of), rival, ..Row::new(name, metric, unit) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        let reason = if beside.is_empty() { WHY } else { WHY_REPAIR };
        Row { reason: if is_worse { reason } else { "" }, ..row }
    };
    let length_ms = |shown: &ChangeResult| shown.dip.length as f64 * BUCKET.as_secs_f64() * 1e3;
    let missing_ms = |shown: &ChangeResult| shown.dip.missing * BUCKET.as_secs_f64() * 1e3;
    let mut rows = vec![Row {
        better: Better::Neither,
        ours: samples(0, |shown| shown.dip.before),
        curves: (0..names.len()).map(|kind| curve(names[kind], &measured[kind])).collect(),
        ..Row::new(case, BUCKETS, "%")
    }];
    for pair in [(0, Some(2)), (1, Some(2)), (1, Some(0))] {
        rows.push(row(pair, (DIP_DEPTH, "%", Better::Less), |shown| shown.dip.depth));
        rows.push(row(pair, (DIP_LENGTH, "ms", Better::Less), length_ms));
        rows.push(row(pair, (PACKETS_MISSING, "ms", Better::Less), missing_ms));
    }
    for kind in [0, 1] {
        let before = (SHARE_BEFORE, "%", Better::Neither);
        rows.push(row((kind, Some(2)), before, |shown| shown.dip.before));
    }
    rows
}

/// Returns the mean of all changes for each bucket.
fn curve(name: &str, rounds: &[Vec<ChangeResult>]) -> Curve {
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
    fn packets_are_counted_when_they_leave() {
        let begin = Instant::now();
        let changed = begin + BUCKET * 50;
        // 100 packets arrive per millisecond, but no packet arrives for 20 ms after the change.
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
        // Nothing is sent for 20 ms before the change, so nothing arrives. This pause is not a dip.
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
