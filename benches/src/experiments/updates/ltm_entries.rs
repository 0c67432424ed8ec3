//! Rule changes with LTM entries: number of stale packets.
//!
//! This reproduces A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second
//! Era*, figure 4.9. Before each change, the chain is filled again with the previous rules.

use std::{collections::BTreeSet, sync::Arc};

use shunt_gigaflow::{
    adaptive::ProbeResult,
    cache::{Gigaflow, Miss},
    ltm::{LtmEntryRef, VecStore, Walk},
    partition::PolicyName,
};
use shunt_kairo::Direct;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{Evictor, FlowModCommand, Iterative, Time};

use super::{
    engines::{PIPELINES, RIVAL},
    patterns::{ALL_KINDS, PACKETS_PER_US, PATTERNS},
    workload::{UpdateWorkload, entry},
};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::gigaflow::replay::{STAGE_ENTRIES, config},
};

const CHANGE: &str = "CPU of the eviction engine for one change, with 4 x 8K LTM entries";
const STALE: &str = "stale packets at 100 Gbit/s of 64 bytes (computed)";
const EVICTED: &str = "flows that lose an LTM entry by a change";
const STALE_RATIO: &str =
    "stale packets with the iterative engine, divided by those with this engine";

const WHY: &str = "the published engine follows a packet through copies of the tables; ours \
                   finds LTM entries by their regions, whichever flow created them";

/// Results of the changes of one update.
#[derive(Default)]
struct Outcome {
    ours: Samples,
    theirs: Samples,
    /// Share of flows that lost an LTM entry.
    share: Samples,
}

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    run.begin(pipelines.len() * PATTERNS.len());
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let mut ratios = Vec::new();
        for update in PATTERNS {
            let name = format!("{pipeline}:low:{}k:updates={update}@100ms", 100 / scale);
            let rounds = run.either(3, 1);
            let outcome = run.step(&name, |_| measure(&name, rounds, STAGE_ENTRIES / scale));
            let ratio = outcome.theirs.in_pairs().median() * 0.5 / outcome.ours.in_pairs().median();
            ratios.push((update.to_uppercase(), ratio));
            rows.extend(outcome.rows(&format!("{pipeline} {update}")));
        }
        let mean = ratios.iter().map(|(_, ratio)| ratio).sum::<f64>() / ratios.len() as f64;
        ratios.push((ALL_KINDS.to_owned(), mean));
        let fewer = |(update, ratio): (String, f64)| {
            let configuration = format!("Gigaflow 32K, {update}");
            let figure = Figure::find("stale_reduction", pipeline, "-", &configuration);
            let figure = figure.filter(|_| scale == 1);
            let name = format!("{pipeline} {update}");
            Row { better: Better::More, ours: ratio.into(), ..Row::new(name, STALE_RATIO, "x") }
                .beside_published(figure.map(|figure| figure.value), WHY)
        };
        rows.extend(ratios.into_iter().map(fewer));
    }
    let metrics = [STALE_RATIO, CHANGE, STALE, EVICTED];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn measure(name: &str, rounds: usize, entries: usize) -> Outcome {
    let workload = UpdateWorkload::of(name);
    let mut outcome = Outcome::default();
    for _ in 0..rounds {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            let chain = Chain::of(&workload, entries);
            let version = workload.pipeline.version();
            let mut ours = Direct::new(version, 1);
            let mut theirs = Iterative::new(Arc::clone(&workload.pipeline));
            chain.load(&mut ours);
            chain.load(&mut theirs);
            while ours.run_maintenance() {}
            let change = workload.change(command, &workload.changing);
            let mut evicted = Vec::new();
            let ns = cpu::measure_ns(|| evicted = ours.apply(&change.deltas, change.version));
            outcome.ours.0.push(ns as f64 / 1e3);
            let ns = cpu::measure_ns(|| drop(theirs.apply(&change.deltas, change.version)));
            outcome.theirs.0.push(ns as f64 / 1e3);
            let gone = evicted.iter().map(|id| id.slot).collect();
            outcome.share.0.push(chain.share_of(&workload, &gone));
        }
    }
    outcome
}

/// A chain that the flows of a workload have filled.
struct Chain {
    cache: Gigaflow,
    store: VecStore,
}

impl Chain {
    fn of(workload: &UpdateWorkload, entries: usize) -> Self {
        let mut cache = Gigaflow::new(config(4, entries, PolicyName::Joint));
        let (mut store, mut walk) = (VecStore::default(), Walk::default());
        let (pipeline, version) = (&*workload.pipeline, workload.pipeline.version());
        for key in &workload.keys {
            if !cache.find(&store, key, &mut walk) {
                let miss = Miss { pipeline, key, start: None, version, now: Time::ZERO };
                cache.handle_miss(&mut store, miss, ProbeResult::Missed);
            }
        }
        Self { cache, store }
    }

    /// Registers all LTM entries with an engine.
    fn load(&self, engine: &mut dyn Evictor) {
        for (LtmEntryRef { slot, generation }, traversal) in &self.store.made {
            engine.installed(entry(*slot, *generation), traversal);
        }
    }

    /// Returns the share of hitting flows with an LTM entry of `gone` on their path.
    fn share_of(&self, workload: &UpdateWorkload, gone: &BTreeSet<u32>) -> f64 {
        let mut walk = Walk::default();
        let (mut hits, mut stale) = (0_u32, 0_u32);
        for key in &workload.keys {
            if self.cache.find(&self.store, key, &mut walk) {
                hits += 1;
                stale += u32::from(walk.slots().iter().any(|slot| gone.contains(slot)));
            }
        }
        f64::from(stale) / f64::from(hits.max(1))
    }
}

impl Outcome {
    fn rows(self, title: &str) -> [Row; 3] {
        let rival = |samples| Some((RIVAL.to_owned(), samples));
        // The iterative engine evicts entries one by one, so on average an entry is stale for half
        // of the run of the engine.
        let stale = |spent: &Samples, part: f64| {
            let each = spent.0.iter().zip(&self.share.0);
            let each = each.map(|(us, share)| us * part * PACKETS_PER_US * share);
            Samples(each.collect()).in_pairs()
        };
        [
            Row {
                rival: rival(stale(&self.theirs, 0.5)),
                ours: stale(&self.ours, 1.0),
                ..Row::new(title, STALE, "count")
            },
            Row {
                better: Better::Neither,
                ours: self.share.in_pairs().map(|share| 100.0 * share),
                ..Row::new(title, EVICTED, "%")
            },
            Row {
                ours: self.ours.in_pairs(),
                rival: rival(self.theirs.in_pairs()),
                ..Row::new(title, CHANGE, "us")
            },
        ]
    }
}
