//! Runs the tests with the tables in place of caches.
//!
//! Files not listed here test cache entries. Tests of entries in other files depend on
//! [`HAS_CACHE`].

#[path = "actions.rs"]
mod actions;
#[path = "bfd.rs"]
mod bfd;
#[path = "bonds.rs"]
mod bonds;
#[path = "conjunctions.rs"]
mod conjunctions;
#[path = "counts.rs"]
mod counts;
#[path = "egress_queues.rs"]
mod egress_queues;
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
#[path = "policing.rs"]
mod policing;
#[path = "recirculation.rs"]
mod recirculation;
#[path = "releases.rs"]
mod releases;
#[path = "sampling.rs"]
mod sampling;
#[path = "sleep.rs"]
mod sleep;
#[path = "snooping.rs"]
mod snooping;
#[path = "versions.rs"]
mod versions;
#[path = "waiting.rs"]
mod waiting;

use std::time::Duration;

use proptest::prelude::*;
use shunt_datapath::{
    BURST, Command, ThreadConfig, ThreadCounters,
    cache::{CacheConfig, FlowsConfig, MegaflowConfig, StartIndexKind, Training, Wildcard},
    command::Tuning,
};
use shunt_flow::{testing::packet::PacketBuilder, text::NoPortNames};
use shunt_pipeline::{FlowMod, FlowModCommand, text::parse_rule};

use crate::harness::{BRIDGE, Switch};

/// True if packets can hit cache entries, which some tests count.
const HAS_CACHE: bool = false;

/// The default settings of packet threads in these tests.
fn thread_config() -> ThreadConfig {
    ThreadConfig { caches: caches(), ..ThreadConfig::default() }
}

fn caches() -> CacheConfig {
    CacheConfig { wildcard: flows(3), ..CacheConfig::default() }
}

/// Returns the setting without a cache; tables of this size get learned indexes.
///
/// With one rule the index is an RQ-RMI, so that tables get an index of another kind when the
/// setting changes.
const fn flows(learned_rules_min: usize) -> Wildcard {
    let learned_kind =
        if learned_rules_min == 1 { StartIndexKind::Rqrmi } else { StartIndexKind::Tree };
    Wildcard::Flows(FlowsConfig { learned_rules_min, learned_kind })
}

fn wildcard() -> impl Strategy<Value = Wildcard> {
    prop::sample::select(vec![1, 3, usize::MAX]).prop_map(flows)
}

/// The cache that replaces the first setting while packets flow.
fn replacement() -> impl Strategy<Value = Wildcard> {
    prop_oneof![3 => wildcard(), 1 => Just(tiny())]
}

/// The sums of cache counters over many random networks.
#[derive(Debug, Default)]
struct CacheTotals {
    decided: u64,
    hits: u64,
    verified: u64,
    /// Number of packet threads, and of those with five table decisions per hit.
    threads: u64,
    by_tables: u64,
}

impl CacheTotals {
    fn add(&mut self, counters: &ThreadCounters) {
        let (decided, hits) = (counters.decided.get(), counters.megaflow.hits.get());
        self.decided += decided;
        self.hits += hits;
        self.verified += counters.verified.get();
        self.threads += 1;
        self.by_tables += u64::from(decided >= 5 * hits);
    }

    /// Checks that the tables decided most packets, and caches some packets.
    ///
    /// In one of four networks, a cache replaces the tables for long and has many hits. A few such
    /// networks have most of the hits, so the check counts threads, not packets.
    fn check_hits(&self) {
        let Self { decided, hits, verified, threads, by_tables } = *self;
        assert!(decided > hits && hits > 100 && verified > 1000, "{self:?}");
        assert!(by_tables * 5 > threads * 3, "{self:?}");
    }
}

/// The smallest cache; the number of entries limits its size.
const fn tiny() -> Wildcard {
    Wildcard::Megaflow(MegaflowConfig::DEFAULT)
}

/// Returns a frame of flow `number`.
fn frame(number: u16) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(number, 53).build()
}

/// Returns forwarding rules of two tables, and a rule that uses a register.
fn rules() -> Vec<FlowMod> {
    let ports = (0..BURST).map(|number| format!("priority=2,udp,tp_src={number},actions=output:2"));
    let texts = ports.chain([
        "priority=3,udp,tp_src=1,actions=goto_table:1".to_owned(),
        "table=1,udp,actions=output:2".to_owned(),
        "priority=3,udp,tp_src=2,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],resubmit(,1)"
            .to_owned(),
    ]);
    let parse = |text: String| parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap();
    texts.map(parse).collect()
}

#[test]
fn a_warm_burst_of_decided_packets_allocates_nothing() {
    for learned_rules_min in [1, usize::MAX] {
        let caches = CacheConfig {
            wildcard: flows(learned_rules_min),
            training: Training::Inline,
            ..CacheConfig::default()
        };
        let mut switch = Switch::new(1, 2, ThreadConfig { caches, ..ThreadConfig::default() });
        switch.apply(&rules());
        switch.wait(Duration::from_secs(1));
        for warm in [false, true] {
            for _ in 0..20 {
                for number in 0..BURST {
                    assert!(switch.send(0, 1, &frame(u16::try_from(number).unwrap())));
                }
                let run = || while switch.run_iteration(0) {};
                let allocated = allocation_counter::measure(run).count_total;
                assert!(!warm || allocated == 0, "{allocated} allocations in a warm burst");
                assert_eq!(switch.receive(0, 2).len(), BURST);
            }
        }
        let counters = switch.counters(0);
        assert_eq!((counters.decided.get(), counters.unaccounted()), (40 * BURST as u64, 0));
    }
}

/// The version that the thread has acknowledged decides each packet.
#[test]
fn a_decided_packet_uses_the_acknowledged_version() {
    let mut switch = Switch::new(1, 3, thread_config());
    switch.apply(&rules());
    let parse = |text: &str| parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
    let changed = parse("priority=9,udp,actions=output:3");
    let change = switch.pipeline.apply(BRIDGE, &[changed], switch.now).unwrap();
    assert!(switch.send(0, 1, &frame(7)));
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (1, 0));
    switch.change(&change);
    switch.settle();
    assert!(switch.coordinator.acked_version() >= change.version);
    assert!(switch.send(0, 1, &frame(7)));
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (0, 1));
    assert_eq!(switch.coordinator.watched(), 0, "there are no entries");
}

/// Packets that wait for a translation leave before later packets.
#[test]
fn waiting_packets_leave_before_decided_ones() {
    let config = ThreadConfig { translations_per_iteration: 1, ..ThreadConfig::default() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&rules());
    for number in 0..20 {
        assert!(switch.send(0, 1, &frame(number)));
    }
    switch.run_iteration(0);
    assert!(switch.counters(0).held.get() > 10);
    assert!(switch.controls[0].send(Command::Tune(tuning(flows(1)))).is_ok());
    for number in 20..30 {
        assert!(switch.send(0, 1, &frame(number)));
    }
    switch.settle();
    let expected: Vec<_> = (0..30).map(frame).collect();
    assert_eq!(switch.receive(0, 2), expected);
}

fn tuning(wildcard: Wildcard) -> Tuning {
    let ThreadConfig { max_idle, translations_per_iteration, verify_one_in, repair, .. } =
        ThreadConfig::default();
    Tuning {
        max_idle,
        translations_per_iteration,
        verify_one_in,
        repair,
        wildcard,
        entries_max: ThreadConfig::default().caches.entries_max,
        sleep_max: ThreadConfig::default().sleep_max,
        vlan_limit: ThreadConfig::default().vlan_limit,
    }
}

/// Number of cache entries that a packet creates, for any number of visited tables.
const fn entries(_tables: u64) -> u64 {
    0
}
