//! Tests of version negotiation and of the inactivity probe.

use std::time::Duration;

use crate::{
    CloseReason, ErrorNumber,
    connection::{ConnectionConfig, ConnectionKind, ConnectionLimits, ConnectionStep},
    message::{Hello, Message, Xid},
    testing::ConnectionHarness,
    wire::{header::Header, v13},
};

#[test]
fn the_switch_sends_the_first_hello() {
    let mut harness = ConnectionHarness::before_hello(ConnectionKind::Controller);
    let hello = Message::Hello(Hello { version: 4, bitmap: Some(0x12) });
    assert_eq!(harness.replies(), [(Xid::new(1), hello)]);
}

#[test]
fn incompatible_peer_gets_error_in_its_version() {
    for (versions, own, hello, offered) in [
        (0x10, "1.3", Hello { version: 1, bitmap: None }, "1.0"),
        (0x12, "1.0, 1.3", Hello { version: 6, bitmap: Some(0x60) }, "1.4, 1.5"),
        (0x2, "1.0", Hello { version: 4, bitmap: Some(0x10) }, "1.3"),
    ] {
        let config = ConnectionConfig::new("test", ConnectionKind::Management);
        let mut harness = ConnectionHarness::with_config(ConnectionConfig { versions, ..config });
        harness.replies();
        harness.send(&Message::Hello(hello));
        let frames = harness.reply_frames();
        let [frame] = &frames[..] else { panic!("one error") };
        assert_eq!(Header::parse(frame).unwrap().version, hello.version);
        let mut as_13 = frame.to_vec();
        as_13[0] = v13::VERSION;
        let (_, Message::Error(error)) = v13::decode(&as_13).unwrap() else { panic!("an error") };
        assert_eq!(error.number, ErrorNumber::Standard { kind: 0, code: 0 });
        let sentence = String::from_utf8(error.data).unwrap();
        assert_eq!(
            sentence,
            format!(
                "the peer offers {offered}, but the switch is set to {own}: \
                 use the same version at both ends"
            )
        );
        let reason = CloseReason::Version { offered: offered.to_owned(), own: own.to_owned() };
        assert_eq!(harness.run(), ConnectionStep::Closed(reason));
    }
}

#[test]
fn a_first_message_other_than_hello_closes() {
    let mut harness = ConnectionHarness::before_hello(ConnectionKind::Management);
    harness.replies();
    harness.send(&Message::FeaturesRequest);
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::NotHello { kind: 5 }));
    assert!(harness.replies().is_empty());
}

#[test]
fn a_peer_without_hello_times_out() {
    let mut harness = ConnectionHarness::before_hello(ConnectionKind::Management);
    harness.replies();
    harness.advance_time(Duration::from_secs(9));
    assert_eq!(harness.run(), ConnectionStep::Idle);
    harness.advance_time(Duration::from_secs(1));
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::NoHello { seconds: 10 }));
}

#[test]
fn an_idle_controller_is_probed_and_then_disconnected() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.advance_time(Duration::from_secs(5));
    let [(_, Message::EchoRequest(payload))] = &harness.replies()[..] else { panic!("an echo") };
    harness.send(&Message::EchoReply(payload.clone()));
    harness.advance_time(Duration::from_secs(5));
    assert_eq!(harness.replies().len(), 1, "probed again");
    harness.advance_time(Duration::from_secs(5));
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::Silent { seconds: 5 }));
}

/// Time in which the switch does not read does not count as idle time of the peer.
#[test]
fn waiting_peer_is_not_idle() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.host.hold_versions();
    harness.send(&Message::FlowMod(super::add(1)));
    harness.send(&Message::BarrierRequest);
    for _ in 0..60 {
        harness.advance_time(Duration::from_secs(1));
        assert!(matches!(harness.run(), ConnectionStep::Wait(_)));
    }
    harness.host.adopt();
    assert_eq!(harness.replies().len(), 1, "the barrier reply");
    harness.advance_time(Duration::from_secs(5));
    assert_eq!(harness.replies().len(), 1, "the echo request");
    harness.advance_time(Duration::from_secs(5));
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::Silent { seconds: 5 }));
}

/// A peer that reads slowly has the stall timeout, not the shorter inactivity
/// probe.
#[test]
fn a_peer_with_waiting_output_is_not_idle() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    harness.send(&Message::FeaturesRequest);
    harness.run();
    for second in 1..30 {
        harness.advance_time(Duration::from_secs(1));
        assert_eq!(harness.run(), ConnectionStep::Idle, "after {second} s");
    }
    harness.advance_time(Duration::from_secs(1));
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::Stalled { seconds: 30 }));
}

#[test]
fn client_of_management_socket_is_never_probed() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    harness.advance_time(Duration::from_secs(1_000_000));
    assert_eq!(harness.run(), ConnectionStep::Idle);
    assert!(harness.replies().is_empty());
    assert_eq!(harness.connection.poll_timeout(), None);
}

#[test]
fn a_peer_that_reads_nothing_is_disconnected() {
    let limits =
        ConnectionLimits { stall_timeout: Duration::from_secs(3), ..ConnectionLimits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Management) };
    let mut harness = ConnectionHarness::with_config(config);
    harness.send_hello();
    harness.send(&Message::FeaturesRequest);
    harness.run();
    harness.advance_time(Duration::from_secs(2));
    assert_eq!(harness.run(), ConnectionStep::Idle);
    harness.advance_time(Duration::from_secs(1));
    assert_eq!(harness.run(), ConnectionStep::Closed(CloseReason::Stalled { seconds: 3 }));
}
