//! Extraction against the fields of built packets, and on malformed frames.

#![expect(clippy::indexing_slicing, reason = "a test that panics has failed")]

use proptest::prelude::*;

use super::{VlanLimit, extract};
use crate::{
    FieldId, FlowKey, Layers,
    testing::packet::{PacketBuilder, fuzz_extract, hostile_frames, packets},
    text::{NoPortNames, format_key},
};

fn key_of(frame: &[u8], limit: VlanLimit) -> (FlowKey, Layers) {
    let mut key = FlowKey::ZERO;
    let layers = extract(frame, limit, &mut key);
    (key, layers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_built_packet_extracts_to_its_values(packet in packets()) {
        let frame = packet.build();
        for limit in [VlanLimit::One, VlanLimit::Two] {
            let (mut key, _) = key_of(&frame, limit);
            key.set_field(FieldId::Ipv6Exthdr, 0);
            prop_assert_eq!(key, packet.key(limit));
        }
    }

    #[test]
    fn no_frame_makes_extraction_fail(frame in hostile_frames()) {
        fuzz_extract(&frame);
    }

    #[test]
    fn padding_is_never_part_of_a_key(packet in packets(), length_min in 60..300_usize) {
        let frame = packet.clone().padded(0).build();
        let padded = packet.padded(length_min).build();
        let (key, layers) = key_of(&frame, VlanLimit::Two);
        if layers.end().is_some() {
            prop_assert_eq!(key_of(&padded, VlanLimit::Two), (key, layers));
        }
    }

    #[test]
    fn a_truncated_frame_keeps_its_complete_layers(
        packet in packets(), cut in any::<prop::sample::Index>(),
    ) {
        let frame = packet.build();
        let cut = &frame[..cut.index(frame.len())];
        let (key, whole) = (key_of(cut, VlanLimit::One).0, key_of(&frame, VlanLimit::One).0);
        if cut.len() < 14 {
            prop_assert_eq!(key, FlowKey::ZERO);
        } else {
            prop_assert_eq!(key.field(FieldId::EthSrc), whole.field(FieldId::EthSrc));
            prop_assert_eq!(key.field(FieldId::EthDst), whole.field(FieldId::EthDst));
        }
    }
}

#[test]
fn layers_say_where_the_headers_begin() {
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2).payload([7; 5]);
    let (_, layers) = key_of(&packet.clone().tag(0x8100, 9).padded(100).build(), VlanLimit::One);
    assert_eq!((layers.payload(), layers.network()), (Some(18), Some(18)));
    assert_eq!((layers.transport(), layers.end()), (Some(38), Some(63)));
    let (_, layers) = key_of(&packet.mpls(16, 0, 64).build(), VlanLimit::One);
    assert_eq!((layers.payload(), layers.network(), layers.transport()), (Some(14), None, None));
}

#[test]
fn second_tag_is_payload_by_default() {
    let packet = PacketBuilder::arp(1, ([1; 6], [2; 4]), ([0; 6], [3; 4]));
    let frame = packet.tag(0x88a8, 0x6005).tag(0x8100, 7).build();
    let (one, two) = (key_of(&frame, VlanLimit::One).0, key_of(&frame, VlanLimit::Two).0);
    assert_eq!((one.field(FieldId::VlanTci), one.field(FieldId::EthType)), (0x7005, 0x8100));
    assert_eq!((two.field(FieldId::VlanTci1), two.field(FieldId::EthType)), (0x1007, 0x0806));
    assert_eq!((two.field(FieldId::VlanTpid), two.field(FieldId::VlanTpid1)), (0x88a8, 0x8100));
}

#[test]
fn a_duplicate_neighbour_option_clears_its_fields() {
    let packet = PacketBuilder::ipv6([1; 16], [2; 16]).icmp(135, 0);
    let target = [4_u8; 16];
    let option = [1, 1, 2, 0, 0, 0, 0, 9];
    let once = packet.clone().payload([target.as_slice(), &option].concat()).build();
    let twice = packet.payload([target.as_slice(), &option, &option].concat()).build();
    let (once, twice) = (key_of(&once, VlanLimit::One).0, key_of(&twice, VlanLimit::One).0);
    assert_eq!(once.field(FieldId::NdSll), 0x0200_0000_0009);
    assert_eq!(twice.field(FieldId::NdSll), 0);
    assert_eq!(twice.field(FieldId::NdTarget), 0);
    assert_eq!(twice.field(FieldId::Icmpv6Type), 135);
}

#[test]
fn extension_headers_of_packet_are_in_key() {
    let packet = PacketBuilder::ipv6([1; 16], [2; 16]).extension(0, &[]).extension(43, &[]);
    let (key, _) = key_of(&packet.fragment(0x2000).tcp(1, 2).build(), VlanLimit::One);
    assert_eq!(key.field(FieldId::Ipv6Exthdr), 0b0_0111_0000);
    assert_eq!(key.field(FieldId::TcpDst), 2);
}

/// Returns the bytes of a text of hexadecimal digits.
fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.map(|pair| byte(pair).expect("hexadecimal")).collect()
}

#[test]
fn service_header_is_read_like_open_vswitch() {
    // `ofproto/trace BRIDGE in_port=LOCAL FRAME`, Open vSwitch 3.1: the fields after `dl_type`.
    /// The service header fields of a packet without a service header.
    const NOTHING: &str = "nsh_flags=0,nsh_ttl=0,nsh_mdtype=0,nsh_np=0,nsh_spi=0x0,nsh_si=0";
    let contexts = "11111111222222223333333344444444";
    for (header, expected) in [
        (
            format!("0fc60103012345ff{contexts}aabb"),
            "nsh_flags=0,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x12345,nsh_si=255,\
             nsh_c1=0x11111111,nsh_c2=0x22222222,nsh_c3=0x33333333,nsh_c4=0x44444444",
        ),
        (
            format!("2fc60103012345ff{contexts}"),
            "nsh_flags=2,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x12345,nsh_si=255,\
             nsh_c1=0x11111111,nsh_c2=0x22222222,nsh_c3=0x33333333,nsh_c4=0x44444444",
        ),
        (
            format!("3fc6f103012345ff{contexts}"),
            "nsh_flags=3,nsh_ttl=63,nsh_mdtype=241,nsh_np=3,nsh_spi=0x12345,nsh_si=255",
        ),
        (
            "0fc20203001234ff".to_owned(),
            "nsh_flags=0,nsh_ttl=63,nsh_mdtype=2,nsh_np=3,nsh_spi=0x1234,nsh_si=255",
        ),
        (
            "0fc40203012345ff1111111122222222".to_owned(),
            "nsh_flags=0,nsh_ttl=63,nsh_mdtype=2,nsh_np=3,nsh_spi=0x12345,nsh_si=255",
        ),
        ("0fc60103001234".to_owned(), NOTHING),
        (format!("0fc50103012345ff{contexts}"), NOTHING),
        (format!("0fc80103012345ff{contexts}5555555566666666"), NOTHING),
        ("0fc60203012345ff1111111122222222".to_owned(), NOTHING),
        (format!("4fc60103012345ff{contexts}"), NOTHING),
        ("0fc00203012345ff".to_owned(), NOTHING),
        ("0fc10203012345ff".to_owned(), NOTHING),
    ] {
        let frame = bytes(&format!("aabbccddeeff112233445566894f{header}"));
        let text = format_key(&key_of(&frame, VlanLimit::One).0, &NoPortNames);
        let shown = text.split_once("dl_type=0x894f,").map(|(_, shown)| shown);
        assert_eq!(shown, Some(expected), "{header}");
    }
}

#[test]
fn neighbour_discovery_is_read_as_in_open_vswitch() {
    // The megaflows of `ofproto/trace BRIDGE in_port=LOCAL FRAME` where rules match on both fields.
    let target = "fe80000000000000 0000000000000001".replace(' ', "");
    for (kind, rest, option) in [
        ("87", format!("{target}0101aabbccddeeff"), 1),
        ("88", format!("{target}0e010000000000000201aabbccddeeff"), 2),
        ("88", target.clone(), 0),
        ("88", format!("{target}0201aabbccddeeff0101aabbccddeeff"), 2),
        ("87", format!("{target}0101aabbccddeeff0101aabbccddeeff"), 1),
        ("87", format!("{target}01010000000000000201aabbccddeeff"), 1),
        ("87", format!("{target}0102aabbccddeeff0000000000000000"), 0),
        ("87", "fe80".to_owned(), 0),
    ] {
        let message = format!("{kind}00000060000005{rest}");
        let length = message.len() / 2;
        let source = "fe80000000000000 0000000000000002".replace(' ', "");
        let header = format!("60000000{length:04x}3aff{source}{target}");
        let frame = bytes(&format!("33330000000111223344556686dd{header}{message}"));
        let key = key_of(&frame, VlanLimit::One).0;
        assert_eq!(key.field(FieldId::NdReserved), 0x6000_0005, "{rest}");
        assert_eq!(key.field(FieldId::NdOptionsType), option, "{rest}");
    }
}
