//! Tests that dry runs find equal effects of different action lists.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    extract::{VlanLimit, extract},
    testing::packet::PacketBuilder,
};
use shunt_pipeline::{
    BridgeId, DatapathAction, DatapathPort, QueueId,
    testing::{CheckedPipeline, generate::BRIDGES},
};

use super::*;

/// Returns an output to a port.
fn output(port: u32) -> DatapathAction {
    let port = DatapathPort::new(port);
    DatapathAction::Output { port, queue: QueueId::DEFAULT, unless_ingress: false, max_len: None }
}

/// Returns an action that sets the Ethernet source.
fn set(source: u8) -> DatapathAction {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::EthSrc, source.into());
    mask.add_field(FieldId::EthSrc);
    DatapathAction::SetHeader(Match::new(&key, &mask))
}

/// Returns the execution of actions on a copy.
fn copy(list: &[DatapathAction]) -> DatapathAction {
    DatapathAction::Copy(list.into())
}

const FRAME_ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// Returns whether `parts` have the same effects as `whole`, with these tables.
fn equal_by(
    tables: &Pipeline,
    pool: &mut Pool,
    parts: &[&[DatapathAction]],
    whole: &[DatapathAction],
) -> bool {
    let [source, target] = FRAME_ADDRESSES;
    let frame = PacketBuilder::ipv4(source, target).udp(1, 2).build();
    let mut packet = pool.take(frame.len(), DatapathPort::new(1)).unwrap();
    packet.frame_mut().copy_from_slice(&frame);
    let mut key = FlowKey::ZERO;
    let layers = extract(packet.frame(), VlanLimit::Two, &mut key);
    let parsed = ParsedPacket { key: &mut key, layers };
    let out = pool.out();
    let mut dry_run = DryRun::new(pool, tables, tables.version(), VlanLimit::Two);
    let is_equal = dry_run.have_same_effects(parts, whole, &packet, &parsed);
    assert_eq!(pool.out(), out, "all buffers are returned");
    pool.put_back(packet);
    is_equal
}

/// Returns whether `parts` have the same effects as `whole`, with empty tables.
fn equal(pool: &mut Pool, parts: [&[DatapathAction]; 2], whole: &[DatapathAction]) -> bool {
    equal_by(&Pipeline::new(1), pool, &parts, whole)
}

const BRIDGE: BridgeId = BRIDGES[0];

/// Returns a pipeline with a bridge that has these rules.
fn tables(rules: &[&str]) -> Arc<Pipeline> {
    CheckedPipeline::with_rules(BRIDGE, rules).pipeline
}

/// Translates a packet twice: split at every partition point, and as a whole.
fn translations(tables: &Pipeline) -> (Vec<Arc<[DatapathAction]>>, Arc<[DatapathAction]>) {
    let [source, target] = FRAME_ADDRESSES;
    let mut key = FlowKey::ZERO;
    extract(&PacketBuilder::ipv4(source, target).udp(1, 2).build(), VlanLimit::Two, &mut key);
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::new(1));
    let noted = tables.translate_noted(&key, None, tables.version());
    let points: Vec<usize> = noted.points.iter().map(|point| point.visit).collect();
    let parts = tables.translate_sub_traversals(&key, None, tables.version(), &points);
    let lists = parts.into_iter().map(|part| part.traversal.actions).collect();
    (lists, Arc::clone(&noted.traversal.actions))
}

/// Action lists are equal if each output sends the same packet to the same port.
#[test]
fn earlier_header_writes_have_the_same_effects() {
    let mut pool = Pool::new();
    let whole = [set(7), output(2), output(3)];
    for (parts, expected) in [
        ([&[set(7)][..], &[output(2), output(3)]], true),
        // The write of the second part replaces that of the first part.
        ([&[set(5)], &[set(7), output(2), output(3)]], true),
        ([&[set(5)], &[output(2), output(3)]], false),
        ([&[set(7)], &[output(2), output(4)]], false),
        ([&[set(7)], &[output(3), output(2)]], false),
        ([&[set(7), output(2)], &[set(6), output(3)]], false),
        ([&[set(7)], &[output(2)]], false),
        ([&[set(7), output(2), output(3)], &[output(3)]], false),
    ] {
        assert_eq!(equal(&mut pool, parts, &whole), expected, "{parts:?}");
    }
}

#[test]
fn actions_on_copies_are_compared_by_their_effects() {
    let mut pool = Pool::new();
    let whole = [copy(&[set(7), output(2)]), set(7), output(3)];
    for (parts, expected) in [
        // The first part writes the header before the copy is made.
        ([&[set(7)][..], &[copy(&[output(2)]), output(3)]], true),
        ([&[set(7)], &[copy(&[set(6), output(2)]), output(3)]], false),
        ([&[set(7)], &[copy(&[output(4)]), output(3)]], false),
        ([&[], &[copy(&[set(7), output(2)]), output(3)]], false),
        ([&[set(7)], &[output(2), output(3)]], false),
    ] {
        assert_eq!(equal(&mut pool, parts, &whole), expected, "{parts:?}");
    }
}

#[test]
fn continuations_are_compared_by_their_effects() {
    compare_continuations("controller(pause)");
    compare_continuations("controller(pause),check_pkt_larger(60)->NXM_NX_REG0[0]");
    // After `pop_mpls`, the packet is recirculated to parse the header below the label.
    compare_continuations("controller(pause),push_mpls:0x8847,pop_mpls:0x0800,mod_nw_ttl:7");
    compare_continuations(
        "controller(pause),push_mpls:0x8847,set_mpls_ttl:9,copy_ttl_in,pop_mpls:0x0800,dec_ttl",
    );
}

/// Checks dry runs of lists with actions `leaving` that contain continuations.
fn compare_continuations(leaving: &str) {
    let rules = |last: &str| {
        let first = format!("table=0,actions=mod_dl_src:00:00:00:00:00:07,resubmit(,1),{last}");
        tables(&[&first, &format!("table=1,actions={leaving},output:3")])
    };
    let (here, mut pool) = (rules("output:2"), Pool::new());
    let (parts, whole) = translations(&here);
    let parts: Vec<&[DatapathAction]> = parts.iter().map(|list| &**list).collect();
    assert_eq!(parts.len(), 2);
    assert_ne!(parts.concat(), whole.to_vec(), "the lists differ, but not their effects");
    assert!(equal_by(&here, &mut pool, &parts, &whole));
    for other in ["output:4", "mod_dl_src:00:00:00:00:00:08,output:2", "note:00"] {
        let (_, whole) = translations(&rules(other));
        assert!(!equal_by(&here, &mut pool, &parts, &whole), "{other}");
    }
}

#[test]
fn an_abandoned_verification_returns_its_buffers() {
    let mut pool = Pool::new();
    let held: Vec<_> =
        (0..Pool::SMALL_MAX - 2).filter_map(|_| pool.take(64, DatapathPort::new(1))).collect();
    for _ in 0..3 {
        let copies = [copy(&[output(2)])];
        assert!(equal(&mut pool, [&[], &[]], &copies), "without a buffer the lists count as equal");
        assert!(!equal(&mut pool, [&[], &[]], &[output(2)]), "one buffer is enough for no copies");
    }
    held.into_iter().for_each(|packet| pool.put_back(packet));
    assert!(!equal(&mut pool, [&[], &[]], &[copy(&[output(2)])]));
}
