//! Changes of a live classifier while another thread looks up packets.
//!
//! One thread removes rules and adds the rules again, in batches, as fast as possible. Meanwhile, a
//! second thread looks up batches of 32 packets, and a third thread rebuilds the classifier when a
//! rebuild is due.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use shunt_classifier::testing::workload::SplitMix64;
use shunt_nuevomatch::{KeySchema, LiveNuevoMatch, LiveReader, LiveSettings, RuleUpdate};

use super::rule_sets::{RuleSet, names};
use crate::experiment::{Better, Row, Run, Samples, quantile};

/// Changes of one call.
const CHANGES: usize = 64;

/// Keys of one call.
const BATCH: usize = 32;

/// The measurements: name in a part, metric, unit and better direction.
const METRICS: [(&str, &str, &str, Better); 4] = [
    ("rate", "rule changes per second", "1/s", Better::More),
    ("coverage", "rules in iSets after the changes", "%", Better::More),
    ("middle", "median time of a batch of 32 lookups during changes", "us", Better::Less),
    (
        "tail",
        "99.9th percentile of the time of a batch of 32 lookups during changes",
        "us",
        Better::Less,
    ),
];

/// Runs all rule sets.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let names = names(run.is_quick);
    run.begin(names.len());
    let parts: Vec<_> = names.iter().map(|name| run.part("nuevomatch-updates", name)).collect();
    let mut rows = Vec::new();
    for (key, metric, unit, better) in METRICS {
        for part in &parts {
            let ours = Samples::from(part[key].as_f64().unwrap_or_default());
            let name = part["name"].as_str().unwrap_or_default();
            rows.push(Row { ours, better, ..Row::new(name, metric, unit) });
        }
    }
    rows
}

/// Changes one rule set, and prints the measurements.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let set = RuleSet::new(part);
    let live =
        LiveNuevoMatch::<5>::new(&KeySchema::five_tuple(), &set.rules, LiveSettings::default());
    let live = live.unwrap_or_else(|error| panic!("{part}: {error}"));
    let trainer = live.spawn_trainer().unwrap_or_else(|error| panic!("{part}: {error}"));
    let packets = set.packets(65_536);
    let is_done = AtomicBool::new(false);
    let time = Duration::from_secs(if run.is_quick { 1 } else { 10 });
    let reader = live.reader();
    let (rate, micros) = thread::scope(|scope| {
        let lookups = scope.spawn(|| look_up(&reader, &packets, &is_done));
        let rate = change(&live, &set, time);
        is_done.store(true, Ordering::Relaxed);
        (rate, lookups.join().unwrap_or_default())
    });
    drop(trainer);
    let coverage = live.statistics().current.coverage() * 100.0;
    let middle = quantile(&micros, 50);
    // `quantile` takes whole percents, and this value is the 99.9th percentile.
    let mut sorted = micros;
    sorted.sort_by(f64::total_cmp);
    let tail = sorted.get(sorted.len() * 999 / 1000);
    println!(
        "{}",
        json!({
            "name": set.name,
            "rate": rate,
            "coverage": coverage,
            "middle": middle,
            "tail": tail,
        })
    );
}

/// Removes and adds rules, and returns the changes per second.
fn change(live: &LiveNuevoMatch<5>, set: &RuleSet, time: Duration) -> f64 {
    let mut random = SplitMix64(3);
    let (start, mut changes) = (Instant::now(), 0);
    while start.elapsed() < time {
        let first = random.below(set.rules.len());
        let rules = || set.rules.iter().cycle().skip(first).take(CHANGES.min(set.rules.len()));
        let removals: Vec<_> = rules().copied().map(RuleUpdate::Remove).collect();
        let insertions: Vec<_> = rules().copied().map(RuleUpdate::Insert).collect();
        changes += live.apply(&removals) + live.apply(&insertions);
    }
    changes as f64 / start.elapsed().as_secs_f64()
}

/// Looks up batches, and returns the microseconds of each batch.
fn look_up(reader: &LiveReader<5>, packets: &[[u32; 5]], is_done: &AtomicBool) -> Vec<f64> {
    let mut best = [None; BATCH];
    let mut micros = Vec::new();
    for packets in packets.chunks(BATCH).cycle() {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        reader.lookup_batch(packets, &mut best);
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    micros
}
