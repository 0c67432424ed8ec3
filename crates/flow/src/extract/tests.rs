//! Extraction against what was built, and against frames that nobody would build.

#![expect(clippy::indexing_slicing, reason = "a test that panics has failed")]

use proptest::prelude::*;

use super::{VlanLimit, extract};
use crate::{
    FieldId, FlowKey, Layers,
    testing::packet::{PacketBuilder, fuzz_extract, hostile_frames, packets},
};

fn key_of(frame: &[u8], limit: VlanLimit) -> (FlowKey, Layers) {
    let mut key = FlowKey::ZERO;
    let layers = extract(frame, limit, &mut key);
    (key, layers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_key_of_a_built_packet_says_what_was_built(packet in packets()) {
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
    fn a_frame_cut_short_keeps_the_layers_that_are_whole(
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
    assert_eq!((layers.mpls(), layers.network()), (None, Some(18)));
    assert_eq!((layers.transport(), layers.end()), (Some(38), Some(63)));
    let (_, layers) = key_of(&packet.mpls(16, 0, 64).build(), VlanLimit::One);
    assert_eq!((layers.mpls(), layers.network(), layers.transport()), (Some(14), None, None));
}

#[test]
fn a_second_tag_is_payload_unless_two_are_asked_for() {
    let packet = PacketBuilder::arp(1, ([1; 6], [2; 4]), ([0; 6], [3; 4]));
    let frame = packet.tag(0x88a8, 0x6005).tag(0x8100, 7).build();
    let (one, two) = (key_of(&frame, VlanLimit::One).0, key_of(&frame, VlanLimit::Two).0);
    assert_eq!((one.field(FieldId::VlanTci), one.field(FieldId::EthType)), (0x7005, 0x8100));
    assert_eq!((two.field(FieldId::VlanTci1), two.field(FieldId::EthType)), (0x1007, 0x0806));
    assert_eq!((two.field(FieldId::VlanTpid), two.field(FieldId::VlanTpid1)), (0x88a8, 0x8100));
}

#[test]
fn a_neighbour_message_that_names_an_address_twice_has_type_and_code_alone() {
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
fn the_extension_headers_of_a_packet_are_in_its_key() {
    let packet = PacketBuilder::ipv6([1; 16], [2; 16]).extension(0, &[]).extension(43, &[]);
    let (key, _) = key_of(&packet.fragment(0x2000).tcp(1, 2).build(), VlanLimit::One);
    assert_eq!(key.field(FieldId::Ipv6Exthdr), 0b0_0111_0000);
    assert_eq!(key.field(FieldId::TcpDst), 2);
}
