//! Texts and bytes that Open vSwitch 3.1 parses, prints and refuses, compared with Shunt.
//!
//! Each file in `tests/data` states how it was recorded.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use shunt_flow::{
    FieldId, FlowKey,
    oxm::{OxmError, decode_match, encode_match},
    text::{NoPortNames, format_key, format_match, items, parse_match, parse_value},
};

fn lines(data: &'static str) -> impl Iterator<Item = &'static str> {
    data.lines().filter(|line| !line.starts_with('#'))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |index: usize| u8::from_str_radix(&hex[index..index + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn canonical(text: &str) -> String {
    match parse_match(text, &NoPortNames) {
        Ok(matching) => format_match(&matching, &NoPortNames),
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn dumped_match_is_read_and_printed_same() {
    for text in lines(include_str!("data/dump-matches.txt")) {
        assert_eq!(canonical(text), text);
    }
}

#[test]
fn match_is_printed_like_open_vswitch() {
    for line in lines(include_str!("data/match-text.tsv")) {
        let [text, printed, wire] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}")
        };
        assert_eq!(canonical(text), printed, "{text}");
        let matching = parse_match(text, &NoPortNames).expect("canonical read it");
        let mut out = Vec::new();
        encode_match(&matching, &mut out);
        let sent: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sent, wire, "{text}");
        assert_eq!(decode_match(&bytes(wire)), Ok(matching), "{text}");
    }
}

#[test]
fn entries_get_the_result_of_open_vswitch() {
    for line in lines(include_str!("data/oxm-replies.tsv")) {
        let (wire, expected) = line.split_once('\t').expect("two columns");
        let reply = match decode_match(&bytes(wire)) {
            Ok(matching) => format_match(&matching, &NoPortNames),
            Err(error) => code_name(error).to_owned(),
        };
        assert_eq!(reply, expected, "{wire}");
    }
}

#[test]
fn packet_is_printed_like_open_vswitch() {
    for text in lines(include_str!("data/packet-keys.txt")) {
        assert_eq!(format_key(&packet_key(text), &NoPortNames), text);
    }
}

/// Returns the key that a printed flow describes.
fn packet_key(text: &str) -> FlowKey {
    let mut key = FlowKey::ZERO;
    let present = |key: &mut FlowKey| key.set_field_masked(FieldId::VlanTci, 0x1000, 0x1000);
    for (name, value) in items(text) {
        let Some(value) = value else {
            let protocol = parse_match(name, &NoPortNames).expect("a shorthand").key();
            key.set_field(FieldId::EthType, protocol.field(FieldId::EthType));
            key.set_field(FieldId::IpProto, protocol.field(FieldId::IpProto));
            continue;
        };
        let field = FieldId::find(name).expect("a field");
        let (value, _) = parse_value(field, value).expect("a value");
        key.set_field(field, value);
        if field == FieldId::DlVlan {
            present(&mut key);
        }
    }
    key
}

fn code_name(error: OxmError) -> &'static str {
    match error.code() {
        1 => "OFPBMC_BAD_LEN",
        5 => "OFPBMC_BAD_WILDCARDS",
        6 => "OFPBMC_BAD_FIELD",
        7 => "OFPBMC_BAD_VALUE",
        8 => "OFPBMC_BAD_MASK",
        9 => "OFPBMC_BAD_PREREQ",
        10 => "OFPBMC_DUP_FIELD",
        _ => "no code of decoding",
    }
}
