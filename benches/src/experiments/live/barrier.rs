//! Time from a flow-mod to the barrier reply, and until no packet follows the old rule.
//!
//! The two times differ. A barrier reply of Open vSwitch means that the tables have changed; Open
//! vSwitch revalidates its cached flows afterwards. A barrier reply of Shunt means that no packet
//! sent from then on uses a stale entry. So both times are measured for both switches: the first
//! time at the controller, the second time with numbered packets. The rate is ten thousand packets
//! per second; the change affects the one flow of these packets.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use shunt_pipeline::{
    FlowMod,
    FlowModCommand::{Add, DeleteStrict},
};

use super::{
    judge::until_new,
    probe::{Arrival, Exit},
    testbed::{Testbed, WATCHED, elsewhere_match, rule, rule_match},
    traffic::{Rates, Stream, Traffic, under_traffic},
};
use crate::{
    controller::{Controller, flow_mod},
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Numbers of cached flows.
pub(super) const SIZES: &[(&str, u32)] = &[("10K", 10_000), ("100K", 100_000), ("1M", 1_000_000)];
const QUICK_SIZE: &str = "10K";
/// Number of cached flows from which on a run has fewer pairs of changes.
pub(super) const MANY: u32 = 1_000_000;

/// Maximum measured time that packets follow the old rule.
///
/// A slower change counts as a change of this duration.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two changes that numbered packets do not show.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for the eviction engine to process the newest cached entries.
const TAKE_IN: Duration = Duration::from_millis(20);
/// Priority of the changed rule.
const PRIORITY: u16 = 50_000;

pub(super) const REPLY: &str = "time from the flow-mod to the barrier reply";
const PACKETS: &str = "time from the flow-mod until no packet follows the old rule";
const CACHED: &str = "entries cached";
const FORWARDED: &str = "packets forwarded during the changes";
const ITERATIONS: &str =
    "share of the changes, by the iteration in which the packet thread adopted them";

const WHY_REPLY: &str = "the rival's reply waits for its tables only; its cache follows the old \
                         rule for the time in the rows below";

/// The flows that a change affects.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The flow of the numbered packets, and seven more flows.
    One,
    /// No flow matches the changed rule.
    Nothing,
    /// All watched flows match the changed rule.
    Many,
}

impl Kind {
    const ALL: [Self; 3] = [Self::One, Self::Nothing, Self::Many];

    const fn words(self) -> &'static str {
        match self {
            Self::One => "one rule that matches 8 flows",
            Self::Nothing => "one rule that matches no flow",
            Self::Many => "one rule that matches 2,048 flows",
        }
    }

    const fn flows(self) -> u32 {
        match self {
            Self::One => 8,
            Self::Nothing => 0,
            Self::Many => WATCHED,
        }
    }

    /// Returns the flow-mods that add and delete the rule.
    fn changes(self) -> [(FlowMod, Exit); 2] {
        let (matching, added) = match self {
            Self::Nothing => {
                let matching = elsewhere_match(PRIORITY);
                (matching.clone(), format!("{matching},actions=drop"))
            }
            Self::One | Self::Many => {
                (rule_match(PRIORITY, self.flows()), rule(PRIORITY, self.flows(), Exit::B))
            }
        };
        [(flow_mod(Add, &added), Exit::B), (flow_mod(DeleteStrict, &matching), Exit::A)]
    }
}

/// Results of one round of one switch.
#[derive(Default)]
pub(super) struct Round {
    /// Microseconds of each change, for each kind of change.
    replies: [Samples; Kind::ALL.len()],
    packets: [Samples; Kind::ALL.len()],
    cached: f64,
    /// Packets that the switch forwarded per second.
    forwarded: f64,
    /// Percent of acknowledgements by the number of further iterations; Shunt only.
    iterations: Vec<f64>,
}

/// Values of `--sizes`.
pub(crate) fn sizes() -> Vec<&'static str> {
    SIZES.iter().map(|(size, _)| *size).collect()
}

/// Runs both switches with the cache sizes of `--sizes`. The default is all sizes.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    if contenders.is_empty() {
        return Vec::new();
    }
    let chosen: Vec<&str> = run.option("--sizes").unwrap_or_default().split(',').collect();
    let sizes = SIZES.iter().filter(|(size, _)| match chosen[..] {
        [""] => !run.is_quick || *size == QUICK_SIZE,
        _ => chosen.contains(size),
    });
    let sizes: Vec<(&str, u32)> = sizes.copied().collect();
    let rounds = run.either(3, 2);
    run.begin(sizes.len() * rounds * contenders.len());
    let mut rows = Vec::new();
    for (size, flows) in &sizes {
        // Open vSwitch needs up to seconds for a change, and longer with a million flows.
        let pairs = if *flows < MANY { run.either(10, 5) } else { 3 };
        let mut measured: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                let what = format!("{size} entries, {}", contender.name());
                let measure = |folder: &Path| {
                    measure_barriers(contender, folder, Setup::default(), *flows, pairs)
                };
                measured.push(run.step(&what, measure));
            }
        }
        let rival = contenders.get(1).map(Contender::name);
        let rival = rival.as_deref().zip(measured.get(1).map(Vec::as_slice));
        let mut own = rows_of(size, &measured[0], rival);
        let is_worse = |row: &Row| row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        for row in own.iter_mut().filter(|row| row.metric == REPLY && is_worse(row)) {
            row.reason = WHY_REPLY;
        }
        rows.extend(own);
    }
    sort(&mut rows);
    rows
}

/// Sorts rows by metric.
pub(super) fn sort(rows: &mut [Row]) {
    let order = [REPLY, PACKETS, ITERATIONS, CACHED, FORWARDED];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
}

/// Starts a switch with space for `flows` flows, and changes its rules repeatedly.
pub(super) fn measure_barriers(
    contender: &Contender,
    folder: &Path,
    setup: Setup,
    flows: u32,
    pairs: usize,
) -> Round {
    let setup = Setup { entries_max: Some(flows + flows / 4), ..setup };
    measure(&Testbed::new(contender, folder, &setup), flows, pairs)
}

fn measure(testbed: &Testbed, flows: u32, pairs: usize) -> Round {
    testbed.fill(flows);
    let mut controller = testbed.controller();
    let numbered = Some(Stream { rate: 10_000, flows: 1 });
    let rates = Rates { numbered, others: &[Stream { rate: 20_000, flows }] };
    under_traffic(testbed, rates, |traffic| {
        controller.wait(Duration::from_secs(1));
        let mut round = Round { cached: testbed.switch.cached() as f64, ..Round::default() };
        let (begin, before) = (Instant::now(), testbed.arrived());
        let acks = acks(testbed);
        for kind in Kind::ALL {
            let changes = kind.changes();
            for (change, exit) in std::iter::repeat_n(&changes, pairs).flatten() {
                testbed.cache(0..kind.flows());
                controller.wait(TAKE_IN);
                let took = change_once(&mut controller, traffic, kind, change, *exit);
                round.replies[kind as usize].0.push(took.0.as_secs_f64() * 1e6);
                if let Some(packets) = took.1 {
                    round.packets[kind as usize].0.push(packets.as_secs_f64() * 1e6);
                }
            }
        }
        let forwarded = f64::from(testbed.arrived() - before);
        round.forwarded = forwarded / begin.elapsed().as_secs_f64();
        round.iterations = shares(&acks, &self::acks(testbed));
        round
    })
}

/// Returns the acknowledgement counts of Shunt's packet thread by iterations.
///
/// The result is empty for the rival.
fn acks(testbed: &Testbed) -> Vec<f64> {
    let Some(shuntctl) = testbed.switch.shuntctl() else { return Vec::new() };
    let evict = shuntctl.json("evict");
    let counts = evict["acks"].as_array();
    let counts = counts.unwrap_or_else(|| panic!("shuntctl evict has no acks: {evict}"));
    counts.iter().map(|count| count.as_f64().unwrap_or_default()).collect()
}

/// Returns the shares in percent between two readings of the counts.
fn shares(before: &[f64], after: &[f64]) -> Vec<f64> {
    let came: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    let all = came.iter().sum::<f64>().max(1.0);
    came.into_iter().map(|own| 100.0 * own / all).collect()
}

/// Makes a change.
///
/// Returns the time to the reply, and the time until no packet follows the old rule.
fn change_once(
    controller: &mut Controller,
    traffic: &Traffic<'_>,
    kind: Kind,
    change: &FlowMod,
    exit: Exit,
) -> (Duration, Option<Duration>) {
    traffic.arrivals().for_each(drop);
    let changed = controller.change(std::slice::from_ref(change));
    if matches!(kind, Kind::Nothing) {
        controller.wait(PAUSE);
        return (changed.took(), None);
    }
    let sent = traffic.time(changed.sent);
    let mut arrivals: Vec<Arrival> = Vec::new();
    loop {
        controller.wait(Duration::from_millis(5));
        arrivals.extend(traffic.arrivals());
        let until = until_new(sent, exit, &arrivals);
        if until.is_some() {
            return (changed.took(), until);
        }
        if changed.sent.elapsed() > TIMEOUT {
            return (changed.took(), Some(TIMEOUT));
        }
    }
}

/// Returns the rows of all rounds, and the rows of a rival.
pub(super) fn rows_of(size: &str, ours: &[Round], rival: Option<(&str, &[Round])>) -> Vec<Row> {
    let row = |name: String, (metric, unit, better), of: &dyn Fn(&Round) -> f64| {
        let samples = |rounds: &[Round]| Samples(rounds.iter().map(of).collect());
        let rival = rival.map(|(name, rounds)| (name.to_owned(), samples(rounds)));
        let ours = samples(ours);
        Row { better, ours, rival, ..Row::new(name, metric, unit) }
    };
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let name = |what| format!("{}, {size} entries, {what}", kind.words());
        let at = kind as usize;
        let replies = (REPLY, "us", Better::Less);
        rows.push(row(name("p50"), replies, &|round| round.replies[at].median()));
        rows.push(row(name("slowest"), replies, &|round| round.replies[at].most()));
        if !matches!(kind, Kind::Nothing) {
            let packets = (PACKETS, "us", Better::Less);
            rows.push(row(name("p50"), packets, &|round| round.packets[at].median()));
            rows.push(row(name("slowest"), packets, &|round| round.packets[at].most()));
        }
    }
    for (place, words) in ["in the same iteration", "one", "two", "more"].iter().enumerate() {
        let iterations = ours.iter().filter_map(|round| round.iterations.get(place).copied());
        rows.push(Row {
            better: Better::Neither,
            ours: Samples(iterations.collect()),
            ..Row::new(format!("{size} flows: {words}"), ITERATIONS, "%")
        });
    }
    let name = || format!("{size} flows");
    rows.push(row(name(), (CACHED, "", Better::Neither), &|round| round.cached));
    rows.push(row(name(), (FORWARDED, "1/s", Better::Neither), &|round| round.forwarded));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_computed_from_counter_differences() {
        assert_eq!(shares(&[10.0, 5.0, 0.0, 0.0], &[16.0, 7.0, 0.0, 0.0]), [75.0, 25.0, 0.0, 0.0]);
        assert_eq!(shares(&[1.0; 4], &[1.0; 4]), [0.0; 4]);
        assert!(shares(&[], &[]).is_empty());
    }
}
