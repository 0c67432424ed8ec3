//! What comes of lists is compared, not how they say it.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    extract::{VlanLimit, extract},
    testing::packet::PacketBuilder,
};
use shunt_pipeline::{
    BridgeId, DatapathAction, DatapathPort,
    testing::{Twin, generate::BRIDGES},
};

use super::*;

fn output(port: u32) -> DatapathAction {
    let port = DatapathPort::new(port);
    DatapathAction::Output { port, unless_ingress: false, max_len: None }
}

/// Sets the Ethernet source.
fn set(source: u8) -> DatapathAction {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::EthSrc, source.into());
    mask.add_field(FieldId::EthSrc);
    DatapathAction::SetHeader(Match::new(&key, &mask))
}

fn copy(list: &[DatapathAction]) -> DatapathAction {
    DatapathAction::Copy(list.into())
}

const FRAME_ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// Whether pieces do to a packet what a whole list does, where states go on in these tables.
fn alike_by(
    tables: &Pipeline,
    pool: &mut Pool,
    pieces: &[&[DatapathAction]],
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
    let alike = dry_run.have_same_effects(pieces, whole, &packet, &parsed);
    assert_eq!(pool.out(), out, "what was taken is given back");
    pool.give(packet);
    alike
}

/// As [`alike_by`], where no state is left.
fn alike(pool: &mut Pool, pieces: [&[DatapathAction]; 2], whole: &[DatapathAction]) -> bool {
    alike_by(&Pipeline::new(1), pool, &pieces, whole)
}

const BRIDGE: BridgeId = BRIDGES[0];

/// Tables of a bridge with these rules.
fn tables(rules: &[&str]) -> Arc<Pipeline> {
    Twin::with_rules(BRIDGE, rules).pipeline
}

/// What the tables do to a packet, in pieces that are cut wherever that can be done, and as a whole.
fn answers(tables: &Pipeline) -> (Vec<Arc<[DatapathAction]>>, Arc<[DatapathAction]>) {
    let [source, target] = FRAME_ADDRESSES;
    let mut key = FlowKey::ZERO;
    extract(&PacketBuilder::ipv4(source, target).udp(1, 2).build(), VlanLimit::Two, &mut key);
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::new(1));
    let noted = tables.translate_noted(&key, None, tables.version());
    let cuts: Vec<usize> = noted.points.iter().map(|point| point.visit).collect();
    let pieces = tables.translate_sub_traversals(&key, None, tables.version(), &cuts);
    let lists = pieces.into_iter().map(|piece| piece.traversal.actions).collect();
    (lists, Arc::clone(&noted.traversal.actions))
}

#[test]
fn pieces_that_write_headers_earlier_do_the_same_and_others_do_not() {
    let mut pool = Pool::new();
    let whole = [set(7), output(2), output(3)];
    for (pieces, expected) in [
        ([&[set(7)][..], &[output(2), output(3)]], true),
        // Another write undoes what the first piece wrote.
        ([&[set(5)], &[set(7), output(2), output(3)]], true),
        ([&[set(5)], &[output(2), output(3)]], false),
        ([&[set(7)], &[output(2), output(4)]], false),
        ([&[set(7)], &[output(3), output(2)]], false),
        ([&[set(7), output(2)], &[set(6), output(3)]], false),
        ([&[set(7)], &[output(2)]], false),
        ([&[set(7), output(2), output(3)], &[output(3)]], false),
    ] {
        assert_eq!(alike(&mut pool, pieces, &whole), expected, "{pieces:?}");
    }
}

#[test]
fn what_is_done_to_a_copy_is_compared_by_what_comes_of_it_too() {
    let mut pool = Pool::new();
    let whole = [copy(&[set(7), output(2)]), set(7), output(3)];
    for (pieces, expected) in [
        // The first piece has written what the copy's own rewrite would.
        ([&[set(7)][..], &[copy(&[output(2)]), output(3)]], true),
        ([&[set(7)], &[copy(&[set(6), output(2)]), output(3)]], false),
        ([&[set(7)], &[copy(&[output(4)]), output(3)]], false),
        ([&[], &[copy(&[set(7), output(2)]), output(3)]], false),
        ([&[set(7)], &[output(2), output(3)]], false),
    ] {
        assert_eq!(alike(&mut pool, pieces, &whole), expected, "{pieces:?}");
    }
}

#[test]
fn states_that_wait_for_a_controller_or_parse_again_are_compared_by_what_comes_of_them() {
    compare_states_behind("controller(pause)");
    compare_states_behind("controller(pause),check_pkt_larger(60)->NXM_NX_REG0[0]");
    // What is behind a label that is popped is parsed again when it is looked at.
    compare_states_behind("controller(pause),push_mpls:0x8847,pop_mpls:0x0800,mod_nw_ttl:7");
    compare_states_behind(
        "controller(pause),push_mpls:0x8847,set_mpls_ttl:9,copy_ttl_in,pop_mpls:0x0800,dec_ttl",
    );
}

/// Compares the states that this leaves.
fn compare_states_behind(leaving: &str) {
    let rules = |last: &str| {
        let first = format!("table=0,actions=mod_dl_src:00:00:00:00:00:07,resubmit(,1),{last}");
        tables(&[&first, &format!("table=1,actions={leaving},output:3")])
    };
    let (here, mut pool) = (rules("output:2"), Pool::new());
    let (pieces, whole) = answers(&here);
    let pieces: Vec<&[DatapathAction]> = pieces.iter().map(|list| &**list).collect();
    assert_eq!(pieces.len(), 2);
    assert_ne!(pieces.concat(), whole.to_vec(), "the states are the same in other words");
    assert!(alike_by(&here, &mut pool, &pieces, &whole));
    for other in ["output:4", "mod_dl_src:00:00:00:00:00:08,output:2", "note:00"] {
        let (_, whole) = answers(&rules(other));
        assert!(!alike_by(&here, &mut pool, &pieces, &whole), "{other}");
    }
}

#[test]
fn a_comparison_that_finds_one_buffer_alone_gives_it_back() {
    let mut pool = Pool::new();
    let held: Vec<_> =
        (0..Pool::SMALL_MAX - 2).filter_map(|_| pool.take(64, DatapathPort::new(1))).collect();
    for _ in 0..3 {
        let copies = [copy(&[output(2)])];
        assert!(alike(&mut pool, [&[], &[]], &copies), "the benefit of the doubt");
        assert!(!alike(&mut pool, [&[], &[]], &[output(2)]), "one buffer is enough for no copies");
    }
    held.into_iter().for_each(|packet| pool.give(packet));
    assert!(!alike(&mut pool, [&[], &[]], &[copy(&[output(2)])]));
}
