//! Every test over one entry for each way.

#[path = "actions.rs"]
mod actions;
#[path = "allocation.rs"]
mod allocation;
#[path = "conjunctions.rs"]
mod conjunctions;
#[path = "counts.rs"]
mod counts;
#[path = "laws.rs"]
mod laws;
#[path = "learn.rs"]
mod learn;
#[path = "meters.rs"]
mod meters;
#[path = "offers.rs"]
mod offers;
#[path = "patches.rs"]
mod patches;
#[path = "recirculation.rs"]
mod recirculation;
#[path = "repair.rs"]
mod repair;
#[path = "sleep.rs"]
mod sleep;
#[path = "verify.rs"]
mod verify;
#[path = "versions.rs"]
mod versions;
#[path = "waiting.rs"]
mod waiting;

use proptest::prelude::*;
use shunt_datapath::{
    ThreadConfig, ThreadCounters,
    cache::{CacheConfig, Wildcard},
};

/// How packet threads work here, if a test says nothing else.
fn thread_config() -> ThreadConfig {
    ThreadConfig { caches: caches(), ..ThreadConfig::default() }
}

fn caches() -> CacheConfig {
    CacheConfig::default()
}

/// Any cache of this kind.
fn wildcard() -> impl Strategy<Value = Wildcard> {
    Just(Wildcard::Megaflow)
}

/// What takes its place while packets flow.
fn replacement() -> impl Strategy<Value = Wildcard> {
    wildcard()
}

/// What packets have met in many worlds.
#[derive(Debug, Default)]
struct Met {
    hits: u64,
}

impl Met {
    fn add(&mut self, counters: &ThreadCounters) {
        self.hits += counters.megaflow.hits.get();
    }

    /// Makes sure that the cache was of any use.
    fn judge(&self) {
        assert!(self.hits > 1000, "{self:?}");
    }
}

/// One that holds next to nothing, if it is told so by the number of entries.
const fn tiny() -> Wildcard {
    Wildcard::Megaflow
}

/// How many entries a packet leaves that visits so many tables.
const fn entries(_tables: u64) -> u64 {
    1
}
