//! The phases of flow set-up, measured in this process.

use std::{collections::BTreeMap, hint::black_box, sync::Arc};

use shunt_classifier::{Classifier, Rank, TupleSpace, Version};
use shunt_datapath::cache::{EntryRef, KeyHasher, MegaflowCache};
use shunt_flow::{
    FlowKey, FlowMask,
    extract::{VlanLimit, extract},
};
use shunt_kairo::Direct;
use shunt_pipebench::workload::Workload;
use shunt_pipeline::{FlowMod, TableSelector, Traversal};

use super::measure::register_entries;
use crate::{
    cpu,
    experiment::{Better, Row, Samples},
    experiments::loaded::Loaded,
};

pub(super) const PARTS: &str = "CPU of flow set-up, by phase";
pub(super) const TABLE: &str = "CPU of one lookup, by table";
pub(super) const RATE: &str = "flows set up per second of CPU";

/// Number of measured flows.
const FLOWS: usize = 10_000;

/// Measures the phases of flow set-up.
pub(super) fn of_set_up(
    pipeline: &str,
    workload: &Workload,
    loaded: &Loaded,
    rounds: usize,
) -> Vec<Row> {
    let keys = &loaded.keys[..FLOWS.min(loaded.keys.len())];
    let frames = frames(workload, keys.len());
    let tables = Tables::new(&loaded.rules);
    let traversals: Vec<Arc<Traversal>> = keys.iter().map(|key| loaded.translate(key)).collect();
    let version = loaded.pipeline.version();
    let visits = visits(&traversals);
    let by_table = by_table(&visits);
    let mut of_tables = vec![Samples::default(); by_table.len()];
    let mut parts = vec![Samples::default(); 5];
    let mut rate = Samples::default();
    for _ in 0..rounds {
        let each = |ns: u64| ns as f64 / keys.len() as f64;
        let extraction = each(cpu::measure_ns(|| extract_all(&frames)));
        let lookups = each(cpu::measure_ns(|| tables.look_up(&visits)));
        let translation = each(cpu::measure_ns(|| {
            keys.iter().for_each(|key| drop(black_box(loaded.translate(key))));
        }));
        let install = each(cpu::measure_ns(|| drop(black_box(install(keys, &traversals)))));
        let registration = each(cpu::measure_ns(|| {
            drop(black_box(register_entries(Direct::new(version, 1), &traversals)));
        }));
        let all = [extraction, lookups, (translation - lookups).max(0.0), install, registration];
        parts.iter_mut().zip(all).for_each(|(samples, ns)| samples.0.push(ns / 1e3));
        for (samples, visits) in of_tables.iter_mut().zip(by_table.values()) {
            let ns = cpu::measure_ns(|| tables.look_up(visits));
            samples.0.push(ns as f64 / visits.len() as f64);
        }
        rate.0.push(1e9 / (extraction + translation + install + registration));
    }
    let row = |(what, ours): (String, Samples)| Row {
        ours,
        ..Row::new(format!("{pipeline}: {what}"), PARTS, "us")
    };
    let names = [
        "extraction".to_owned(),
        format!("lookups ({:.1} tables)", visits.len() as f64 / keys.len() as f64),
        "actions and the rest of translation".to_owned(),
        "cache insertion".to_owned(),
        "eviction engine registration".to_owned(),
    ];
    let mut rows: Vec<Row> = names.into_iter().zip(parts).map(row).collect();
    rows.extend(by_table.iter().zip(of_tables).map(|((table, visits), ours)| {
        let share = visits.len() as f64 / keys.len() as f64;
        let rules = tables.rules(*table);
        let name =
            format!("{pipeline}: table {table} ({rules} rules, visited by {:.0} %)", 100.0 * share);
        Row { ours, ..Row::new(name, TABLE, "ns") }
    }));
    rows.push(Row { better: Better::More, ours: rate, ..Row::new(pipeline, RATE, "1/s") });
    rows
}

/// Returns the first frame of each flow.
fn frames(workload: &Workload, count: usize) -> Vec<Vec<u8>> {
    let flows = (0_u32..).take(count);
    let packet = |flow| shunt_pipebench::traffic::ScheduledPacket { time_ns: 0, flow, bytes: 64 };
    let frame = |packet: shunt_pipebench::traffic::ScheduledPacket| {
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

/// Copies of the tables, each with its number of rules.
///
/// The copies measure lookups without translation.
struct Tables(Vec<(TupleSpace<u64>, usize)>);

impl Tables {
    fn new(rules: &[FlowMod]) -> Self {
        let mut tables = Vec::new();
        for (age, rule) in (0_u64..).zip(rules) {
            let TableSelector::One(table) = rule.table else { continue };
            let table = usize::from(table.number());
            if tables.len() <= table {
                tables.resize_with(table + 1, || (TupleSpace::new(1), 0));
            }
            let rank = Rank { priority: rule.priority, age };
            let (table, rules) = &mut tables[table];
            table.insert(rule.matching.clone(), rank, Version::ZERO, age);
            *rules += 1;
        }
        Self(tables)
    }

    fn rules(&self, table: usize) -> usize {
        self.0.get(table).map_or(0, |(_, rules)| *rules)
    }

    fn look_up(&self, visits: &[(usize, FlowKey)]) {
        for (table, key) in visits {
            if let Some((table, _)) = self.0.get(*table) {
                let mut mask = FlowMask::EMPTY;
                black_box(table.lookup_masked(key, Version::ZERO, &mut mask));
                black_box(&mask);
            }
        }
    }
}

/// Returns the visited tables with the key of each visit.
fn visits(traversals: &[Arc<Traversal>]) -> Vec<(usize, FlowKey)> {
    let visits = traversals.iter().flat_map(|traversal| &traversal.visits);
    visits.map(|visit| (visit.table.number().into(), FlowKey::from(&visit.key))).collect()
}

/// Groups visits by table.
fn by_table(visits: &[(usize, FlowKey)]) -> BTreeMap<usize, Vec<(usize, FlowKey)>> {
    let mut by_table: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for visit in visits {
        by_table.entry(visit.0).or_default().push(visit.clone());
    }
    by_table
}

fn install(keys: &[FlowKey], traversals: &[Arc<Traversal>]) -> MegaflowCache {
    let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
    for ((slot, key), traversal) in (0..).zip(keys).zip(traversals) {
        cache.insert(key, &traversal.mask, EntryRef { slot, generation: 0 });
    }
    cache
}
