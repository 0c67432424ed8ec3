//! Tests invariants 1, 5 and 7 in random networks.
//!
//! In any order of updates, installs and evictions, and with every cache:
//!
//! - A packet is forwarded as the oracle forwards it under the version of its thread.
//! - A rule counts exactly the packets that visited it, and these packets refresh it.
//! - A packet is forwarded by a version that includes the learn requests of earlier packets on its
//!   queue.
//!
//! The oracle is a linear scan over plain lists of rules (`shunt_pipeline::testing`), with one
//! network for each version. Each frame contains a number after its headers, by which the test
//! recognizes all copies of the packet: sent, punted or dropped.
//!
//! The variable `SHUNT_PACKETS` sets the number of packets, and `SHUNT_SEED` the random networks; a
//! soak test sets both.

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use shunt_foresight::{ForecastRefusal, ForecastSource, OutcomeCounts};
use shunt_pipeline::testing::generate;

use crate::modelled_switch::{CacheDraws, ModelledSwitch, draw};

/// The strategies that draw the caches of the networks.
const CACHES: CacheDraws = CacheDraws {
    first: |runner| draw(runner, super::wildcard()),
    replacement: |runner| draw(runner, super::replacement()),
};

fn check(threads: u16, packets: u32) {
    let (mut sent, mut refreshes, mut slept) = (0, 0, 0);
    let (mut networks, mut counted, mut mirrored) = (0, 0, 0);
    let mut met = super::CacheTotals::default();
    let (mut forecasts, mut worst) = (OutcomeCounts::default(), OutcomeCounts::default());
    for network in environment("SHUNT_SEED", 0_u64) << 32.. {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&network.to_le_bytes());
        seed[8] = u8::try_from(threads).unwrap();
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let mut modelled = ModelledSwitch::new(&mut runner, threads, CACHES);
        let keys = draw(&mut runner, prop::collection::vec(generate::packet(), 1..40));
        for _ in 0..300 {
            if !modelled.results.are_enough() {
                modelled.step(&mut runner, &keys);
            }
        }
        modelled.finish();
        sent += modelled.last;
        refreshes += modelled.refreshes;
        (0..modelled.switch.threads.len())
            .for_each(|thread| met.add(modelled.switch.counters(thread)));
        for sender in &modelled.forecasts {
            forecasts.add(&sender.counters().of(ForecastSource::Oracle).counts());
            worst.add(&sender.counters().of(ForecastSource::Periodic).counts());
        }
        slept += modelled.slept;
        mirrored += modelled.mirrored();
        networks += 1;
        counted += usize::from(modelled.is_counted);
        if sent >= packets {
            met.check_hits();
            judge_forecasts(&forecasts);
            judge_worst_case(&worst);
            assert!(refreshes > 100, "{refreshes} packets refreshed addresses");
            assert!(slept > 100, "threads slept {slept} times");
            assert!(mirrored > 0, "no packet was mirrored");
            assert!(counted * 10 >= networks * 9, "{counted} of {networks} networks were counted");
            return;
        }
    }
}

/// Checks that forecasts had every outcome that the networks allow.
fn judge_forecasts(counts: &OutcomeCounts) {
    let OutcomeCounts { hits, late, covered, wrong, evicted, refused, .. } = *counts;
    let refused = |reason: ForecastRefusal| refused[reason as usize];
    assert!(refused(ForecastRefusal::Expired) > 0, "{counts:?}");
    assert!(refused(ForecastRefusal::NoSuchPort) > 0, "{counts:?}");
    if !super::HAS_CACHE {
        assert!(refused(ForecastRefusal::NoEntries) > 1000, "{counts:?}");
        return;
    }
    let reasons = [ForecastRefusal::Learns, ForecastRefusal::NoRoom, ForecastRefusal::UnknownBits];
    assert!(hits > 20 && [late, covered, wrong, evicted].iter().all(|own| *own > 0), "{counts:?}");
    assert!(reasons.iter().all(|reason| refused(*reason) > 0), "{counts:?}");
}

/// Checks that the predictor of a third of the worlds made useless entries.
///
/// Some of its forecasts were withheld. `withheld_forecasts.rs` has tests of their outcomes.
///
/// Without a cache, no packet misses, so the predictor sees no flow.
fn judge_worst_case(counts: &OutcomeCounts) {
    let OutcomeCounts { installed, covered, wrong, evicted, withheld, .. } = *counts;
    let is_worst = installed > 0 && covered > 0 && wrong + evicted > 0 && withheld > 0;
    assert!(is_worst || !super::HAS_CACHE, "{counts:?}");
}

fn packets() -> u32 {
    environment("SHUNT_PACKETS", 200_000)
}

fn environment<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn one_thread_forwards_as_the_oracle() {
    check(1, packets() / 2);
}

#[test]
fn three_threads_forward_as_the_oracle() {
    // Without a cache, each packet makes all lookups of its network, in the switch and in the
    // oracle. A few networks make thousands for each packet, so fewer packets take the same time.
    check(3, packets() / if super::HAS_CACHE { 2 } else { 4 });
}
