//! Runs the tests with a chain of stages as the wildcard cache.

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
    cache::{CacheConfig, Wildcard},
};
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};

/// True if packets can hit cache entries, which some tests count.
const HAS_CACHE: bool = true;

/// The default settings of packet threads in these tests.
fn thread_config() -> ThreadConfig {
    ThreadConfig { caches: caches(), ..ThreadConfig::default() }
}

fn caches() -> CacheConfig {
    CacheConfig { wildcard: Wildcard::Gigaflow(config()), ..CacheConfig::default() }
}

const fn config() -> Config {
    Config {
        capacity: Capacity { stages_count: 4, stage_entries_max: 4096 },
        policy: PolicyName::Joint,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        tag_bits: 16,
        seed: 0,
    }
}

/// A random chain: small or large, and sometimes with few tags.
fn wildcard() -> impl Strategy<Value = Wildcard> {
    let stages = prop_oneof![1 => Just(1_u8), 4 => 2..=5_u8];
    let capacity = (stages, prop_oneof![1..=4_usize, 8..=32_usize, Just(1000)]);
    let fallback = prop_oneof![4 => Just(Fallback::Off), 1 => Just(Fallback::OneIn(3))];
    let tag_bits = prop_oneof![1 => 1..=8_u8, 2 => Just(16)];
    let rest = (prop::sample::select(&Eviction::ALL[..]), fallback, tag_bits);
    // In most networks, the other policies have too few tables to partition much.
    let policy = prop_oneof![
        prop::sample::select(&PolicyName::ALL[..]),
        Just(PolicyName::OneToOne),
        Just(PolicyName::Random),
    ];
    (policy, capacity, rest).prop_map(|(policy, capacity, (eviction, fallback, tag_bits))| {
        let (stages_count, stage_entries_max) = capacity;
        let capacity = Capacity { stages_count, stage_entries_max };
        Wildcard::Gigaflow(Config { capacity, policy, fallback, eviction, tag_bits, seed: 0 })
    })
}

/// The cache that replaces the first cache while packets flow.
fn replacement() -> impl Strategy<Value = Wildcard> {
    prop_oneof![1 => Just(Wildcard::default()), 4 => wildcard()]
}

/// The sums of cache counters over many random networks.
#[derive(Debug, Default)]
struct CacheTotals {
    hits: u64,
    steps: u64,
    partial: u64,
    resumed: u64,
    shared: u64,
    evicted: u64,
}

impl CacheTotals {
    fn add(&mut self, counters: &ThreadCounters) {
        let chain = &counters.chain;
        for (sum, counter) in [
            (&mut self.hits, &chain.hits),
            (&mut self.steps, &chain.steps),
            (&mut self.partial, &chain.partial),
            (&mut self.resumed, &chain.resumed),
            (&mut self.shared, &chain.shared),
            (&mut self.evicted, &chain.evicted),
        ] {
            *sum += counter.get();
        }
    }

    /// Checks that chains had hits, and hits of more than one entry.
    fn check_hits(&self) {
        let Self { hits, steps, partial, resumed, shared, evicted } = *self;
        assert!(hits > 1000 && steps > hits + hits / 100, "{self:?}");
        assert!([partial, resumed, shared, evicted].iter().all(|count| *count > 0), "{self:?}");
    }
}

/// The smallest cache.
const fn tiny() -> Wildcard {
    let capacity = Capacity { stages_count: 2, stage_entries_max: 2 };
    Wildcard::Gigaflow(Config { capacity, eviction: Eviction::Never, ..config() })
}

/// Number of cache entries that a packet creates when it visits `tables` tables.
const fn entries(tables: u64) -> u64 {
    tables
}
