//! What a cache of whole traversals does with each pipeline, and what a miss is made of.
//!
//! Entries of one version never overlap: who agrees with an entry in the bits that it looks at gets
//! that very entry from the tables. So each flow has one entry, and a cache is a set of entries. As
//! in Open vSwitch and Shunt, an entry that finds no room is not made, and none goes within a run.

use std::{collections::HashMap, hint::black_box, sync::Arc};

use shunt_classifier::{Classifier, Rank, TupleSpace, Version};
use shunt_datapath::cache::{EntryRef, KeyHasher, MegaflowCache};
use shunt_flow::{
    FlowKey, FlowMask, Match,
    extract::{VlanLimit, extract},
};
use shunt_kairo::Direct;
use shunt_pipebench::{published::Figure, workload::Workload};
use shunt_pipeline::{EntryId, Evictor, FlowMod, Iterative, OwnerId, TableSelector, Traversal};

use super::loaded::{LOCALITIES, Loaded, PIPELINES, why_entries, workload};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
};

/// Entries that a cache holds; the published one holds 32K.
const CAPACITIES: [(&str, usize); 5] =
    [("8K", 8_000), ("16K", 16_000), ("32K", 32_000), ("64K", 64_000), ("128K", 128_000)];
const PUBLISHED_CAPACITY: &str = "32K";

const HITS: &str = "hit rate of a megaflow cache";
const MISSES: &str = "misses of a megaflow cache";
const ENTRIES: &str = "entries of a megaflow cache at the end";
const PARTS: &str = "CPU of a flow's set-up, by parts";
const RATE: &str = "flows set up in a second of CPU";
const REVALIDATION: &str = "CPU to judge all entries anew after one change";

/// Flows whose set-up is taken apart.
const FLOWS: usize = 10_000;
/// Entries that are judged anew.
const SIZES: [usize; 3] = [8_000, 16_000, 64_000];
/// The same, of the pipelines for which it was published.
const MANY: usize = 500_000;
const MANY_ROUNDS: usize = 2;

const WHY_MANY: &str = "one thread's CPU here; the published is the time that a switch took, whose threads and whose \
                        filters' masks are not said";

/// All pipelines and localities.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let of_many: Vec<&str> =
        PIPELINES.into_iter().filter(|pipeline| many(pipeline).is_some()).collect();
    let of_many = if run.is_quick { Vec::new() } else { of_many };
    run.begin(PIPELINES.len() * LOCALITIES.len() * 2 + of_many.len());
    // Three packets to a flow: what the published misses make, over the share that missed.
    let flows = if run.is_quick { "20k:packets=60k" } else { "100k:packets=300k" };
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for locality in LOCALITIES {
            let name = format!("{pipeline}:{locality}:{flows}");
            let (workload, loaded) = run.step(&format!("{name}, made"), |_| {
                let workload = workload(&name);
                let loaded = Loaded::new(&workload);
                (workload, loaded)
            });
            let is_quick = run.is_quick;
            rows.extend(run.step(&format!("{name}, packets"), |_| {
                let mut rows = of_packets(pipeline, locality, &workload, &loaded, is_quick);
                if locality == LOCALITIES[0] {
                    let rounds = if is_quick { 3 } else { 5 };
                    rows.extend(of_set_up(pipeline, &workload, &loaded, rounds));
                    rows.extend(of_revalidation(pipeline, &loaded, rounds));
                }
                rows
            }));
        }
    }
    for pipeline in of_many {
        let name = format!("{pipeline}:high:{MANY}");
        rows.push(run.step(&format!("{name}, judged anew"), |_| {
            let loaded = Loaded::new(&workload(&name));
            let row = judged(pipeline, &loaded, &loaded.keys, MANY_ROUNDS);
            row.beside_published(many(pipeline), WHY_MANY)
        }));
    }
    let order = [HITS, MISSES, ENTRIES, PARTS, RATE, REVALIDATION];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

fn translate(loaded: &Loaded, key: &FlowKey) -> Arc<Traversal> {
    Arc::new(loaded.pipeline.translate(key, loaded.pipeline.version()))
}

/// The number of each flow's entry.
fn entries(loaded: &Loaded) -> Vec<u32> {
    let mut numbers: HashMap<Match, u32> = HashMap::new();
    let entry = |key: &FlowKey| {
        let traversal = translate(loaded, key);
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(Match::of(&traversal.key, &traversal.mask)).or_insert(next)
    };
    loaded.keys.iter().map(entry).collect()
}

/// What caches of all capacities do with the packets.
fn of_packets(
    pipeline: &str,
    locality: &str,
    workload: &Workload,
    loaded: &Loaded,
    is_quick: bool,
) -> Vec<Row> {
    let entry_of = entries(loaded);
    let mut caches = CAPACITIES.map(|(_, capacity)| Cache::new(capacity, entry_of.len()));
    for packet in workload.packets() {
        let entry = entry_of[packet.flow as usize];
        caches.iter_mut().for_each(|cache| cache.meet(entry));
    }
    let figure = |metric, name: &str| {
        let is_published = name == PUBLISHED_CAPACITY && !is_quick;
        is_published.then(|| Figure::find(metric, pipeline, locality, "Megaflow 1x32K")).flatten()
    };
    let rows = caches.iter().zip(CAPACITIES).flat_map(|(cache, (capacity, _))| {
        let name = format!("{pipeline}:{locality}, {capacity}");
        let hits = 100.0 * (1.0 - cache.misses as f64 / cache.packets.max(1) as f64);
        let published = figure("hit_rate", capacity).map(|figure| figure.value);
        let one = |metric, unit, better, value: f64| Row {
            better,
            ours: Samples::from(value),
            ..Row::new(name.clone(), metric, unit)
        };
        let rate = one(HITS, "%", Better::More, hits);
        let rate = rate.beside_published(published, why_entries(&name));
        [
            rate,
            one(MISSES, "", Better::Less, cache.misses as f64),
            one(ENTRIES, "", Better::Neither, cache.used as f64),
        ]
    });
    rows.collect()
}

/// A cache that keeps what it has.
struct Cache {
    has: Vec<bool>,
    used: usize,
    capacity: usize,
    packets: u64,
    misses: u64,
}

impl Cache {
    fn new(capacity: usize, entries: usize) -> Self {
        Self { has: vec![false; entries], used: 0, capacity, packets: 0, misses: 0 }
    }

    fn meet(&mut self, entry: u32) {
        self.packets += 1;
        let has = &mut self.has[entry as usize];
        self.misses += u64::from(!*has);
        if !*has && self.used < self.capacity {
            *has = true;
            self.used += 1;
        }
    }
}

/// What the set-up of a flow is made of, in this process.
fn of_set_up(pipeline: &str, workload: &Workload, loaded: &Loaded, rounds: usize) -> Vec<Row> {
    let keys = &loaded.keys[..FLOWS.min(loaded.keys.len())];
    let frames = frames(workload, keys.len());
    let tables = Tables::new(&loaded.rules);
    let traversals: Vec<Arc<Traversal>> = keys.iter().map(|key| translate(loaded, key)).collect();
    let version = loaded.pipeline.version();
    let visits = visits(&traversals);
    let mut parts = vec![Samples::default(); 5];
    let mut rate = Samples::default();
    for _ in 0..rounds {
        let each = |ns: u64| ns as f64 / keys.len() as f64;
        let extraction = each(cpu::timed(|| extract_all(&frames)));
        let lookups = each(cpu::timed(|| tables.look_up(&visits)));
        let translation = each(cpu::timed(|| {
            keys.iter().for_each(|key| drop(black_box(translate(loaded, key))));
        }));
        let install = each(cpu::timed(|| drop(black_box(install(keys, &traversals)))));
        let told =
            each(cpu::timed(|| drop(black_box(watched(Direct::new(version, 1), &traversals)))));
        let all = [extraction, lookups, (translation - lookups).max(0.0), install, told];
        parts.iter_mut().zip(all).for_each(|(samples, ns)| samples.0.push(ns / 1e3));
        rate.0.push(1e9 / (extraction + translation + install + told));
    }
    let row = |(what, ours): (String, Samples)| Row {
        ours,
        ..Row::new(format!("{pipeline}: {what}"), PARTS, "us")
    };
    let names = [
        "extraction".to_owned(),
        format!("lookups ({:.1} tables)", visits.len() as f64 / keys.len() as f64),
        "actions, and all else of the translation".to_owned(),
        "into the cache".to_owned(),
        "told to the eviction engine".to_owned(),
    ];
    let mut rows: Vec<Row> = names.into_iter().zip(parts).map(row).collect();
    rows.push(Row { better: Better::More, ours: rate, ..Row::new(pipeline, RATE, "1/s") });
    rows
}

/// The first frame of each flow.
fn frames(workload: &Workload, count: usize) -> Vec<Vec<u8>> {
    let flows = (0_u32..).take(count);
    let packet = |flow| shunt_pipebench::traffic::Packet { time_ns: 0, flow, bytes: 64 };
    let frame = |packet: shunt_pipebench::traffic::Packet| {
        let mut frame = Vec::new();
        let written = packet.write_frame(workload.flows(), &mut frame);
        written.unwrap_or_else(|error| panic!("a flow has no frame: {error}"));
        frame
    };
    flows.map(packet).map(frame).collect()
}

fn extract_all(frames: &[Vec<u8>]) {
    let mut key = FlowKey::ZERO;
    for frame in frames {
        extract(black_box(frame), VlanLimit::One, &mut key);
        black_box(&key);
    }
}

/// The tables alone: what the lookups of a translation cost without it.
struct Tables(Vec<TupleSpace<u64>>);

impl Tables {
    fn new(rules: &[FlowMod]) -> Self {
        let mut tables: Vec<TupleSpace<u64>> = Vec::new();
        for (age, rule) in (0_u64..).zip(rules) {
            let TableSelector::One(table) = rule.table else { continue };
            let table = usize::from(table.number());
            if tables.len() <= table {
                tables.resize_with(table + 1, || TupleSpace::new(1));
            }
            let rank = Rank { priority: rule.priority, age };
            tables[table].insert(rule.matching.clone(), rank, Version::ZERO, age);
        }
        Self(tables)
    }

    fn look_up(&self, visits: &[(usize, FlowKey)]) {
        for (table, key) in visits {
            if let Some(table) = self.0.get(*table) {
                let mut mask = FlowMask::EMPTY;
                black_box(table.lookup_masked(key, Version::ZERO, &mut mask));
                black_box(&mask);
            }
        }
    }
}

/// The tables that packets visit, and their headers there.
fn visits(traversals: &[Arc<Traversal>]) -> Vec<(usize, FlowKey)> {
    let visits = traversals.iter().flat_map(|traversal| &traversal.visits);
    visits.map(|visit| (visit.table.number().into(), FlowKey::from(&visit.key))).collect()
}

fn install(keys: &[FlowKey], traversals: &[Arc<Traversal>]) -> MegaflowCache {
    let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
    for ((slot, key), traversal) in (0..).zip(keys).zip(traversals) {
        cache.insert(key, &traversal.mask, EntryRef { slot, generation: 0 });
    }
    cache
}

/// An engine, watching an entry for each traversal.
fn watched<E: Evictor>(mut engine: E, traversals: &[Arc<Traversal>]) -> E {
    for (slot, traversal) in (0..).zip(traversals) {
        engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, traversal);
    }
    engine
}

/// What was published of judging many entries anew, in milliseconds.
fn many(pipeline: &str) -> Option<f64> {
    let figure = Figure::find("revalidation_500K", pipeline, "-", "500K megaflows")?;
    Some(1000.0 * figure.value)
}

fn of_revalidation(pipeline: &str, loaded: &Loaded, rounds: usize) -> Vec<Row> {
    let sizes = SIZES.into_iter().filter_map(|size| loaded.keys.get(..size));
    sizes.map(|keys| judged(pipeline, loaded, keys, rounds)).collect()
}

/// How long the iterative engine judges the entries of these packets after a change that concerns
/// none.
fn judged(pipeline: &str, loaded: &Loaded, keys: &[FlowKey], rounds: usize) -> Row {
    let mut ours = Samples::default();
    for _ in 0..rounds {
        let traversals: Vec<_> = keys.iter().map(|key| translate(loaded, key)).collect();
        let iterative = Iterative::new(Arc::clone(&loaded.pipeline));
        let mut engine = watched(iterative, &traversals);
        let change = loaded.change();
        let version = change.version;
        let ns = cpu::timed(|| drop(black_box(engine.apply(&change.deltas, version))));
        ours.0.push(ns as f64 / 1e6);
    }
    let name = format!("{pipeline}: {}K entries", keys.len() / 1000);
    Row { ours, ..Row::new(name, REVALIDATION, "ms") }
}
