//! The walk of a packet against a list of all entries.

#![expect(clippy::unwrap_used, reason = "stages are few")]

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    partition::StageId,
};
use shunt_nic::{Chain, Limits, Verdict};
use shunt_p4runtime::{
    codec::Meaning,
    program::Program,
    server::{DeviceError, EntryNo},
};
use shunt_pipeline::{DatapathAction, DatapathPort};

const STAGES: u8 = 3;

/// Small numbers, so that packets and rules meet.
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

fn rule() -> impl Strategy<Value = (u8, Meaning)> {
    let rewrite = (header(), mask()).prop_map(|(key, mask)| Match::new(&key, &mask));
    let matching = (header(), mask()).prop_map(|(key, mask)| Match::new(&key, &mask));
    (0..STAGES, 0u32..3, matching, rewrite, (1u16..4, 0u32..3, 0u8..4)).prop_map(
        |(stage, tag, matching, rewrite, (length, last, end))| {
            let output = (end == 1).then(|| DatapathAction::Output {
                port: DatapathPort::new(last),
                unless_ingress: true,
                max_len: None,
            });
            let set = DatapathAction::SetHeader(rewrite.clone());
            let rule = LtmRule {
                tag: Tag::new(tag),
                matching,
                length,
                actions: [set].into_iter().chain(output).collect(),
                rewrite,
                next: if end == 0 { Next::Tag(Tag::new(last)) } else { Next::End },
            };
            (stage, if end == 3 { Meaning::Punt(rule) } else { Meaning::Rule(rule) })
        },
    )
}

fn inner(meaning: &Meaning) -> &LtmRule {
    match meaning {
        Meaning::Rule(rule) | Meaning::Punt(rule) => rule,
    }
}

/// Whether two entries have one key.
fn is_same(left: &(u8, Meaning), right: &(u8, Meaning)) -> bool {
    let (a, b) = (inner(&left.1), inner(&right.1));
    left.0 == right.0 && (a.tag, a.length, &a.matching) == (b.tag, b.length, &b.matching)
}

/// The walk by the list: at each stage all entries are looked at.
fn slow(entries: &[(u8, Meaning)], key: &FlowKey) -> Option<Verdict> {
    let (mut tag, mut now, mut last_stage) = (Tag::new(0), key.clone(), 0);
    let told = |reason, tag: Tag, last_stage| Verdict::Punt {
        reason,
        miss_tag: u16::try_from(tag.number()).unwrap(),
        last_stage,
    };
    for stage in 0..STAGES {
        let fits = |(at, meaning): &&(u8, Meaning)| {
            *at == stage && inner(meaning).tag == tag && inner(meaning).matching.matches(&now)
        };
        let found: Vec<_> = entries.iter().filter(fits).collect();
        let Some(longest) = found.iter().map(|(_, meaning)| inner(meaning).length).max() else {
            continue;
        };
        let best: Vec<_> =
            found.into_iter().filter(|(_, meaning)| inner(meaning).length == longest).collect();
        // Of several that are equally long any would be right.
        let [(_, meaning)] = best[..] else { return None };
        last_stage = stage + 1;
        let rule = match meaning {
            Meaning::Punt(_) => return Some(told(2, tag, last_stage)),
            Meaning::Rule(rule) => rule,
        };
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
                return Some(left.map_or(Verdict::Drop, |port| Verdict::Forward { port }));
            }
        }
    }
    Some(told(0, tag, last_stage))
}

fn chain() -> Chain {
    Chain::new(Program::new(STAGES, 64).unwrap(), Limits::default(), 7)
}

proptest! {
    #[test]
    fn a_walk_meets_the_longest_entry_of_each_stage(
        drawn in prop::collection::vec(rule(), 0..24),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        packets in prop::collection::vec(header(), 1..12),
    ) {
        let mut entries: Vec<(u8, Meaning)> = Vec::new();
        for entry in drawn {
            if !entries.iter().any(|other| is_same(other, &entry)) {
                entries.push(entry);
            }
        }
        let mut chain = chain();
        for (no, (stage, meaning)) in (0..).zip(&entries) {
            chain.insert(EntryNo(no), StageId::new(*stage).unwrap(), meaning.clone()).unwrap();
        }
        let mut left: Vec<Option<(u8, Meaning)>> = entries.into_iter().map(Some).collect();
        for index in gone {
            if !left.is_empty() {
                let place = index.index(left.len());
                chain.remove(EntryNo(place as u64));
                left[place] = None;
            }
        }
        let left: Vec<_> = left.into_iter().flatten().collect();
        prop_assert_eq!(chain.len(), left.len());
        for key in packets {
            if let Some(expected) = slow(&left, &key) {
                prop_assert_eq!(chain.walk(&key, &mut Vec::new()), expected);
            }
        }
    }
}

#[test]
fn hits_are_counted_once_the_way_has_come_to_its_end() {
    let mut chain = chain();
    let all = |tag, next| LtmRule {
        tag: Tag::new(tag),
        matching: Match::any(),
        length: 1,
        actions: [].into(),
        rewrite: Match::any(),
        next,
    };
    let stage = |number| StageId::new(number).unwrap();
    let first = Meaning::Rule(all(0, Next::Tag(Tag::new(1))));
    chain.insert(EntryNo(1), stage(0), first).unwrap();
    let mut walk = Vec::new();
    let now = std::time::Duration::from_secs;
    let verdict = chain.walk(&FlowKey::ZERO, &mut walk);
    chain.count(&walk, verdict, (64, now(5)));
    let hits = chain.hits(EntryNo(1));
    assert_eq!((hits.packets, hits.last), (0, Some(now(5))));
    chain.insert(EntryNo(2), stage(2), Meaning::Rule(all(1, Next::End))).unwrap();
    let verdict = chain.walk(&FlowKey::ZERO, &mut walk);
    assert_eq!(verdict, Verdict::Drop);
    chain.count(&walk, verdict, (64, now(6)));
    for no in [EntryNo(1), EntryNo(2)] {
        assert_eq!((chain.hits(no).packets, chain.hits(no).bytes), (1, 64));
    }
}

#[test]
fn a_stage_takes_as_many_masks_as_it_may() {
    let limits = Limits { masks_max: Some(1), ..Limits::default() };
    let mut chain = Chain::new(Program::default(), limits, 7);
    let of = |bits: u8, value: u8| {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::IpEcn, value.into());
        mask.add_bits(FieldId::IpEcn, bits.into());
        Meaning::Rule(LtmRule {
            tag: Tag::new(0),
            matching: Match::new(&key, &mask),
            length: 1,
            actions: [].into(),
            rewrite: Match::any(),
            next: Next::End,
        })
    };
    let stage = StageId::new(0).unwrap();
    assert_eq!(chain.insert(EntryNo(1), stage, of(3, 1)), Ok(()));
    assert_eq!(chain.insert(EntryNo(2), stage, of(3, 2)), Ok(()));
    let refused = Err(DeviceError::Refused("the stage has no room for another mask"));
    assert_eq!(chain.insert(EntryNo(3), stage, of(1, 1)), refused);
    chain.remove(EntryNo(1));
    chain.remove(EntryNo(2));
    assert_eq!(chain.insert(EntryNo(3), stage, of(1, 1)), Ok(()));
}
