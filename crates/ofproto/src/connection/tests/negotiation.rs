//! The first words, and silence.

use std::time::Duration;

use crate::{
    CloseReason, ErrorNumber,
    connection::{ConnectionConfig, ConnectionKind, Limits, Step},
    message::{Hello, Message, Xid},
    testing::Bench,
    wire::{header::Header, v13},
};

#[test]
fn the_switch_says_hello_before_anything_is_said_to_it() {
    let mut bench = Bench::silent(ConnectionKind::Controller);
    let hello = Message::Hello(Hello { version: 4, bitmap: Some(0x10) });
    assert_eq!(bench.heard(), [(Xid::new(1), hello)]);
}

#[test]
fn a_peer_without_a_common_version_is_told_in_words_and_in_its_own_version() {
    for (hello, offered) in [
        (Hello { version: 1, bitmap: None }, "1.0"),
        (Hello { version: 6, bitmap: Some(0x60) }, "1.4, 1.5"),
    ] {
        let mut bench = Bench::silent(ConnectionKind::Management);
        bench.heard();
        bench.send(&Message::Hello(hello));
        let frames = bench.heard_frames();
        let [frame] = &frames[..] else { panic!("one error") };
        assert_eq!(Header::parse(frame).unwrap().version, hello.version);
        let mut as_13 = frame.to_vec();
        as_13[0] = v13::VERSION;
        let (_, Message::Error(error)) = v13::decode(&as_13).unwrap() else { panic!("an error") };
        assert_eq!(error.number, ErrorNumber::Standard { kind: 0, code: 0 });
        let sentence = String::from_utf8(error.data).unwrap();
        assert_eq!(sentence, format!("the peer speaks {offered}, the switch speaks 1.3 only"));
        let reason = CloseReason::Version { offered: offered.to_owned() };
        assert_eq!(bench.run(), Step::Closed(reason));
    }
}

#[test]
fn who_begins_with_something_else_is_not_listened_to() {
    let mut bench = Bench::silent(ConnectionKind::Management);
    bench.heard();
    bench.send(&Message::FeaturesRequest);
    assert_eq!(bench.run(), Step::Closed(CloseReason::NotHello { kind: 5 }));
    assert!(bench.heard().is_empty());
}

#[test]
fn who_says_nothing_is_given_up() {
    let mut bench = Bench::silent(ConnectionKind::Management);
    bench.heard();
    bench.pass(Duration::from_secs(9));
    assert_eq!(bench.run(), Step::Idle);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.run(), Step::Closed(CloseReason::NoHello { seconds: 10 }));
}

#[test]
fn a_silent_controller_is_asked_for_an_echo_and_then_given_up() {
    let mut bench = Bench::open(ConnectionKind::Controller);
    bench.pass(Duration::from_secs(5));
    let [(_, Message::EchoRequest(payload))] = &bench.heard()[..] else { panic!("an echo") };
    bench.send(&Message::EchoReply(payload.clone()));
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.heard().len(), 1, "asked again");
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.run(), Step::Closed(CloseReason::Silent { seconds: 5 }));
}

#[test]
fn a_management_client_may_be_silent_for_ever() {
    let mut bench = Bench::open(ConnectionKind::Management);
    bench.pass(Duration::from_secs(1_000_000));
    assert_eq!(bench.run(), Step::Idle);
    assert!(bench.heard().is_empty());
    assert_eq!(bench.connection.poll_timeout(), None);
}

#[test]
fn who_takes_nothing_of_what_waits_for_it_is_given_up() {
    let limits = Limits { stall_timeout: Duration::from_secs(3), ..Limits::default() };
    let config =
        ConnectionConfig { limits, ..ConnectionConfig::new("x", ConnectionKind::Management) };
    let mut bench = Bench::with_config(config);
    bench.say_hello();
    bench.send(&Message::FeaturesRequest);
    bench.run();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.run(), Step::Idle);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.run(), Step::Closed(CloseReason::Stalled { seconds: 3 }));
}
