//! Properties of every frame: entry points of the fuzz targets.

use crate::{
    FieldId, FlowKey, FlowMask, Layers, Match, PortNo,
    extract::{VlanLimit, extract},
    layout::HEADER_WORDS,
    rewrite::{
        ChecksumState, MplsHeader, complete_checksum, pop_mpls, pop_vlan, push_mpls, push_vlan,
        set_header,
    },
};

/// Extracts the headers of any frame, and checks properties of all frames.
///
/// # Panics
///
/// If a property does not hold.
pub fn fuzz_extract(frame: &[u8]) {
    for limit in [VlanLimit::One, VlanLimit::Two] {
        let mut key = filled_key(u64::MAX);
        let layers = extract(frame, limit, &mut key);
        let mut other = filled_key(0);
        other.set_in_port(PortNo::new(u32::MAX));
        assert_eq!(
            extract(frame, limit, &mut other),
            layers,
            "the result does not depend on the old key"
        );
        assert_eq!(key.words()[HEADER_WORDS], other.words()[HEADER_WORDS]);
        assert!(key.words()[..HEADER_WORDS.start].iter().all(|word| *word == u64::MAX));
        check_layers(&layers, frame.len());
    }
}

/// Writes the fields in `data` into any frame, and checks properties of all frames.
///
/// # Panics
///
/// If a property does not hold.
pub fn fuzz_rewrite(data: &[u8]) {
    let Some((choice, frame)) = data.split_first_chunk::<24>() else { return };
    let set = any_writes(choice);
    let state = [ChecksumState::Complete, ChecksumState::Partial][usize::from(choice[0] & 1)];
    let mut key = FlowKey::ZERO;
    let layers = extract(frame, VlanLimit::One, &mut key);
    let mut expected = key.clone();
    let words = expected.words_mut();
    let set_words = set.mask().iter().zip(set.value());
    set_words.for_each(|((word, mask), value)| words[word] = words[word] & !mask | value);
    let mut written = frame.to_vec();
    set_header(&mut written, &layers, &mut key, &set, state);
    assert_eq!(key, expected, "the key takes exactly the bits of the set");
    assert_eq!(written.len(), frame.len());
    if let Some(end) = layers.end() {
        assert_eq!(written[end..], frame[end..], "padding is not touched");
    }
    check_tags(frame);
    check_labels(frame, &layers);
    // Any offset is legal; an offset outside the frame returns an error.
    let (start, offset) = (usize::from(choice[1]), usize::from(choice[2]));
    let completed = complete_checksum(&mut written, start, offset);
    assert_eq!(completed.is_ok(), start + offset + 2 <= frame.len());
}

/// Returns a key of equal words.
fn filled_key(word: u64) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.words_mut().fill(word);
    key
}

/// Checks that the offsets are inside the frame and in order.
fn check_layers(layers: &Layers, length: usize) {
    assert!(layers.network().is_none() || layers.network() == layers.payload());
    let offsets = [layers.payload(), layers.transport(), layers.end()];
    let offsets: Vec<usize> = offsets.into_iter().flatten().collect();
    assert!(offsets.is_sorted() && offsets.iter().all(|offset| *offset <= length));
}

/// Checks that a VLAN tag can be pushed and popped.
fn check_tags(frame: &[u8]) {
    let mut buffer = [&[0; 4], frame].concat();
    push_vlan(&mut buffer, 0x8100, 0x2005);
    if frame.len() >= 12 {
        assert_eq!(buffer[12..16], [0x81, 0x00, 0x20, 0x05]);
        pop_vlan(&mut buffer);
    }
    assert_eq!(&buffer[4..], frame, "a pop undoes the push");
}

/// Checks that an MPLS label can be pushed and popped.
fn check_labels(frame: &[u8], layers: &Layers) {
    let Some(payload) = layers.payload() else { return };
    let before = [frame[payload - 2], frame[payload - 1]];
    let mut buffer = [&[0; 4], frame].concat();
    push_mpls(&mut buffer, payload, MplsHeader { ether_type: 0x8847, entry: 0x0001_0140 });
    assert_eq!(buffer[..payload - 2], frame[..payload - 2]);
    assert_eq!(buffer[payload - 2..payload + 4], [0x88, 0x47, 0x00, 0x01, 0x01, 0x40]);
    pop_mpls(&mut buffer, payload, u16::from_be_bytes(before));
    assert_eq!(&buffer[4..], frame, "a pop undoes the push");
    // Any value of `payload` is legal.
    for payload in [0, 1, frame.len() + 1, usize::MAX] {
        push_mpls(&mut buffer, payload, MplsHeader { ether_type: 0x8847, entry: 0 });
        pop_mpls(&mut buffer, payload, 0x0800);
    }
}

/// Returns a set of writable fields.
/// The first eight bytes select the fields, the rest gives their values.
fn any_writes(choice: &[u8; 24]) -> Match {
    let (chosen, seed) = choice.split_at(8);
    let chosen = chosen.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    let seed = seed.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    let (mut value, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    for (index, field) in (0_u32..).zip(HEADER_FIELDS) {
        if chosen >> index & 1 == 1 {
            value.set_field(field, seed.rotate_left(index));
            mask.add_field(field);
        }
    }
    Match::new(&value, &mask)
}

const HEADER_FIELDS: [FieldId; 20] = [
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::VlanTci,
    FieldId::MplsLabel,
    FieldId::MplsTc,
    FieldId::MplsTtl,
    FieldId::Ipv4Src,
    FieldId::Ipv4Dst,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::Ipv6Label,
    FieldId::NwTos,
    FieldId::NwTtl,
    FieldId::ArpOp,
    FieldId::ArpSha,
    FieldId::ArpTha,
    FieldId::TcpSrc,
    FieldId::TcpDst,
    FieldId::NdTarget,
    FieldId::Metadata,
];
