//! Malformed requests, with the reply of Open vSwitch or the reason for a difference.

use std::fmt::Write;

use crate::{
    ErrorNumber, NICIRA_EXPERIMENTER,
    connection::{ConnectionKind, ConnectionStep},
    message::{Message, Xid},
    testing::ConnectionHarness,
    wire::{header::Header, v13},
};

/// Malformed frames, with the errors of Open vSwitch.
const CASES: &str = include_str!("../../../tests/data/malformed.txt");

/// Reasons for another reply than that of Open vSwitch, as in the file of cases.
const REASONS: [&str; 7] = ["absent", "more", "text", "range", "order", "code", "loop"];

/// Parses hexadecimal digits.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Returns the error of a frame as text.
fn summarize(frame: &[u8]) -> String {
    match v13::decode(frame) {
        Ok((_, Message::Error(error))) => match error.number {
            ErrorNumber::Standard { kind, code } => format!("E({kind},{code})"),
            ErrorNumber::Experimenter { experimenter: NICIRA_EXPERIMENTER, code } => {
                format!("X(NX,{code})")
            }
            ErrorNumber::Experimenter { code, .. } => format!("X(ONF,{code})"),
            ErrorNumber::Vendor { .. } => unreachable!("an error of OpenFlow 1.0"),
        },
        _ => format!("T{}", Header::parse(frame).unwrap().kind),
    }
}

/// Returns the replies of a new connection.
fn replies(messages: &[Vec<u8>]) -> String {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    messages.iter().for_each(|message| harness.send_bytes(message));
    let echo = harness.send(&Message::EchoRequest(b"end".to_vec()));
    let frames = harness.reply_frames();
    let is_echo = |frame: &&bytes::Bytes| Header::parse(frame).unwrap().xid == echo;
    let mut words: Vec<_> =
        frames.iter().take_while(|frame| !is_echo(frame)).map(|frame| summarize(frame)).collect();
    if matches!(harness.run(), ConnectionStep::Closed(_)) {
        words.push("closed".to_owned());
    } else {
        assert!(frames.iter().any(|frame| is_echo(&frame)), "the echo has a reply");
    }
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

#[test]
fn errors_are_those_of_open_vswitch() {
    let cases = CASES.lines().filter(|line| !line.starts_with('#'));
    let (mut count, mut wrong) = (0, String::new());
    for case in cases {
        let columns: Vec<_> = case.split(" | ").collect();
        let messages: Vec<_> = columns[1].split(' ').map(bytes).collect();
        let expected = match columns.as_slice() {
            [_, _, theirs] => theirs,
            [_, _, theirs, ours, reason] => {
                assert!(theirs != ours && REASONS.contains(reason), "{case}");
                ours
            }
            _ => panic!("columns of {case}"),
        };
        let reply = replies(&messages);
        if reply != *expected {
            writeln!(wrong, "{} | {expected} | {reply}", columns[0]).unwrap();
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "case | expected | answered\n{wrong}");
    assert!(count > 700, "{count} cases");
}

#[test]
fn an_error_quotes_the_whole_message() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Management);
    let mut message =
        Header { version: 4, kind: 99, length: 300, xid: Xid::new(9) }.emit().to_vec();
    message.resize(300, 0xab);
    harness.send_bytes(&message);
    let [(xid, Message::Error(error))] = &harness.replies()[..] else { panic!("one error") };
    assert_eq!((*xid, &error.data), (Xid::new(9), &message));
    // A message of the maximum length is truncated, so that it fits after the header of the error.
    message.resize(65_535, 0xab);
    message[2..4].copy_from_slice(&[0xff, 0xff]);
    harness.send_bytes(&message);
    let [(_, Message::Error(error))] = &harness.replies()[..] else { panic!("one error") };
    assert_eq!(error.data, message[..65_535 - 12]);
}
