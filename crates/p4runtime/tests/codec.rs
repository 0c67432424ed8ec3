//! Tests that rules round-trip as entries, and that no entry is wider than its rule.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a rule that cannot be encoded fails the test"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    offload::Refusal,
    partition::StageId,
};
use shunt_p4runtime::{
    codec::{DeviceFeatures, Meaning, Ports, capabilities, decode, encode},
    program::{FieldSource, Program, key_fields},
};
use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};

const FIELDS: &[(FieldId, u32)] = &[
    (FieldId::EthDst, 48),
    (FieldId::EthSrc, 48),
    (FieldId::VlanTci, 16),
    (FieldId::Ipv4Src, 32),
    (FieldId::Ipv4Dst, 32),
    (FieldId::NwTos, 8),
    (FieldId::NwTtl, 8),
    (FieldId::TcpSrc, 16),
    (FieldId::TcpDst, 16),
    (FieldId::Ipv6Src, 128),
    (FieldId::Ipv6Dst, 128),
];

fn matching(fields: &[(FieldId, u128, u128)]) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    for (field, value, bits) in fields {
        // All bits at the position of the field: the type of service includes the ECN bits.
        field.info().slot.write(key.words_mut(), *value, u128::MAX);
        field.info().slot.write(mask.words_mut(), u128::MAX, *bits);
    }
    Match::new(&key, &mask)
}

/// Generates matches on some bits of some fields.
fn matches() -> impl Strategy<Value = Match> {
    let field = |(id, width): &(FieldId, u32)| {
        let (id, ones) = (*id, u128::MAX >> (128 - width));
        prop::option::weighted(
            0.3,
            (any::<u128>(), any::<u128>()).prop_map(move |(v, m)| (id, v & ones, m & ones)),
        )
    };
    FIELDS
        .iter()
        .map(field)
        .collect::<Vec<_>>()
        .prop_map(|fields| matching(&fields.into_iter().flatten().collect::<Vec<_>>()))
}

fn ports() -> Ports {
    Ports(BTreeMap::from([(DatapathPort::new(70_000), 7)]))
}

/// Generates a rule, and the rule that a device with its own ports decodes.
fn rules() -> impl Strategy<Value = (LtmRule, LtmRule)> {
    let in_port = prop::option::of((any::<u16>(), any::<u16>()));
    (matches(), in_port, matches(), 0u32..1 << 16, 1u16..64, 0u8..3).prop_map(
        |(matched, in_port, rewrite, tag, length, end)| {
            let (mut key, mut mask) = (matched.key(), FlowMask::from(matched.mask()));
            if let Some((value, bits)) = in_port {
                key.set_field(FieldId::InPort, value.into());
                mask.add_bits(FieldId::InPort, bits.into());
            }
            let rewrite = if end == 2 { Match::any() } else { rewrite };
            let set =
                (!rewrite.mask().is_empty()).then(|| DatapathAction::SetHeader(rewrite.clone()));
            let output = |port| DatapathAction::Output {
                port: DatapathPort::new(port),
                queue: QueueId::DEFAULT,
                unless_ingress: true,
                max_len: None,
            };
            let rule = |port| LtmRule {
                tag: Tag::new(tag),
                matching: Match::new(&key, &mask),
                length,
                actions: set.clone().into_iter().chain((end == 1).then(|| output(port))).collect(),
                rewrite: rewrite.clone(),
                next: if end == 0 { Next::Tag(Tag::new(tag / 2)) } else { Next::End },
            };
            (rule(70_000), rule(7))
        },
    )
}

proptest! {
    #[test]
    fn a_rule_round_trips_through_openflow((rule, expected) in rules(), stage in 0u8..4) {
        let program = Program::default();
        let stage = StageId::new(stage).unwrap();
        let entry = encode(&program, &ports(), stage, &rule).unwrap();
        prop_assert_eq!(capabilities(&program, &DeviceFeatures::default()).check(&rule), Ok(()));
        let decoded = decode(&program, &entry).unwrap();
        prop_assert_eq!((decoded.stage, decoded.meaning), (stage, Meaning::Rule(expected)));
    }
}

fn encode_rule(change: impl FnOnce(&mut LtmRule)) -> Result<(), Refusal> {
    let mut rule = LtmRule {
        tag: Tag::new(1),
        matching: Match::any(),
        length: 1,
        actions: [].into(),
        rewrite: Match::any(),
        next: Next::End,
    };
    change(&mut rule);
    encode(&Program::default(), &ports(), StageId::new(0).unwrap(), &rule).map(|_| ())
}

/// Encodes a last sub-traversal that changes tags and then forwards.
fn tagging(tags: Match, change: DatapathAction) -> Result<Match, Refusal> {
    let output = DatapathAction::Output {
        port: DatapathPort::new(70_000),
        queue: QueueId::DEFAULT,
        unless_ingress: true,
        max_len: None,
    };
    let rule = LtmRule {
        tag: Tag::new(1),
        matching: tags,
        length: 1,
        actions: [change, output].into(),
        rewrite: Match::any(),
        next: Next::End,
    };
    let (program, stage) = (Program::default(), StageId::new(0).unwrap());
    capabilities(&program, &DeviceFeatures::default()).check(&rule)?;
    let entry = encode(&program, &ports(), stage, &rule)?;
    let Meaning::Rule(rule) = decode(&program, &entry).unwrap().meaning else { panic!() };
    Ok(rule.rewrite)
}

#[test]
fn a_pushed_or_popped_tag_is_encoded() {
    let present = |value| (FieldId::VlanTci, value, 0x1000);
    let untagged = || matching(&[present(0)]);
    let push = |tpid| DatapathAction::PushVlan { tpid, tci: 0x1007 };
    let tci = |value| matching(&[(FieldId::VlanTci, value, 0xffff)]);
    assert_eq!(tagging(untagged(), push(0x8100)), Ok(tci(0x1007)));
    let tagged = |inner| matching(&[present(0x1000), (FieldId::VlanTci1, inner, 0x1000)]);
    assert_eq!(tagging(tagged(0), DatapathAction::PopVlan), Ok(tci(0)));

    assert_eq!(tagging(untagged(), push(0x88a8)), Err(Refusal::Write(FieldId::VlanTpid)));
    let one = [(FieldId::VlanTpid, 0x8100, 0xffff), (FieldId::VlanTci, 0x1009, 0xffff)];
    let two =
        tagging(matching(&[&one[..], &[(FieldId::VlanTci1, 0, 0x1000)]].concat()), push(0x8100));
    assert_eq!(two, Err(Refusal::Write(FieldId::VlanTpid1)));
    assert_eq!(tagging(Match::any(), push(0x8100)), Err(Refusal::Actions));
}

#[test]
fn rules_that_the_program_lacks_are_refused() {
    let output = |port, unless_ingress| DatapathAction::Output {
        port: DatapathPort::new(port),
        queue: QueueId::DEFAULT,
        unless_ingress,
        max_len: None,
    };
    assert_eq!(encode_rule(|_| {}), Ok(()));
    let wide = encode_rule(|rule| rule.tag = Tag::new(1 << 16));
    assert_eq!(wide, Err(Refusal::Tag(16)));
    let register = matching(&[(FieldId::Reg0, 1, 1)]);
    assert!(encode_rule(|rule| rule.matching = register).is_err());
    let label = matching(&[(FieldId::Ipv6Label, 1, 1)]);
    assert_eq!(encode_rule(|rule| rule.matching = label), Err(Refusal::Match(FieldId::Ipv6Label)));
    let port = matching(&[(FieldId::InPort, 1 << 20, 1 << 20)]);
    assert_eq!(encode_rule(|rule| rule.matching = port), Err(Refusal::Match(FieldId::InPort)));
    let sha = matching(&[(FieldId::ArpSha, 1, 1)]);
    assert_eq!(
        encode_rule(|rule| {
            rule.rewrite = sha;
            rule.next = Next::Tag(Tag::new(2));
        }),
        Err(Refusal::Write(FieldId::ArpSha))
    );
    assert_eq!(encode_rule(|rule| rule.actions = [output(1, true)].into()), Err(Refusal::Actions));
    let back = encode_rule(|rule| rule.actions = [output(70_000, false)].into());
    assert_eq!(back, Err(Refusal::Actions));
    // A packet from another port is not sent back to its ingress port.
    let elsewhere = encode_rule(|rule| {
        rule.actions = [output(70_000, false)].into();
        rule.matching = matching(&[(FieldId::InPort, 3, 0xffff_ffff)]);
    });
    assert_eq!(elsewhere, Ok(()));
    assert_eq!(
        encode_rule(|rule| rule.actions = [DatapathAction::PopVlan].into()),
        Err(Refusal::Actions)
    );
}

#[test]
fn implied_bits_are_not_encoded() {
    let of =
        |fields: &[(FieldId, u128, u128)]| encode_rule(|rule| rule.matching = matching(fields));
    let (tpid, tci) = (FieldId::VlanTpid, FieldId::VlanTci);
    assert_eq!(of(&[(FieldId::PacketType, 0, 0xffff_ffff)]), Ok(()));
    assert_eq!(of(&[(tpid, 0x8100, 0xffff), (tci, 0x1000, 0x1000)]), Ok(()));
    assert_eq!(of(&[(tpid, 0, 0xffff), (tci, 0, 0xffff)]), Ok(()));
    assert_eq!(of(&[(tpid, 0, 0xffff)]), Ok(()));
    assert_eq!(of(&[(FieldId::VlanTci1, 0, 0xffff)]), Ok(()));
    assert_eq!(of(&[(FieldId::VlanTci1, 5, 0xffff)]), Err(Refusal::Match(FieldId::VlanTci1)));
    assert_eq!(of(&[(tpid, 0x88a8, 0xffff), (tci, 0x1000, 0x1000)]), Err(Refusal::Match(tpid)));
    assert_eq!(of(&[(tpid, 0x8100, 0xffff)]), Err(Refusal::Match(tpid)));
    assert_eq!(of(&[(tpid, 0x8100, 0xffff), (tci, 0, 0x1000)]), Err(Refusal::Match(tpid)));
}

#[test]
fn an_untagged_rule_matches_only_untagged_packets() {
    let rule = LtmRule {
        tag: Tag::new(1),
        matching: matching(&[(FieldId::VlanTpid, 0, 0xffff)]),
        length: 1,
        actions: [].into(),
        rewrite: Match::any(),
        next: Next::End,
    };
    let program = Program::default();
    let entry = encode(&program, &ports(), StageId::new(0).unwrap(), &rule).unwrap();
    let Meaning::Rule(decoded) = decode(&program, &entry).unwrap().meaning else {
        panic!("a rule")
    };
    assert_eq!(decoded.matching, matching(&[(FieldId::VlanTci, 0, 0x1000)]));
}

#[test]
fn every_header_field_can_be_matched() {
    for field in key_fields() {
        let FieldSource::Header(id) = field.source else { continue };
        let bit = matching(&[(id, 1, 1)]);
        assert_eq!(encode_rule(|rule| rule.matching = bit), Ok(()), "{}", field.name);
    }
}
