//! Tests that translations by learned indexes keep the invariants, before and after changes.

use std::{fmt::Write, net::Ipv4Addr, sync::Arc};

use proptest::{prelude::*, sample::select, test_runner::TestCaseError};
use shunt_classifier::Version;
use shunt_flow::{
    FieldId, FlowKey, FlowMask, PortNo,
    layout::{FLOW_WORDS, word},
    prerequisite,
    text::NoPortNames,
};
use shunt_nuevomatch::StartIndexKind;

use super::invariants;
use crate::{
    id::{BridgeId, TableId},
    pipeline::{Pipeline, training::IndexedTables},
    tables::{flow_mod::FlowModCommand, rule::Rule, rule_filter::RuleFilter},
    testing::{
        CheckedPipeline, draw,
        generate::{self, BRIDGES},
        runner, visible,
    },
    text::parse_rule,
    time::Time,
};

/// Generates kinds of the index over the starts of buckets.
pub(super) fn kinds() -> impl Strategy<Value = StartIndexKind> {
    select(vec![StartIndexKind::Tree, StartIndexKind::Segments, StartIndexKind::Rqrmi])
}

proptest! {
    #![proptest_config(crate::testing::cases(200))]

    /// Includes lookups after changes, by indexes that were trained before them.
    #[test]
    fn translations_by_learned_indexes_keep_the_invariants(
        network in generate::network(),
        ops in prop::collection::vec(generate::op(), 0..5),
        packets in prop::collection::vec(generate::packet(), 6),
        kind in kinds(),
    ) {
        let (mut checked, mut runner) = (CheckedPipeline::new(&network), runner());
        checked.pipeline.set_indexed_rules_min(1);
        for turn in 0..=ops.len() {
            if turn % 3 == 0 {
                let tables = IndexedTables::for_translations(1).by(kind);
                checked.pipeline.train_tables(tables, Time::ZERO);
            }
            for key in &packets {
                let (shown, version) = (visible(key), checked.pipeline.version());
                let expected = checked.pipeline.translate_by_tuple_space(&shown, None, version);
                let own = checked.translate(key);
                // Traversals with learn requests are never alike.
                prop_assert!(own.decides_like(&expected) || !expected.learnings.is_empty());
                prop_assert_eq!(&own.actions, &expected.actions);
                invariants::agreeing_packets_get_one_result(&checked, key, &mut runner)?;
                invariants::agreeing_packets_continue_alike(&checked, key, &mut runner)?;
                invariants::visits_are_uniform(&checked, key, &mut runner)?;
            }
            if let Some(op) = ops.get(turn) {
                invariants::changes_are_named(&mut checked, &packets, op)?;
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(24))]

    /// Compares with a linear scan: the packets, and packets with other bits outside of
    /// the mask.
    ///
    /// Some lookups are at a version before the last changes.
    #[test]
    fn learned_lookup_equals_scan_under_its_mask(
        rules in prop::collection::vec(rule(), 100..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), rule()), 0..60),
        packets in prop::collection::vec((any::<prop::sample::Index>(), packet()), 40),
        kinds in [kinds(), kinds()],
    ) {
        let (pipeline, id) = (CheckedPipeline::with_rules(BRIDGES[0], &[]).pipeline, BRIDGES[0]);
        pipeline.set_indexed_rules_min(1);
        change(&pipeline, id, FlowModCommand::Add, &rules);
        let tables = kinds.map(|kind| IndexedTables::for_translations(1).by(kind));
        pipeline.train_tables(tables[0], Time::ZERO);
        // Too many rules in the remainder are rare.
        prop_assume!(pipeline.is_indexed(id, TableId::FIRST));
        let (before, old) = (pipeline.version(), pipeline.rules(id, &RuleFilter::all()));
        let near = |(index, packet): &(prop::sample::Index, NearbyPacket)| {
            packet.near(index.get(&rules), id)
        };
        let keys: Vec<_> = packets.iter().map(near).collect();
        are_sound(&pipeline, &keys, before, &old)?;
        for (index, added) in &changes {
            change(&pipeline, id, FlowModCommand::DeleteStrict, &[index.get(&rules).clone()]);
            change(&pipeline, id, FlowModCommand::Add, std::slice::from_ref(added));
        }
        are_sound(&pipeline, &keys, before, &old)?;
        let (after, new) = (pipeline.version(), pipeline.rules(id, &RuleFilter::all()));
        are_sound(&pipeline, &keys, after, &new)?;
        pipeline.reclaim(after);
        are_sound(&pipeline, &keys, after, &new)?;
        pipeline.train_tables(tables[1], Time::ZERO);
        are_sound(&pipeline, &keys, after, &new)?;
    }
}

#[test]
fn the_index_of_a_large_table_is_used() {
    let (pipeline, id) = (CheckedPipeline::with_rules(BRIDGES[0], &[]).pipeline, BRIDGES[0]);
    let add = |hosts: std::ops::Range<u32>| {
        let rules: Vec<_> = hosts.map(OverlappingRule::to_host).collect();
        change(&pipeline, id, FlowModCommand::Add, &rules);
        pipeline.train_tables(IndexedTables::for_translations(1), Time::ZERO);
    };
    let rules_min = u32::try_from(Pipeline::INDEXED_RULES_MIN).unwrap();
    add(1..rules_min);
    assert!(!pipeline.is_indexed(id, TableId::FIRST), "tuple space search is as fast");
    add(rules_min..rules_min + 1);
    assert!(pipeline.is_indexed(id, TableId::FIRST));
}

/// Checks that translations at a version, and all packets under their masks, have
/// the right rule.
fn are_sound(
    pipeline: &Pipeline,
    keys: &[FlowKey],
    version: Version,
    rules: &[Arc<Rule>],
) -> Result<(), TestCaseError> {
    let mut runner = runner();
    // Bits that no rule matches change no result of the scan.
    let mut matched = FlowMask::EMPTY;
    rules.iter().for_each(|rule| matched.add_sparse(rule.matching.mask()));
    for key in keys {
        let traversal = pipeline.translate(key, version);
        let visit = &traversal.visits[0];
        let (own, mask) = (visit.rule.as_ref().map(|own| own.id), FlowMask::from(&visit.mask));
        prop_assert_eq!(own, scan(rules, key), "{:?}", key);
        has_prerequisites(key, &mask)?;
        for word in 0..FLOW_WORDS {
            let open = matched.words()[word] & !mask.words()[word];
            for bit in (0..64).filter(|bit| open >> bit & 1 == 1) {
                let mut flipped = key.clone();
                flipped.words_mut()[word] ^= 1 << bit;
                prop_assert_eq!(own, scan(rules, &flipped), "{:?} of {:?}", flipped, mask);
            }
        }
        for _ in 0..8 {
            let noise = draw(&mut runner, &packet()).near(&draw(&mut runner, &rule()), BRIDGES[0]);
            let mut other = key.clone();
            for (word, own) in other.words_mut().iter_mut().enumerate() {
                *own = *own & mask.words()[word] | noise.words()[word] & !mask.words()[word];
            }
            prop_assert_eq!(own, scan(rules, &other), "{:?} of {:?}", other, mask);
        }
    }
    Ok(())
}

/// Checks that the mask has the Ethernet type with addresses, and the protocol with
/// ports.
fn has_prerequisites(key: &FlowKey, mask: &FlowMask) -> Result<(), TestCaseError> {
    let is_ip = key.field(FieldId::EthType) == 0x0800;
    let address = mask.field(FieldId::Ipv4Src) | mask.field(FieldId::Ipv4Dst);
    if is_ip && address != 0 {
        prop_assert!(prerequisite::is_met(FieldId::Ipv4Src, key, mask), "{:?}", mask);
    }
    let is_tcp = is_ip && key.field(FieldId::IpProto) == 6;
    if is_tcp && mask.field(FieldId::TcpDst) | mask.field(FieldId::TcpSrc) != 0 {
        prop_assert!(prerequisite::is_met(FieldId::TcpDst, key, mask), "{:?}", mask);
    }
    Ok(())
}

/// Returns the rule of the highest rank that matches.
fn scan(rules: &[Arc<Rule>], key: &FlowKey) -> Option<crate::RuleId> {
    let matching = rules.iter().filter(|rule| rule.matching.matches(key));
    matching.max_by_key(|rule| rule.rank()).map(|rule| rule.id)
}

/// Applies a command to some rules.
fn change(pipeline: &Pipeline, id: BridgeId, command: FlowModCommand, rules: &[OverlappingRule]) {
    let request =
        |rule: &OverlappingRule| parse_rule(command, &rule.text(command), &NoPortNames).unwrap();
    let requests: Vec<_> = rules.iter().map(request).collect();
    pipeline.apply(id, &requests, Time::ZERO).unwrap();
}

/// A rule with few values in each field, so that rules overlap.
#[derive(Clone, Debug)]
struct OverlappingRule {
    priority: u16,
    protocol: &'static str,
    source: (u32, u32),
    destination: (u32, u32),
    port: Option<(u16, u16)>,
    in_port: Option<u32>,
    metadata: Option<u32>,
    vlan: Option<u16>,
}

/// A packet near a rule: each field has the value of the rule, or a random one.
#[derive(Clone, Debug)]
struct NearbyPacket {
    follows: [bool; 6],
    source: u32,
    destination: u32,
    port: u16,
    protocol: &'static str,
}

/// Rules without a protocol have no address, so most of them are in the remainder.
const PROTOCOLS: [&str; 12] =
    ["tcp", "tcp", "tcp", "tcp", "udp", "udp", "udp", "ip", "ip", "arp", "arp", ""];

/// Generates a rule.
fn rule() -> impl Strategy<Value = OverlappingRule> {
    let address = || (address(), select(vec![0, 8, 16, 20, 24, 24, 32, 32]));
    let port = select(vec![(80, 0xffff), (443, 0xffff), (1024, 0xfc00), (8, 8)]);
    let rarely = 0.1;
    (
        1_u16..6,
        select(&PROTOCOLS[..]),
        address(),
        address(),
        prop::option::of(port),
        prop::option::weighted(rarely, 1_u32..4),
        prop::option::weighted(rarely, 1_u32..4),
        prop::option::weighted(rarely, 1_u16..4),
    )
        .prop_map(
            |(priority, protocol, source, destination, port, in_port, metadata, vlan)| {
                OverlappingRule {
                    priority,
                    protocol,
                    source,
                    destination,
                    port,
                    in_port,
                    metadata,
                    vlan,
                }
            },
        )
}

/// Generates a packet near a rule.
fn packet() -> impl Strategy<Value = NearbyPacket> {
    let port = prop_oneof![select(vec![80_u16, 81, 443, 1030, 8]), any::<u16>()];
    (prop::array::uniform6(prop::bool::weighted(0.8)), address(), address(), port, {
        select(&PROTOCOLS[..9])
    })
        .prop_map(|(follows, source, destination, port, protocol)| NearbyPacket {
            follows,
            source,
            destination,
            port,
            protocol,
        })
}

/// Generates an IPv4 address.
fn address() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => (0_u32..6, 0_u32..40).prop_map(|(net, host)| 0x0a00_0000 | net << 16 | host << 3),
        1 => any::<u32>(),
    ]
}

impl OverlappingRule {
    /// A rule for a destination in 10.0.0.0/8.
    const fn to_host(host: u32) -> Self {
        Self {
            priority: 1,
            protocol: "ip",
            source: (0, 0),
            destination: (0x0a00_0000 | host, 32),
            port: None,
            in_port: None,
            metadata: None,
            vlan: None,
        }
    }

    /// Returns the rule as text for a command.
    fn text(&self, command: FlowModCommand) -> String {
        let mut text = format!("priority={}", self.priority);
        if !self.protocol.is_empty() {
            write!(text, ",{}", self.protocol).unwrap();
            let sides = [("nw_src", self.source), ("nw_dst", self.destination)];
            for (field, (address, length)) in sides.into_iter().filter(|(_, own)| own.1 > 0) {
                let address = Ipv4Addr::from(address & (u32::MAX << (32 - length)));
                write!(text, ",{field}={address}/{length}").unwrap();
            }
        }
        if let Some((value, bits)) = self.port.filter(|_| ["tcp", "udp"].contains(&self.protocol)) {
            write!(text, ",tp_dst={value:#x}/{bits:#x}").unwrap();
        }
        self.in_port.iter().for_each(|port| write!(text, ",in_port={port}").unwrap());
        self.metadata.iter().for_each(|value| write!(text, ",metadata={value}").unwrap());
        self.vlan.iter().for_each(|vlan| write!(text, ",dl_vlan={vlan}").unwrap());
        if command == FlowModCommand::Add {
            text.push_str(",actions=output:2");
        }
        text
    }
}

impl NearbyPacket {
    /// Returns the packet near a rule.
    fn near(&self, rule: &OverlappingRule, id: BridgeId) -> FlowKey {
        let inside = |follows: bool, own: u32, (address, length): (u32, u32)| {
            let fixed = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            if follows { address & fixed | own & !fixed } else { own }
        };
        let protocol = if self.follows[0] { rule.protocol } else { self.protocol };
        let mut key = FlowKey::ZERO;
        key.set_bridge(id.number().into());
        key.set_in_port(PortNo::new(rule.in_port.filter(|_| self.follows[3]).unwrap_or(1)));
        let (eth_type, number) = match protocol {
            "tcp" => (0x0800, 6),
            "udp" => (0x0800, 17),
            "ip" => (0x0800, 1),
            "arp" => (0x0806, 1),
            _ => (0x88cc, 0),
        };
        key.set_field(FieldId::EthType, eth_type);
        key.set_field(FieldId::IpProto, number);
        if number != 0 {
            let source = inside(self.follows[1], self.source, rule.source);
            let destination = inside(self.follows[2], self.destination, rule.destination);
            key.set_field(FieldId::Ipv4Src, source.into());
            key.set_field(FieldId::Ipv4Dst, destination.into());
        }
        if number > 1 {
            let followed = rule.port.filter(|_| self.follows[4]);
            key.set_field(FieldId::TcpDst, followed.map_or(self.port, |own| own.0).into());
            key.set_field(FieldId::TcpSrc, self.port.into());
        }
        if let Some(vlan) = rule.vlan.filter(|_| self.follows[5]) {
            let tag = 0x8100_1000 | u64::from(vlan);
            key.words_mut()[usize::from(word::VLAN)] = tag << 32;
        }
        key
    }
}
