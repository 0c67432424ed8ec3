//! Tests of the order of replies, and of replies in several parts.

use shunt_flow::{Match, PortNo};
use shunt_pipeline::{Action, FlowMod, Instructions, RuleFilter, TableId};

use super::{add, add_long, code};
use crate::{
    CloseReason, ErrorCode, Host,
    connection::{ConnectionConfig, ConnectionKind, ConnectionLimits, ConnectionStep, Wait},
    message::{Message, MultipartReply, MultipartRequest, Xid},
    testing::ConnectionHarness,
    wire::{Codec, header::Header, v10::V10Settings, v13},
};

fn all_flows() -> Message {
    Message::MultipartRequest(MultipartRequest::Flow(RuleFilter::all()))
}

#[test]
fn a_barrier_waits_until_earlier_changes_are_adopted() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.host.hold_versions();
    harness.send(&Message::FlowMod(add(1)));
    let barrier = harness.send(&Message::BarrierRequest);
    let echo = harness.send(&Message::EchoRequest(Vec::new()));
    let ConnectionStep::Wait(Wait::Adopted(_)) = harness.run() else { panic!("waits") };
    assert!(harness.replies().is_empty(), "no reply overtakes a barrier");
    harness.host.adopt();
    let replies = harness.replies();
    assert_eq!(replies, [(barrier, Message::BarrierReply), (echo, Message::EchoReply(Vec::new()))]);
}

#[test]
fn a_barrier_without_changes_replies_at_once() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.host.hold_versions();
    let mut other = harness.another(ConnectionKind::Controller);
    other.send(&Message::FlowMod(add(1)));
    other.run();
    assert_eq!(harness.request(&Message::BarrierRequest), [Message::BarrierReply]);
}

#[test]
fn counters_are_pulled_before_the_reply() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    for request in [
        MultipartRequest::Flow(RuleFilter::all()),
        MultipartRequest::Aggregate(RuleFilter::all()),
        MultipartRequest::Table,
        MultipartRequest::Port(PortNo::ANY),
    ] {
        harness.send(&Message::MultipartRequest(request));
        let now = harness.host.now();
        let step = harness.connection.process(&*harness.host, now);
        assert_eq!(step, ConnectionStep::Wait(Wait::Counts));
        assert_eq!(harness.replies().len(), 1);
    }
}

#[test]
fn a_long_reply_has_parts_that_announce_more() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    for priority in 0..300 {
        harness.send(&Message::FlowMod(add_long(priority, 1494)));
    }
    assert!(harness.replies().is_empty());
    let xid = harness.send(&all_flows());
    let frames = harness.reply_frames();
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
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let request = Message::MultipartRequest(MultipartRequest::TableFeatures);
    let mut tables = Vec::new();
    for reply in harness.request(&request) {
        let Message::MultipartReply { reply: MultipartReply::TableFeatures(part), .. } = reply
        else {
            panic!("table features")
        };
        tables.extend(part.iter().map(|own| own.table.number()));
    }
    assert_eq!(tables, (0..=TableId::MAX.number()).collect::<Vec<_>>());
}

#[test]
fn requests_wait_while_the_peer_does_not_read() {
    let limits =
        ConnectionLimits { replies_max: 1000, events_max: 500, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Controller) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    for _ in 0..100 {
        harness.send(&Message::EchoRequest(vec![1; 100]));
    }
    assert_eq!(harness.run(), ConnectionStep::Full);
    assert!(harness.connection.status().output_waiting < 2000);
    assert_eq!(harness.replies().len(), 100, "replies continue after the peer has read");
}

#[test]
fn a_peer_that_reads_single_bytes_is_disconnected() {
    let second = std::time::Duration::from_secs(1);
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    for _ in 0..4 {
        harness.send(&Message::EchoRequest(vec![1; 50_000]));
    }
    assert_eq!(harness.run(), ConnectionStep::Idle);
    for _ in 0..29 {
        harness.advance_time(second);
        harness.connection.consume(1, harness.host.now());
        assert_eq!(harness.run(), ConnectionStep::Idle);
    }
    // A peer that reads a large part within the timeout is slow, but not stalled.
    harness.connection.consume(50_000, harness.host.now());
    harness.connection.consume(20_000, harness.host.now());
    for _ in 0..29 {
        harness.advance_time(second);
        harness.connection.consume(1, harness.host.now());
        assert_eq!(harness.run(), ConnectionStep::Idle);
    }
    harness.advance_time(second);
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::Stalled { seconds: 30 }));
}

#[test]
fn long_flow_reply_is_encoded_in_parts() {
    let limits =
        ConnectionLimits { replies_max: 100_000, events_max: 1000, ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Controller) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    for priority in 0..500 {
        harness.send(&Message::FlowMod(add_long(priority, 1494)));
    }
    harness.send(&all_flows());
    assert_eq!(harness.run(), ConnectionStep::Full);
    assert!(harness.connection.status().output_waiting < 200_000);
    let rules = harness.replies().into_iter().map(|(_, message)| match message {
        Message::MultipartReply { reply: MultipartReply::Flow(flows), .. } => flows.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(rules.sum::<usize>(), 500);
}

#[test]
fn a_rule_too_long_for_statistics_is_refused() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    // Bytes of the headers of message, part and entry, an empty match, an instruction and an
    // action.
    let around = 8 + 8 + 48 + 8 + 8 + 10;
    let longest = 65_528 - around;
    assert!(harness.request(&Message::FlowMod(add_long(1, longest))).is_empty());
    let refused = harness.request(&Message::FlowMod(add_long(2, longest + 8)));
    assert_eq!(refused.iter().map(code).collect::<Vec<_>>(), [Some(ErrorCode::ActionTooMany)]);
    assert_eq!(harness.request(&all_flows()).len(), 1);
}

/// An `enqueue` of OpenFlow 1.0 is shorter than its three actions of OpenFlow 1.3.
#[test]
fn rule_must_fit_into_all_versions() {
    let v10 = Codec::V10(V10Settings::INITIAL);
    let mut harness = ConnectionHarness::open_with(ConnectionKind::Controller, v10);
    let enqueues = |priority, count| {
        let output = Action::Output { port: PortNo::new(1), max_len: 0 };
        let end = Action::PopQueue { ends_enqueue: true };
        let enqueue = [Action::SetQueue(1), output, end];
        let apply = std::iter::repeat_n(enqueue, count).flatten().collect();
        let instructions = Instructions { apply, ..Instructions::default() };
        Message::FlowMod(FlowMod { instructions, ..add(priority) })
    };
    assert!(harness.request(&enqueues(1, 1600)).is_empty());
    let refused = harness.request(&enqueues(2, 1700));
    assert!(matches!(&refused[..], [Message::Error(_)]), "{refused:?}");
}

#[test]
fn a_request_in_parts_is_handled_when_complete() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
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
    harness.send_bytes(&first);
    assert!(harness.replies().is_empty());
    harness.send_bytes(&last);
    let [(_, Message::MultipartReply { reply: MultipartReply::Aggregate(_), .. })] =
        &harness.replies()[..]
    else {
        panic!("one answer")
    };
}

#[test]
fn incomplete_requests_are_bounded_in_number_and_size() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let part = |xid: u32, length: u16| {
        let header = Header { version: 4, kind: 18, length, xid: Xid::new(xid) };
        let mut frame = [&header.emit()[..], &[0, 12, 0, 1, 0, 0, 0, 0]].concat();
        frame.resize(length.into(), 0);
        frame
    };
    for xid in 0..8 {
        harness.send_bytes(&part(xid, 16));
    }
    assert!(harness.replies().is_empty());
    harness.send_bytes(&part(99, 16));
    let errors: Vec<_> = harness.replies().iter().map(|(_, message)| code(message)).collect();
    assert_eq!(errors, [Some(ErrorCode::MultipartOverflow)]);
    for _ in 0..16 {
        harness.send_bytes(&part(0, 65_528));
    }
    assert!(harness.replies().is_empty());
    harness.send_bytes(&part(0, 65_528));
    let errors: Vec<_> = harness.replies().iter().map(|(_, message)| code(message)).collect();
    assert_eq!(errors, [Some(ErrorCode::MultipartOverflow)]);
}

#[test]
fn an_incomplete_request_times_out_with_an_error() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    for round in 0..2 {
        for xid in 0..8 {
            let header = Header { version: 4, kind: 18, length: 16, xid: Xid::new(xid) };
            harness.send_bytes(&[&header.emit()[..], &[0, 12, 0, 1, 0, 0, 0, 0]].concat());
        }
        assert!(harness.replies().is_empty(), "there is room in round {round}");
        harness.advance_time(std::time::Duration::from_secs(1));
        let replies = harness.replies();
        let xids: Vec<_> = replies.iter().map(|(xid, _)| xid.number()).collect();
        assert_eq!(xids, (0..8).collect::<Vec<_>>());
        let timeout = Some(ErrorCode::MultipartTimeout);
        assert!(replies.iter().all(|(_, message)| code(message) == timeout));
    }
}
