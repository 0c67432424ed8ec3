//! What a miss costs in pieces and whole, and what a packet costs that hits four stages, or the megaflow
//! cache of as many entries.

use std::{hint::black_box, sync::Arc};

use shunt_datapath::{
    BURST,
    cache::{KeyHasher, MegaflowCache, Missing},
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

use super::replay::{Bed, Replay, Resume, STAGE_ENTRIES, config};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::loaded::{Loaded, PIPELINES},
};

/// Flows that miss, each once.
const MISSES: usize = 5000;
/// Ways that are cut in a round.
const PARTITIONS: u32 = 10_000;

const MISS: &str = "CPU of a miss: translated, cut, and made into entries";
const EXTRA: &str = "CPU of cutting and making pieces, of that of a translation alone";
const CUTTING: &str = "CPU of cutting and making pieces";
const BEYOND: &str = "CPU of pieces beyond that of whole entries, of that of a translation alone";
const HIT: &str = "CPU of a packet that hits, looked up in a burst";
const PARTITION: &str = "CPU to choose where one way is cut";
const JUDGED: &str = "CPU to judge all entries anew, iterative engine";

const WHOLE: &str = "whole entries in one table";

const MEGAFLOW: &str = "megaflow cache of as many entries";

const WHY_MISS: &str = "a miss also names states, chooses where to cut, makes the pieces that no stage holds with \
                        the masks of each, and puts them into the stages";

const WHY_MORE: &str = "each piece is made with a mask of its own that holds the proofs for its tables, which \
                        the published pieces lack; beside a translation of 1 to 10 us that weighs much";
const WHY_LESS: &str = "ways that look at the same fields are cut once, so that the partition of thirty tables, \
                        most of the published cost, is rarely made";

const WHY_UPPER: &str = "the published is a bound for five tables, of another processor";

const WHY_HIT: &str = "a packet is looked up in as many tables as its way has pieces";

const WHY_WHOLE: &str =
    "another processor, and which rules and entries the published cache held is not known";
const WHY_JUDGED: &str = "an entry is judged by the tables that its packets went through, a piece by its part of \
                          them: pieces of OLS fill their room here, as they are hardly shared, and have \
                          together as many tables as whole entries";

/// What was timed in a round, in microseconds each, and milliseconds to judge all entries.
#[derive(Default)]
struct Times {
    translated: Samples,
    whole: Samples,
    pieces: Samples,
    megaflow: Samples,
    chain: Samples,
    judged_whole: Samples,
    judged_pieces: Samples,
}

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = PIPELINES.into_iter().filter(|name| run.chooses("--pipelines", name));
    let pipelines: Vec<_> = pipelines.collect();
    run.begin(2 * pipelines.len());
    let scale = run.either(1, 10);
    let rounds = run.either(7, 3);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let bed = run.step(pipeline, |_| Bed::published(pipeline, "high", scale));
        let times =
            run.step(&format!("{pipeline} misses and hits"), |_| measure(&bed, rounds, scale));
        rows.extend(times.rows(pipeline, scale == 1));
    }
    rows.push(partition(rounds));
    let metrics = [MISS, EXTRA, BEYOND, CUTTING, PARTITION, HIT, JUDGED];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// The policy as installed, with a way of thirty tables and four stages.
fn partition(rounds: usize) -> Row {
    let kernel = KERNELS.iter().find(|kernel| kernel.name == "partition_30_steps");
    let mut cut = kernel.map(|kernel| (kernel.make)()).unwrap_or_else(|| panic!("no such kernel"));
    let each = |ns: u64| ns as f64 / 1e3 / f64::from(PARTITIONS);
    let rounds = (0..rounds).map(|_| each(cpu::timed(|| (0..PARTITIONS).for_each(|_| cut()))));
    let ours = Samples(rounds.collect());
    Row { ours, ..Row::new("30 tables, 4 stages", PARTITION, "us") }
}

fn measure(bed: &Bed, rounds: usize, scale: usize) -> Times {
    let entries = STAGE_ENTRIES / scale;
    let mut chain = Pieces::of(bed, entries);
    let mut megaflow = Megaflow::of(bed, 4 * entries);
    // Packets that hit both.
    let sent = bed.packets.iter().map(|flow| &bed.loaded.keys[*flow as usize]);
    let hits = sent.filter(|key| {
        let key = std::slice::from_ref(*key);
        chain.look_up(key) + megaflow.look_up(key) == 2
    });
    let hits: Vec<FlowKey> = hits.take(20_000).cloned().collect();
    let missing = &bed.loaded.keys[..MISSES.min(bed.loaded.keys.len())];
    let mut times = Times::default();
    for _ in 0..rounds {
        let each = |ns: u64, count: usize| ns as f64 / 1e3 / count.max(1) as f64;
        let translated = cpu::timed(|| translate_all(&bed.loaded, missing));
        times.translated.0.push(each(translated, missing.len()));
        for ((stages, entries, policy), samples) in [
            ((1, 4 * entries, PolicyName::Megaflow), &mut times.whole),
            ((4, entries, PolicyName::Joint), &mut times.pieces),
        ] {
            let mut cache = Gigaflow::new(config(stages, entries, policy));
            let ns = cpu::timed(|| miss_all(&bed.loaded, missing, &mut cache));
            samples.0.push(each(ns, missing.len()));
        }
        let ns = cpu::timed(|| assert_eq!(chain.look_up(&hits), hits.len(), "all hit"));
        times.chain.0.push(each(ns, hits.len()));
        let ns = cpu::timed(|| assert_eq!(megaflow.look_up(&hits), hits.len(), "all hit"));
        times.megaflow.0.push(each(ns, hits.len()));
        times.judged_whole.0.push(judge(&bed.loaded, &megaflow.shelf));
        times.judged_pieces.0.push(judge(&bed.loaded, &chain.shelf));
    }
    times
}

/// Pieces in four stages, as the packets of a workload leave them.
struct Pieces {
    cache: Gigaflow,
    shelf: VecStore,
    walks: Vec<Walk>,
}

impl Pieces {
    fn of(bed: &Bed, stage_entries: usize) -> Self {
        let config = config(4, stage_entries, PolicyName::Joint);
        let mut replay = Replay::new(bed, config, Resume::StartOver);
        replay.send(0..bed.packets.len());
        let (cache, shelf) = replay.into_parts();
        Self { cache, shelf, walks: vec![Walk::default(); BURST] }
    }

    /// Looks all these packets up, and counts those that hit.
    fn look_up(&mut self, keys: &[FlowKey]) -> usize {
        let mut hits = 0;
        for keys in keys.chunks(BURST) {
            let walks = &mut self.walks[..keys.len()];
            self.cache.find_burst(&self.shelf, keys, walks, |_| true);
            hits += walks.iter().filter(|walk| walk.is_hit()).count();
        }
        hits
    }
}

/// Whole entries in a megaflow cache, as the packets of a workload leave them.
struct Megaflow {
    cache: MegaflowCache,
    shelf: VecStore,
}

impl Megaflow {
    fn of(bed: &Bed, entries_max: usize) -> Self {
        let (mut cache, mut shelf) =
            (MegaflowCache::new(KeyHasher::new(1), 1), VecStore::default());
        let Loaded { pipeline, keys, .. } = &bed.loaded;
        let mut entries_count = 0;
        for flow in &bed.packets {
            let key = &keys[*flow as usize];
            if entries_count == entries_max
                || cache.find(key, |entry| shelf.is_live(entry.into())).is_some()
            {
                continue;
            }
            let traversal = Arc::new(pipeline.translate(key, pipeline.version()));
            if let Some(entry) = shelf.make(&traversal, Time::ZERO) {
                cache.insert(key, &traversal.mask, entry.into());
                entries_count += 1;
            }
        }
        Self { cache, shelf }
    }

    /// As [`Pieces::look_up`].
    fn look_up(&mut self, keys: &[FlowKey]) -> usize {
        let mut hits = 0;
        for keys in keys.chunks(BURST) {
            let mut missing = Missing::default();
            (0..keys.len()).for_each(|place| missing.push(place));
            let mut found = [None; BURST];
            self.cache.find_burst(keys, &mut missing, |place, entry| {
                found[place] = Some(entry.slot);
                self.shelf.is_live(entry.into())
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

/// Each of them misses, also where another's pieces would have been hit.
fn miss_all(loaded: &Loaded, keys: &[FlowKey], cache: &mut Gigaflow) {
    let (mut shelf, pipeline) = (VecStore::default(), &*loaded.pipeline);
    let version = pipeline.version();
    for (number, key) in (0_u64..).zip(keys) {
        let now = Time::from_nanoseconds(number);
        let miss = Miss { pipeline, key, start: None, version, now };
        black_box(cache.handle_miss(&mut shelf, miss, ProbeResult::Missed));
        shelf.clear_notes();
    }
}

/// How long the iterative engine judges all these entries after a change that concerns none, in
/// milliseconds.
fn judge(loaded: &Loaded, shelf: &VecStore) -> f64 {
    let mut engine = Iterative::new(Arc::clone(&loaded.pipeline));
    for (entry, traversal) in shelf.live() {
        let (slot, generation) = (entry.slot, entry.generation);
        // What was made before the changes of earlier rounds is still right.
        let traversal = Traversal { version: loaded.pipeline.version(), ..(**traversal).clone() };
        engine.installed(EntryId { owner: OwnerId(0), slot, generation }, &Arc::new(traversal));
    }
    let change = loaded.change();
    let version = change.version;
    let ns =
        cpu::timed(|| assert!(engine.apply(&change.deltas, version).is_empty(), "none is stale"));
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
            beside(&self.pieces, &self.translated, |all, alone| 100.0 * (all / alone - 1.0));
        let cutting = beside(&self.pieces, &self.translated, |all, alone| all - alone);
        let beyond = beside(&self.pieces, &self.whole, |pieces, whole| pieces - whole);
        let beyond = beside(&beyond, &self.translated, |beyond, alone| 100.0 * beyond / alone);
        let is_more = overhead.is_some_and(|said| beyond.median() > said);
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
                rival: rival(WHOLE, self.whole),
                why: WHY_MISS,
                ..row("gigaflow", MISS, "us", self.pieces)
            },
            row("gigaflow", EXTRA, "%", extra),
            row("gigaflow", BEYOND, "%", beyond).beside_published(overhead, why_beyond),
            row("gigaflow", CUTTING, "us", cutting).beside_another(upper, WHY_UPPER),
            Row {
                rival: rival(MEGAFLOW, self.megaflow),
                why: WHY_HIT,
                ..row("gigaflow", HIT, "us", self.chain)
            },
            row("megaflow", JUDGED, "ms", self.judged_whole)
                .beside_published(published("revalidation_time", "Megaflow 32K"), WHY_WHOLE),
            row("gigaflow", JUDGED, "ms", self.judged_pieces)
                .beside_published(published("revalidation_time", "Gigaflow 4x8K"), WHY_JUDGED),
        ]
    }
}
