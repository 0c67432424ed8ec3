//! Tests of bundles.

use std::{sync::Arc, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{
    Action, Cookie, FlowFlags, FlowMod, GroupCommand, GroupId, GroupKind, GroupMod, Instructions,
    PortConfig, RuleFilter, Selection,
};

use super::{add, code};
use crate::{
    ErrorCode, Host,
    connection::{
        BundleQuota, ConnectionConfig, ConnectionKind, ConnectionLimits, ConnectionStep,
        ControllerEvent, Wait,
    },
    message::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, Message, PacketOut,
        PortMod, Xid,
    },
    testing::ConnectionHarness,
    wire::v13,
};

/// The flags of the bundles.
const FLAGS: BundleFlags = BundleFlags { atomic: true, ordered: true };

/// Returns a request about a bundle.
fn control(command: BundleCommand) -> Message {
    Message::BundleControl(BundleControl { bundle: BundleId(1), command, flags: FLAGS })
}

/// Returns the reply to a request about a bundle.
fn reply(command: BundleCommand) -> Message {
    let flags = BundleFlags::default();
    Message::BundleControl(BundleControl { bundle: BundleId(1), command, flags })
}

/// Adds a message to bundle 1; returns the replies.
fn add_to(harness: &mut ConnectionHarness, xid: u32, message: Message) -> Vec<Message> {
    let xid = Xid::new(xid);
    let message = Box::new(message);
    let add = BundleAdd { bundle: BundleId(1), flags: FLAGS, xid, message };
    harness.send_bytes(&v13::encode(xid, &Message::BundleAdd(add)).unwrap());
    harness.replies().into_iter().map(|(_, message)| message).collect()
}

fn rules_count(harness: &ConnectionHarness) -> usize {
    harness.host.rules(&RuleFilter::all()).len()
}

#[test]
fn a_bundle_takes_effect_at_its_commit() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    assert_eq!(harness.request(&control(BundleCommand::Open)), [reply(BundleCommand::Opened)]);
    for priority in 1..=5 {
        assert!(add_to(&mut harness, 100, Message::FlowMod(add(priority))).is_empty());
    }
    assert_eq!(harness.request(&Message::BarrierRequest), [Message::BarrierReply]);
    assert_eq!(rules_count(&harness), 0);
    assert_eq!(harness.request(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    assert_eq!(rules_count(&harness), 5);
}

#[test]
fn a_bundle_holds_rules_ports_and_packets() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let port = harness.host.ports().remove(0);
    let down = PortConfig { port_down: true, ..PortConfig::default() };
    let port_mod =
        PortMod { port: port.number, mac: port.mac, config: down, mask: down, advertise: 0 };
    let actions = vec![Action::Output { port: PortNo::new(2), max_len: 0 }];
    let packet = PacketOut { in_port: PortNo::ANY, actions, data: vec![0; 14] };
    assert!(add_to(&mut harness, 1, Message::FlowMod(add(1))).is_empty());
    assert!(add_to(&mut harness, 2, Message::PortMod(port_mod)).is_empty());
    assert!(add_to(&mut harness, 3, Message::PacketOut(packet.clone())).is_empty());
    assert_eq!(harness.request(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    assert_eq!(rules_count(&harness), 1);
    assert_eq!(harness.host.ports()[0].config, down);
    assert_eq!(harness.host.take_packets(), [packet]);
}

#[test]
fn one_failing_message_fails_the_bundle() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let check_overlap = FlowFlags { check_overlap: true, ..FlowFlags::default() };
    let first = add(7);
    let matching = shunt_flow::text::parse_match("tcp", &shunt_flow::text::NoPortNames).unwrap();
    let overlapping = FlowMod { matching, flags: check_overlap, ..add(7) };
    add_to(&mut harness, 1, Message::FlowMod(first));
    add_to(&mut harness, 2, Message::FlowMod(overlapping.clone()));
    harness.send(&control(BundleCommand::Commit));
    let replies = harness.replies();
    let codes: Vec<_> = replies.iter().map(|(_, message)| code(message)).collect();
    assert_eq!(codes, [Some(ErrorCode::FlowOverlap), Some(ErrorCode::BundleMessageFailed)]);
    let (xid, Message::Error(error)) = &replies[0] else { panic!("an error") };
    assert_eq!(*xid, Xid::new(2));
    let inside = v13::encode(Xid::new(2), &Message::FlowMod(overlapping)).unwrap();
    assert_eq!(error.data, inside, "the failed message is quoted");
    assert_eq!(rules_count(&harness), 0);
    let again = harness.request(&control(BundleCommand::Commit));
    assert_eq!(code(&again[0]), Some(ErrorCode::BundleId), "the bundle is gone");
}

#[test]
fn a_missing_port_fails_the_whole_commit() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    add_to(&mut harness, 1, Message::FlowMod(add(1)));
    let config = PortConfig::default();
    let port_mod =
        PortMod { port: PortNo::new(77), mac: [0; 6], config, mask: config, advertise: 0 };
    add_to(&mut harness, 2, Message::PortMod(port_mod));
    let codes: Vec<_> = harness.request(&control(BundleCommand::Commit)).iter().map(code).collect();
    assert_eq!(codes, [Some(ErrorCode::PortModPort), Some(ErrorCode::BundleMessageFailed)]);
    assert_eq!(rules_count(&harness), 0);
}

#[test]
fn a_discarded_bundle_leaves_nothing() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    add_to(&mut harness, 1, Message::FlowMod(add(1)));
    assert_eq!(
        harness.request(&control(BundleCommand::Discard)),
        [reply(BundleCommand::Discarded)]
    );
    assert_eq!(rules_count(&harness), 0);
}

#[test]
fn a_barrier_waits_for_a_committed_bundle_too() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    harness.host.hold_versions();
    add_to(&mut harness, 1, Message::FlowMod(add(1)));
    harness.request(&control(BundleCommand::Commit));
    harness.send(&Message::BarrierRequest);
    assert!(matches!(harness.run(), ConnectionStep::Wait(Wait::Adopted(_))));
}

#[test]
fn bundles_are_bounded_in_number_length_and_time() {
    let limits =
        ConnectionLimits { bundles_max: 2, bundle_messages_max: 3, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Management) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    for number in 0..3 {
        let control =
            BundleControl { bundle: BundleId(number), command: BundleCommand::Open, flags: FLAGS };
        let refused = code(&harness.request(&Message::BundleControl(control))[0]);
        assert_eq!(refused, (number == 2).then_some(ErrorCode::BundleTableFull));
    }
    for number in 0..4 {
        let refused = add_to(&mut harness, number, Message::FlowMod(add(1))).first().and_then(code);
        assert_eq!(refused, (number == 3).then_some(ErrorCode::BundleMessageTooMany));
    }
    harness.advance_time(Duration::from_secs(10));
    let commit = harness.request(&control(BundleCommand::Commit));
    assert_eq!(code(&commit[0]), Some(ErrorCode::BundleId), "removed after ten seconds");
}

#[test]
fn a_wrong_bundle_request_removes_the_bundle() {
    let other = BundleFlags::default();
    let open = || control(BundleCommand::Open);
    let control_with = |command| {
        Message::BundleControl(BundleControl { bundle: BundleId(1), command, flags: other })
    };
    let mistakes = [
        (vec![], open(), ErrorCode::BundleId),
        (vec![], control_with(BundleCommand::Close), ErrorCode::BundleFlags),
        (vec![], control_with(BundleCommand::Commit), ErrorCode::BundleFlags),
        (vec![BundleCommand::Close], control(BundleCommand::Close), ErrorCode::BundleClosed),
    ];
    for (before, mistake, expected) in mistakes {
        let mut harness = ConnectionHarness::open(ConnectionKind::Management);
        harness.request(&open());
        before.into_iter().for_each(|command| drop(harness.request(&control(command))));
        assert_eq!(code(&harness.request(&mistake)[0]), Some(expected));
        let commit = harness.request(&control(BundleCommand::Commit));
        assert_eq!(code(&commit[0]), Some(ErrorCode::BundleId), "{expected:?}");
    }
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    harness.request(&open());
    harness.request(&control(BundleCommand::Close));
    let late = add_to(&mut harness, 9, Message::FlowMod(add(1)));
    assert_eq!(code(&late[0]), Some(ErrorCode::BundleClosed));
    let commit = harness.request(&control(BundleCommand::Commit));
    assert_eq!(code(&commit[0]), Some(ErrorCode::BundleId));
}

#[test]
fn connections_share_and_return_the_bundle_quota() {
    let space = Arc::new(BundleQuota::new(1000));
    let harness = || {
        let config = ConnectionConfig::new("x", ConnectionKind::Management);
        let mut harness = ConnectionHarness::with_config(ConnectionConfig {
            bundle_quota: Arc::clone(&space),
            ..config
        });
        harness.send_hello();
        harness
    };
    let (mut one, mut two) = (harness(), harness());
    let long = || Message::FlowMod(super::add_long(1, 598));
    assert!(add_to(&mut one, 1, long()).is_empty());
    let refused = add_to(&mut two, 1, long()).first().and_then(code);
    assert_eq!(refused, Some(ErrorCode::BundleMessageTooMany));
    drop(one);
    assert!(add_to(&mut two, 2, long()).is_empty());
    assert_eq!(two.request(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    assert!(add_to(&mut two, 3, long()).is_empty());
}

/// Returns a packet-out that is sent through the tables.
fn through_tables() -> PacketOut {
    let actions = vec![Action::Output { port: PortNo::TABLE, max_len: 0 }];
    PacketOut { in_port: PortNo::CONTROLLER, actions, data: vec![0; 60] }
}

/// Returns a rule that sends packets to controllers.
fn to_controller(cookie: u16) -> FlowMod {
    let output = Action::Output { port: PortNo::CONTROLLER, max_len: u16::MAX };
    let instructions = Instructions { apply: Box::new([output]), ..Instructions::default() };
    FlowMod { cookie: Cookie::new(cookie.into()), instructions, ..add(1) }
}

/// Returns the cookies of the rules that sent packets to controllers.
fn cookies_of_punts(harness: &ConnectionHarness) -> Vec<u64> {
    let cookie = |event: ControllerEvent| match event {
        ControllerEvent::PacketIn(packet, _) => Some(packet.punt.cookie.number()),
        ControllerEvent::PortStatus(_) | ControllerEvent::FlowRemoved(_) => None,
    };
    harness.host.take_events().into_iter().filter_map(cookie).collect()
}

#[test]
fn bundled_packet_uses_earlier_rules_of_bundle() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    harness.request(&Message::FlowMod(to_controller(1)));
    add_to(&mut harness, 1, Message::PacketOut(through_tables()));
    add_to(&mut harness, 2, Message::FlowMod(to_controller(2)));
    add_to(&mut harness, 3, Message::PacketOut(through_tables()));
    add_to(&mut harness, 4, Message::FlowMod(to_controller(3)));
    let before = harness.host.pipeline().version();
    assert_eq!(harness.request(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    assert_eq!(cookies_of_punts(&harness), [1, 2]);
    assert_eq!(harness.host.pipeline().version(), before.next());
}

#[test]
fn bundled_packet_uses_earlier_ports_of_bundle() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    harness.request(&Message::FlowMod(to_controller(1)));
    let port = harness.host.ports().remove(0);
    let set = |config: PortConfig, mask: PortConfig| {
        Message::PortMod(PortMod { port: port.number, mac: port.mac, config, mask, advertise: 0 })
    };
    let deaf = PortConfig { no_recv: true, ..PortConfig::default() };
    let dumb = PortConfig { no_fwd: true, ..PortConfig::default() };
    let actions = vec![Action::Output { port: port.number, max_len: 0 }];
    let packet = PacketOut { actions, ..through_tables() };
    let before = harness.host.pipeline().version();
    add_to(&mut harness, 1, set(deaf, deaf));
    add_to(&mut harness, 2, Message::PacketOut(packet.clone()));
    add_to(&mut harness, 3, set(dumb, dumb));
    add_to(&mut harness, 4, Message::PacketOut(packet));
    assert_eq!(harness.request(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    let sent: Vec<_> = harness.host.take_outcomes().iter().map(|own| own.len()).collect();
    assert_eq!(sent, [1, 0], "the second packet leaves by a port that is set not to send");
    let both = PortConfig { no_recv: true, no_fwd: true, ..PortConfig::default() };
    assert_eq!(harness.host.ports()[0].config, both, "the second port-mod adds to the first");
    assert_eq!(harness.host.pipeline().version(), before.next());
}

#[test]
fn late_failure_changes_and_sends_nothing() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let port = harness.host.ports().remove(0);
    let down = PortConfig { port_down: true, ..PortConfig::default() };
    let port_mod =
        PortMod { port: port.number, mac: port.mac, config: down, mask: down, advertise: 0 };
    let overlapping = FlowMod {
        matching: shunt_flow::text::parse_match("tcp", &shunt_flow::text::NoPortNames).unwrap(),
        flags: FlowFlags { check_overlap: true, ..FlowFlags::default() },
        ..add(7)
    };
    add_to(&mut harness, 1, Message::PortMod(port_mod));
    add_to(&mut harness, 2, Message::FlowMod(add(7)));
    add_to(&mut harness, 3, Message::PacketOut(through_tables()));
    add_to(&mut harness, 4, Message::FlowMod(overlapping));
    let codes: Vec<_> = harness.request(&control(BundleCommand::Commit)).iter().map(code).collect();
    assert_eq!(codes, [Some(ErrorCode::FlowOverlap), Some(ErrorCode::BundleMessageFailed)]);
    assert_eq!((rules_count(&harness), harness.host.ports()[0].config), (0, PortConfig::default()));
    assert!(harness.host.take_packets().is_empty());
    // The next version, which takes the number of the failed bundle, has no change of the failed
    // bundle.
    harness.request(&Message::FlowMod(add(1)));
    assert_eq!(harness.host.ports()[0].config, PortConfig::default());
}

#[test]
fn bundle_may_use_group_after_adding_it() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let group = GroupId::new(1);
    let group_mod = GroupMod {
        command: GroupCommand::Add,
        group: Some(group),
        kind: GroupKind::All,
        selection: Selection::default(),
        buckets: Box::default(),
    };
    let packet = PacketOut { actions: vec![Action::Group(group)], ..through_tables() };
    add_to(&mut harness, 1, Message::PacketOut(packet.clone()));
    add_to(&mut harness, 2, Message::GroupMod(group_mod.clone()));
    let codes: Vec<_> = harness.request(&control(BundleCommand::Commit)).iter().map(code).collect();
    assert_eq!(codes, [Some(ErrorCode::ActionOutGroup), Some(ErrorCode::BundleMessageFailed)]);
    add_to(&mut harness, 1, Message::GroupMod(group_mod));
    add_to(&mut harness, 2, Message::PacketOut(packet));
    assert_eq!(harness.request(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
}

#[test]
fn bundles_are_bounded_in_bytes() {
    let limits = ConnectionLimits { bundle_bytes_max: 1000, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Management) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    let long = || Message::FlowMod(super::add_long(1, 598));
    assert!(add_to(&mut harness, 1, long()).is_empty());
    let refused = add_to(&mut harness, 2, long()).first().and_then(code);
    assert_eq!(refused, Some(ErrorCode::BundleMessageTooMany));
    assert_eq!(
        harness.request(&control(BundleCommand::Discard)),
        [reply(BundleCommand::Discarded)]
    );
    assert!(add_to(&mut harness, 3, long()).is_empty(), "removed messages use no memory");
}
