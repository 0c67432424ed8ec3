//! Rewriting compared with building the packet again.

#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics has failed"
)]

use proptest::prelude::*;

use super::{
    ChecksumState, MplsHeader, TtlCopy, complete_checksum, copy_ttl, pop_mpls, pop_vlan, push_mpls,
    push_vlan, set_header,
};
use crate::{
    FieldId, FlowKey, FlowMask, Layers, Match,
    extract::{VlanLimit, extract},
    testing::packet::{
        Checksums, PacketBuilder, fuzz_rewrite, header_sets, hostile_frames, internet_sum, packets,
    },
};

fn key_of(frame: &[u8]) -> (FlowKey, Layers) {
    let mut key = FlowKey::ZERO;
    let layers = extract(frame, VlanLimit::One, &mut key);
    (key, layers)
}

/// The frame and the key after a set.
fn rewrite(mut frame: Vec<u8>, set: &Match, state: ChecksumState) -> (Vec<u8>, FlowKey) {
    let (mut key, layers) = key_of(&frame);
    set_header(&mut frame, &layers, &mut key, set, state);
    (frame, key)
}

fn set_of(field: FieldId, value: u128) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(field, value);
    mask.add_field(field);
    Match::new(&key, &mask)
}

/// Returns the offset of the transport checksum of a frame.
fn checksum_offset(frame: &[u8]) -> Option<usize> {
    let (key, layers) = key_of(frame);
    let offset = match (key.field(FieldId::NwFrag), key.field(FieldId::IpProto)) {
        (0 | 1, 6) => 16,
        (0 | 1, 17) => 6,
        (0 | 1, 1 | 58) => 2,
        _ => return None,
    };
    Some(layers.transport()? + offset)
}

/// Returns the checksum at an offset.
fn checksum(frame: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([frame[offset], frame[offset + 1]])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn rewritten_frame_is_frame_of_rewritten_packet(
        (packet, set, after) in header_sets(),
    ) {
        let (frame, _) = rewrite(packet.build(), &set, ChecksumState::Complete);
        prop_assert_eq!(frame, after.build());
    }

    #[test]
    fn extracting_a_rewritten_frame_yields_the_updated_key((packet, set, _) in header_sets()) {
        let (frame, key) = rewrite(packet.build(), &set, ChecksumState::Complete);
        prop_assert_eq!(key_of(&frame).0, key);
    }

    #[test]
    fn partial_checksum_follows_only_pseudo_header(
        (packet, set, after) in header_sets(),
    ) {
        let frame = packet.checksums(Checksums::Partial).build();
        if key_of(&frame).0.field(FieldId::IpProto) == 132 {
            return Ok(()); // The CRC32c of SCTP has no partial form.
        }
        let (frame, _) = rewrite(frame, &set, ChecksumState::Partial);
        prop_assert_eq!(frame, after.checksums(Checksums::Partial).build());
    }

    #[test]
    fn rewriting_repairs_no_wrong_checksum(
        (packet, set, after) in header_sets(), error in 1..0xffff_u16,
    ) {
        let mut corrupt = packet.checksums(Checksums::Complete).build();
        let Some(offset) = checksum_offset(&corrupt) else { return Ok(()) };
        let add = |checksum: u16| internet_sum(&[checksum.to_be_bytes(), error.to_be_bytes()].concat());
        let wrong = add(checksum(&corrupt, offset));
        corrupt[offset..offset + 2].copy_from_slice(&wrong.to_be_bytes());
        let (corrupt, _) = rewrite(corrupt, &set, ChecksumState::Complete);
        let right = after.checksums(Checksums::Complete).build();
        let expected = add(checksum(&right, offset));
        prop_assert_eq!(checksum(&corrupt, offset) % 0xffff, expected % 0xffff);
    }

    #[test]
    fn rewriting_repairs_no_wrong_crc(ports in any::<[u16; 4]>(), error in any::<u32>()) {
        let packet = |a, b| PacketBuilder::ipv4([1; 4], [2; 4]).sctp(a, b).payload([3; 100]).build();
        let mut corrupt = packet(ports[0], ports[1]);
        let mut right = packet(ports[2], ports[3]);
        for frame in [&mut corrupt, &mut right] {
            frame[42..46].iter_mut().zip(error.to_be_bytes()).for_each(|(byte, bits)| *byte ^= bits);
        }
        let (corrupt, _) =
            rewrite(corrupt, &set_of(FieldId::SctpSrc, ports[2].into()), ChecksumState::Complete);
        let (corrupt, _) =
            rewrite(corrupt, &set_of(FieldId::SctpDst, ports[3].into()), ChecksumState::Complete);
        prop_assert_eq!(corrupt, right);
    }

    #[test]
    fn no_frame_makes_rewriting_fail(choice in any::<[u8; 24]>(), frame in hostile_frames()) {
        fuzz_rewrite(&[choice.as_slice(), &frame].concat());
    }

    #[test]
    fn a_push_adds_the_outermost_tag(packet in packets(), tci in any::<u16>()) {
        let frame = packet.build();
        let mut buffer = [&[0; 4], frame.as_slice()].concat();
        push_vlan(&mut buffer, 0x88a8, tci);
        let (key, _) = key_of(&buffer);
        prop_assert_eq!(key.field(FieldId::VlanTci), u128::from(tci | 0x1000));
        prop_assert_eq!(key.field(FieldId::VlanTpid), 0x88a8);
        pop_vlan(&mut buffer);
        prop_assert_eq!(&buffer[4..], frame.as_slice());
    }

    #[test]
    fn layers_follow_a_pushed_tag(packet in packets(), tci in any::<u16>()) {
        let frame = packet.build();
        let mut buffer = [&[0; 4], frame.as_slice()].concat();
        push_vlan(&mut buffer, 0x8100, tci);
        let (mut key, mut pushed) = (FlowKey::ZERO, FlowKey::ZERO);
        let layers = extract(&frame, VlanLimit::One, &mut key);
        if key.field(FieldId::VlanTci) == 0 {
            let expected = extract(&buffer, VlanLimit::One, &mut pushed);
            prop_assert_eq!(layers.shifted(4), expected);
            prop_assert_eq!(expected.shifted(-4), layers);
        }
    }

    #[test]
    fn a_pop_undoes_a_pushed_label(
        packet in packets(), entry in any::<u32>(),
    ) {
        let frame = packet.build();
        let (before, layers) = key_of(&frame);
        let payload = layers.payload().unwrap();
        let mut buffer = [&[0; 4], frame.as_slice()].concat();
        push_mpls(&mut buffer, payload, MplsHeader { ether_type: 0x8848, entry });
        let (key, pushed) = key_of(&buffer);
        prop_assert_eq!(pushed.payload(), Some(payload));
        prop_assert_eq!(key.field(FieldId::EthType), 0x8848);
        prop_assert_eq!(key.field(FieldId::VlanTci), before.field(FieldId::VlanTci));
        prop_assert_eq!(key.field(FieldId::MplsLabel), u128::from(entry >> 12));
        prop_assert_eq!(key.field(FieldId::MplsTtl), u128::from(entry & 0xff));
        let ether_type = u16::try_from(before.field(FieldId::EthType)).unwrap();
        pop_mpls(&mut buffer, payload, ether_type);
        if ether_type == 0x05ff {
            return Ok(()); // No type is a length field, because a key has no lengths.
        }
        prop_assert_eq!(&buffer[4..], frame.as_slice());
        prop_assert_eq!(layers.shifted_payload(4).shifted_payload(-4), layers);
    }

    #[test]
    fn a_ttl_is_copied_between_label_and_packet(
        packet in packets(), ttl in any::<u8>(),
    ) {
        let packet = packet.without_labels();
        let (inner, _) = key_of(&packet.build());
        let labelled = packet.clone().mpls(16, 3, ttl).build();
        let payload = key_of(&labelled).1.payload().unwrap();
        let own = u8::try_from(inner.field(FieldId::NwTtl)).unwrap();
        for (copy, expected) in [
            (TtlCopy::In, packet.clone().ttl(ttl).mpls(16, 3, ttl)),
            (TtlCopy::Out, packet.mpls(16, 3, own)),
        ] {
            let mut frame = labelled.clone();
            copy_ttl(&mut frame, payload, copy);
            if matches!(inner.field(FieldId::EthType), 0x0800 | 0x86dd) {
                prop_assert_eq!(frame, expected.build());
            }
        }
    }

    #[test]
    fn a_completed_checksum_covers_the_whole_packet(packet in packets()) {
        let packet = packet.padded(0);
        let complete = packet.clone().checksums(Checksums::Complete).build();
        let mut partial = packet.checksums(Checksums::Partial).build();
        let Some(place) = checksum_offset(&partial) else { return Ok(()) };
        let start = key_of(&partial).1.transport().unwrap();
        complete_checksum(&mut partial, start, place - start).unwrap();
        let (completed, expected) = (checksum(&partial, place), checksum(&complete, place));
        prop_assert_eq!(completed % 0xffff, expected % 0xffff);
        prop_assert_ne!(completed, 0);
    }
}

#[test]
fn a_udp_checksum_of_zero_stays_zero() {
    let packet = PacketBuilder::ipv4([1; 4], [2; 4]).udp(3, 4).checksums(Checksums::Absent);
    let set = set_of(FieldId::Ipv4Dst, 0x0a00_0001);
    let (frame, _) = rewrite(packet.build(), &set, ChecksumState::Complete);
    assert_eq!(checksum(&frame, 40), 0);
}

#[test]
fn a_computed_udp_checksum_of_zero_becomes_ffff() {
    let frame = PacketBuilder::ipv4([1; 4], [2; 4]).udp(0, 4).build();
    let set = set_of(FieldId::UdpSrc, checksum(&frame, 40).into());
    let (frame, _) = rewrite(frame, &set, ChecksumState::Complete);
    assert_eq!(checksum(&frame, 40), 0xffff);
}

#[test]
fn fields_that_cannot_be_written_stay() {
    let labels = PacketBuilder::ethernet(0).mpls(16, 0, 64).build();
    let set = set_of(FieldId::MplsBos, 0);
    assert_eq!(rewrite(labels.clone(), &set, ChecksumState::Complete).0, labels);
    let tcp = PacketBuilder::ipv4([1; 4], [2; 4]).tcp(1, 2).build();
    for field in [FieldId::IpProto, FieldId::NwFrag, FieldId::TcpFlags, FieldId::EthType] {
        let set = set_of(field, 0);
        assert_eq!(rewrite(tcp.clone(), &set, ChecksumState::Complete).0, tcp);
    }
}

#[test]
fn truncated_tcp_options_hide_the_ports() {
    let mut frame = PacketBuilder::ipv4([1; 4], [2; 4]).tcp(1, 2).build();
    frame[46] = 0x60;
    assert_eq!(key_of(&frame).0.field(FieldId::TcpDst), 0);
    let set = set_of(FieldId::TcpDst, 80);
    assert_eq!(rewrite(frame.clone(), &set, ChecksumState::Complete).0, frame);
}

#[test]
fn a_later_fragment_keeps_its_payload() {
    let packet = PacketBuilder::ipv4([1; 4], [2; 4]).udp(3, 4).fragment(5).payload([9; 30]);
    let frame = packet.build();
    let set = set_of(FieldId::Ipv4Dst, 0x0a00_0001);
    let (rewritten, _) = rewrite(frame.clone(), &set, ChecksumState::Complete);
    assert_eq!(rewritten[34..], frame[34..]);
    assert_ne!(rewritten[..34], frame[..34]);
}

#[test]
fn a_truncated_header_changes_only_in_the_key() {
    let frame = PacketBuilder::ipv4([1; 4], [2; 4]).protocol(6).payload([0; 10]).build();
    let (rewritten, key) =
        rewrite(frame.clone(), &set_of(FieldId::TcpDst, 80), ChecksumState::Complete);
    assert_eq!(rewritten, frame);
    assert_eq!(key.field(FieldId::TcpDst), 80);
}

#[test]
fn a_checksum_outside_of_the_frame_is_refused() {
    let mut frame = [1; 20];
    let refused = complete_checksum(&mut frame, 10, 9).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the checksum at byte 10 + 9 is outside of the frame of 20 \
         bytes"
    );
    assert!(complete_checksum(&mut frame, usize::MAX, usize::MAX).is_err());
    assert_eq!(frame, [1; 20]);
}

/// A frame with a service header and a fixed context.
/// With a `kind` other than 1, the bytes in place of the context are options.
fn service_frame(kind: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x89, 0x4f, 0x0f, 0xc6, kind, 3, 0x12, 0x34, 0x56, 0xff]);
    frame.extend(1..=16);
    frame.extend([0xee; 20]);
    frame
}

#[test]
fn written_service_header_is_read_back() {
    use FieldId::*;
    for (field, value) in [
        (NshFlags, 2),
        (NshTtl, 0x15),
        (NshSpi, 0x00ab_cdef),
        (NshSi, 7),
        (NshC1, 0xdead_beef),
        (NshC2, 0),
        (NshC3, 1),
        (NshC4, 0xffff_ffff),
    ] {
        let before = service_frame(1);
        let (frame, key) = rewrite(before.clone(), &set_of(field, value), ChecksumState::Complete);
        assert_eq!(key_of(&frame).0, key, "{field:?}");
        assert_eq!(key.field(field), value, "{field:?}");
        assert_eq!(frame[38..], before[38..], "what it carries stays");
        let mut restored = frame;
        let (old, layers) = key_of(&before);
        let mut key = key_of(&restored).0;
        let set = set_of(field, old.field(field));
        set_header(&mut restored, &layers, &mut key, &set, ChecksumState::Complete);
        assert_eq!(restored, before, "{field:?}");
    }
}

#[test]
fn options_are_not_taken_for_a_fixed_context() {
    let set = set_of(FieldId::NshC1, 0xdead_beef);
    let (frame, _) = rewrite(service_frame(2), &set, ChecksumState::Complete);
    assert_eq!(frame, service_frame(2));
}
