//! Tests MPLS labels in frames, and recirculated packets.

use shunt_datapath::{DropReason, ThreadConfig};
use shunt_flow::{FieldId, Match, PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::{Action, FlowMod, Subfield, TableId, TableSelector};

use crate::harness::{Switch, output, rule};

const PUSH: Action = Action::PushMpls { ethertype: 0x8847 };
const POP: Action = Action::PopMpls { ethertype: 0x0800 };

fn packet(ttl: u8) -> PacketBuilder {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(7, 53).ttl(ttl).payload(*b"payload")
}

fn dec_ttl() -> Action {
    Action::DecTtl { controllers: Box::new([]) }
}

fn check_larger(length: u16) -> Action {
    let target = Subfield { field: FieldId::Reg0, offset: 0, width: 1 };
    Action::CheckPktLarger { length, target }
}

fn resubmit(table: u8) -> Action {
    Action::Resubmit { port: Some(PortNo::IN_PORT), table: TableId::new(table) }
}

fn clone(actions: &[Action]) -> Action {
    Action::Clone(actions.into())
}

fn in_table(table: u8, matching: Match, actions: Vec<Action>) -> FlowMod {
    let table = TableSelector::One(TableId::new(table).unwrap());
    FlowMod { table, ..rule(1, matching, actions) }
}

/// Checks the frames that a switch sends for a frame from port 1, by output port.
/// The test repeats this with every cache.
fn check(rules: &[FlowMod], frame: &[u8], expected: &[(u32, &[u8])]) -> Switch {
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(rules);
    for round in 0..3 {
        assert!(switch.send(0, 1, frame));
        switch.settle();
        for port in 1..=4 {
            let wanted: Vec<&[u8]> =
                expected.iter().filter(|(own, _)| *own == port).map(|(_, frame)| *frame).collect();
            assert_eq!(switch.receive(0, port), wanted, "port {port} in round {round}");
        }
    }
    assert_eq!(switch.counters(0).unaccounted(), 0);
    switch
}

fn only_rule(actions: Vec<Action>) -> [FlowMod; 1] {
    [rule(1, Match::any(), actions)]
}

#[test]
fn mpls_labels_follow_the_vlan_tags() {
    let plain = packet(9).tag(0x8100, 5);
    let one = plain.clone().mpls(0, 0, 9).build();
    let two = plain.clone().mpls(40, 0, 9).mpls(0, 0, 9).build();
    let label = Action::SetField { field: FieldId::MplsLabel, value: 40, mask: 0xfffff };
    let actions = vec![PUSH, output(2), PUSH, label, output(3)];
    check(&only_rule(actions), &plain.build(), &[(2, &one), (3, &two)]);
    let pops = vec![Action::PopMpls { ethertype: 0x8847 }, output(2), POP, output(3)];
    check(&only_rule(pops), &two, &[(2, &one), (3, &plain.build())]);
}

/// A copy gets an MPLS label, and the packet after it has none.
#[test]
fn packet_after_push_and_pop_hits() {
    let (labelled, counted) = (packet(9).mpls(0, 0, 9).build(), packet(8).build());
    let actions = vec![clone(&[PUSH, output(2)]), dec_ttl(), output(3)];
    check(&only_rule(actions), &packet(9).build(), &[(2, &labelled), (3, &counted)]);
}

#[test]
fn headers_below_popped_label_are_rewritten() {
    if !super::HAS_CACHE {
        return;
    }
    let (labelled, plain, counted) =
        (packet(9).mpls(16, 0, 3).build(), packet(9).build(), packet(8).build());
    let actions = vec![POP, output(2), dec_ttl(), output(3)];
    let switch = check(&only_rule(actions), &labelled, &[(2, &plain), (3, &counted)]);
    assert_eq!(switch.counters(0).upcalls.get(), 2, "one for each time that it is parsed");
}

#[test]
fn the_ttl_of_the_last_label_is_copied() {
    for (action, expected) in [
        (Action::CopyTtlIn, packet(3).mpls(16, 5, 3)),
        (Action::CopyTtlOut, packet(9).mpls(16, 5, 9)),
    ] {
        let frame = packet(9).mpls(16, 5, 3).build();
        check(&only_rule(vec![action, output(2)]), &frame, &[(2, &expected.build())]);
    }
}

#[test]
fn check_pkt_larger_is_true_above_its_length() {
    let frame = packet(9).build();
    let length = u16::try_from(frame.len()).unwrap();
    let port = Action::OutputField { source: Subfield::whole(FieldId::Reg0), max_len: 0 };
    let at = |limit| {
        let two = Action::SetField { field: FieldId::Reg0, value: 2, mask: 0xffff_ffff };
        only_rule(vec![two, check_larger(limit), port.clone()])
    };
    check(&at(length), &frame, &[(2, &frame)]);
    check(&at(length - 1), &frame, &[(3, &frame)]);
    let grown = packet(9).mpls(0, 0, 9).build();
    let actions = vec![PUSH, check_larger(length), clone(&[output(2)]), port];
    check(&only_rule(actions), &frame, &[(2, &grown)]);
}

#[test]
fn recirculated_copies_leave_in_action_order() {
    let ttl = |ttl| packet(ttl).build();
    let set = |ttl| Action::SetNwTtl(ttl);
    let inner = clone(&[check_larger(9), set(3), output(2), check_larger(9), set(4), output(2)]);
    let actions = vec![
        set(1),
        output(2),
        clone(&[check_larger(9), set(2), output(2), inner, set(5), output(2)]),
        set(6),
        output(2),
    ];
    let frames = [1, 2, 3, 4, 5, 6].map(ttl);
    let expected: Vec<(u32, &[u8])> = frames.iter().map(|frame| (2, frame.as_slice())).collect();
    check(&only_rule(actions), &ttl(9), &expected);
}

#[test]
fn recirculation_keeps_packets_in_order() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&only_rule(vec![POP, dec_ttl(), output(2)]));
    let send = |switch: &mut Switch| {
        for number in 0..20 {
            let frame = packet(9).payload([number]).mpls(16, 0, 3).build();
            assert!(switch.send(0, 1, &frame));
        }
        switch.settle();
        let numbers = switch.receive(0, 2).iter().map(|frame| *frame.last().unwrap()).collect();
        let numbers: Vec<u8> = numbers;
        assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    };
    send(&mut switch);
    send(&mut switch);
}

#[test]
fn recirculated_packet_does_not_wait_for_translation() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 1, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&only_rule(vec![check_larger(9), check_larger(10), POP, dec_ttl(), output(2)]));
    assert!(switch.send(0, 1, &packet(9).mpls(16, 0, 3).build()));
    switch.run_iteration(0);
    assert_eq!(switch.receive(0, 2), [packet(8).build()]);
    assert_eq!(switch.counters(0).upcalls.get(), 4);
}

#[test]
fn misses_of_recirculated_packets_count_for_the_iteration() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 2, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&only_rule(vec![dec_ttl(), check_larger(9), dec_ttl(), output(2)]));
    assert!(switch.send(0, 1, &packet(9).build()) && switch.send(0, 1, &packet(5).build()));
    switch.run_iteration(0);
    assert_eq!(switch.receive(0, 2), [packet(7).build()], "two translations are one packet");
    switch.run_iteration(0);
    assert_eq!(switch.receive(0, 2), [packet(3).build()]);
    assert_eq!(switch.counters(0).upcalls.get(), 4);
}

/// The register with the result of `check_pkt_larger` decides the lookup after it.
#[test]
fn lookups_after_a_partition_point_know_the_path() {
    if !super::HAS_CACHE {
        return;
    }
    let mut reg = shunt_flow::FlowMask::EMPTY;
    reg.add_bits(FieldId::Reg0, 1);
    let with_bit = |value| {
        let mut key = shunt_flow::FlowKey::ZERO;
        key.set_field(FieldId::Reg0, value);
        Match::new(&key, &reg)
    };
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(&[
        rule(1, Match::any(), vec![check_larger(100), resubmit(1)]),
        in_table(1, with_bit(1), vec![output(2)]),
        in_table(1, with_bit(0), vec![output(3)]),
    ]);
    let (short, long) = (packet(9).padded(100).build(), packet(9).padded(101).build());
    for _ in 0..3 {
        assert!(switch.send(0, 1, &short) && switch.send(0, 1, &long));
        switch.settle();
        assert_eq!(
            (switch.receive(0, 2), switch.receive(0, 3)),
            (vec![long.clone()], vec![short.clone()])
        );
    }
    assert_eq!(switch.counters(0).upcalls.get(), 3);
}

#[test]
fn endless_recirculation_ends_with_one_copy() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    let copy = clone(&[check_larger(9), resubmit(0)]);
    switch.apply(&only_rule(vec![
        copy.clone(),
        copy.clone(),
        copy.clone(),
        copy.clone(),
        copy,
        output(2),
    ]));
    assert!(switch.send(0, 1, &packet(9).build()));
    switch.settle();
    let counters = switch.counters(0);
    assert!(counters.dropped[DropReason::RecirculationLimit as usize].get() > 0);
    assert_eq!(counters.unaccounted(), 0);
}

#[test]
fn each_recirculation_bound_has_a_drop_reason() {
    let deep = packet(9).mpls(1, 0, 1).mpls(2, 0, 2).mpls(3, 0, 3).mpls(4, 0, 4).build();
    let cases = [
        (vec![output(2), POP], DropReason::TooManyMplsLabels),
        (vec![output(2), PUSH], DropReason::TooManyMplsLabels),
        (vec![check_larger(9), resubmit(0)], DropReason::RecirculationTooDeep),
    ];
    for (actions, reason) in cases {
        let switch = check(&only_rule(actions), &deep, &[]);
        assert_eq!(switch.counters(0).dropped[reason as usize].get(), 3);
    }
}
