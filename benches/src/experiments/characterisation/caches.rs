//! Hits and misses of a megaflow cache by capacity.
//!
//! Entries of one version never overlap. A packet that equals an entry in all masked bits of the
//! entry gets the same entry from the tables. So each flow has exactly one entry, and a cache is a
//! set of entries. As in Open vSwitch and Shunt, a full cache takes no new entry, and no entry
//! expires within a run.

use std::collections::HashMap;

use shunt_flow::{FlowKey, Match};
use shunt_pipebench::{published::Figure, statistics::NoEvictionCache, workload::Workload};

use crate::{
    experiment::{Better, Row, Samples},
    experiments::loaded::{Loaded, why_entries},
};

/// Capacities in entries; the published cache has 32K.
const CAPACITIES: [(&str, usize); 5] =
    [("8K", 8_000), ("16K", 16_000), ("32K", 32_000), ("64K", 64_000), ("128K", 128_000)];
const PUBLISHED_CAPACITY: &str = "32K";

pub(in crate::experiments) const HITS: &str =
    "hits of a megaflow cache, 3 packets per flow (30 for pipeline OTL)";
pub(in crate::experiments) const MISSES: &str =
    "misses of a megaflow cache, 3 packets per flow (30 for pipeline OTL)";
pub(super) const ENTRIES: &str = "final entries of a megaflow cache";

/// Returns the number of the entry of each flow.
pub(super) fn entries(loaded: &Loaded) -> Vec<u32> {
    let mut numbers: HashMap<Match, u32> = HashMap::new();
    let entry = |key: &FlowKey| {
        let traversal = loaded.translate(key);
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(Match::of(&traversal.key, &traversal.mask)).or_insert(next)
    };
    loaded.keys.iter().map(entry).collect()
}

/// Returns hits, misses and entries for caches of all capacities.
pub(in crate::experiments) fn of_packets(
    pipeline: &str,
    locality: &str,
    workload: &Workload,
    entry_of: &[u32],
    is_quick: bool,
) -> Vec<Row> {
    let mut caches = CAPACITIES.map(|(_, capacity)| NoEvictionCache::new(capacity, entry_of.len()));
    for packet in workload.packets() {
        let entry = entry_of[packet.flow as usize];
        caches.iter_mut().for_each(|cache| cache.look_up(entry));
    }
    let figure = |metric, name: &str| {
        let is_published = name == PUBLISHED_CAPACITY && !is_quick;
        is_published.then(|| Figure::find(metric, pipeline, locality, "Megaflow 1x32K")).flatten()
    };
    let rows = caches.iter().zip(CAPACITIES).flat_map(|(cache, (capacity, _))| {
        let name = format!("{pipeline}:{locality}, {capacity} entries");
        let hits = cache.hit_rate();
        let published = figure("hit_rate", capacity).map(|figure| figure.value);
        let one = |metric, unit, better, value: f64| Row {
            better,
            ours: Samples::from(value),
            ..Row::new(name.clone(), metric, unit)
        };
        let published_misses = figure("cache_misses", capacity).map(|figure| figure.value);
        let misses = cache.misses() as f64;
        let reason = |is_more| why_entries(&name, is_more);
        [
            one(HITS, "%", Better::More, hits).beside_published(
                published,
                reason(published.is_some_and(|published_value| hits < published_value)),
            ),
            one(MISSES, "", Better::Less, misses).beside_published(
                published_misses,
                reason(published_misses.is_some_and(|published_value| misses > published_value)),
            ),
            one(ENTRIES, "", Better::Neither, cache.used() as f64),
        ]
    });
    rows.collect()
}
