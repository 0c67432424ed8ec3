//! CPU cost of misses and hits with four LTM stages, and with a megaflow cache of the same size.

use std::{hint::black_box, sync::Arc};

use shunt_datapath::{
    BURST,
    cache::{KeyHasher, MegaflowCache, MissedPackets},
};
use shunt_flow::FlowKey;
use shunt_gigaflow::{
    adaptive::ProbeResult,
    cache::{Gigaflow, Miss},
    ltm::{Store as _, VecStore, Walk},
    partition::PolicyName,
};
use shunt_kernels::KERNELS;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{EntryId, Evictor as _, Iterative, OwnerId, Time, Traversal};

use super::replay::{Replay, Resume, STAGE_ENTRIES, Testbed, config};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::loaded::{Loaded, PIPELINES},
};

/// Number of flows that miss, once each.
const MISSES: usize = 5000;
/// Traversals partitioned per round.
const PARTITIONS: u32 = 10_000;

const MISS: &str = "CPU of a miss";
const EXTRA: &str = "CPU to partition and create entries, relative to translation alone";
const PARTITION_AND_ENTRIES: &str = "CPU to partition a traversal and create its LTM entries";
const EXTRA_CPU: &str = "extra CPU of LTM entries over megaflows, relative to translation alone";
const HIT: &str = "CPU of a hit, in bursts of packets";
const PARTITION: &str = "CPU to choose the partition of one traversal";
const REVALIDATION_CPU: &str =
    "CPU to revalidate all entries after one change, with the iterative engine";

const MEGAFLOWS: &str = "megaflows in one table";

const MEGAFLOW: &str = "megaflow cache of as many entries";

const WHY_MISS: &str = "with LTM entries a miss also computes the packet's state at each \
                        partition point, chooses a partition, and creates the missing entries, \
                        each with a mask of its own";

const WHY_MORE: &str = "each LTM entry has its own mask with the proofs for its tables, which \
                        the published entries lack; this is much compared with a translation of \
                        1 to 10 us";
const WHY_LESS: &str = "traversals that read the same fields share one partition, so the \
                        partition of thirty tables, most of the published cost, is rarely \
                        computed";

const WHY_UPPER: &str = "the published value is a bound for five tables on another processor";

const WHY_HIT: &str = "a packet needs one lookup in each stage, and one in all with megaflows";

const WHY_MEGAFLOWS: &str =
    "another processor; the rules and entries of the published cache are unknown";
const WHY_JUDGED: &str = "an entry is revalidated through the tables of its packets, an LTM \
                          entry through its part of them; LTM entries of OLS are hardly shared, \
                          fill the stages, and cover as many tables as megaflows";

/// Results of one round in microseconds. The unit of revalidation is milliseconds.
#[derive(Default)]
struct Times {
    translated: Samples,
    megaflow_miss: Samples,
    ltm_miss: Samples,
    megaflow: Samples,
    chain: Samples,
    revalidated_megaflows_ms: Samples,
    revalidated_ltm_ms: Samples,
}

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = PIPELINES.into_iter().filter(|name| run.chooses("--pipelines", name));
    let pipelines: Vec<_> = pipelines.collect();
    run.begin(2 * pipelines.len());
    let scale = run.either(1, 10);
    let rounds = run.either(7, 3);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let testbed = run.step(pipeline, |_| Testbed::published(pipeline, "high", scale));
        let times =
            run.step(&format!("{pipeline} misses and hits"), |_| measure(&testbed, rounds, scale));
        rows.extend(times.rows(pipeline, scale == 1));
    }
    rows.push(partition(rounds));
    let metrics = [MISS, EXTRA, EXTRA_CPU, PARTITION_AND_ENTRIES, PARTITION, HIT, REVALIDATION_CPU];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// Measures the default policy with a traversal of thirty tables and four stages.
fn partition(rounds: usize) -> Row {
    let kernel = KERNELS.iter().find(|kernel| kernel.name == "partition_30_steps");
    let mut partition =
        kernel.map(|kernel| (kernel.make)()).unwrap_or_else(|| panic!("no such kernel"));
    let each = |ns: u64| ns as f64 / 1e3 / f64::from(PARTITIONS);
    let rounds =
        (0..rounds).map(|_| each(cpu::measure_ns(|| (0..PARTITIONS).for_each(|_| partition()))));
    let ours = Samples(rounds.collect());
    Row { ours, ..Row::new("30 tables, 4 stages", PARTITION, "us") }
}

fn measure(testbed: &Testbed, rounds: usize, scale: usize) -> Times {
    let entries = STAGE_ENTRIES / scale;
    let mut chain = LtmStages::of(testbed, entries);
    let mut megaflow = Megaflow::of(testbed, 4 * entries);
    // Packets that hit both caches.
    let sent = testbed.packets.iter().map(|flow| &testbed.loaded.keys[*flow as usize]);
    let hits = sent.filter(|key| {
        let key = std::slice::from_ref(*key);
        chain.look_up(key) + megaflow.look_up(key) == 2
    });
    let hits: Vec<FlowKey> = hits.take(20_000).cloned().collect();
    let missing = &testbed.loaded.keys[..MISSES.min(testbed.loaded.keys.len())];
    let mut times = Times::default();
    for _ in 0..rounds {
        let each = |ns: u64, count: usize| ns as f64 / 1e3 / count.max(1) as f64;
        let translated = cpu::measure_ns(|| translate_all(&testbed.loaded, missing));
        times.translated.0.push(each(translated, missing.len()));
        for ((stages, entries, policy), samples) in [
            ((1, 4 * entries, PolicyName::Megaflow), &mut times.megaflow_miss),
            ((4, entries, PolicyName::Joint), &mut times.ltm_miss),
        ] {
            let mut cache = Gigaflow::new(config(stages, entries, policy));
            let ns = cpu::measure_ns(|| miss_all(&testbed.loaded, missing, &mut cache));
            samples.0.push(each(ns, missing.len()));
        }
        let ns = cpu::measure_ns(|| assert_eq!(chain.look_up(&hits), hits.len(), "all hit"));
        times.chain.0.push(each(ns, hits.len()));
        let ns = cpu::measure_ns(|| assert_eq!(megaflow.look_up(&hits), hits.len(), "all hit"));
        times.megaflow.0.push(each(ns, hits.len()));
        times.revalidated_megaflows_ms.0.push(revalidate(&testbed.loaded, &megaflow.store));
        times.revalidated_ltm_ms.0.push(revalidate(&testbed.loaded, &chain.store));
    }
    times
}

/// Four stages with the LTM entries that the packets of a workload created.
struct LtmStages {
    cache: Gigaflow,
    store: VecStore,
    walks: Vec<Walk>,
}

impl LtmStages {
    fn of(testbed: &Testbed, stage_entries: usize) -> Self {
        let config = config(4, stage_entries, PolicyName::Joint);
        let mut replay = Replay::new(testbed, config, Resume::StartOver);
        replay.send(0..testbed.packets.len());
        let (cache, store) = replay.into_parts();
        Self { cache, store, walks: vec![Walk::default(); BURST] }
    }

    /// Looks up the packets, and returns the number of hits.
    fn look_up(&mut self, keys: &[FlowKey]) -> usize {
        let mut hits = 0;
        for keys in keys.chunks(BURST) {
            let walks = &mut self.walks[..keys.len()];
            self.cache.find_burst(&self.store, keys, walks, |_| true);
            hits += walks.iter().filter(|walk| walk.is_hit()).count();
        }
        hits
    }
}

/// A megaflow cache with the entries that the packets of a workload created.
struct Megaflow {
    cache: MegaflowCache,
    store: VecStore,
}

impl Megaflow {
    fn of(testbed: &Testbed, entries_max: usize) -> Self {
        let (mut cache, mut store) =
            (MegaflowCache::new(KeyHasher::new(1), 1), VecStore::default());
        let Loaded { pipeline, keys, .. } = &testbed.loaded;
        let mut entries_count = 0;
        for flow in &testbed.packets {
            let key = &keys[*flow as usize];
            if entries_count == entries_max
                || cache.find(key, |entry| store.is_live(entry.into())).is_some()
            {
                continue;
            }
            let traversal = Arc::new(pipeline.translate(key, pipeline.version()));
            if let Some(entry) = store.make(&traversal, Time::ZERO) {
                cache.insert(key, &traversal.mask, entry.into());
                entries_count += 1;
            }
        }
        Self { cache, store }
    }

    /// Looks up the packets, as [`LtmStages::look_up`] does.
    fn look_up(&mut self, keys: &[FlowKey]) -> usize {
        let mut hits = 0;
        for keys in keys.chunks(BURST) {
            let mut missing = MissedPackets::default();
            (0..keys.len()).for_each(|place| missing.push(place));
            let mut found = [None; BURST];
            self.cache.find_burst(keys, &mut missing, |place, entry, _| {
                found[place] = Some(entry.slot);
                self.store.is_live(entry.into())
            });
            hits += black_box(found).iter().filter(|slot| slot.is_some()).count();
        }
        hits
    }
}

fn translate_all(loaded: &Loaded, keys: &[FlowKey]) {
    for key in keys {
        black_box(loaded.pipeline.translate(key, loaded.pipeline.version()));
    }
}

/// Misses once per packet, even if existing LTM entries would hit.
fn miss_all(loaded: &Loaded, keys: &[FlowKey], cache: &mut Gigaflow) {
    let (mut store, pipeline) = (VecStore::default(), &*loaded.pipeline);
    let version = pipeline.version();
    for (number, key) in (0_u64..).zip(keys) {
        let now = Time::from_nanoseconds(number);
        let miss = Miss { pipeline, key, start: None, version, now };
        black_box(cache.handle_miss(&mut store, miss, ProbeResult::Missed));
        store.clear_notes();
    }
}

/// Returns the milliseconds in which the iterative engine revalidates all entries.
fn revalidate(loaded: &Loaded, store: &VecStore) -> f64 {
    let mut engine = Iterative::new(Arc::clone(&loaded.pipeline));
    for (entry, traversal) in store.live() {
        let (slot, generation) = (entry.slot, entry.generation);
        // Traversals from before the changes of earlier rounds are still correct.
        let traversal = Traversal { version: loaded.pipeline.version(), ..(**traversal).clone() };
        engine.installed(EntryId { owner: OwnerId(0), slot, generation }, &Arc::new(traversal));
    }
    let change = loaded.change();
    let version = change.version;
    let ns = cpu::measure_ns(|| {
        assert!(engine.apply(&change.deltas, version).is_empty(), "no entry is stale");
    });
    ns as f64 / 1e6
}

impl Times {
    fn rows(self, pipeline: &str, is_full: bool) -> Vec<Row> {
        let published = |metric, configuration| {
            let figure = Figure::find(metric, pipeline, "-", configuration).filter(|_| is_full);
            figure.map(|figure| figure.value)
        };
        let overhead = published("mapping_overhead_on_forwarding", "4x8K");
        let upper = published("mapping_time_upper", "up to 5 tables");
        let beside = |what: &Samples, from: &Samples, scale: fn(f64, f64) -> f64| -> Samples {
            let rounds = what.0.iter().zip(&from.0);
            Samples(rounds.map(|(what, from)| scale(*what, *from)).collect())
        };
        let extra =
            beside(&self.ltm_miss, &self.translated, |all, alone| 100.0 * (all / alone - 1.0));
        let partition = beside(&self.ltm_miss, &self.translated, |all, alone| all - alone);
        let beyond = beside(&self.ltm_miss, &self.megaflow_miss, |ltm_miss, megaflow_miss| {
            ltm_miss - megaflow_miss
        });
        let beyond = beside(&beyond, &self.translated, |beyond, alone| 100.0 * beyond / alone);
        let is_more = overhead.is_some_and(|published_value| beyond.median() > published_value);
        let why_beyond = if is_more { WHY_MORE } else { WHY_LESS };
        let row = |name: &str, metric, unit, ours| {
            let name = format!("{pipeline} high {name}");
            Row { ours, ..Row::new(name, metric, unit) }
        };
        let rival = |name: &str, samples| Some((name.to_owned(), samples));
        vec![
            Row {
                better: Better::Neither,
                ..row("translation alone", MISS, "us", self.translated)
            },
            Row {
                rival: rival(MEGAFLOWS, self.megaflow_miss),
                reason: WHY_MISS,
                ..row("gigaflow", MISS, "us", self.ltm_miss)
            },
            row("gigaflow", EXTRA, "%", extra),
            row("gigaflow", EXTRA_CPU, "%", beyond).beside_published(overhead, why_beyond),
            row("gigaflow", PARTITION_AND_ENTRIES, "us", partition)
                .beside_another(upper, WHY_UPPER),
            Row {
                rival: rival(MEGAFLOW, self.megaflow),
                reason: WHY_HIT,
                ..row("gigaflow", HIT, "us", self.chain)
            },
            row("megaflow", REVALIDATION_CPU, "ms", self.revalidated_megaflows_ms)
                .beside_published(published("revalidation_time", "Megaflow 32K"), WHY_MEGAFLOWS),
            row("gigaflow", REVALIDATION_CPU, "ms", self.revalidated_ltm_ms)
                .beside_published(published("revalidation_time", "Gigaflow 4x8K"), WHY_JUDGED),
        ]
    }
}
