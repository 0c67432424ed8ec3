//! Replies keep the order of requests, and come in parts where they are long.

use shunt_flow::Match;
use shunt_pipeline::{RuleFilter, TableId};

use super::{add, add_long, code};
use crate::{
    CloseReason, ErrorCode, Host,
    connection::{ConnectionConfig, ConnectionKind, Limits, Step, Wait},
    message::{Message, MultipartReply, MultipartRequest, Xid},
    testing::Bench,
    wire::{header::Header, v13},
};

fn all_flows() -> Message {
    Message::MultipartRequest(MultipartRequest::Flow(RuleFilter::all()))
}

#[test]
fn a_barrier_waits_until_what_came_before_it_is_in_force_everywhere() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    bench.host.hold_versions();
    bench.send(&Message::FlowMod(add(1)));
    let barrier = bench.send(&Message::BarrierRequest);
    let echo = bench.send(&Message::EchoRequest(Vec::new()));
    let Step::Wait(Wait::Adopted(_)) = bench.run() else { panic!("waits") };
    assert!(bench.heard().is_empty(), "nothing overtakes a barrier");
    bench.host.adopt();
    let replies = bench.heard();
    assert_eq!(replies, [(barrier, Message::BarrierReply), (echo, Message::EchoReply(Vec::new()))]);
}

#[test]
fn a_barrier_of_a_connection_that_changed_nothing_waits_for_nobody() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    bench.host.hold_versions();
    let mut other = bench.another(ConnectionKind::Controller);
    other.send(&Message::FlowMod(add(1)));
    other.run();
    assert_eq!(bench.ask(&Message::BarrierRequest), [Message::BarrierReply]);
}

#[test]
fn counters_are_handed_in_before_they_are_told() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    for request in [
        MultipartRequest::Flow(RuleFilter::all()),
        MultipartRequest::Aggregate(RuleFilter::all()),
        MultipartRequest::Table,
        MultipartRequest::Port(shunt_flow::PortNo::ANY),
    ] {
        bench.send(&Message::MultipartRequest(request));
        let now = bench.host.now();
        let step = bench.connection.process(&*bench.host, now);
        assert_eq!(step, Step::Wait(Wait::Counts));
        assert_eq!(bench.heard().len(), 1);
    }
}

#[test]
fn a_long_reply_comes_in_parts_that_say_that_more_follow() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    for priority in 0..300 {
        bench.send(&Message::FlowMod(add_long(priority, 1494)));
    }
    assert!(bench.heard().is_empty());
    let xid = bench.send(&all_flows());
    let frames = bench.heard_frames();
    let (mut rules, mut mores) = (0, Vec::new());
    for frame in &frames {
        assert_eq!(usize::from(Header::parse(frame).unwrap().length), frame.len());
        let (reply_xid, message) = v13::decode(frame).unwrap();
        let Message::MultipartReply { more, reply: MultipartReply::Flow(flows) } = message else {
            panic!("flows")
        };
        assert_eq!(reply_xid, xid);
        rules += flows.len();
        mores.push(more);
    }
    assert_eq!(rules, 300);
    assert!(mores.len() > 5, "{mores:?}");
    let (last, others) = mores.split_last().unwrap();
    assert!(!last && others.iter().all(|more| *more), "{mores:?}");
}

#[test]
fn all_tables_have_all_required_features() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    let request = Message::MultipartRequest(MultipartRequest::TableFeatures);
    let mut tables = Vec::new();
    for reply in bench.ask(&request) {
        let Message::MultipartReply { reply: MultipartReply::TableFeatures(part), .. } = reply
        else {
            panic!("table features")
        };
        tables.extend(part.iter().map(|table| table.number()));
    }
    assert_eq!(tables, (0..=TableId::MAX.number()).collect::<Vec<_>>());
}

#[test]
fn requests_stand_still_while_the_peer_does_not_read() {
    let limits = Limits { replies_max: 1000, events_max: 500, ..Limits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Controller) };
    let mut bench = Bench::with_config(config);
    bench.say_hello();
    for _ in 0..100 {
        bench.send(&Message::EchoRequest(vec![1; 100]));
    }
    assert_eq!(bench.run(), Step::Full);
    assert!(bench.connection.status().output_waiting < 2000);
    assert_eq!(bench.heard().len(), 100, "and go on when it does");
}

#[test]
fn a_peer_that_takes_a_byte_now_and_then_is_given_up() {
    let second = std::time::Duration::from_secs(1);
    let mut bench = Bench::open(ConnectionKind::Management);
    for _ in 0..4 {
        bench.send(&Message::EchoRequest(vec![1; 50_000]));
    }
    assert_eq!(bench.run(), Step::Idle);
    for _ in 0..29 {
        bench.pass(second);
        bench.connection.consume(1, bench.host.now());
        assert_eq!(bench.run(), Step::Idle);
    }
    // Who takes a good piece of what waits, reads slowly.
    bench.connection.consume(50_000, bench.host.now());
    bench.connection.consume(20_000, bench.host.now());
    for _ in 0..29 {
        bench.pass(second);
        bench.connection.consume(1, bench.host.now());
        assert_eq!(bench.run(), Step::Idle);
    }
    bench.pass(second);
    assert_eq!(bench.run(), Step::Closed(CloseReason::Stalled { seconds: 30 }));
}

#[test]
fn a_reply_of_many_rules_is_written_as_it_is_read() {
    let limits = Limits { replies_max: 100_000, events_max: 1000, ..Limits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Controller) };
    let mut bench = Bench::with_config(config);
    bench.say_hello();
    for priority in 0..500 {
        bench.send(&Message::FlowMod(add_long(priority, 1494)));
    }
    bench.send(&all_flows());
    assert_eq!(bench.run(), Step::Full);
    assert!(bench.connection.status().output_waiting < 200_000);
    let rules = bench.heard().into_iter().map(|(_, message)| match message {
        Message::MultipartReply { reply: MultipartReply::Flow(flows), .. } => flows.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(rules.sum::<usize>(), 500);
}

#[test]
fn a_rule_that_no_reply_could_hold_is_refused() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    // Headers of message, part and entry, an empty match, an instruction, an action.
    let around = 8 + 8 + 48 + 8 + 8 + 10;
    let longest = 65_528 - around;
    assert!(bench.ask(&Message::FlowMod(add_long(1, longest))).is_empty());
    let refused = bench.ask(&Message::FlowMod(add_long(2, longest + 8)));
    assert_eq!(refused.iter().map(code).collect::<Vec<_>>(), [Some(ErrorCode::ActionTooMany)]);
    assert_eq!(bench.ask(&all_flows()).len(), 1);
}

#[test]
fn a_request_in_parts_is_answered_when_it_is_whole() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    let filter = RuleFilter { matching: Match::any(), ..RuleFilter::all() };
    let request = Message::MultipartRequest(MultipartRequest::Aggregate(filter));
    let whole = v13::encode(Xid::new(77), &request).unwrap();
    let (head, tail) = whole.split_at(30);
    let mut first = head.to_vec();
    first[11] = 1;
    first[2..4].copy_from_slice(&30_u16.to_be_bytes());
    let mut last = whole[..16].to_vec();
    last.extend_from_slice(tail);
    let length = u16::try_from(last.len()).unwrap();
    last[2..4].copy_from_slice(&length.to_be_bytes());
    bench.send_bytes(&first);
    assert!(bench.heard().is_empty());
    bench.send_bytes(&last);
    let [(_, Message::MultipartReply { reply: MultipartReply::Aggregate(_), .. })] =
        &bench.heard()[..]
    else {
        panic!("one answer")
    };
}

#[test]
fn half_requests_are_bounded_in_number_and_size() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    let part = |xid: u32, length: u16| {
        let header = Header { version: 4, kind: 18, length, xid: Xid::new(xid) };
        let mut frame = [&header.emit()[..], &[0, 12, 0, 1, 0, 0, 0, 0]].concat();
        frame.resize(length.into(), 0);
        frame
    };
    for xid in 0..8 {
        bench.send_bytes(&part(xid, 16));
    }
    assert!(bench.heard().is_empty());
    bench.send_bytes(&part(99, 16));
    let errors: Vec<_> = bench.heard().iter().map(|(_, message)| code(message)).collect();
    assert_eq!(errors, [Some(ErrorCode::MultipartOverflow)]);
    for _ in 0..16 {
        bench.send_bytes(&part(0, 65_528));
    }
    assert!(bench.heard().is_empty());
    bench.send_bytes(&part(0, 65_528));
    let errors: Vec<_> = bench.heard().iter().map(|(_, message)| code(message)).collect();
    assert_eq!(errors, [Some(ErrorCode::MultipartOverflow)]);
}

#[test]
fn a_request_whose_rest_does_not_come_is_forgotten_and_said_so() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    for round in 0..2 {
        for xid in 0..8 {
            let header = Header { version: 4, kind: 18, length: 16, xid: Xid::new(xid) };
            bench.send_bytes(&[&header.emit()[..], &[0, 12, 0, 1, 0, 0, 0, 0]].concat());
        }
        assert!(bench.heard().is_empty(), "there is room in round {round}");
        bench.pass(std::time::Duration::from_secs(1));
        let heard = bench.heard();
        let xids: Vec<_> = heard.iter().map(|(xid, _)| xid.number()).collect();
        assert_eq!(xids, (0..8).collect::<Vec<_>>());
        let timeout = Some(ErrorCode::MultipartTimeout);
        assert!(heard.iter().all(|(_, message)| code(message) == timeout));
    }
}
