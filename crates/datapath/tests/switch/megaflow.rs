//! Runs the tests with the megaflow cache as the wildcard cache.

#[path = "actions.rs"]
mod actions;
#[path = "allocation.rs"]
mod allocation;
#[path = "bfd.rs"]
mod bfd;
#[path = "bonds.rs"]
mod bonds;
#[path = "candidates.rs"]
mod candidates;
#[path = "conjunctions.rs"]
mod conjunctions;
#[path = "counts.rs"]
mod counts;
#[path = "device_forecasts.rs"]
mod device_forecasts;
#[path = "egress_queues.rs"]
mod egress_queues;
#[path = "flow_limit.rs"]
mod flow_limit;
#[path = "forecast_refusals.rs"]
mod forecast_refusals;
#[path = "forecast_routes.rs"]
mod forecast_routes;
#[path = "forecasts.rs"]
mod forecasts;
#[path = "invariants.rs"]
mod invariants;
#[path = "learn.rs"]
mod learn;
#[path = "meters.rs"]
mod meters;
#[path = "netflow.rs"]
mod netflow;
#[path = "patches.rs"]
mod patches;
#[path = "periodic_flows.rs"]
mod periodic_flows;
#[path = "policing.rs"]
mod policing;
#[path = "recirculation.rs"]
mod recirculation;
#[path = "releases.rs"]
mod releases;
#[path = "repair.rs"]
mod repair;
#[path = "sampling.rs"]
mod sampling;
#[path = "sleep.rs"]
mod sleep;
#[path = "snooping.rs"]
mod snooping;
#[path = "verify.rs"]
mod verify;
#[path = "versions.rs"]
mod versions;
#[path = "waiting.rs"]
mod waiting;
#[path = "withheld_forecasts.rs"]
mod withheld_forecasts;

use proptest::prelude::*;
use shunt_datapath::{
    ThreadConfig, ThreadCounters,
    cache::{CacheConfig, MegaflowConfig, StartIndexKind, Wildcard},
};

/// True if packets can hit cache entries, which some tests count.
const HAS_CACHE: bool = true;

/// The default settings of packet threads in these tests.
fn thread_config() -> ThreadConfig {
    ThreadConfig { caches: caches(), ..ThreadConfig::default() }
}

fn caches() -> CacheConfig {
    CacheConfig::default()
}

/// Returns the settings of a cache that soon uses lookups by signature.
///
/// Caches of other sizes have learned indexes of other kinds.
const fn eager(signatures: usize) -> Wildcard {
    let learned_kind = match signatures {
        8 => StartIndexKind::Segments,
        64 => StartIndexKind::Rqrmi,
        _ => StartIndexKind::Tree,
    };
    Wildcard::Megaflow(MegaflowConfig {
        signatures,
        lookup_probes_min: 1,
        learned_masks_min: 2,
        learned_kind,
        probes_per_ordering: 16,
    })
}

/// A random megaflow cache, with a small or large table of signatures.
fn wildcard() -> impl Strategy<Value = Wildcard> {
    prop::sample::select(vec![8, 64, 4096]).prop_map(eager)
}

/// The cache that replaces the first cache while packets flow.
///
/// A third of them has no learned index (`caches.index = "tuple-space"`), so that packets flow
/// while the lookup changes in both directions.
fn replacement() -> impl Strategy<Value = Wildcard> {
    wildcard().prop_map(|wildcard| match wildcard {
        Wildcard::Megaflow(config) if config.signatures == 8 => {
            Wildcard::Megaflow(MegaflowConfig { learned_masks_min: usize::MAX, ..config })
        }
        other => other,
    })
}

/// The sums of cache counters over many random networks.
#[derive(Debug, Default)]
struct CacheTotals {
    hits: u64,
    signature_hits: u64,
    learned_hits: u64,
    trainings: u64,
}

impl CacheTotals {
    fn add(&mut self, counters: &ThreadCounters) {
        self.hits += counters.megaflow.hits.get();
        self.signature_hits += counters.signature.hits.get();
        self.learned_hits += counters.learned.hits.get();
        self.trainings += counters.trainings.get();
    }

    /// Checks that each kind of lookup had hits.
    fn check_hits(&self) {
        let least = self.hits.min(self.signature_hits).min(self.learned_hits);
        assert!(least > 1000 && self.trainings > 20, "{self:?}");
    }
}

/// The smallest cache; the number of entries limits its size.
const fn tiny() -> Wildcard {
    Wildcard::Megaflow(MegaflowConfig::DEFAULT)
}

/// Number of cache entries that a packet creates, for any number of visited tables.
const fn entries(_tables: u64) -> u64 {
    1
}
