//! Tests meters on packet threads: limits, changed packets, and counters.

use std::time::Duration;

use shunt_datapath::{Command, DropReason, NO_INGRESS, VirtioHeader, command::Injection};
use shunt_flow::{FieldId, FlowKey, Match, testing::packet::PacketBuilder};
use shunt_pipeline::{
    Action, Bucket, ControllerAction, FlowMod, GroupCommand, GroupId, GroupKind, GroupMod,
    MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterId, MeterMod, MeterUnit,
    Modification, PacketInReason, RuleFilter, Selection, Subfield, TableId,
};

use crate::harness::{BRIDGE, Switch, output, rule};

fn udp(dscp: u8) -> Vec<u8> {
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tos(dscp << 2);
    packet.udp(1000, 53).payload(vec![7; 58]).build()
}

fn add_meter(number: u32, kind: MeterBandKind, rate: u32) -> Modification {
    let bands = [MeterBand { kind, rate, burst_size: 0 }].into();
    let config = MeterConfig { unit: MeterUnit::Packets, burst: false, stats: true, bands };
    MeterMod { command: MeterCommand::Add, meter: Some(MeterId::new(number)), config }.into()
}

fn add_drop_meter(rate: u32) -> Modification {
    add_meter(1, MeterBandKind::Drop, rate)
}

fn meter_action(number: u32) -> Action {
    Action::Meter(MeterId::new(number))
}

fn rule_for_all(actions: Vec<Action>) -> FlowMod {
    rule(1, Match::any(), actions)
}

/// Returns a switch with these meters and this rule.
fn switch_with_meters(
    threads: u16,
    meters: impl IntoIterator<Item = Modification>,
    rule: FlowMod,
) -> Switch {
    let mut switch = Switch::new(threads, 4, super::thread_config());
    switch.modify(meters.into_iter().chain([rule.into()]));
    switch
}

fn count_dropped(switch: &Switch, reason: DropReason) -> u64 {
    let counters = (0..switch.threads.len()).map(|thread| switch.counters(thread));
    counters.map(|counters| counters.dropped[reason as usize].get()).sum()
}

fn send(switch: &mut Switch, thread: usize, frame: &[u8], count: usize) {
    for _ in 0..count {
        assert!(switch.send(thread, 1, frame));
        switch.settle();
    }
    for thread in 0..switch.threads.len() {
        assert_eq!(switch.counters(thread).unaccounted(), 0);
    }
}

fn totals_of_meter(switch: &Switch) -> (u64, u64, u64) {
    let meter = switch.pipeline.meters(BRIDGE).remove(0);
    let acted: u64 = meter.band_totals().iter().map(|band| band.packets).sum();
    (meter.totals().packets, meter.totals().bytes, acted)
}

#[test]
fn a_meter_limits_hits_of_every_cache() {
    let mut switch =
        switch_with_meters(1, [add_drop_meter(5)], rule_for_all(vec![meter_action(1), output(2)]));
    let frame = udp(0);
    for (wait, expected) in [(0, 5), (200, 1), (600, 3), (5000, 5)] {
        switch.wait(Duration::from_millis(wait));
        send(&mut switch, 0, &frame, 10);
        assert_eq!(switch.receive(0, 2).len(), expected, "after {wait} ms");
    }
    assert_eq!(count_dropped(&switch, DropReason::Metered), 26);
    assert_eq!(switch.counters(0).forwarded.get(), 14);
    assert_eq!(totals_of_meter(&switch), (40, 40 * frame.len() as u64, 26));
    switch.wait(Duration::from_secs(1));
    switch.settle();
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(rules[0].stats.totals().packets, 40);
}

/// Returns a packet to be cut into twenty datagrams, and its virtio header.
fn segments() -> (Vec<u8>, VirtioHeader) {
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let virtio = VirtioHeader {
        needs_checksum: true,
        gso_type: VirtioHeader::GSO_UDP_L4,
        gso_size: 1000,
        header_length: 42,
        checksum_start: 34,
        checksum_offset: 6,
        ..VirtioHeader::default()
    };
    (packet.udp(1000, 53).payload(vec![7; 20_000]).build(), virtio)
}

#[test]
fn tso_packet_is_metered_with_all_bytes() {
    let (frame, virtio) = segments();
    let rate = u32::try_from(frame.len()).unwrap() * 8 * 5 / 2 / 1000;
    let bands = [MeterBand { kind: MeterBandKind::Drop, rate, burst_size: 0 }].into();
    let config = MeterConfig { unit: MeterUnit::Kilobits, burst: false, stats: true, bands };
    let meter = MeterMod { command: MeterCommand::Add, meter: Some(MeterId::new(1)), config };
    let rule = rule_for_all(vec![meter_action(1), output(2)]);
    let mut switch = switch_with_meters(1, [meter.into()], rule);
    for _ in 0..10 {
        assert!(switch.send_with(0, 1, &frame, |packet| packet.virtio = virtio));
        switch.settle();
    }
    assert_eq!(totals_of_meter(&switch), (10, 10 * frame.len() as u64, 8));
    assert_eq!(count_dropped(&switch, DropReason::Metered), 8);
    assert_eq!(
        switch.receive(0, 2).iter().map(|segment| segment.len() - 42).sum::<usize>(),
        40_000
    );
}

#[test]
fn controllers_get_segments_as_on_a_wire() {
    let (frame, virtio) = segments();
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(&[rule_for_all(vec![Action::Controller(Box::new(ControllerAction {
        meter: None,
        pause: false,
        max_len: 0xffff,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::new([]),
    }))])]);
    assert!(switch.send_with(0, 1, &frame, |packet| packet.virtio = virtio));
    switch.settle();
    let mut punted = Vec::new();
    while let Some(message) = switch.controls[0].packet_ins.pop() {
        punted.push(message.frame.len());
    }
    assert_eq!(punted, [1042; 20]);
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn threads_share_a_meter() {
    let mut switch =
        switch_with_meters(2, [add_drop_meter(6)], rule_for_all(vec![meter_action(1), output(2)]));
    (0..8).for_each(|index| send(&mut switch, index % 2, &udp(0), 1));
    assert_eq!(switch.receive(0, 2).len() + switch.receive(1, 2).len(), 6);
    assert_eq!(count_dropped(&switch, DropReason::Metered), 2);
}

#[test]
fn copies_sent_before_a_meter_stay_sent() {
    let actions = vec![output(2), meter_action(1), output(3), output(4)];
    let mut switch = switch_with_meters(1, [add_drop_meter(1)], rule_for_all(actions));
    send(&mut switch, 0, &udp(0), 3);
    let came = [2, 3, 4].map(|port| switch.receive(0, port).len());
    assert_eq!((came, count_dropped(&switch, DropReason::Metered)), ([3, 1, 1], 2));
    assert_eq!(switch.counters(0).forwarded.get(), 3);
}

#[test]
fn a_meter_drops_only_its_own_copy() {
    let ttl = Action::SetField { field: FieldId::NwTtl, value: 9, mask: 0xff };
    let push = Action::PushVlan { ethertype: 0x8100 };
    let clone = Action::Clone([ttl, push, meter_action(1), output(2)].into());
    let mut switch =
        switch_with_meters(1, [add_drop_meter(1)], rule_for_all(vec![clone, output(3)]));
    let frame = udp(0);
    send(&mut switch, 0, &frame, 3);
    assert_eq!(switch.receive(0, 2).len(), 1);
    assert_eq!(switch.receive(0, 3), vec![frame; 3], "nothing of the clone is left");
    assert_eq!(count_dropped(&switch, DropReason::Metered), 2);
}

#[test]
fn meter_in_bucket_limits_only_bucket() {
    let resubmit = Action::Resubmit { port: None, table: TableId::new(1) };
    let bucket = |actions: Vec<Action>| Bucket {
        id: 0,
        weight: 0,
        watch_port: shunt_flow::PortNo::ANY,
        watch_group: None,
        actions: actions.into(),
    };
    let group = GroupId::new(1);
    let all = GroupMod {
        command: GroupCommand::Add,
        group: Some(group),
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: [bucket(vec![resubmit]), bucket(vec![output(3)])].into(),
    };
    let mut inner = rule_for_all(vec![meter_action(1), output(2)]);
    inner.table = shunt_pipeline::TableSelector::One(TableId::new(1).unwrap());
    let mods = [add_drop_meter(1), all.into(), inner.into()];
    let mut switch = switch_with_meters(1, mods, rule_for_all(vec![Action::Group(group)]));
    send(&mut switch, 0, &udp(0), 3);
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (1, 3));
    let mut stats = switch.pipeline.groups(BRIDGE);
    switch.wait(Duration::from_secs(1));
    switch.settle();
    let stats = &stats.remove(0).stats;
    assert_eq!((stats.totals().packets, stats.bucket_totals()[1].packets), (3, 3));
}

#[test]
fn a_meter_counts_packets_that_are_not_sent() {
    let mut switch =
        switch_with_meters(1, [add_drop_meter(1)], rule_for_all(vec![meter_action(1)]));
    send(&mut switch, 0, &udp(0), 3);
    assert_eq!(totals_of_meter(&switch).0, 3);
    let ends = [DropReason::RuleWithoutOutput, DropReason::Metered]
        .map(|reason| count_dropped(&switch, reason));
    assert_eq!(ends, [1, 2]);
    let mut switch =
        switch_with_meters(1, [add_drop_meter(1)], rule_for_all(vec![output(2), meter_action(1)]));
    send(&mut switch, 0, &udp(0), 3);
    assert_eq!((switch.receive(0, 2).len(), totals_of_meter(&switch).0), (3, 3));
    assert_eq!(count_dropped(&switch, DropReason::Metered), 0);
    let clone = Action::Clone([meter_action(1)].into());
    let mut switch =
        switch_with_meters(1, [add_drop_meter(1)], rule_for_all(vec![clone, output(2)]));
    send(&mut switch, 0, &udp(0), 3);
    assert_eq!((switch.receive(0, 2).len(), totals_of_meter(&switch).0), (3, 3));
}

#[test]
fn a_remark_updates_drop_precedence_and_checksum() {
    let remark = add_meter(1, MeterBandKind::DscpRemark { precedence: 1 }, 1);
    let mut switch =
        switch_with_meters(1, [remark], rule_for_all(vec![meter_action(1), output(2), output(3)]));
    send(&mut switch, 0, &udp(10), 2);
    send(&mut switch, 0, &udp(46), 1);
    let expected = vec![udp(10), udp(12), udp(46)];
    assert_eq!((switch.receive(0, 2), switch.receive(0, 3)), (expected.clone(), expected));
    let arp = PacketBuilder::arp(1, ([2; 6], [10, 0, 0, 1]), ([0; 6], [10, 0, 0, 2])).build();
    send(&mut switch, 0, &arp, 1);
    assert_eq!(switch.receive(0, 2), [arp]);
}

#[test]
fn a_remark_before_a_clone_survives_the_clone() {
    let dscp = Action::SetField { field: FieldId::IpDscp, value: 46, mask: 0x3f };
    let clone = Action::Clone([dscp, output(2)].into());
    let remark = add_meter(1, MeterBandKind::DscpRemark { precedence: 1 }, 1);
    let mut switch =
        switch_with_meters(1, [remark], rule_for_all(vec![meter_action(1), clone, output(3)]));
    send(&mut switch, 0, &udp(10), 2);
    assert_eq!(switch.receive(0, 2), vec![udp(46); 2]);
    assert_eq!(switch.receive(0, 3), [udp(10), udp(12)]);
}

#[test]
fn packet_ins_are_limited_and_packets_are_not() {
    let controller = Action::Controller(Box::new(ControllerAction {
        meter: Some(MeterId::new(1)),
        pause: false,
        max_len: 0xffff,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::new([]),
    }));
    let mut switch =
        switch_with_meters(1, [add_drop_meter(2)], rule_for_all(vec![controller, output(2)]));
    send(&mut switch, 0, &udp(0), 5);
    let mut punted = 0;
    while switch.controls[0].packet_ins.pop().is_some() {
        punted += 1;
    }
    assert_eq!((punted, switch.receive(0, 2).len()), (2, 5));
    assert_eq!(count_dropped(&switch, DropReason::Metered), 3);
}

#[test]
fn a_packet_out_passes_meters_too() {
    let mut switch = switch_with_meters(1, [add_drop_meter(1)], rule_for_all(vec![]));
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    let version = switch.pipeline.version();
    let traversal = switch.pipeline.translate_actions(&key, &[meter_action(1), output(2)], version);
    for _ in 0..3 {
        let injection =
            Injection { frame: udp(0), ingress: NO_INGRESS, traversal: traversal.clone().into() };
        switch.controls[0].send(Command::Inject(Box::new(injection))).unwrap();
        switch.settle();
    }
    assert_eq!((switch.receive(0, 2).len(), count_dropped(&switch, DropReason::Metered)), (1, 2));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn packets_use_the_changed_meter() {
    let mut switch =
        switch_with_meters(1, [add_drop_meter(1)], rule_for_all(vec![meter_action(1), output(2)]));
    send(&mut switch, 0, &udp(0), 3);
    assert_eq!(switch.receive(0, 2).len(), 1);
    let Modification::Meter(more) = add_drop_meter(4) else { unreachable!() };
    switch.modify([MeterMod { command: MeterCommand::Modify, ..more }.into()]);
    send(&mut switch, 0, &udp(0), 6);
    assert_eq!(switch.receive(0, 2).len(), 4);
    assert_eq!(totals_of_meter(&switch).0, 6, "a changed meter counts from zero");
}

#[test]
fn meter_after_pop_changes_inner_packet() {
    let remark = add_meter(1, MeterBandKind::DscpRemark { precedence: 1 }, 1);
    let pop = Action::PopMpls { ethertype: 0x0800 };
    let mut switch =
        switch_with_meters(1, [remark], rule_for_all(vec![pop, meter_action(1), output(2)]));
    let packet = |dscp: u8| PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tos(dscp << 2);
    let frame = packet(10).udp(1000, 53).mpls(16, 0, 3).build();
    send(&mut switch, 0, &frame, 3);
    let expected = [10, 12, 12].map(|dscp| packet(dscp).udp(1000, 53).build());
    assert_eq!(switch.receive(0, 2), expected);
}

#[test]
fn a_recirculated_metered_copy_is_sent_in_order() {
    let ttl = Action::SetField { field: FieldId::NwTtl, value: 9, mask: 0xff };
    let target = Subfield { field: FieldId::Reg0, offset: 0, width: 1 };
    let check = Action::CheckPktLarger { length: 9, target };
    let clone = Action::Clone([meter_action(1), check, ttl, output(2)].into());
    let mut switch =
        switch_with_meters(1, [add_drop_meter(1000)], rule_for_all(vec![clone, output(2)]));
    let packet = |ttl| PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ttl(ttl).udp(1, 2).build();
    for _ in 0..3 {
        send(&mut switch, 0, &packet(64), 1);
        assert_eq!(switch.receive(0, 2), [packet(9), packet(64)]);
    }
}
