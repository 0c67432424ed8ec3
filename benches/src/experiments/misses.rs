//! Cost of single misses in one large table: median and tail.
//!
//! A miss here is the work of a packet thread: table lookup, cache insertion, and registration with
//! the eviction engine. Cycles are time stamp counter cycles in one thread, so the tail includes
//! other load on the machine.

use std::sync::Arc;

use shunt_datapath::cache::{EntryRef, KeyHasher, MegaflowCache};
use shunt_kairo::Direct;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{EntryId, Evictor, OwnerId};

use super::loaded::{Loaded, workload};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    tsc,
};

/// Filter sets, and thousands of filters.
///
/// The first set is as large as the set of the published tail.
const SETS: [(&str, usize); 4] = [("acl", 200), ("fw", 200), ("ipc", 200), ("acl", 450)];
const FLOWS: usize = 50_000;

const CYCLES: &str = "CPU cycles of one miss";
const RATE: &str = "misses per second of one thread's CPU";

const TAIL: &str = "slowest of a thousand misses, relative to the median";

const WHY_TAIL: &str = "the published switch hands each miss to a separate thread, which may \
                        have to wait; ours handles it in one thread";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let sets = if run.is_quick { &SETS[..1] } else { &SETS[..] };
    run.begin(2 * sets.len());
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for (set, thousands) in sets {
        let (rules, flows) = (1000 * thousands / scale, FLOWS / scale);
        let name = format!("classbench-{set}:low:{flows}:rules={rules}");
        let loaded = run.step(&name, |_| Loaded::new(&workload(&name)));
        let title = format!("{set}, {}K rules", loaded.rules.len() / 1000);
        let misses = run.step(&title, |_| measure(&loaded));
        let is_published = scale == 1 && (*set, *thousands) == ("acl", 200);
        rows.extend(misses.rows(&title, is_published));
    }
    let metrics = [CYCLES, TAIL, RATE];
    rows.sort_by_key(|row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// The cycles of each miss in ascending order, and the misses per second of CPU.
struct Misses {
    cycles: Vec<u64>,
    rate: f64,
}

fn measure(loaded: &Loaded) -> Misses {
    let version = loaded.pipeline.version();
    let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
    let mut engine = Direct::new(version, 1);
    let mut cycles = Vec::with_capacity(loaded.keys.len());
    let ns = cpu::measure_ns(|| {
        for (slot, key) in (0..).zip(&loaded.keys) {
            let start = tsc::cycles();
            let traversal = Arc::new(loaded.pipeline.translate(key, version));
            cache.insert(key, &traversal.mask, EntryRef { slot, generation: 0 });
            engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, &traversal);
            cycles.push(tsc::cycles() - start);
        }
    });
    let rate = 1e9 * cycles.len() as f64 / ns as f64;
    cycles.sort_unstable();
    Misses { cycles, rate }
}

impl Misses {
    fn rows(&self, title: &str, is_published: bool) -> Vec<Row> {
        let at = |thousandths: usize| {
            let place = self.cycles.len() * thousandths / 1000;
            self.cycles.get(place).copied().unwrap_or_default() as f64
        };
        let row = |word, thousandths| Row {
            ours: at(thousandths).into(),
            ..Row::new(format!("{title} {word}"), CYCLES, "cycles")
        };
        let tail = Figure::find("miss_tail", "200K ClassBench rules", "CAIDA 2019", "4 PMD");
        let tail = tail.filter(|_| is_published).map(|figure| figure.value);
        let ours = Samples::from(at(999) / at(500).max(1.0));
        vec![
            row("p50", 500),
            row("p90", 900),
            row("p99", 990),
            row("p99.9", 999),
            Row { ours, ..Row::new(title, TAIL, "x") }.beside_another(tail, WHY_TAIL),
            Row {
                better: Better::More,
                ours: Samples::from(self.rate),
                ..Row::new(title, RATE, "1/s")
            },
        ]
    }
}
