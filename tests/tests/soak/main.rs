//! A whole switch with real threads under continuous rule changes.
//!
//! Random networks of rules, groups, meters and learn actions are built, changed and removed while
//! packets flow. Every thread compares some of its hits with the tables.
//!
//! The test does not determine the expected output of a packet. The test checks invariants of the
//! switch:
//!
//! - No cached result differs from the tables (invariant 1).
//! - Every packet has exactly one end.
//! - Port counters equal the numbers of packets that the far ends sent and received.
//! - A removed network leaves no memory behind.
//!
//! `SHUNT_SOAK_PACKETS` sets the number of packets for each kind of cache, and `SHUNT_SEED` the
//! networks. `cargo xtask soak` sets both variables. Then the test shows its progress.

#![expect(clippy::expect_used, reason = "a soak that cannot be set up fails")]
#![expect(clippy::print_stderr, reason = "a long test shows its progress")]

mod changes;
mod fixture;
mod memory;
mod progress;
mod traffic;

use std::{
    fmt::Debug,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use shunt_switch::config::CacheKind;
use tracing_subscriber::filter::LevelFilter;

use crate::{changes::Changes, fixture::SoakFixture, memory::resident_bytes, progress::Progress};

/// Default number of packets.
const PACKETS: u64 = 200_000;

/// Number of networks built one after the other in the gate.
const NETWORKS: u64 = 5;
/// Number of networks built one after the other in a soak.
const NETWORKS_OF_SOAK: u64 = 25;

/// Minimum number of changes of a network, even if its packets are sent very fast.
const CHANGES_MIN: u64 = 50;

/// Maximum growth of memory in bytes, in addition to a tenth.
///
/// The maximum applies to the last networks compared with the maximum of the first half. Allocators
/// do not return all memory.
const GROWTH_MAX_BYTES: u64 = 16 << 20;

#[test]
fn continuous_rule_changes_keep_the_invariants() {
    let is_asked_for = std::env::var_os("SHUNT_SOAK_PACKETS").is_some();
    let (packets, seed) =
        (environment("SHUNT_SOAK_PACKETS", PACKETS), environment("SHUNT_SEED", 0));
    // The log shows differences.
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN);
    log.with_writer(std::io::stderr).init();
    for kind in [CacheKind::Megaflow, CacheKind::Gigaflow, CacheKind::Flows] {
        eprintln!("{kind:?}");
        soak(kind, packets, seed, is_asked_for);
    }
}

/// Runs a switch with a cache of kind `kind` for `packets` packets.
fn soak(kind: CacheKind, packets: u64, seed: u64, is_asked_for: bool) {
    let mut fixture = SoakFixture::new(kind);
    let (mut frames, mut ops) = (random(seed, 0), random(seed, 1));
    let mut progress = Progress::new(packets, is_asked_for);
    let networks = if is_asked_for { NETWORKS_OF_SOAK } else { NETWORKS };
    let mut at_rest = Vec::new();
    for network in 0..networks {
        let until = packets * (network + 1) / networks;
        let is_over = AtomicBool::new(false);
        let versions = AtomicU64::new(0);
        let changes = Changes::new(&fixture.switch, fixture.runtime.handle(), &is_over, &versions);
        changes.build(&mut ops);
        thread::scope(|scope| {
            let runner = &mut ops;
            let changer = scope.spawn(|| changes.make(runner));
            let hosts = &mut fixture.hosts;
            let flows = traffic::flows(&mut frames);
            let is_whole = || versions.load(Ordering::Relaxed) >= CHANGES_MIN;
            while (hosts.sent < until || !is_whole()) && !changer.is_finished() {
                hosts.exchange(&mut frames, &flows);
                progress.show(hosts.sent, &fixture.switch.caches());
            }
            is_over.store(true, Ordering::Relaxed);
            changer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        progress.versions += versions.into_inner();
        fixture.await_idle();
        fixture.check();
        at_rest.push(resident_bytes());
    }
    progress.end();
    let (caches, drops, sent) =
        (fixture.switch.caches(), fixture.switch.drops(), fixture.hosts.sent);
    let mebibytes: Vec<u64> = at_rest.iter().map(|bytes| bytes >> 20).collect();
    eprintln!("{sent} packets, {} changes", progress.versions);
    eprintln!("{caches:?}\n{drops:?}\nMiB after each network: {mebibytes:?}");
    let is_used = match kind {
        CacheKind::Flows => caches.decided > 0,
        CacheKind::Megaflow | CacheKind::Gigaflow => caches.upcalls > 0 && caches.evicted > 0,
    };
    assert!(caches.verified > sent / 100 && is_used, "{caches:?}");
    if is_asked_for {
        assert_does_not_grow(&at_rest);
    }
}

/// Asserts that the memory of an idle switch does not grow.
///
/// One network may need more memory than all previous networks, and freed memory is not always
/// returned. But a leak also shows after every later network.
fn assert_does_not_grow(at_rest: &[u64]) {
    let (early, late) = at_rest.split_at(at_rest.len() / 2);
    let most = early.iter().max().copied().unwrap_or_default();
    let least = late.iter().rev().take(late.len() / 2).min().copied().unwrap_or_default();
    assert!(least < most + most / 10 + GROWTH_MAX_BYTES, "memory grew: {at_rest:?}");
}

/// Returns a source of choices, determined by the numbers.
fn random(seed: u64, stream: u8) -> TestRunner {
    let mut bytes = [stream; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}

fn draw<T: Debug>(runner: &mut TestRunner, strategy: impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).expect("the strategy rejects nothing").current()
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
