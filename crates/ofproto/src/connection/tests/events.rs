//! Tests of asynchronous messages.

use std::{sync::Arc, time::Duration};

use shunt_flow::{FieldId, FlowMask, Match, PortNo};
use shunt_pipeline::{
    Action, BridgeId, ControllerAction, Cookie, DatapathAction, FlowFlags, FlowMod, FlowModCommand,
    Instructions, PacketInReason, Punt, PuntReceiver, PuntedPacket, TableId, TableMiss, Time,
};

use super::{add, code, logs_of};
use crate::{
    ErrorCode,
    connection::{ConnectionConfig, ConnectionKind, ConnectionLimits, ControllerEvent},
    message::{
        self, AsyncConfig, AsyncMasks, Generation, Message, PacketInFormat, PacketOut, RoleMessage,
        RoleName, SwitchConfig,
    },
    testing::ConnectionHarness,
    wire::{Codec, v10::V10Settings},
};

fn packet_in(reason: PacketInReason, controller_id: u16, length: usize) -> ControllerEvent {
    let punt = Punt {
        receiver: PuntReceiver::Controllers,
        bridge: BridgeId::new(1),
        reason,
        miss: None,
        table: TableId::FIRST,
        cookie: Cookie::new(5),
        controller_id,
        max_len: 10,
        userdata: Box::new([1, 2, 3]),
        metadata: Match::any(),
        continuation: None,
    };
    ControllerEvent::PacketIn(
        Arc::new(PuntedPacket { punt: Arc::new(punt), frame: vec![7; length] }),
        None,
    )
}

/// Returns the packet-in of a table miss.
fn table_miss(miss: TableMiss) -> ControllerEvent {
    let event = packet_in(PacketInReason::NoMatch, 0, 20);
    let ControllerEvent::PacketIn(packet, None) = &event else { panic!("a packet-in") };
    let cookie = Cookie::new(u64::MAX);
    let punt = Punt { cookie, miss: Some(miss), ..Punt::clone(&packet.punt) };
    let packet = PuntedPacket { punt: Arc::new(punt), frame: packet.frame.clone() };
    ControllerEvent::PacketIn(Arc::new(packet), None)
}

/// Returns the messages that a connection sends for an event.
fn replies(harness: &mut ConnectionHarness, event: &ControllerEvent) -> Vec<Message> {
    harness.notify(event);
    harness.replies().into_iter().map(|(_, message)| message).collect()
}

fn is_delivered(harness: &mut ConnectionHarness, event: &ControllerEvent) -> bool {
    !replies(harness, event).is_empty()
}

#[test]
fn a_management_client_subscribes_by_miss_send_len() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let event = packet_in(PacketInReason::Action, 0, 20);
    assert!(!is_delivered(&mut harness, &event));
    harness.request(&Message::SetConfig(SwitchConfig { miss_send_len: 1 }));
    assert!(is_delivered(&mut harness, &event));
    harness.request(&Message::SetConfig(SwitchConfig { miss_send_len: 0 }));
    assert!(!is_delivered(&mut harness, &event));
}

#[test]
fn no_event_is_sent_before_the_hello() {
    let mut harness = ConnectionHarness::before_hello(ConnectionKind::Controller);
    harness.replies();
    assert!(!is_delivered(&mut harness, &packet_in(PacketInReason::Action, 0, 20)));
}

#[test]
fn invalid_ttl_packet_ins_need_a_subscription() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let invalid = packet_in(PacketInReason::InvalidTtl, 0, 20);
    assert!(is_delivered(&mut harness, &packet_in(PacketInReason::NoMatch, 0, 20)));
    assert!(is_delivered(&mut harness, &packet_in(PacketInReason::ActionSet, 0, 20)));
    assert!(!is_delivered(&mut harness, &invalid));
    let mut config = AsyncConfig::default();
    config.master.packet_in = 1 << 2;
    harness.request(&Message::SetAsync(config));
    assert!(is_delivered(&mut harness, &invalid));
    assert!(!is_delivered(&mut harness, &packet_in(PacketInReason::Action, 0, 20)));
    assert_eq!(harness.request(&Message::GetAsyncRequest), [Message::GetAsyncReply(config)]);
}

#[test]
fn a_slave_receives_only_port_status() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let slave = RoleMessage { role: RoleName::Slave, generation: Some(Generation(1)) };
    harness.request(&Message::RoleRequest(slave));
    assert!(!is_delivered(&mut harness, &packet_in(PacketInReason::Action, 0, 20)));
    let port = crate::Host::ports(&*harness.host).remove(0);
    crate::Host::set_port_config(&*harness.host, port.number, port.config);
    harness.deliver_events();
    let [(_, Message::PortStatus(status))] = &harness.replies()[..] else {
        panic!("a port status")
    };
    assert_eq!(status.port, port);
}

#[test]
fn a_controller_can_mask_all_events() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let none = AsyncMasks { packet_in: 0, port_status: 0, flow_removed: 0 };
    harness.request(&Message::SetAsync(AsyncConfig { master: none, slave: none }));
    assert!(!is_delivered(&mut harness, &packet_in(PacketInReason::Action, 0, 20)));
}

/// OpenFlow 1.3 has table-miss rules, and clients do not expect other misses.
#[test]
fn table_misses_reach_only_clients_of_openflow_10() {
    // The cookie of a rule may be that of packets without a rule.
    let rule = table_miss(TableMiss::Rule);
    let miss = table_miss(TableMiss::NoRule);
    let mut newer = ConnectionHarness::open(ConnectionKind::Controller);
    assert!(is_delivered(&mut newer, &rule), "a table-miss rule sent it");
    assert!(!is_delivered(&mut newer, &miss));
    assert!(!newer.connection.status().wants_misses);
    let v10 = Codec::V10(V10Settings::INITIAL);
    let mut older = ConnectionHarness::open_with(ConnectionKind::Controller, v10);
    assert!(older.connection.status().wants_misses);
    let [Message::PacketIn(packet)] = &replies(&mut older, &miss)[..] else {
        panic!("a packet-in")
    };
    assert_eq!((packet.reason, packet.data.len()), (PacketInReason::NoMatch, 20));
    let [Message::PacketIn(packet)] = &replies(&mut older, &rule)[..] else {
        panic!("a packet-in")
    };
    assert_eq!(packet.reason, PacketInReason::Action);
    older.request(&Message::SetControllerId(3));
    assert!(!older.connection.status().wants_misses);
}

#[test]
fn a_packet_in_reaches_only_its_controller_id() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.request(&Message::SetControllerId(3));
    assert!(!is_delivered(&mut harness, &packet_in(PacketInReason::Action, 0, 20)));
    assert!(is_delivered(&mut harness, &packet_in(PacketInReason::Action, 3, 20)));
}

#[test]
fn packet_ins_use_the_requested_format() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let event = packet_in(PacketInReason::Action, 0, 242);
    let [Message::PacketIn(packet)] = &replies(&mut harness, &event)[..] else {
        panic!("standard")
    };
    assert_eq!((packet.data.len(), packet.userdata.len()), (242, 0));
    harness.request(&Message::SetPacketInFormat(PacketInFormat::Nicira2));
    let [Message::PacketIn2(packet)] = &replies(&mut harness, &event)[..] else { panic!("nicira") };
    assert_eq!((packet.data.len(), &packet.userdata[..]), (242, &[1, 2, 3][..]));
}

#[test]
fn oversized_packet_in_is_truncated_with_length() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let event = packet_in(PacketInReason::Action, 0, 65_536);
    let [Message::PacketIn(packet)] = &replies(&mut harness, &event)[..] else {
        panic!("standard")
    };
    assert_eq!(packet.length, 65_535);
    assert!(packet.data.len() > 65_000);
    harness.request(&Message::SetPacketInFormat(PacketInFormat::Nicira2));
    let [Message::PacketIn2(packet)] = &replies(&mut harness, &event)[..] else { panic!("nicira") };
    assert_eq!(packet.length, 65_536);
    assert!(packet.data.len() > 65_000);
}

#[test]
fn a_removed_rule_sends_flow_removed_if_flagged() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let flags = FlowFlags { send_flow_removed: true, ..FlowFlags::default() };
    harness.request(&Message::FlowMod(FlowMod { flags, ..add(1) }));
    harness.request(&Message::FlowMod(add(2)));
    harness.request(&Message::FlowMod(FlowMod { command: FlowModCommand::Delete, ..add(0) }));
    harness.deliver_events();
    let [(_, Message::FlowRemoved(removed))] = &harness.replies()[..] else { panic!("one rule") };
    assert_eq!(removed.cookie, Cookie::new(1));
}

#[test]
fn a_slow_peer_loses_events_before_its_connection() {
    let limits = ConnectionLimits { events_max: 1000, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Controller) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    let event = packet_in(PacketInReason::Action, 0, 100);
    for _ in 0..100 {
        harness.notify(&event);
    }
    let status = harness.connection.status();
    assert!(status.output_waiting < 1200 && status.packet_ins.dropped_unread > 80, "{status:?}");
    harness.send(&Message::EchoRequest(Vec::new()));
    let received = u64::try_from(harness.replies().len() - 1).unwrap();
    assert_eq!(received, status.packet_ins.sent);
    assert_eq!(received + status.packet_ins.dropped(), 100);
}

/// A peer that never reads must not fill the log.
#[test]
fn dropped_packet_ins_cause_few_warnings() {
    let limits = ConnectionLimits { events_max: 1000, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("tcp:x", ConnectionKind::Controller) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    let event = packet_in(PacketInReason::Action, 0, 100);
    let lines = logs_of(|| {
        for _ in 0..10_000 {
            harness.notify(&event);
            harness.connection.miss_packet_ins(10, Time::ZERO);
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("tcp:x: packet-ins are dropped, because the peer reads too slowly"),
        "{lines:?}"
    );
    let counts = harness.connection.status().packet_ins;
    assert_eq!(counts.dropped_missed, 100_000);
    let later = Time::ZERO.after(Duration::from_secs(60));
    let lines = logs_of(|| harness.connection.miss_packet_ins(1, later));
    assert!(lines[0].contains("suppressed=19"), "{lines:?}");
}

#[test]
fn a_client_without_packet_ins_misses_none() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let lines = logs_of(|| harness.connection.miss_packet_ins(1000, Time::ZERO));
    assert_eq!(lines, <[&str; 0]>::default());
    assert_eq!(harness.connection.status().packet_ins.dropped(), 0);
}

#[test]
fn reliable_events_wait_for_room() {
    let limits = ConnectionLimits { events_max: 1000, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Controller) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    let event = packet_in(PacketInReason::Action, 0, 100);
    let received = (0..100).take_while(|_| harness.notify_reliable(&event)).count();
    assert!((5..15).contains(&received) && !harness.notify_reliable(&event));
    assert_eq!(harness.connection.status().packet_ins.dropped(), 0);
    // An event without a subscription needs no room.
    assert!(harness.notify_reliable(&packet_in(PacketInReason::Action, 7, 100)));
    assert_eq!(harness.replies().len(), received);
    assert!(harness.notify_reliable(&event));
    assert_eq!(harness.replies().len(), 1);
}

#[test]
fn packet_out_needs_actions_that_fit_packet() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let actions = vec![Action::Output { port: PortNo::TABLE, max_len: 0 }];
    let packet = PacketOut { in_port: PortNo::CONTROLLER, actions, data: vec![0; 5] };
    assert!(harness.request(&Message::PacketOut(packet.clone())).is_empty());
    assert_eq!(harness.host.take_packets(), std::slice::from_ref(&packet));
    let actions = vec![Action::DecTtl { controllers: Box::new([0]) }];
    assert_eq!(harness.request(&Message::PacketOut(PacketOut { actions, ..packet })).len(), 1);
    assert!(harness.host.take_packets().is_empty());
}

/// Pauses a packet before it is sent to port 2, and returns its packet-in.
fn pause_packet(harness: &mut ConnectionHarness) -> message::PacketIn {
    harness.request(&Message::SetPacketInFormat(PacketInFormat::Nicira2));
    let pause = Action::Controller(Box::new(ControllerAction {
        max_len: u16::MAX,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::default(),
        meter: None,
        pause: true,
    }));
    let reg0 = shunt_pipeline::Subfield::whole(FieldId::Reg0);
    let sent = Action::OutputField { source: reg0, max_len: 0 };
    let set = |value| Action::Load { target: reg0, value };
    let apply = Box::new([set(1), pause, sent]);
    let instructions = Instructions { apply, ..Instructions::default() };
    harness.request(&Message::FlowMod(FlowMod { instructions, ..add(1) }));
    let actions = vec![Action::Output { port: PortNo::TABLE, max_len: 0 }];
    harness.send(&Message::PacketOut(PacketOut {
        in_port: PortNo::CONTROLLER,
        actions,
        data: vec![0; 60],
    }));
    harness.run();
    harness.deliver_events();
    harness.host.take_outcomes();
    let replies = harness.replies().pop();
    let Some((_, Message::PacketIn2(packet))) = replies else { panic!("{replies:?}") };
    packet
}

/// Returns the egress ports of the packets that were sent since the last call.
fn sent_to(harness: &ConnectionHarness) -> Vec<u32> {
    let outcomes = harness.host.take_outcomes();
    let port = |action: &DatapathAction| match action {
        DatapathAction::Output { port, .. } => Some(port.number()),
        _ => None,
    };
    outcomes.iter().flat_map(|actions| actions.iter().filter_map(port)).collect()
}

#[test]
fn a_paused_packet_resumes() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let packet = pause_packet(&mut harness);
    assert_eq!(packet.metadata.key().field(FieldId::Reg0), 1);
    assert!(harness.request(&Message::Resume(packet.clone())).is_empty());
    assert_eq!(sent_to(&harness), [1]);
    let mut key = packet.metadata.key();
    key.set_field(FieldId::Reg0, 2);
    let metadata = Match::new(&key, &FlowMask::from(packet.metadata.mask()));
    harness.request(&Message::Resume(message::PacketIn { metadata, data: vec![1; 70], ..packet }));
    assert_eq!(sent_to(&harness), [2]);
    assert_eq!(harness.host.take_packets().pop().map(|packet| packet.data), Some(vec![1; 70]));
}

#[test]
fn a_packet_of_another_pause_is_stale() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let packet = pause_packet(&mut harness);
    let mut forged = packet.clone();
    *forged.continuation.last_mut().unwrap() ^= 1;
    for stale in [forged, message::PacketIn { continuation: Vec::new(), ..packet }] {
        let refused = harness.request(&Message::Resume(stale)).first().and_then(code);
        assert_eq!(refused, Some(ErrorCode::ResumeStale));
    }
    assert!(sent_to(&harness).is_empty());
}
