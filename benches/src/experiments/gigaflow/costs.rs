//! What a miss costs in pieces and whole, and what a packet costs that hits four stages or one table.

use std::hint::black_box;

use shunt_flow::FlowKey;
use shunt_gigaflow::{
    adaptive::Sight,
    cache::{Gigaflow, Miss},
    ltm::Shelf,
    partition::PolicyName,
};
use shunt_pipebench::published::Figure;
use shunt_pipeline::Time;

use super::replay::{Bed, Replay, Resume, STAGE_ENTRIES, config};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::loaded::{Loaded, PIPELINES},
};

/// Flows that miss, each once.
const MISSES: usize = 5000;

const MISS: &str = "CPU of a miss: translated, cut, and made into entries";
const EXTRA: &str = "CPU of cutting and making pieces, of that of a translation alone";
const HIT: &str = "CPU of a packet that hits";

const WHOLE: &str = "whole entries in one table";

const WHY_EXTRA: &str = "a way is translated whole first, and again piece by piece with the masks of each, \
                         whereas the published cuts the masks that it has, and forwards wrongly for it";

const WHY_HIT: &str = "a packet is looked up in as many tables as its way has pieces";

/// What was timed in a round, in microseconds each.
#[derive(Default)]
struct Times {
    translated: Samples,
    whole: Samples,
    pieces: Samples,
    one_table: Samples,
    chain: Samples,
}

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(2 * PIPELINES.len());
    let scale = run.either(1, 10);
    let rounds = run.either(7, 3);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        let bed = run.step(pipeline, |_| Bed::published(pipeline, "high", scale));
        let times =
            run.step(&format!("{pipeline} misses and hits"), |_| measure(&bed, rounds, scale));
        rows.extend(times.rows(pipeline, scale == 1));
    }
    let metrics = [MISS, EXTRA, HIT];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn measure(bed: &Bed, rounds: usize, scale: usize) -> Times {
    let entries = STAGE_ENTRIES / scale;
    let policies = [(1, 4 * entries, PolicyName::Megaflow), (4, entries, PolicyName::Joint)];
    let [mut table, mut chain] = policies.map(|(stages, entries, policy)| {
        let mut replay = Replay::new(bed, config(stages, entries, policy), Resume::StartOver);
        replay.send(0..bed.packets.len());
        replay
    });
    // Packets that hit both.
    let sent = bed.packets.iter().map(|flow| &bed.loaded.keys[*flow as usize]);
    let hits = sent.filter(|key| table.look_up(&[*key]) + chain.look_up(&[*key]) == 2);
    let hits: Vec<&FlowKey> = hits.take(20_000).collect();
    let missing = &bed.loaded.keys[..MISSES.min(bed.loaded.keys.len())];
    let mut times = Times::default();
    for _ in 0..rounds {
        let each = |ns: u64, count: usize| ns as f64 / 1e3 / count.max(1) as f64;
        let translated = cpu::timed(|| translate_all(&bed.loaded, missing));
        times.translated.0.push(each(translated, missing.len()));
        for ((stages, entries, policy), samples) in
            policies.into_iter().zip([&mut times.whole, &mut times.pieces])
        {
            let mut cache = Gigaflow::new(config(stages, entries, policy));
            let ns = cpu::timed(|| miss_all(&bed.loaded, missing, &mut cache));
            samples.0.push(each(ns, missing.len()));
        }
        for (replay, samples) in
            [(&mut table, &mut times.one_table), (&mut chain, &mut times.chain)]
        {
            let ns = cpu::timed(|| assert_eq!(replay.look_up(&hits), hits.len(), "all hit"));
            samples.0.push(each(ns, hits.len()));
        }
    }
    times
}

fn translate_all(loaded: &Loaded, keys: &[FlowKey]) {
    for key in keys {
        black_box(loaded.pipeline.translate(key, loaded.pipeline.version()));
    }
}

/// Each of them misses, also where another's pieces would have been hit.
fn miss_all(loaded: &Loaded, keys: &[FlowKey], cache: &mut Gigaflow) {
    let (mut shelf, pipeline) = (Shelf::default(), &*loaded.pipeline);
    let version = pipeline.version();
    for (number, key) in (0_u64..).zip(keys) {
        let now = Time::from_nanoseconds(number);
        let miss = Miss { pipeline, key, start: None, version, now };
        black_box(cache.miss(&mut shelf, miss, Sight::Missed));
        shelf.clear_notes();
    }
}

impl Times {
    fn rows(self, pipeline: &str, is_full: bool) -> [Row; 4] {
        let metric = "mapping_overhead_on_forwarding";
        let published = Figure::find(metric, pipeline, "-", "4x8K").filter(|_| is_full);
        let extra = self.pieces.0.iter().zip(&self.translated.0);
        let extra = extra.map(|(pieces, alone)| 100.0 * (pieces / alone - 1.0)).collect();
        let whole = |samples: Samples| Some((WHOLE.to_owned(), samples));
        [
            Row {
                ours: self.translated,
                better: Better::Neither,
                ..Row::new(format!("{pipeline} high translation alone"), MISS, "us")
            },
            Row {
                ours: self.pieces,
                rival: whole(self.whole),
                why: WHY_EXTRA,
                ..Row::new(format!("{pipeline} high gigaflow"), MISS, "us")
            },
            Row {
                ours: Samples(extra),
                published: published.map(|figure| figure.value),
                why: published.map_or("", |_| WHY_EXTRA),
                ..Row::new(format!("{pipeline} high gigaflow"), EXTRA, "%")
            },
            Row {
                ours: self.chain,
                rival: whole(self.one_table),
                why: WHY_HIT,
                ..Row::new(format!("{pipeline} high gigaflow"), HIT, "us")
            },
        ]
    }
}
