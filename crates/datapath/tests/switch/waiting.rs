//! Tests upcall queues: bounded, in order, and fair between ports.

use std::sync::mpsc;

use shunt_datapath::{Command, DropReason, ThreadConfig};
use shunt_flow::{FieldId, Match, testing::packet::PacketBuilder, text::NoPortNames};
use shunt_pipeline::{Action, DatapathPort, FlowMod, FlowModCommand, Subfield, text::parse_rule};

use crate::harness::{Switch, output, rule};

/// Returns a frame of flow `number`.
pub(crate) fn flow(number: u16) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(number, 53).build()
}

/// Returns a rule that sends all packets to `port`.
/// The match of the rule gives each flow its own entry.
pub(crate) fn per_flow(priority: u16, port: u32) -> FlowMod {
    let source = Subfield::whole(FieldId::UdpSrc);
    let target = Subfield::new(FieldId::Reg0, 0, 16).unwrap();
    rule(priority, Match::any(), vec![Action::Move { source, target }, output(port)])
}

#[test]
fn a_burst_of_one_flow_is_translated_once() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 1, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
    let frame = |number: u8| {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(vec![number]).build()
    };
    for number in 0..20 {
        assert!(switch.send(0, 1, &frame(number)));
    }
    switch.run_iteration(0);
    assert_eq!(switch.receive(0, 2), (0..20).map(frame).collect::<Vec<_>>());
    assert_eq!(switch.counters(0).upcalls.get(), 1);
}

#[test]
fn packet_queued_behind_miss_counts_one_hit() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    let learning = "table=7,actions=learn(table=8,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    let learning = parse_rule(FlowModCommand::Add, learning, &NoPortNames).unwrap();
    switch.apply(&[per_flow(1, 2), learning]);
    let mut send = |numbers: &[u16]| {
        numbers.iter().for_each(|number| assert!(switch.send(0, 1, &flow(*number))));
        switch.settle();
        let own = switch.counters(0);
        let hits = [&own.exact.hits, &own.signature.hits, &own.megaflow.hits, &own.chain.hits]
            .map(|hits| hits.get());
        (own.received.get(), hits.iter().sum::<u64>() + own.upcalls.get())
    };
    assert_eq!(send(&[0]), (1, 1));
    // The first packet misses. Because a rule may learn, later packets wait and are looked up
    // again.
    assert_eq!(send(&[1, 0, 0, 1]), (5, 5));
    assert_eq!(send(&[0, 1, 2, 0]), (9, 9));
}

/// Hits do not overtake packets of their flow that wait after new flows.
#[test]
fn flows_stay_in_order_when_translations_run_out() {
    if !super::HAS_CACHE {
        return;
    }
    const FLOWS: u16 = 600;
    let config = ThreadConfig { translations_per_iteration: 2, ..super::thread_config() };
    let mut switch = Switch::new(1, 3, config);
    switch.apply(&[per_flow(1, 3)]);
    let frame = |flow: u16, number: u8| {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(flow, 53).payload([number]).build()
    };
    let (mut next, mut came) = (vec![0_u8; FLOWS.into()], Vec::new());
    let mut random = 1_u32;
    for newest in 4..FLOWS {
        for _ in 0..6 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let flow = newest - u16::try_from(random >> 30).unwrap();
            let number = &mut next[usize::from(flow)];
            assert!(switch.send(0, 1 + u32::from(flow % 2), &frame(flow, *number)));
            *number += 1;
        }
        switch.run_iteration(0);
        came.extend(switch.receive(0, 3));
    }
    switch.settle();
    came.extend(switch.receive(0, 3));
    let sent: usize = next.iter().map(|count| usize::from(*count)).sum();
    assert_eq!(came.len(), sent);
    let mut expected = vec![0; FLOWS.into()];
    for got in came {
        let flow = u16::from_be_bytes([got[34], got[35]]);
        let number = &mut expected[usize::from(flow)];
        assert_eq!(got, frame(flow, *number), "flow {flow}");
        *number += 1;
    }
    let own = switch.counters(0);
    let hits = [&own.exact.hits, &own.signature.hits, &own.megaflow.hits, &own.chain.hits]
        .map(|hits| hits.get());
    assert_eq!(hits.iter().sum::<u64>() + own.upcalls.get(), sent as u64);
    assert_eq!(own.unaccounted(), 0);
}

#[test]
fn an_iteration_respects_its_translation_limit() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 3, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[per_flow(1, 2)]);
    (0..10).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    let mut came = Vec::new();
    for held in [7, 4, 1, 0] {
        switch.run_iteration(0);
        assert_eq!(switch.threads[0].held(), held);
        assert_eq!(switch.counters(0).held.get(), held as u64);
        came.extend(switch.receive(0, 2));
    }
    assert_eq!(came, (0..10).map(flow).collect::<Vec<_>>());
}

#[test]
fn a_busy_port_delays_another_by_one_translation() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 2, ..super::thread_config() };
    let mut switch = Switch::new(1, 3, config);
    switch.apply(&[per_flow(1, 3)]);
    (0..30).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    switch.run_iteration(0);
    assert!(switch.send(0, 2, &flow(999)));
    switch.run_iteration(0);
    assert!(switch.receive(0, 3).contains(&flow(999)));
    assert_eq!(switch.threads[0].held(), 27);
}

#[test]
fn packets_beyond_the_limit_are_counted_drops() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig {
        translations_per_iteration: 1,
        waiting_per_port: 5,
        ..super::thread_config()
    };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[per_flow(1, 2)]);
    (0..20).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    switch.run_iteration(0);
    let counters = switch.counters(0);
    assert_eq!(counters.dropped[DropReason::UpcallQueueFull as usize].get(), 15);
    assert_eq!((counters.held.get(), counters.sent.get()), (4, 1));
    assert_eq!(counters.unaccounted(), 0);
}

#[test]
fn removed_port_returns_queues_and_drops_packets() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 1, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[per_flow(1, 2)]);
    (0..5).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    switch.run_iteration(0);
    let (sender, queues) = mpsc::channel();
    for port in [1, 1] {
        let sender = sender.clone();
        let reply = Box::new(move |queues: Option<_>| sender.send(queues.is_some()).unwrap());
        let command = Command::RemovePort(DatapathPort::new(port), reply);
        switch.controls[0].send(command).unwrap();
    }
    switch.settle();
    assert_eq!(queues.try_iter().collect::<Vec<_>>(), [true, false]);
    let counters = switch.counters(0);
    assert_eq!(counters.dropped[DropReason::PortRemoved as usize].get(), 4);
    assert_eq!((counters.held.get(), counters.unaccounted()), (0, 0));
}
