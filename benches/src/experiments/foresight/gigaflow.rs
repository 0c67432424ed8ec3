//! Forecasts of a share of all flows: misses that forecasts save as LTM entries, and as megaflows.
//!
//! Flows without a forecast share the LTM entries of flows with a forecast, so a forecast can save
//! more than the miss of one flow. All entries have space, so only sharing causes the difference.

use shunt_classifier::testing::workload::SplitMix64;
use shunt_gigaflow::partition::PolicyName;

use crate::{
    experiment::{Better, Row, Run},
    experiments::{
        gigaflow::replay::{Replay, Resume, Testbed, config},
        loaded::{LOCALITIES, PIPELINES},
    },
};

/// Shares of the flows that have a forecast, in percent.
const SHARES: [u64; 5] = [1, 5, 10, 25, 50];

/// Entries of each of four stages: more than the number of flows.
const STAGE_ENTRIES: usize = 1 << 18;

const SAVED: &str = "misses that one forecast saves";
const MISSES_LEFT: &str = "misses left, of those without forecasts";

/// Runs all pipelines with both caches and all shares.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * LOCALITIES.len() * (SHARES.len() + 1));
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for locality in LOCALITIES {
            let title = format!("{pipeline} {locality}");
            let testbed = run.step(&title, |_| Testbed::published(pipeline, locality, scale));
            let without = CACHES.map(|cache| misses(&testbed, cache, 0).misses);
            for share in SHARES {
                let name = format!("{title}, {share} % of flows");
                let counts =
                    run.step(&name, |_| CACHES.map(|cache| misses(&testbed, cache, share)));
                rows.extend(rows_of(&name, without, counts));
            }
        }
    }
    // The main metric first.
    rows.sort_by_key(|row| row.metric != MISSES_LEFT);
    rows
}

/// The caches: LTM entries in four stages, and megaflows.
const CACHES: [PolicyName; 2] = [PolicyName::Joint, PolicyName::Megaflow];

/// The numbers of forecasts and of misses so far.
#[derive(Clone, Copy)]
struct Counts {
    forecasts: u64,
    misses: u64,
}

fn rows_of(name: &str, without: [u64; 2], counts: [Counts; 2]) -> [Row; 2] {
    let saved = |cache: usize| {
        let Counts { forecasts, misses } = counts[cache];
        without[cache].saturating_sub(misses) as f64 / forecasts.max(1) as f64
    };
    let left = |cache: usize| 100.0 * counts[cache].misses as f64 / without[cache].max(1) as f64;
    let row = |metric, unit, better, value: &dyn Fn(usize) -> f64| Row {
        better,
        ours: value(0).into(),
        rival: Some(("megaflows".to_owned(), value(1).into())),
        ..Row::new(name.to_owned(), metric, unit)
    };
    // LTM entries miss less without forecasts, so a forecast can save less: the row is context.
    [row(MISSES_LEFT, "%", Better::Less, &left), row(SAVED, "misses", Better::Neither, &saved)]
}

/// Returns the misses of all packets, after forecasts of a share of the flows.
fn misses(testbed: &Testbed, policy: PolicyName, share: u64) -> Counts {
    let stages = if policy == PolicyName::Megaflow { 1 } else { 4 };
    let config = config(stages, 4 * STAGE_ENTRIES / usize::from(stages), policy);
    let mut replay = Replay::new(testbed, config, Resume::StartOver);
    let mut random = SplitMix64(5);
    let flows = 0..testbed.loaded.keys.len();
    let forecast: Vec<usize> = flows.filter(|_| random.draw() % 100 < share).collect();
    for flow in &forecast {
        replay.packet_of(*flow, 0);
    }
    let packets = testbed.packets.len();
    let misses = packets as u64 - replay.send(0..packets);
    Counts { forecasts: forecast.len() as u64, misses }
}
