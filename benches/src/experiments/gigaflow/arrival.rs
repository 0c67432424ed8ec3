//! New flows come while others go on: how soon packets hit again.

use shunt_gigaflow::{
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipebench::published::Figure;

use super::replay::{Bed, Replay, Resume, STAGE_ENTRIES, config};
use crate::experiment::{Better, Row, Run};

/// Parts of the run that are shown one by one; with the seventh the new flows come.
const WINDOWS: usize = 12;

/// A way of caching: whole entries in one table, or pieces in four of a quarter of its size.
struct Way {
    name: &'static str,
    is_whole: bool,
    eviction: Eviction,
    /// What the published figure calls it.
    published: &'static str,
}

const WAYS: &[Way] = &[
    Way { name: "megaflow", is_whole: true, eviction: Eviction::Never, published: "Megaflow 32K" },
    Way {
        name: "gigaflow",
        is_whole: false,
        eviction: Eviction::Never,
        published: "Gigaflow 4x8K",
    },
    Way { name: "megaflow-lru", is_whole: true, eviction: Eviction::LeastRecent, published: "" },
    Way { name: "gigaflow-lru", is_whole: false, eviction: Eviction::LeastRecent, published: "" },
];

const HALVES: &str = "packets that hit, before and after new flows come";
const SERIES: &str = "packets that hit, by twelfths of the run";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(WAYS.len() + 1);
    let scale = run.either(1, 10);
    let (flows, packets, rules) = (50_000 / scale, 600_000 / scale, 10_000 / scale);
    let name = format!("psc:high:{flows}:arrival={flows}@50%:packets={packets}:rules={rules}");
    let bed = run.step(&name, |_| Bed::new(&name));
    let mut rows = Vec::new();
    for way in WAYS {
        let series = run.step(way.name, |_| series(&bed, way, scale));
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let (before, after) = series.split_at(WINDOWS / 2);
        for (word, value) in [("before", mean(before)), ("after", mean(after))] {
            let metric = format!("hit_rate_{word}_new_workload");
            let published = Figure::find(&metric, "psc", "high", way.published);
            let published = published.filter(|_| scale == 1).map(|figure| figure.value);
            let name = format!("psc high {} {word}", way.name);
            let row =
                Row { better: Better::More, ours: value.into(), ..Row::new(name, HALVES, "%") };
            rows.push(row.beside_published(published, WHY));
        }
        rows.extend(series.into_iter().enumerate().map(|(window, value)| Row {
            better: Better::More,
            ours: value.into(),
            ..Row::new(format!("psc high {} {}", way.name, window + 1), SERIES, "%")
        }));
    }
    rows.sort_by_key(|row: &Row| row.metric != HALVES);
    rows
}

const WHY: &str = "how long a flow of the published run lasts, and how many of them send at a time, is \
                   not said; here all send until the end";

/// The share of each window's packets that hit, in percent.
fn series(bed: &Bed, way: &Way, scale: usize) -> Vec<f64> {
    let entries = STAGE_ENTRIES / scale;
    let plain = if way.is_whole {
        config(1, 4 * entries, PolicyName::Megaflow)
    } else {
        config(4, entries, PolicyName::Joint)
    };
    let is_duel = !way.is_whole && way.eviction == Eviction::LeastRecent;
    let fallback = if is_duel { Fallback::OneIn(32) } else { Fallback::Off };
    let config = Config { eviction: way.eviction, fallback, ..plain };
    let mut replay = Replay::new(bed, config, Resume::StartOver);
    let end = |window: usize| window * bed.packets.len() / WINDOWS;
    let share = |window| {
        let packets = end(window)..end(window + 1);
        let count = packets.len().max(1) as f64;
        100.0 * replay.send(packets) as f64 / count
    };
    (0..WINDOWS).map(share).collect()
}
