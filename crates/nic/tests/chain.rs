//! Compares the lookup of a packet in the stages of a NIC with a linear search of all entries.

#![expect(clippy::unwrap_used, reason = "stages are few")]

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    partition::StageId,
};
use shunt_nic::{NicChain, NicLimits, NicVerdict, NicWalk};
use shunt_p4runtime::{
    codec::{Decoded, Meaning, Ports, decode, encode},
    program::{PUNT_ACTION, Program},
    server::{DeviceError, EntryHits, EntryNo},
    wire::p4::v1::{Action, TableAction, TableEntry, table_action},
};
use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};

const STAGES: u8 = 3;

/// Generates headers with small numbers, so that packets match rules.
fn header() -> impl Strategy<Value = FlowKey> {
    (0u8..3, 0u8..4, 0u8..4).prop_map(|(in_port, tos, ttl)| {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::InPort, in_port.into());
        key.set_field(FieldId::IpEcn, tos.into());
        key.set_field(FieldId::NwTtl, ttl.into());
        key
    })
}

fn mask() -> impl Strategy<Value = FlowMask> {
    (0u8..4, 0u8..4).prop_map(|(tos, ttl)| {
        let mut mask = FlowMask::EMPTY;
        mask.add_bits(FieldId::IpEcn, tos.into());
        mask.add_bits(FieldId::NwTtl, ttl.into());
        mask
    })
}

/// Priorities that are possible rule lengths, and greater ones.
const PRIORITIES: [i32; 6] = [1, 2, 65535, 65536, 70000, i32::MAX];

/// An entry as its controller defines it.
#[derive(Clone, Debug)]
struct IntendedEntry {
    stage: u8,
    priority: i32,
    rule: LtmRule,
    is_punt: bool,
}

fn intended_entry() -> impl Strategy<Value = IntendedEntry> {
    let rewrite = (header(), mask()).prop_map(|(key, mask)| Match::new(&key, &mask));
    let matching = (header(), mask()).prop_map(|(key, mask)| Match::new(&key, &mask));
    let priority = prop::sample::select(&PRIORITIES[..]);
    (0..STAGES, 0u32..3, matching, rewrite, (priority, 0u32..3, 0u8..4)).prop_map(
        |(stage, tag, matching, rewrite, (priority, last, end))| {
            let output = (end == 1).then(|| DatapathAction::Output {
                port: DatapathPort::new(last),
                queue: QueueId::DEFAULT,
                unless_ingress: true,
                max_len: None,
            });
            let set = DatapathAction::SetHeader(rewrite.clone());
            let rule = LtmRule {
                tag: Tag::new(tag),
                matching,
                length: 1,
                actions: [set].into_iter().chain(output).collect(),
                rewrite,
                next: if end == 0 { Next::Tag(Tag::new(last)) } else { Next::End },
            };
            IntendedEntry { stage, priority, rule, is_punt: end == 3 }
        },
    )
}

fn program() -> Program {
    Program::new(STAGES, 64).unwrap()
}

/// Returns the entry as the NIC decodes it.
fn decode_entry(intended_entry: &IntendedEntry) -> Decoded {
    let ports = Ports((0..3).map(|n| (DatapathPort::new(n), n.try_into().unwrap())).collect());
    let stage = StageId::new(intended_entry.stage).unwrap();
    let entry = encode(&program(), &ports, stage, &intended_entry.rule).unwrap();
    let punt = Action { action_id: PUNT_ACTION.id, params: Vec::new() };
    let punt = TableAction { r#type: Some(table_action::Type::Action(punt)) };
    let action = if intended_entry.is_punt { Some(punt) } else { entry.action.clone() };
    decode(&program(), &TableEntry { priority: intended_entry.priority, action, ..entry }).unwrap()
}

/// Returns whether two entries have the same key.
fn is_same(left: &IntendedEntry, right: &IntendedEntry) -> bool {
    let key = |intended_entry: &IntendedEntry| {
        (intended_entry.stage, intended_entry.rule.tag, intended_entry.priority)
    };
    key(left) == key(right) && left.rule.matching == right.rule.matching
}

/// Looks up a packet by searching all entries in each stage.
fn slow(entries: &[IntendedEntry], key: &FlowKey) -> Option<NicVerdict> {
    let (mut tag, mut now, mut last_stage) = (Tag::new(0), key.clone(), 0);
    let punt = |reason, tag: Tag, last_stage| NicVerdict::Punt {
        reason,
        miss_tag: u16::try_from(tag.number()).unwrap(),
        last_stage,
    };
    for stage in 0..STAGES {
        let fits = |intended_entry: &&IntendedEntry| {
            intended_entry.stage == stage
                && intended_entry.rule.tag == tag
                && intended_entry.rule.matching.matches(&now)
        };
        let found: Vec<_> = entries.iter().filter(fits).collect();
        let Some(highest) = found.iter().map(|intended_entry| intended_entry.priority).max() else {
            continue;
        };
        let best: Vec<_> =
            found.into_iter().filter(|intended_entry| intended_entry.priority == highest).collect();
        // Among several entries of equal priority, any result is correct.
        let [IntendedEntry { rule, is_punt, .. }] = best[..] else { return None };
        last_stage = stage + 1;
        if *is_punt {
            return Some(punt(2, tag, last_stage));
        }
        match rule.next {
            Next::Tag(next) => {
                tag = next;
                for field in [FieldId::IpEcn, FieldId::NwTtl] {
                    let mask = FlowMask::from(rule.rewrite.mask()).field(field);
                    now.set_field_masked(field, rule.rewrite.key().field(field), mask);
                }
            }
            Next::End => {
                let port = rule.actions.iter().find_map(|action| match action {
                    DatapathAction::Output { port, .. } => u16::try_from(port.number()).ok(),
                    _ => None,
                });
                let left = port.filter(|port| u32::from(*port) != key.in_port().number());
                return Some(left.map_or(NicVerdict::Drop, |port| NicVerdict::Forward { port }));
            }
        }
    }
    Some(punt(0, tag, last_stage))
}

fn chain() -> NicChain {
    NicChain::new(program(), NicLimits::default(), 7)
}

fn entry_no(number: usize) -> EntryNo {
    EntryNo(number as u64)
}

proptest! {
    #[test]
    fn lookups_match_the_best_entry_of_each_stage(
        drawn in prop::collection::vec(intended_entry(), 0..24),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        again in prop::collection::vec(intended_entry(), 0..6),
        packets in prop::collection::vec(header(), 1..12),
    ) {
        let mut chain = chain();
        let mut entries: Vec<(EntryNo, IntendedEntry)> = Vec::new();
        let mut number = 0;
        let mut add = |chain: &mut NicChain, entries: &mut Vec<(EntryNo, IntendedEntry)>, intended_entry: IntendedEntry| {
            number += 1;
            let is_there = entries.iter().any(|(_, other)| is_same(other, &intended_entry));
            let taken = chain.insert(entry_no(number), decode_entry(&intended_entry));
            assert_eq!(taken.is_err(), is_there);
            if !is_there {
                entries.push((entry_no(number), intended_entry));
            }
        };
        drawn.into_iter().for_each(|intended_entry| add(&mut chain, &mut entries, intended_entry));
        for index in gone {
            if !entries.is_empty() {
                let (no, _) = entries.remove(index.index(entries.len()));
                chain.remove(no);
            }
        }
        // The next entries reuse the slots of the removed ones.
        again.into_iter().for_each(|intended_entry| add(&mut chain, &mut entries, intended_entry));
        prop_assert_eq!(chain.len(), entries.len());
        let left: Vec<IntendedEntry> = entries.into_iter().map(|(_, intended_entry)| intended_entry).collect();
        for key in packets {
            if let Some(expected) = slow(&left, &key) {
                prop_assert_eq!(chain.walk(&key, &mut NicWalk::default()), expected);
            }
        }
    }
}

/// Returns an entry of priority 1.
fn of(stage: u8, rule: LtmRule) -> Decoded {
    Decoded { stage: StageId::new(stage).unwrap(), priority: 1, meaning: Meaning::Rule(rule) }
}

#[test]
fn hits_are_counted_at_end_of_traversal() {
    let mut chain = chain();
    let all = |tag, next| LtmRule {
        tag: Tag::new(tag),
        matching: Match::any(),
        length: 1,
        actions: [].into(),
        rewrite: Match::any(),
        next,
    };
    chain.insert(EntryNo(1), of(0, all(0, Next::Tag(Tag::new(1))))).unwrap();
    let mut walk = NicWalk::default();
    let now = std::time::Duration::from_secs;
    let verdict = chain.walk(&FlowKey::ZERO, &mut walk);
    chain.count(&walk, verdict, 64, now(5));
    let hits = chain.hits(EntryNo(1));
    assert_eq!((hits.packets, hits.last), (0, Some(now(5))));
    chain.insert(EntryNo(2), of(2, all(1, Next::End))).unwrap();
    let verdict = chain.walk(&FlowKey::ZERO, &mut walk);
    assert_eq!(verdict, NicVerdict::Drop);
    chain.count(&walk, verdict, 64, now(6));
    for no in [EntryNo(1), EntryNo(2)] {
        assert_eq!((chain.hits(no).packets, chain.hits(no).bytes), (1, 64));
    }
}

#[test]
fn stage_refuses_too_wide_keys() {
    let limits = NicLimits { key_bits_max: Some(48), ..NicLimits::default() };
    let mut chain = NicChain::new(Program::default(), limits, 7);
    let with = |fields: &[FieldId]| {
        let mut mask = FlowMask::EMPTY;
        fields.iter().for_each(|field| mask.add_field(*field));
        let rule = LtmRule {
            tag: Tag::new(0),
            matching: Match::new(&FlowKey::ZERO, &mask),
            length: 1,
            actions: [].into(),
            rewrite: Match::any(),
            next: Next::End,
        };
        of(0, rule)
    };
    assert_eq!(chain.insert(EntryNo(1), with(&[FieldId::EthDst])), Ok(()));
    let wide = with(&[FieldId::EthDst, FieldId::IpEcn]);
    assert_eq!(chain.insert(EntryNo(2), wide), Err(DeviceError::KeyBits));
    assert_eq!(chain.len(), 1);
}

#[test]
fn a_stage_refuses_more_masks_than_its_limit() {
    let limits = NicLimits { masks_max: Some(1), ..NicLimits::default() };
    let mut chain = NicChain::new(Program::default(), limits, 7);
    let with = |tag: u32, bits: u8, value: u8| {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::IpEcn, value.into());
        mask.add_bits(FieldId::IpEcn, bits.into());
        let rule = LtmRule {
            tag: Tag::new(tag),
            matching: Match::new(&key, &mask),
            length: 1,
            actions: [].into(),
            rewrite: Match::any(),
            next: Next::End,
        };
        of(0, rule)
    };
    assert_eq!(chain.insert(EntryNo(1), with(0, 3, 1)), Ok(()));
    assert_eq!(chain.insert(EntryNo(2), with(0, 3, 2)), Ok(()));
    // An entry with another tag or priority and the same mask does not count as a further mask.
    assert_eq!(chain.insert(EntryNo(3), with(9, 3, 1)), Ok(()));
    assert_eq!(chain.insert(EntryNo(4), Decoded { priority: 7, ..with(0, 3, 1) }), Ok(()));
    assert_eq!(chain.insert(EntryNo(5), with(0, 1, 1)), Err(DeviceError::Masks));
    for number in 1..5 {
        assert_eq!(chain.remove(EntryNo(number)), EntryHits::default());
    }
    assert_eq!(chain.insert(EntryNo(6), with(0, 1, 1)), Ok(()));
}
