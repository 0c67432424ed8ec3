//! Several changes that become true together.

use std::time::Duration;

use shunt_flow::PortNo;
use shunt_pipeline::{Action, FlowFlags, FlowMod, PortConfig, RuleFilter};

use super::{add, code};
use crate::{
    ErrorCode, Host,
    connection::{ConnectionConfig, ConnectionKind, Limits, Step, Wait},
    message::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, Message, PacketOut,
        PortMod, Xid,
    },
    testing::Bench,
    wire::v13,
};

const FLAGS: BundleFlags = BundleFlags { atomic: true, ordered: true };

fn control(command: BundleCommand) -> Message {
    Message::BundleControl(BundleControl { bundle: BundleId(1), command, flags: FLAGS })
}

fn reply(command: BundleCommand) -> Message {
    let flags = BundleFlags::default();
    Message::BundleControl(BundleControl { bundle: BundleId(1), command, flags })
}

/// Adds a message to bundle 1; answers what is said to it.
fn add_to(bench: &mut Bench, xid: u32, message: Message) -> Vec<Message> {
    let xid = Xid::new(xid);
    let message = Box::new(message);
    let add = BundleAdd { bundle: BundleId(1), flags: FLAGS, xid, message };
    bench.send_bytes(&v13::encode(xid, &Message::BundleAdd(add)).unwrap());
    bench.heard().into_iter().map(|(_, message)| message).collect()
}

fn rules_count(bench: &Bench) -> usize {
    bench.host.rules(&RuleFilter::all()).len()
}

#[test]
fn nothing_happens_before_the_commit_and_everything_at_it() {
    let mut bench = Bench::open(ConnectionKind::Management);
    assert_eq!(bench.ask(&control(BundleCommand::Open)), [reply(BundleCommand::Opened)]);
    for priority in 1..=5 {
        assert!(add_to(&mut bench, 100, Message::FlowMod(add(priority))).is_empty());
    }
    assert_eq!(bench.ask(&Message::BarrierRequest), [Message::BarrierReply]);
    assert_eq!(rules_count(&bench), 0);
    assert_eq!(bench.ask(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    assert_eq!(rules_count(&bench), 5);
}

#[test]
fn a_bundle_holds_rules_ports_and_packets() {
    let mut bench = Bench::open(ConnectionKind::Management);
    let port = bench.host.ports().remove(0);
    let down = PortConfig { port_down: true, ..PortConfig::default() };
    let port_mod =
        PortMod { port: port.number, mac: port.mac, config: down, mask: down, advertise: 0 };
    let actions = vec![Action::Output { port: PortNo::new(2), max_len: 0 }];
    let packet = PacketOut { in_port: PortNo::ANY, actions, data: vec![0; 14] };
    assert!(add_to(&mut bench, 1, Message::FlowMod(add(1))).is_empty());
    assert!(add_to(&mut bench, 2, Message::PortMod(port_mod)).is_empty());
    assert!(add_to(&mut bench, 3, Message::PacketOut(packet.clone())).is_empty());
    assert_eq!(bench.ask(&control(BundleCommand::Commit)), [reply(BundleCommand::Committed)]);
    assert_eq!(rules_count(&bench), 1);
    assert_eq!(bench.host.ports()[0].config, down);
    assert_eq!(bench.host.take_packets(), [packet]);
}

#[test]
fn one_message_that_fails_fails_them_all_and_is_named() {
    let mut bench = Bench::open(ConnectionKind::Management);
    let check_overlap = FlowFlags { check_overlap: true, ..FlowFlags::default() };
    let first = add(7);
    let matching = shunt_flow::text::parse_match("tcp", &shunt_flow::text::NoPortNames).unwrap();
    let overlapping = FlowMod { matching, flags: check_overlap, ..add(7) };
    add_to(&mut bench, 1, Message::FlowMod(first));
    add_to(&mut bench, 2, Message::FlowMod(overlapping.clone()));
    bench.send(&control(BundleCommand::Commit));
    let heard = bench.heard();
    let codes: Vec<_> = heard.iter().map(|(_, message)| code(message)).collect();
    assert_eq!(codes, [Some(ErrorCode::FlowOverlap), Some(ErrorCode::BundleMessageFailed)]);
    let (xid, Message::Error(error)) = &heard[0] else { panic!("an error") };
    assert_eq!(*xid, Xid::new(2));
    let inside = v13::encode(Xid::new(2), &Message::FlowMod(overlapping)).unwrap();
    assert_eq!(error.data, inside, "the message that failed comes back");
    assert_eq!(rules_count(&bench), 0);
    let again = bench.ask(&control(BundleCommand::Commit));
    assert_eq!(code(&again[0]), Some(ErrorCode::BundleId), "the bundle is gone");
}

#[test]
fn a_port_that_is_missing_at_the_commit_leaves_the_rules_alone() {
    let mut bench = Bench::open(ConnectionKind::Management);
    add_to(&mut bench, 1, Message::FlowMod(add(1)));
    let config = PortConfig::default();
    let port_mod =
        PortMod { port: PortNo::new(77), mac: [0; 6], config, mask: config, advertise: 0 };
    add_to(&mut bench, 2, Message::PortMod(port_mod));
    let codes: Vec<_> = bench.ask(&control(BundleCommand::Commit)).iter().map(code).collect();
    assert_eq!(codes, [Some(ErrorCode::PortModPort), Some(ErrorCode::BundleMessageFailed)]);
    assert_eq!(rules_count(&bench), 0);
}

#[test]
fn a_discarded_bundle_leaves_nothing() {
    let mut bench = Bench::open(ConnectionKind::Management);
    add_to(&mut bench, 1, Message::FlowMod(add(1)));
    assert_eq!(bench.ask(&control(BundleCommand::Discard)), [reply(BundleCommand::Discarded)]);
    assert_eq!(rules_count(&bench), 0);
}

#[test]
fn a_barrier_waits_for_a_committed_bundle_too() {
    let mut bench = Bench::open(ConnectionKind::Management);
    bench.host.hold_versions();
    add_to(&mut bench, 1, Message::FlowMod(add(1)));
    bench.ask(&control(BundleCommand::Commit));
    bench.send(&Message::BarrierRequest);
    assert!(matches!(bench.run(), Step::Wait(Wait::Adopted(_))));
}

#[test]
fn bundles_are_bounded_in_number_length_and_time() {
    let limits = Limits { bundles_max: 2, bundle_messages_max: 3, ..Limits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Management) };
    let mut bench = Bench::with_config(config);
    bench.say_hello();
    for number in 0..3 {
        let control =
            BundleControl { bundle: BundleId(number), command: BundleCommand::Open, flags: FLAGS };
        let refused = code(&bench.ask(&Message::BundleControl(control))[0]);
        assert_eq!(refused, (number == 2).then_some(ErrorCode::BundleTableFull));
    }
    for number in 0..4 {
        let refused = add_to(&mut bench, number, Message::FlowMod(add(1))).first().and_then(code);
        assert_eq!(refused, (number == 3).then_some(ErrorCode::BundleMessageTooMany));
    }
    bench.pass(Duration::from_secs(10));
    let commit = bench.ask(&control(BundleCommand::Commit));
    assert_eq!(code(&commit[0]), Some(ErrorCode::BundleId), "forgotten after ten seconds");
}
