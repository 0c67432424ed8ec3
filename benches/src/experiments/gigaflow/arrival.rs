//! Hit rate over time while new flows arrive.

use shunt_gigaflow::{
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipebench::published::Figure;

use super::replay::{Replay, Resume, STAGE_ENTRIES, Testbed, config};
use crate::experiment::{Better, Row, Run};

/// Windows of the run; new flows arrive in the seventh window.
const WINDOWS: usize = 12;

/// A cache: megaflows in one table, or LTM entries in four smaller stages.
struct CacheCase {
    name: &'static str,
    is_megaflow: bool,
    eviction: Eviction,
    /// Name in the published figure.
    published: &'static str,
}

const CACHE_CASES: &[CacheCase] = &[
    CacheCase {
        name: "megaflow",
        is_megaflow: true,
        eviction: Eviction::Never,
        published: "Megaflow 32K",
    },
    CacheCase {
        name: "gigaflow",
        is_megaflow: false,
        eviction: Eviction::Never,
        published: "Gigaflow 4x8K",
    },
    CacheCase {
        name: "megaflow-lru",
        is_megaflow: true,
        eviction: Eviction::LeastRecent,
        published: "",
    },
    CacheCase {
        name: "gigaflow-lru",
        is_megaflow: false,
        eviction: Eviction::LeastRecent,
        published: "",
    },
];

const HIT_RATE_HALVES: &str = "hit rate before, or after, new flows arrive";
const SERIES: &str = "hit rate in each twelfth of the run";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(CACHE_CASES.len() + 1);
    let scale = run.either(1, 10);
    let (flows, packets, rules) = (50_000 / scale, 600_000 / scale, 10_000 / scale);
    let name = format!("psc:high:{flows}:arrival={flows}@50%:packets={packets}:rules={rules}");
    let testbed = run.step(&name, |_| Testbed::new(&name));
    let mut rows = Vec::new();
    for cache_case in CACHE_CASES {
        let series = run.step(cache_case.name, |_| series(&testbed, cache_case, scale));
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let (before, after) = series.split_at(WINDOWS / 2);
        for (word, value) in [("before", mean(before)), ("after", mean(after))] {
            let metric = format!("hit_rate_{word}_new_workload");
            let published = Figure::find(&metric, "psc", "high", cache_case.published);
            let published = published.filter(|_| scale == 1).map(|figure| figure.value);
            let name = format!("psc high {} {word}", cache_case.name);
            let row = Row {
                better: Better::More,
                ours: value.into(),
                ..Row::new(name, HIT_RATE_HALVES, "%")
            };
            rows.push(row.beside_published(published, WHY));
        }
        rows.extend(series.into_iter().enumerate().map(|(window, value)| Row {
            better: Better::More,
            ours: value.into(),
            ..Row::new(
                format!("psc high {}, part {} of 12", cache_case.name, window + 1),
                SERIES,
                "%",
            )
        }));
    }
    rows.sort_by_key(|row: &Row| row.metric != HIT_RATE_HALVES);
    rows
}

const WHY: &str = "the published run does not state how long flows last and how many are active; \
                   here all flows send until the end";

/// Returns the hit rate of each window in percent.
fn series(testbed: &Testbed, cache_case: &CacheCase, scale: usize) -> Vec<f64> {
    let entries = STAGE_ENTRIES / scale;
    let plain = if cache_case.is_megaflow {
        config(1, 4 * entries, PolicyName::Megaflow)
    } else {
        config(4, entries, PolicyName::Joint)
    };
    let is_duel = !cache_case.is_megaflow && cache_case.eviction == Eviction::LeastRecent;
    let fallback = if is_duel { Fallback::OneIn(32) } else { Fallback::Off };
    let config = Config { eviction: cache_case.eviction, fallback, ..plain };
    let mut replay = Replay::new(testbed, config, Resume::StartOver);
    let end = |window: usize| window * testbed.packets.len() / WINDOWS;
    let share = |window| {
        let packets = end(window)..end(window + 1);
        let count = packets.len().max(1) as f64;
        100.0 * replay.send(packets) as f64 / count
    };
    (0..WINDOWS).map(share).collect()
}
