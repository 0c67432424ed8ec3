//! Properties of the wire form; recorded bytes are in `tests/recorded.rs`.

use proptest::prelude::*;

use super::*;
use crate::{
    FieldId, Match, PortNo,
    testing::{any_match, field_bits, fuzz_oxm, matching::assert_survives},
};

/// Encodes a match.
fn wire(matching: &Match) -> Vec<u8> {
    let mut out = Vec::new();
    encode_match(matching, &mut out);
    out
}

fn numbered_fields() -> impl Iterator<Item = FieldId> {
    FieldId::all().filter(|field| !field.info().oxms.is_empty())
}

/// Fields that do not need a table of tunnel options.
fn bound_fields() -> impl Iterator<Item = FieldId> {
    numbered_fields().filter(|field| field.tunnel_option().is_none())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_legal_match_round_trips_through_oxm(matching in any_match()) {
        assert_survives(&matching);
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        fuzz_oxm(&bytes);
    }

    #[test]
    fn a_damaged_match_is_refused_or_still_legal(
        matching in any_match(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
    ) {
        let mut bytes = wire(&matching);
        prop_assume!(!bytes.is_empty());
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        fuzz_oxm(&bytes);
    }

    #[test]
    fn a_truncated_match_is_refused(matching in any_match(), cut in any::<prop::sample::Index>()) {
        let bytes = wire(&matching);
        prop_assume!(!bytes.is_empty());
        let mut ends = vec![0];
        while let Ok((_, length)) = decode_field(&bytes[ends[ends.len() - 1]..]) {
            ends.push(ends[ends.len() - 1] + length);
        }
        let cut = cut.index(bytes.len());
        let whole_entries = ends.contains(&cut);
        let is_short = matches!(decode_match(&bytes[..cut]), Err(OxmError::BadLength { .. }));
        prop_assert_eq!(is_short, !whole_entries);
    }

    #[test]
    fn each_field_alone_round_trips_through_oxm(
        (field, (value, mask)) in prop::sample::select(bound_fields().collect::<Vec<_>>())
            .prop_flat_map(|field| (Just(field), field_bits(field))),
    ) {
        let mut out = Vec::new();
        prop_assert!(encode_field(field, value, Some(mask), &mut out));
        let has_mask = mask != field.value_max();
        let expected = OxmField { field, value, mask, has_mask };
        prop_assert_eq!(decode_field(&out), Ok((expected, out.len())));
    }
}

#[test]
fn every_number_of_every_field_is_found_again() {
    for field in bound_fields() {
        for oxm in field.info().oxms {
            for has_mask in [false, true] {
                let header = OxmHeader::of(*oxm, field, has_mask);
                assert_eq!(header.find_field(), Some(field), "{}", oxm.name);
                assert_eq!(find_header(header.word(), header.experimenter()), Some(field));
                let mut bytes = Vec::new();
                header.write(&mut bytes);
                assert_eq!(OxmHeader::read(&bytes), Ok(header));
                assert_eq!(bytes.len(), header.header_len());
            }
        }
    }
}

#[test]
fn a_fully_masked_16_bit_port_is_exact() {
    let masked = decode_match(&[0x00, 0x00, 0x01, 0x04, 0xff, 0xfe, 0xff, 0xff]);
    assert_eq!(masked, decode_match(&[0x80, 0x00, 0x00, 0x04, 0xff, 0xff, 0xff, 0xfe]));
    assert!(masked.is_ok());
}

#[test]
fn a_field_without_a_number_writes_nothing() {
    let mut out = Vec::new();
    assert!(!encode_field(FieldId::SkbPriority, 1, None, &mut out));
    assert!(out.is_empty());
    assert_eq!(header(FieldId::SkbPriority), None);
}

#[test]
fn wider_vlan_mask_is_sent_as_tci() {
    let matching = crate::text::parse_match("vlan_tci=0x4005/0x6fff", &crate::text::NoPortNames);
    let matching = matching.expect("a tag control mask is legal");
    assert_eq!(wire(&matching), [0x00, 0x00, 0x09, 0x04, 0x40, 0x05, 0x6f, 0xff]);
}

#[test]
fn absent_tag_has_no_nxm_mask() {
    for text in ["vlan_tci=0", "dl_vlan=0xffff", "vlan_tci=0/0x1fff"] {
        let matching = crate::text::parse_match(text, &crate::text::NoPortNames).unwrap();
        let mut out = Vec::new();
        encode_nxm_match(&matching, &mut out);
        assert_eq!(out, [0x00, 0x00, 0x08, 0x02, 0, 0], "{text}");
        assert_eq!(decode_match(&out).as_ref(), Ok(&matching), "{text}");
    }
    let any_priority = crate::text::parse_match("vlan_tci=0/0x1000", &crate::text::NoPortNames);
    let mut out = Vec::new();
    encode_nxm_match(&any_priority.unwrap(), &mut out);
    assert_eq!(out, [0x00, 0x00, 0x09, 0x04, 0, 0, 0x10, 0]);
}

#[test]
fn nxm_round_trips_each_16_bit_port() {
    for number in 0..=u16::MAX {
        let [high, low] = number.to_be_bytes();
        let bytes = [0x00, 0x00, 0x00, 0x02, high, low];
        let matching = decode_match(&bytes).unwrap();
        let reserved = if number >= 0xff00 { 0xffff_0000 } else { 0 };
        let port = PortNo::new(u32::from(number) | reserved);
        assert_eq!(matching.key().in_port(), port, "{number:#x}");
        let mut out = Vec::new();
        encode_nxm_match(&matching, &mut out);
        assert_eq!(out, bytes, "{number:#x}");
    }
}

#[test]
fn later_fragments_refuse_ports_in_any_order() {
    let later = [0x00, 0x01, 0x34, 0x01, 0x03];
    let ip_tcp = [0x80, 0x00, 0x0a, 0x02, 0x08, 0x00, 0x80, 0x00, 0x14, 0x01, 0x06];
    let port = [0x80, 0x00, 0x1c, 0x02, 0x00, 0x50];
    let refused = Err(OxmError::BadPrereq(FieldId::TcpDst));
    assert_eq!(decode_match(&[&ip_tcp[..], &later, &port].concat()), refused);
    assert_eq!(decode_match(&[&ip_tcp[..], &port, &later].concat()), refused);
}

#[test]
fn an_unmapped_tunnel_option_is_refused() {
    for entry in [
        &[0x00, 0x01, 0x50, 0x04, 0, 0, 0, 1][..],
        &[0x00, 0x01, 0x51, 0x08, 0, 0, 0, 1, 0, 0, 0, 0xff],
        &[0x00, 0x01, 0x50, 0x02, 0x12, 0x34],
        &[0x00, 0x01, 0xce, 0x04, 0, 0, 0, 1],
    ] {
        let error = decode_match(entry).expect_err("no table binds it");
        assert!(matches!(error, OxmError::Unbound(_)), "{error}");
        assert_eq!(error.code(), 6, "OFPBMC_BAD_FIELD");
        assert_eq!(OxmHeader::read(entry).map(|header| header.find_field()), Ok(None));
    }
}
