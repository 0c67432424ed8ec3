//! What a hit is held to when it is translated anew.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    extract::{VlanLimit, extract},
    testing::packet::PacketBuilder,
};
use shunt_pipeline::{DatapathAction, DatapathPort};

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

/// Whether two pieces do to a packet what a whole list does.
fn alike(pool: &mut Pool, pieces: [&[DatapathAction]; 2], whole: &[DatapathAction]) -> bool {
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let mut packet = pool.take(frame.len(), DatapathPort::new(1)).unwrap();
    packet.frame_mut().copy_from_slice(&frame);
    let mut key = FlowKey::ZERO;
    let layers = extract(packet.frame(), VlanLimit::Two, &mut key);
    let parsed = Parsed { key: &mut key, layers };
    let out = pool.out();
    let alike = do_the_same(pool, &pieces, whole, (&packet, &parsed));
    assert_eq!(pool.out(), out, "what was taken is given back");
    pool.give(packet);
    alike
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
fn a_comparison_that_finds_one_buffer_alone_gives_it_back() {
    let mut pool = Pool::new();
    let held: Vec<_> =
        (0..Pool::SMALL_MAX - 2).filter_map(|_| pool.take(64, DatapathPort::new(1))).collect();
    for _ in 0..3 {
        assert!(alike(&mut pool, [&[], &[]], &[output(2)]), "the benefit of the doubt");
    }
    held.into_iter().for_each(|packet| pool.give(packet));
    assert!(!alike(&mut pool, [&[], &[]], &[output(2)]));
}
