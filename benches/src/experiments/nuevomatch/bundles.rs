//! Lookups while bundles of rules are added, and while a rebuilt classifier is swapped in.
//!
//! One thread looks up batches of 32 packets. Another thread adds bundles of rules, and a trainer
//! rebuilds the classifier when a rebuild is due. With instant updates the rules are visible at
//! once, and with delayed updates after the next rebuild. A last part rebuilds a classifier again
//! and again without changes, and times the lookups around each swap.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use shunt_nuevomatch::{
    KeySchema, LiveNuevoMatch, LiveReader, LiveSettings, PriorityRule, RuleUpdate, TrainerState,
    UpdatePolicy,
};

use super::rule_sets::{RuleSet, names};
use crate::experiment::{Better, Curve, Row, Run, Samples};

/// Bundles that are added to a classifier.
struct BundleCase {
    /// Name of the rows.
    name: &'static str,
    /// End of the name of the rule set that has the rules.
    set: &'static str,
    /// Number of rules before the first bundle.
    base: usize,
    /// Number of rules of each bundle.
    bundles: &'static [usize],
}

const CASES: &[BundleCase] = &[
    BundleCase {
        name: "100,000 rules, two bundles of 125,000",
        set: "_500k",
        base: 100_000,
        bundles: &[125_000, 125_000],
    },
    BundleCase { name: "500 rules, bundle of 100", set: "_1k", base: 500, bundles: &[100] },
    BundleCase { name: "500 rules, bundle of 1,000", set: "_10k", base: 500, bundles: &[1_000] },
    BundleCase { name: "500 rules, bundle of 10,000", set: "_100k", base: 500, bundles: &[10_000] },
];

/// The policies: name in a part, and policy.
const POLICIES: [(&str, UpdatePolicy); 2] =
    [("instant", UpdatePolicy::Instant), ("delayed", UpdatePolicy::Delayed)];

/// A measured quantity of a case.
struct BundleMetric {
    /// Name in a part.
    key: &'static str,
    metric: &'static str,
    unit: &'static str,
    better: Better,
    /// Reason why delayed updates are worse than instant ones.
    why: &'static str,
}

const METRICS: &[BundleMetric] = &[
    BundleMetric {
        key: "before",
        metric: "lookups per second before the first bundle",
        unit: "1/s",
        better: Better::Neither,
        why: "",
    },
    BundleMetric {
        key: "after",
        metric: "lookups per second with all rules",
        unit: "1/s",
        better: Better::Neither,
        why: "",
    },
    BundleMetric {
        key: "lowest",
        metric: "lowest rate of lookups in 50 ms after a bundle, as a share of the rate before it",
        unit: "%",
        better: Better::More,
        why: "",
    },
    BundleMetric {
        key: "visible",
        metric: "time until the rules of a bundle are visible",
        unit: "ms",
        better: Better::Less,
        why: "a delayed bundle becomes visible with the next rebuild",
    },
    BundleMetric {
        key: "built",
        metric: "time until the rebuilds for a bundle end",
        unit: "ms",
        better: Better::Less,
        why: "each delayed bundle needs a rebuild",
    },
    BundleMetric {
        key: "coverage",
        metric: "rules in iSets with all rules",
        unit: "%",
        better: Better::More,
        why: "",
    },
];

/// The ends of the names of rule sets with swaps.
const SWAPPED_SETS: &[&str] = &["_100k", "_500k"];

/// The end of the name of the rule set with swaps of a quick run.
const QUICK_SWAPPED_SETS: &[&str] = &["_1k"];

/// The metrics of swaps: name in a part, and metric.
const SWAP_METRICS: [(&str, &str); 2] = [
    ("between", "99.9th percentile of the time of a batch of 32 lookups between swaps"),
    ("around", "99.9th percentile of the time of a batch of 32 lookups within 10 ms of a swap"),
];

/// Keys of one call.
const BATCH: usize = 32;

/// Number of packets that are looked up in turn.
const PACKETS: usize = 65_536;

/// Time of one window of the rate of lookups.
const WINDOW: Duration = Duration::from_millis(10);

/// Number of windows of a rate. With several, a pause of the thread counts less.
const RATE_WINDOWS: usize = 5;

/// Time before the first bundle, and after each of them.
const PAUSE: Duration = Duration::from_secs(2);

/// Longest time that a bundle may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which a trainer wakes: without a rebuild for so long, none is due.
const SETTLED: Duration = Duration::from_millis(50);

/// Time before and after a swap in which batches belong to it.
const AROUND_SWAP: Duration = Duration::from_millis(10);

/// Runs all cases with both policies, and all swaps.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let cases = if run.is_quick { 1..2 } else { 0..CASES.len() };
    let swapped = if run.is_quick { QUICK_SWAPPED_SETS } else { SWAPPED_SETS };
    run.begin(cases.len() * POLICIES.len() + swapped.len());
    let mut rows = Vec::new();
    for (at, case) in CASES.iter().enumerate().filter(|(at, _)| cases.contains(at)) {
        let parts =
            POLICIES.map(|(policy, _)| run.part("nuevomatch-bundles", &format!("{at}-{policy}")));
        rows.extend(case_rows(case, &parts));
    }
    for set in swapped {
        let part = run.part("nuevomatch-bundles", &format!("swap-{set}"));
        rows.extend(SWAP_METRICS.map(|(key, metric)| {
            let name = part["name"].as_str().unwrap_or_default();
            Row { ours: samples(&part, key), ..Row::new(name, metric, "us") }
        }));
    }
    rows
}

/// Returns the rows of a case: delayed updates beside instant ones.
fn case_rows(case: &BundleCase, [instant, delayed]: &[Value; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    for BundleMetric { key, metric, unit, better, why } in METRICS {
        let row = |policy: &str, part: &Value| {
            let name = format!("{}, {policy}", case.name);
            Row { ours: samples(part, key), better: *better, ..Row::new(name, metric, unit) }
        };
        rows.push(row("instant", instant));
        let rival = Some(("instant updates".to_owned(), samples(instant, key)));
        let row = Row { rival, ..row("delayed", delayed) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        rows.push(Row { reason: if is_worse { why } else { "" }, ..row });
    }
    let curve = |name: &str, part: &Value| {
        let points = samples(part, "curve").0.into_iter().enumerate();
        let window = WINDOW.as_secs_f64() * 1e3 * RATE_WINDOWS as f64;
        let start = PAUSE.as_secs_f64() * 1e3;
        let points = points.map(|(at, rate)| ((at as f64 + 0.5) * window - start, rate)).collect();
        Curve { name: name.to_owned(), points }
    };
    rows.push(Row {
        ours: samples(instant, "before"),
        better: Better::Neither,
        curves: vec![curve("instant", instant), curve("delayed", delayed)],
        ..Row::new(case.name, "lookups per second, over time", "1/s")
    });
    rows
}

/// Returns the values of a part.
fn samples(part: &Value, key: &str) -> Samples {
    let values = part[key].as_array().map(Vec::as_slice).unwrap_or_default();
    Samples(values.iter().filter_map(Value::as_f64).collect())
}

/// Measures a case with a policy, or swaps, and prints the values.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let rounds = run.either(3, 1);
    let measured = match part.split_once('-') {
        Some(("swap", set)) => measure_swaps(&RuleSet::new(&firewall(set)), run.either(10, 2)),
        Some((case, policy)) => {
            let case = case.parse::<usize>().ok().and_then(|at| CASES.get(at));
            let policy = POLICIES.into_iter().find(|(name, _)| *name == policy);
            let (Some(case), Some((_, policy))) = (case, policy) else {
                panic!("there is no part {part}")
            };
            let set = RuleSet::new(&firewall(case.set));
            let measured: Vec<BundleRates> =
                (0..rounds).map(|_| measure_bundles(&set.rules, case, policy)).collect();
            let values =
                |of: fn(&BundleRates) -> f64| -> Vec<f64> { measured.iter().map(of).collect() };
            json!({
                "before": values(|one| one.before),
                "after": values(|one| one.after),
                "lowest": values(|one| one.lowest),
                "visible": values(|one| one.visible_ms),
                "built": values(|one| one.built_ms),
                "coverage": values(|one| one.coverage),
                "curve": measured.first().map(|one| &one.curve),
            })
        }
        None => panic!("there is no part {part}"),
    };
    println!("{measured}");
}

/// Returns the name of the rule set of a firewall with this size.
fn firewall(size: &str) -> String {
    let found =
        names(false).into_iter().find(|name| name.starts_with("fw") && name.ends_with(size));
    found.unwrap_or_else(|| panic!("there is no rule set of a firewall that ends with {size}"))
}

/// The measurements of one round of a case.
#[derive(Debug)]
struct BundleRates {
    before: f64,
    after: f64,
    lowest: f64,
    visible_ms: f64,
    built_ms: f64,
    /// Share of the rules that are in iSets at the end, in percent.
    coverage: f64,
    /// Lookups per second of each group of windows.
    curve: Vec<f64>,
}

/// The times of a bundle since the start of a round.
#[derive(Clone, Copy, Debug)]
struct BundleTimes {
    begin: Duration,
    visible: Duration,
    /// The end of the rebuilds.
    built: Duration,
}

/// Adds the bundles of a case while another thread looks up packets.
///
/// # Panics
///
/// If the rule set has fewer rules than the case needs.
fn measure_bundles(
    rules: &[PriorityRule<5>],
    case: &BundleCase,
    policy: UpdatePolicy,
) -> BundleRates {
    let needed = case.base + case.bundles.iter().sum::<usize>();
    assert!(rules.len() >= needed, "{}: the set has {} rules", case.name, rules.len());
    let (base, mut rest) = rules.split_at(case.base);
    let live = live(base, policy);
    let _trainer = live.spawn_trainer().unwrap_or_else(|error| panic!("trainer: {error}"));
    let packets = RuleSet { name: String::new(), rules: base.to_vec() }.packets(PACKETS);
    let (reader, is_done, start) = (live.reader(), AtomicBool::new(false), Instant::now());
    let (bundles, windows) = thread::scope(|scope| {
        let lookups = scope.spawn(|| count_windows(&reader, &packets, start, &is_done));
        thread::sleep(PAUSE);
        let mut bundles = Vec::new();
        for size in case.bundles {
            let (bundle, others) = rest.split_at(*size);
            rest = others;
            bundles.push(add(&live, bundle, start));
            thread::sleep(PAUSE);
        }
        is_done.store(true, Ordering::Relaxed);
        (bundles, lookups.join().unwrap_or_default())
    });
    let coverage = live.statistics().current.coverage() * 100.0;
    BundleRates { coverage, ..result(&bundles, &windows) }
}

fn live(rules: &[PriorityRule<5>], policy: UpdatePolicy) -> LiveNuevoMatch<5> {
    let settings = LiveSettings { policy, ..LiveSettings::default() };
    let live = LiveNuevoMatch::<5>::new(&KeySchema::five_tuple(), rules, settings);
    live.unwrap_or_else(|error| panic!("{} rules: {error}", rules.len()))
}

/// Adds a bundle, and waits until its rules are visible and its rebuilds end.
///
/// # Panics
///
/// If that takes longer than [`TIMEOUT`].
fn add(live: &LiveNuevoMatch<5>, bundle: &[PriorityRule<5>], start: Instant) -> BundleTimes {
    let changes: Vec<_> = bundle.iter().copied().map(RuleUpdate::Insert).collect();
    let begin = start.elapsed();
    live.apply(&changes);
    let (mut visible, mut idle) = (None, None);
    loop {
        let (statistics, now) = (live.statistics(), start.elapsed());
        assert!(now < begin + TIMEOUT, "a bundle of {} rules takes too long", bundle.len());
        if statistics.pending == 0 {
            visible = visible.or(Some(now));
        }
        let is_idle = statistics.pending == 0 && statistics.trainer == TrainerState::Idle;
        idle = if is_idle { idle.or(Some(now)) } else { None };
        if let (Some(visible), Some(built)) = (visible, idle)
            && now >= built + SETTLED
        {
            return BundleTimes { begin, visible, built };
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Looks up batches, and returns the lookups of each window.
fn count_windows(
    reader: &LiveReader<5>,
    packets: &[[u32; 5]],
    start: Instant,
    is_done: &AtomicBool,
) -> Vec<f64> {
    let mut best = [None; BATCH];
    let mut windows: Vec<f64> = Vec::new();
    for packets in packets.chunks(BATCH).cycle() {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        reader.lookup_batch(packets, &mut best);
        black_box(&best);
        let window = window_of(start.elapsed());
        if windows.len() <= window {
            windows.resize(window + 1, 0.0);
        }
        windows[window] += packets.len() as f64;
    }
    windows
}

/// Returns the number of the window of a time.
fn window_of(time: Duration) -> usize {
    usize::try_from(time.as_millis() / WINDOW.as_millis()).unwrap_or_default()
}

/// Returns the rates around the bundles.
fn result(bundles: &[BundleTimes], windows: &[f64]) -> BundleRates {
    let groups: Vec<f64> = windows
        .chunks_exact(RATE_WINDOWS)
        .map(|group| group.iter().sum::<f64>() / (WINDOW.as_secs_f64() * RATE_WINDOWS as f64))
        .collect();
    let group_of = |time: Duration| (window_of(time) / RATE_WINDOWS).min(groups.len());
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let paused = group_of(PAUSE);
    // The thread starts in the first group.
    let before = |bundle: &BundleTimes| {
        let end = group_of(bundle.begin);
        mean(&groups[end.saturating_sub(paused / 2)..end])
    };
    let lowest = bundles.iter().map(|bundle| {
        let end = group_of(bundle.built + PAUSE / 2).max(group_of(bundle.begin));
        let rates = groups[group_of(bundle.begin)..end].iter().copied();
        rates.fold(f64::INFINITY, f64::min) * 100.0 / before(bundle).max(f64::MIN_POSITIVE)
    });
    let longest_ms = |of: fn(&BundleTimes) -> Duration| {
        let times = bundles.iter().map(|bundle| (of(bundle) - bundle.begin).as_secs_f64() * 1e3);
        times.fold(0.0, f64::max)
    };
    BundleRates {
        before: bundles.first().map_or(0.0, before),
        after: mean(&groups[groups.len().saturating_sub(paused / 2)..]),
        lowest: lowest.fold(f64::INFINITY, f64::min),
        visible_ms: longest_ms(|bundle| bundle.visible),
        built_ms: longest_ms(|bundle| bundle.built),
        coverage: 0.0,
        curve: groups,
    }
}

/// A batch of lookups: its end since the start of the round, and its time.
struct TimedBatch {
    end: Duration,
    micros: f64,
}

/// Rebuilds a classifier during lookups, and returns the tails of batches.
fn measure_swaps(set: &RuleSet, swaps: usize) -> Value {
    let live = live(&set.rules, UpdatePolicy::Instant);
    let packets = set.packets(PACKETS);
    let (reader, is_done, start) = (live.reader(), AtomicBool::new(false), Instant::now());
    let (swapped, batches) = thread::scope(|scope| {
        let lookups = scope.spawn(|| time_batches(&reader, &packets, start, &is_done));
        let mut swapped = Vec::new();
        for _ in 0..swaps {
            thread::sleep(3 * AROUND_SWAP);
            live.rebuild().unwrap_or_else(|error| panic!("{}: {error}", set.name));
            swapped.push(start.elapsed());
        }
        thread::sleep(3 * AROUND_SWAP);
        is_done.store(true, Ordering::Relaxed);
        (swapped, lookups.join().unwrap_or_default())
    });
    let [between, around] = tails(&swapped, batches);
    json!({ "name": set.name, "between": [between], "around": [around] })
}

/// Returns the tails of the batches between swaps, and of those around a swap.
fn tails(swapped: &[Duration], batches: Vec<TimedBatch>) -> [f64; 2] {
    let is_around =
        |batch: &TimedBatch| swapped.iter().any(|swap| swap.abs_diff(batch.end) <= AROUND_SWAP);
    let (around, between): (Vec<TimedBatch>, Vec<TimedBatch>) =
        batches.into_iter().partition(is_around);
    [tail(&between), tail(&around)]
}

/// Looks up batches, and returns their times.
fn time_batches(
    reader: &LiveReader<5>,
    packets: &[[u32; 5]],
    start: Instant,
    is_done: &AtomicBool,
) -> Vec<TimedBatch> {
    let mut best = [None; BATCH];
    let mut batches = Vec::new();
    for packets in packets.chunks(BATCH).cycle() {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let begin = start.elapsed();
        reader.lookup_batch(packets, &mut best);
        black_box(&best);
        let end = start.elapsed();
        batches.push(TimedBatch { end, micros: (end - begin).as_secs_f64() * 1e6 });
    }
    batches
}

/// Returns the 99.9th percentile of the times of batches; zero without batches.
fn tail(batches: &[TimedBatch]) -> f64 {
    let mut micros: Vec<f64> = batches.iter().map(|batch| batch.micros).collect();
    micros.sort_by(f64::total_cmp);
    micros.get(micros.len() * 999 / 1000).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate falls to a fifth for 50 ms after the bundle.
    #[test]
    fn a_dip_is_a_share_of_the_rate_before() {
        let at = Duration::from_millis;
        let mut windows = vec![1000.0; 500];
        windows[200..205].fill(200.0);
        let bundle = BundleTimes { begin: at(2000), visible: at(2030), built: at(2400) };
        let result = result(&[bundle], &windows);
        let (before, lowest) = (result.before.round(), result.lowest.round());
        assert_eq!((before, lowest), (100_000.0, 20.0), "{result:?}");
        let times = (result.visible_ms.round(), result.built_ms.round());
        assert_eq!((times, result.after.round()), ((30.0, 400.0), 100_000.0));
        assert_eq!(result.curve.len(), 100);
    }

    #[test]
    fn a_round_without_windows_has_no_rates() {
        let at = Duration::from_millis;
        let bundle = BundleTimes { begin: at(2000), visible: at(2000), built: at(2000) };
        let result = result(&[bundle], &[]);
        assert_eq!((result.before, result.after, result.curve.len()), (0.0, 0.0, 0));
    }

    #[test]
    fn swaps_are_timed_apart_from_other_lookups() {
        let batch = |ms: u64| {
            let micros = if (95..=105).contains(&ms) { 50.0 } else { 2.0 };
            TimedBatch { end: Duration::from_millis(ms), micros }
        };
        let swapped = [Duration::from_millis(100)];
        assert_eq!(tails(&swapped, (0..1000).map(batch).collect()), [2.0, 50.0]);
        assert_eq!(tails(&swapped, Vec::new()), [0.0, 0.0]);
    }
}
