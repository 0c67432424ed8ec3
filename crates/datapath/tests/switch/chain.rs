//! Tests that only a chain of stages needs: shared LTM entries, partial hits, capacity,
//! replacement.

use std::time::Duration;

use shunt_datapath::{
    Command, ThreadConfig,
    cache::{CacheConfig, ExactConfig, Wildcard},
    command::{Repair, Tuning},
    forecast::ForecastConfig,
    thread::QueueSizes,
};
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo, SparseKey, testing::packet::PacketBuilder,
};
use shunt_foresight::{Confidence, Forecast, ForecastSource};
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipeline::{
    Action, FlowMod, FlowModCommand, Instructions, PortInfo, Priority, RuleFilter, TableId,
    TableSelector,
};

use crate::{
    frames::key_of,
    harness::{BRIDGE, NeverStale, Switch, output, rule},
};

/// Returns settings with one LTM entry for each table, while stages have room.
fn config(stage_entries_max: usize) -> ThreadConfig {
    let wildcard = Wildcard::Gigaflow(Config {
        capacity: Capacity { stages_count: 4, stage_entries_max },
        policy: PolicyName::OneToOne,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        tag_bits: 16,
        seed: 0,
    });
    let caches = CacheConfig { wildcard, ..CacheConfig::default() };
    ThreadConfig { caches, ..ThreadConfig::default() }
}

fn matching(field: FieldId, value: u8) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    for (field, value) in [(FieldId::EthType, 0x0800), (field, 0x0a00_0000 | u128::from(value))] {
        key.set_field(field, value);
        mask.add_field(field);
    }
    Match::new(&key, &mask)
}

/// Returns a rule of table 0: allows a source, and rewrites the Ethernet source.
fn source(host: u8) -> FlowMod {
    let field = FieldId::EthSrc;
    let set = Action::SetField { field, value: u128::from(host), mask: field.value_max() };
    let mut request = rule(1, matching(FieldId::Ipv4Src, host), vec![set]);
    let goto = TableId::new(1);
    request.instructions = Instructions { goto, ..request.instructions };
    request
}

/// Returns a rule of table 1 that outputs packets for a destination to a port.
fn target(host: u8, port: u32) -> FlowMod {
    let table = TableSelector::One(TableId::new(1).unwrap());
    FlowMod { table, ..rule(1, matching(FieldId::Ipv4Dst, host), vec![output(port)]) }
}

fn frame(source: u8, target: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, source], [10, 0, 0, target]).udp(1, 2).build()
}

/// Sends a packet, and waits until the switch is idle.
/// The packet must leave by `port`, with its Ethernet source rewritten.
fn check(switch: &mut Switch, from: u8, to: u8, port: u32) {
    assert!(switch.send(0, 1, &frame(from, to)));
    switch.settle();
    let frames = switch.receive(0, port);
    assert_eq!(frames.len(), 1, "from {from} to {to}");
    assert_eq!(frames[0][6..12], [0, 0, 0, 0, 0, from]);
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

/// Returns a switch that allows sources 1 and 2.
/// Destination 1 is at port 2, and destination 2 at port 3.
fn switch(config: ThreadConfig, sizes: QueueSizes) -> Switch {
    let mut switch = Switch::with_sizes(1, 3, config, sizes);
    switch.apply(&[source(1), source(2), target(1, 2), target(2, 3)]);
    switch
}

/// Returns the packet counter of each rule.
fn rule_packets(switch: &Switch) -> Vec<u64> {
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    rules.iter().map(|rule| rule.stats.totals().packets).collect()
}

#[test]
fn new_flows_hit_shared_ltm_entries() {
    let mut switch = switch(config(100), QueueSizes::default());
    check(&mut switch, 1, 1, 2);
    check(&mut switch, 2, 2, 3);
    let upcalls = switch.counters(0).upcalls.get();
    check(&mut switch, 1, 2, 3);
    check(&mut switch, 2, 1, 2);
    let counters = switch.counters(0);
    assert_eq!((upcalls, counters.upcalls.get()), (2, 2));
    assert_eq!((counters.chain.hits.get(), counters.chain.steps.get()), (2, 4));
    assert_eq!(counters.entries.get(), 4);
    assert_eq!(rule_packets(&switch), [2; 4]);
}

#[test]
fn partial_hit_counts_each_rule_once() {
    let mut switch = switch(config(100), QueueSizes::default());
    check(&mut switch, 1, 1, 2);
    check(&mut switch, 1, 2, 3);
    let chain = &switch.counters(0).chain;
    // Two lookups of the packet: one with its burst, and one after it waited in the upcall queue.
    assert_eq!((chain.partial.get(), chain.resumed.get(), chain.made.get()), (2, 1, 3));
    check(&mut switch, 1, 2, 3);
    assert_eq!(switch.counters(0).chain.resumed.get(), 1);
    assert_eq!(rule_packets(&switch).iter().sum::<u64>(), 6);
}

#[test]
fn a_refused_traversal_leaves_no_ltm_entry() {
    let sizes = QueueSizes { reports: 1, ..QueueSizes::default() };
    let mut switch = switch(config(100), sizes);
    // The coordinator does not run, so the report of the second LTM entry does not fit the ring.
    assert!(switch.send(0, 1, &frame(1, 1)));
    switch.run_iteration(0);
    let counters = switch.counters(0);
    assert_eq!((counters.entries.get(), counters.refused_ring.get()), (1, 1));
    assert_eq!((counters.chain.made.get(), counters.chain.refused.get()), (1, 1));
    assert_eq!(counters.chain.stages.iter().map(|own| own.entries.get()).sum::<u64>(), 1);
    assert_eq!(switch.receive(0, 2).len(), 1, "its packet has left");
    switch.settle();
    assert_eq!(switch.coordinator.watched(), 1);
    check(&mut switch, 1, 1, 2);
    assert_eq!((switch.counters(0).entries.get(), switch.coordinator.watched()), (2, 2));
}

#[test]
fn a_changed_rule_evicts_only_its_ltm_entries() {
    let mut switch = switch(config(100), QueueSizes::default());
    for (from, to, port) in [(1, 1, 2), (2, 2, 3), (1, 2, 3)] {
        check(&mut switch, from, to, port);
    }
    let upcalls = switch.counters(0).upcalls.get();
    switch.apply(&[FlowMod { command: FlowModCommand::ModifyStrict, ..target(2, 2) }]);
    assert_eq!((switch.counters(0).evicted.get(), switch.counters(0).entries.get()), (1, 3));
    check(&mut switch, 1, 1, 2);
    assert_eq!(switch.counters(0).upcalls.get(), upcalls, "what it did not touch hits");
    check(&mut switch, 1, 2, 2);
    check(&mut switch, 2, 2, 2);
    assert_eq!(switch.counters(0).upcalls.get(), upcalls + 1);
}

#[test]
fn full_stage_evicts_and_reports_to_engine() {
    let mut switch = Switch::new(1, 3, config(2));
    switch.apply(&(1..=20).flat_map(|host| [source(host), target(host, 2)]).collect::<Vec<_>>());
    for round in 0..200_u8 {
        check(&mut switch, round % 20 + 1, round % 7 + 1, 2);
        let counters = switch.counters(0);
        assert!(counters.chain.stages.iter().all(|stage| stage.entries.get() <= 2));
        assert_eq!(switch.coordinator.watched() as u64, counters.entries.get());
    }
    let chain = &switch.counters(0).chain;
    assert!(chain.evicted.get() > 20 && chain.refused.get() == 0);
    assert_eq!(rule_packets(&switch).iter().sum::<u64>(), 400);
}

#[test]
fn replaced_cache_keeps_counts_and_no_entry() {
    let mut switch = switch(config(100), QueueSizes { reports: 2, ..QueueSizes::default() });
    let own = config(100).caches.wildcard;
    let other = config(50).caches.wildcard;
    for wildcard in [Wildcard::default(), own, other, Wildcard::default()] {
        for (from, to, port) in [(1, 1, 2), (1, 1, 2), (2, 2, 3)] {
            check(&mut switch, from, to, port);
        }
        let before = switch.counters(0).upcalls.get();
        let ThreadConfig { max_idle, translations_per_iteration, repair, .. } =
            ThreadConfig::default();
        let verify_one_in = 1;
        let tuning = Tuning {
            max_idle,
            translations_per_iteration,
            verify_one_in,
            repair,
            wildcard,
            entries_max: ThreadConfig::default().caches.entries_max,
            sleep_max: ThreadConfig::default().sleep_max,
            vlan_limit: ThreadConfig::default().vlan_limit,
        };
        switch.controls[0].send(Command::Tune(tuning)).unwrap();
        switch.settle();
        assert_eq!((switch.counters(0).entries.get(), switch.coordinator.watched()), (0, 0));
        check(&mut switch, 1, 1, 2);
        assert_eq!(switch.counters(0).upcalls.get(), before + 1, "the new cache begins empty");
    }
    // All hits are credited, including those of entries that were evicted before any pull.
    assert_eq!(rule_packets(&switch).iter().sum::<u64>(), 2 * 4 * 4);
    assert_eq!(switch.counters(0).differences.get(), 0);
    switch.wait(Duration::from_secs(60));
    switch.settle();
    assert_eq!((switch.counters(0).entries.get(), switch.coordinator.watched()), (0, 0));
}

/// Returns a switch with a stale LTM entry for each of two tables.
///
/// The switch has the rules of [`switch`] and an engine that evicts nothing. The switch compares
/// every hit with the tables.
fn switch_with_stale_entries(target: FlowMod) -> Switch {
    let config = ThreadConfig { verify_one_in: 1, ..config(100) };
    let mut switch =
        Switch::with_engine(1, 3, config, QueueSizes::default(), |_| Box::new(NeverStale));
    switch.apply(&[source(1), source(2), target]);
    for _ in 0..2 {
        assert!(switch.send(0, 1, &frame(1, 1)));
        switch.settle();
        (2..=3).for_each(|port| drop(switch.receive(0, port)));
    }
    let counters = switch.counters(0);
    assert_eq!((counters.chain.hits.get(), counters.chain.steps.get()), (1, 2));
    assert_eq!((counters.verified.get(), counters.differences.get()), (1, 0));
    switch
}

/// Sends the packet again.
/// Verification must find the wrong chain, and the packet must leave by `ports`.
fn detect_wrong_chain(switch: &mut Switch, ports: &[u32]) {
    assert!(switch.send(0, 1, &frame(1, 1)));
    switch.settle();
    let left: Vec<u32> = (1..=4).filter(|port| *port < 4 || ports.contains(port)).collect();
    for port in left {
        let expected = usize::from(ports.contains(&port));
        assert_eq!(switch.receive(0, port).len(), expected, "by port {port}");
    }
    assert_eq!(switch.counters(0).differences.get(), 1);
    let difference = switch.controls[0].differences.pop().unwrap();
    assert_eq!(difference.cached.len(), 2, "both LTM entries");
}

#[test]
fn a_chain_with_a_wrong_output_is_detected() {
    let mut switch = switch_with_stale_entries(target(1, 2));
    switch.apply(&[FlowMod { command: FlowModCommand::ModifyStrict, ..target(1, 3) }]);
    detect_wrong_chain(&mut switch, &[3]);
}

#[test]
fn chain_that_credits_wrong_rule_is_detected() {
    let mut switch = switch_with_stale_entries(target(1, 2));
    switch.apply(&[FlowMod { priority: Priority::new(9), ..target(1, 2) }]);
    detect_wrong_chain(&mut switch, &[2]);
}

/// The cached chain counts the packet for the right rules, but lacks an output.
#[test]
fn chain_with_missing_actions_is_detected() {
    let flood = Action::Output { port: PortNo::FLOOD, max_len: 0 };
    let mut switch = switch_with_stale_entries(FlowMod {
        table: TableSelector::One(TableId::new(1).unwrap()),
        ..rule(1, matching(FieldId::Ipv4Dst, 1), vec![flood])
    });
    // The packet visits the same rules, but the flood has one output more.
    let ports = (1..=4).map(PortInfo::datapath).collect();
    let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
    switch.change(&change);
    switch.add_port(4, BRIDGE, PortNo::new(4));
    detect_wrong_chain(&mut switch, &[2, 3, 4]);
}

#[test]
fn a_smaller_cache_is_filled_at_once() {
    let caches = CacheConfig::default();
    let mut switch = Switch::new(1, 2, ThreadConfig { caches, ..ThreadConfig::default() });
    let flows = 1_200_u16;
    let port = |port: u16| {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        for (field, value) in
            [(FieldId::EthType, 0x0800), (FieldId::IpProto, 17), (FieldId::UdpDst, port.into())]
        {
            key.set_field(field, value);
            mask.add_field(field);
        }
        rule(1, Match::new(&key, &mask), vec![output(2)])
    };
    switch.apply(&(0..flows).map(port).collect::<Vec<_>>());
    let frame = |port| PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, port).build();
    for port in 0..flows {
        assert!(switch.send(0, 1, &frame(port)));
        switch.settle();
        drop(switch.receive(0, 2));
    }
    assert_eq!(switch.counters(0).entries.get(), u64::from(flows));
    let ThreadConfig { max_idle, translations_per_iteration, .. } = ThreadConfig::default();
    let wildcard = config(2).caches.wildcard;
    let tuning = Tuning {
        max_idle,
        translations_per_iteration,
        verify_one_in: 0,
        repair: Repair::Off,
        wildcard,
        entries_max: ThreadConfig::default().caches.entries_max,
        sleep_max: ThreadConfig::default().sleep_max,
        vlan_limit: ThreadConfig::default().vlan_limit,
    };
    switch.controls[0].send(Command::Tune(tuning)).unwrap();
    for _ in 0..2 {
        assert!(switch.send(0, 1, &frame(7)));
        switch.run_iteration(0);
    }
    assert!(switch.counters(0).entries.get() > 1000, "earlier entries are still in the cache");
    let chain = &switch.counters(0).chain;
    assert_eq!((chain.made.get(), chain.hits.get()), (1, 1));
    switch.settle();
    assert_eq!(switch.counters(0).entries.get(), 1);
}

/// The limit of translations per iteration counts each translation of a repair.
#[test]
fn a_repair_of_two_translations_counts_as_two() {
    let config = ThreadConfig { repair: Repair::On, translations_per_iteration: 16, ..config(100) };
    let mut switch = Switch::new(1, 3, config);
    let sources: Vec<FlowMod> = (1..=20).map(source).collect();
    switch.apply(&sources);
    switch.apply(&[target(1, 2)]);
    (1..=20).for_each(|host| check(&mut switch, host, 1, 2));
    // The new rules rewrite the source of every host to another address.
    let others: Vec<FlowMod> = (1..=20)
        .map(|host| {
            let instructions = source(host + 100).instructions;
            FlowMod { instructions, ..source(host) }
        })
        .collect();
    let change = switch.pipeline.apply(BRIDGE, &others, switch.now).unwrap();
    switch.change(&change);
    switch.run_iteration(0);
    assert_eq!(switch.counters(0).repaired_changed.get(), 4);
}

/// If one of the LTM entries of a flow ends, the exact-match cache loses the flow.
#[test]
fn an_exact_match_entry_needs_every_ltm_entry() {
    let mut config = config(64);
    config.caches.exact = ExactConfig { lines: 64, insert_inverse: 1 };
    let mut switch = switch(config, QueueSizes::default());
    let hits = |switch: &Switch| {
        let own = switch.counters(0);
        (own.exact.hits.get(), own.chain.hits.get(), own.chain.steps.get())
    };
    // The tables, the chain and then the exact-match cache decide these packets.
    (0..5).for_each(|_| check(&mut switch, 1, 1, 2));
    assert_eq!(hits(&switch), (3, 1, 2));
    assert_eq!(rule_packets(&switch), [5, 0, 5, 0]);
    // A rule of table 1 changes: the exact-match cache loses the flow, and the entry of table 0
    // hits again.
    switch.apply(&[target(1, 3)]);
    (0..4).for_each(|_| check(&mut switch, 1, 1, 3));
    let (exact, ..) = hits(&switch);
    assert_eq!(exact, 3 + 2);
}

/// A forecast shares an LTM entry with traffic; none of its packets arrives.
///
/// A busy thread has not yet credited the last hit of the entry.
#[test]
fn a_forecast_refreshes_no_rule() {
    let mut switch = switch(config(100), QueueSizes::default());
    let mut sender = switch.attach_forecasts(ForecastConfig::default()).remove(0);
    check(&mut switch, 1, 1, 2);
    assert!(switch.send(0, 1, &frame(1, 1)));
    switch.run_iteration(0);
    let used = switch.now;
    switch.wait(Duration::from_secs(1));
    let mut key = key_of(&frame(1, 2));
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(1));
    sender.send(Forecast {
        key: SparseKey::from(&key),
        known: None,
        confidence: Confidence::MAX,
        made: Duration::ZERO,
        valid_until: Duration::MAX,
        source: ForecastSource::Oracle,
    });
    assert!(switch.send(0, 1, &frame(2, 1)));
    switch.run_iteration(0);
    switch.settle();
    assert_eq!(sender.counters().of(ForecastSource::Oracle).counts().installed, 1);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let sources = rules.iter().filter(|rule| rule.table == TableId::FIRST);
    let times: Vec<_> = sources.map(|rule| rule.stats.totals().used).collect();
    assert!(times.contains(&used), "{times:?} has no {used:?}");
}
