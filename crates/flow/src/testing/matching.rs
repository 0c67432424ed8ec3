//! Generators of legal matches, and fuzz functions for the parsers of matches.

use proptest::{prelude::*, sample::select};

use crate::{
    FieldId, FlowKey, Match, draft,
    draft::MatchDraft,
    field::{Maskable, Prerequisite},
    oxm,
    oxm::OxmError,
    prerequisite,
    text::{NoPortNames, format_match, parse_match},
};

/// A value of a field and its mask.
pub type FieldBits = (u128, u128);

/// Generates legal matches: a protocol stack, then any fields that it allows.
///
/// Every field that can be matched occurs, with every kind of mask that the field takes.
pub fn any_match() -> impl Strategy<Value = Match> {
    let picks = prop::collection::vec(any_field(), 0..24);
    (select(STACKS), picks).prop_map(|(stack, picks)| {
        let whole = |(field, value): &(FieldId, u128)| (*field, (*value, field.value_max()));
        let mut draft = MatchDraft::default();
        stack.iter().map(whole).chain(picks).for_each(|pick| add_if_legal(&mut draft, pick));
        draft.finish()
    })
}

/// Generates a legal value of `field`, and a legal mask that is not empty.
pub fn field_bits(field: FieldId) -> impl Strategy<Value = FieldBits> {
    let whole = field.value_max();
    let bits = u32::from(field.width());
    let low = (0..bits).prop_map(move |bit| whole >> bit);
    let masks =
        prop_oneof![Just(whole), low.prop_map(move |low| whole ^ (low >> 1)), any::<u128>()];
    let mask = masks.prop_map(move |mask| match field.info().maskable {
        Maskable::Maskable if mask & whole != 0 => mask & whole,
        _ => whole,
    });
    // Small numbers and all ones are the edge cases.
    let value = prop_oneof![any::<u128>(), 0..300_u128, Just(u128::MAX)];
    let bits = (value, mask)
        .prop_map(move |(value, mask)| (value & mask & draft::value_bits(field), mask));
    bits.prop_filter("a packet can have this value of the field", move |(value, mask)| {
        draft::is_legal(field, *value, *mask)
    })
}

/// Generates keys of arbitrary bits, in which known protocols are likely.
pub fn any_key() -> impl Strategy<Value = FlowKey> {
    let words = prop::collection::vec(any::<u64>(), crate::layout::FLOW_WORDS);
    (words, select(STACKS)).prop_map(|(words, stack)| {
        let mut key = FlowKey::ZERO;
        key.words_mut().copy_from_slice(&words);
        stack.iter().for_each(|(field, value)| key.set_field(*field, *value));
        key
    })
}

/// Decodes any bytes; a match must survive encoding and printing.
///
/// # Panics
///
/// If a decoded match does not survive.
pub fn fuzz_oxm(data: &[u8]) {
    if let Ok(matching) = oxm::decode_match(data) {
        assert_survives(&matching);
    }
}

/// Parses any text; a match must survive encoding and printing.
///
/// # Panics
///
/// If a parsed match does not survive.
pub fn fuzz_match_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(matching) = parse_match(&text, &NoPortNames) {
        assert_survives(&matching);
    }
}

/// Asserts that a match is legal, and that OXM and text round-trip.
/// OXM refuses tunnel options.
///
/// # Panics
///
/// If the match is not legal or does not round-trip.
pub fn assert_survives(matching: &Match) {
    assert!(prerequisite::is_legal(matching), "{matching:?} is not legal");
    let mut wire = Vec::new();
    oxm::encode_match(matching, &mut wire);
    let decoded = oxm::decode_match(&wire);
    if matching.key().tunnel_options() == 0 {
        assert_eq!(decoded.as_ref(), Ok(matching), "through {wire:02x?}");
    } else {
        assert!(matches!(decoded, Err(OxmError::Unbound(_))), "{decoded:?} through {wire:02x?}");
    }
    let text = format_match(matching, &NoPortNames);
    assert_eq!(parse_match(&text, &NoPortNames).as_ref(), Ok(matching), "through {text}");
}

/// Generates any field that can be matched.
/// Header fields are as likely as the more numerous registers.
fn any_field() -> impl Strategy<Value = (FieldId, FieldBits)> {
    let matchable = FieldId::all().filter(is_matchable);
    let (hidden, header): (Vec<_>, Vec<_>) =
        matchable.partition(|field| field.info().prerequisite == Prerequisite::Any);
    prop_oneof![select(hidden), select(header)]
        .prop_flat_map(|field| (Just(field), field_bits(field)))
}

/// Returns whether a client may match the field.
/// Tunnel options need a table, which does not exist.
fn is_matchable(field: &FieldId) -> bool {
    !field.info().oxms.is_empty() && field.tunnel_option().is_none()
}

/// Adds a field to a match, if a client may add it.
/// The match must have the prerequisites of the field, lack the field, and stay legal.
fn add_if_legal(draft: &mut MatchDraft, (field, (value, mask)): (FieldId, FieldBits)) {
    let mut with = draft.clone();
    with.add(field, value, mask);
    let may = draft.has_prerequisite(field) && !draft.asks(field);
    if may && prerequisite::is_legal(&with.clone().finish()) {
        *draft = with;
    }
}

/// Protocol stacks, by the fields that name them.
const STACKS: &[&[(FieldId, u128)]] = {
    use FieldId::*;
    &[
        &[],
        &[(InPort, 1)],
        &[(EthType, 0x0806)],
        &[(EthType, 0x8035)],
        &[(EthType, 0x8847)],
        &[(EthType, 0x8848)],
        &[(EthType, 0x88e7)],
        &[(EthType, 0x894f)],
        &[(EthType, 0x0800)],
        &[(EthType, 0x86dd)],
        &[(EthType, 0x0800), (IpProto, 1)],
        &[(EthType, 0x0800), (IpProto, 6)],
        &[(EthType, 0x0800), (IpProto, 17)],
        &[(EthType, 0x0800), (IpProto, 132)],
        &[(EthType, 0x86dd), (IpProto, 6)],
        &[(EthType, 0x86dd), (IpProto, 17)],
        &[(EthType, 0x86dd), (IpProto, 132)],
        &[(EthType, 0x86dd), (IpProto, 58)],
        &[(EthType, 0x86dd), (IpProto, 58), (Icmpv6Type, 135)],
        &[(EthType, 0x86dd), (IpProto, 58), (Icmpv6Type, 136), (Icmpv6Code, 0)],
        &[(VlanVid, 0x1005)],
        &[(CtState, 0x22)],
    ]
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    use super::*;
    use crate::FlowMask;

    #[test]
    fn generator_reaches_every_field_and_mask() {
        let mut runner = TestRunner::deterministic();
        let mut reached = HashSet::new();
        for _ in 0..4000 {
            let matching = any_match().new_tree(&mut runner).expect("no rejects").current();
            let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
            for field in FieldId::all() {
                let bits = mask.field(field);
                if bits != 0 && prerequisite::is_met(field, &key, &mask) {
                    reached.insert((field, bits == field.value_max()));
                }
            }
        }
        for field in FieldId::all().filter(is_matchable) {
            assert!(reached.contains(&(field, true)), "{field:?}");
            let can_be_masked = field.info().maskable == Maskable::Maskable && field.width() > 1;
            assert!(!can_be_masked || reached.contains(&(field, false)), "{field:?} masked");
        }
    }
}
