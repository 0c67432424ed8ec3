//! Tests the masks of tuple space search for rules of which the masks of Open vSwitch are known.
//!
//! Each test has a table, a packet, and the fields that the result may depend on.

use shunt_classifier::{Classifier, Priority, Rank, TupleSpace, Version};
use shunt_flow::{
    FieldId::{self, *},
    FlowKey, FlowMask, Match,
};

/// A field, its value, and the bits of it that are compared.
type Item = (FieldId, u128, u128);

/// The mask of a field that is compared as a whole.
const ALL: u128 = u128::MAX;
const IP: Item = (EthType, 0x0800, ALL);
const ARP: Item = (EthType, 0x0806, ALL);
const UDP: Item = (IpProto, 17, ALL);
const TCP: Item = (IpProto, 6, ALL);
/// A packet without a VLAN tag.
const UNTAGGED: Item = (VlanTci, 0, 0x1000);

fn ip(octets: [u8; 4]) -> u128 {
    u32::from_be_bytes(octets).into()
}

/// Returns the mask of the first `length` bits of 32.
fn ones(length: u32) -> u128 {
    u128::from(!u32::MAX.checked_shr(length).unwrap_or(0))
}

fn key(items: &[Item]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    items.iter().for_each(|(field, value, _)| key.set_field(*field, *value));
    key
}

fn mask(items: &[Item]) -> FlowMask {
    let mut mask = FlowMask::EMPTY;
    items.iter().for_each(|(field, _, bits)| mask.add_bits(*field, *bits));
    mask
}

/// Looks up `packet` in a table of rules with descending priorities.
///
/// `answer` is the position of the rule that must be found.
#[track_caller]
fn check(rules: &[&[Item]], packet: &[Item], answer: Option<usize>, depends_on: &[Item]) {
    let mut table = TupleSpace::new(1);
    for ((position, items), number) in rules.iter().enumerate().zip((0..1000).rev()) {
        let rank = Rank { priority: Priority::new(number), age: position as u64 };
        table.insert(Match::new(&key(items), &mask(items)), rank, Version::ZERO, position);
    }
    let mut found = FlowMask::EMPTY;
    assert_eq!(table.lookup_masked(&key(packet), Version::ZERO, &mut found).copied(), answer);
    assert_eq!(found, mask(depends_on));
}

#[test]
fn the_documented_example_is_correct() {
    let network = (Ipv4Dst, ip([10, 1, 0, 0]), ones(16));
    let rules: &[&[Item]] = &[
        &[IP, TCP, network, (TcpDst, 80, ALL)],
        &[IP, (Ipv4Dst, ip([192, 168, 7, 1]), ALL)],
        &[(InPort, 1, ALL), ARP],
        &[IP],
        &[(InPort, 9, ALL)],
    ];
    let packet = |port| [(InPort, 2, ALL), IP, TCP, (Ipv4Dst, ip([10, 1, 2, 3]), ALL), port];
    let looked_at = |bits| [(InPort, 0, ALL), IP, TCP, network, (TcpDst, 0, bits)];
    check(rules, &packet((TcpDst, 81, ALL)), Some(3), &looked_at(ALL));
    check(rules, &packet((TcpDst, 8081, ALL)), Some(3), &looked_at(0xf000));
}

#[test]
fn an_unmatched_address_is_excluded_by_few_bits() {
    let rules: &[&[Item]] = &[
        &[IP, UDP, UNTAGGED, (Ipv4Src, ip([192, 248, 2, 0]), ones(24)), (NwTtl, 64, ALL)],
        &[IP, UDP, (Ipv4Src, ip([192, 248, 2, 0]), ones(24)), (NwTtl, 64, ALL)],
        &[],
    ];
    // Open vSwitch: ip,nw_src=0.0.0.0/1
    let packet = [IP, UDP, (Ipv4Src, ip([10, 231, 0, 166]), ALL), (NwTtl, 64, ALL)];
    check(rules, &packet, Some(2), &[IP, (Ipv4Src, 0, ones(1))]);
    let packet = [IP, UDP, (Ipv4Src, ip([172, 212, 0, 38]), ALL), (NwTtl, 64, ALL)];
    check(rules, &packet, Some(2), &[IP, (Ipv4Src, 0, ones(2))]);
}

#[test]
fn address_is_excluded_at_first_different_bit() {
    // Open vSwitch: nw_src=172.14.3.53,nw_dst=192.221.0.0/25
    let source = (Ipv4Src, ip([172, 14, 3, 53]), ALL);
    let rules: &[&[Item]] =
        &[&[IP, UDP, source, (Ipv4Dst, ip([192, 221, 0, 180]), ALL)], &[IP, UDP, source]];
    let packet = [IP, UDP, source, (Ipv4Dst, ip([192, 221, 0, 52]), ALL)];
    check(rules, &packet, Some(1), &[IP, UDP, source, (Ipv4Dst, 0, ones(25))]);
}

#[test]
fn longer_prefix_is_excluded_by_own_bits() {
    // Open vSwitch: sctp,nw_dst=100.198.0.0/16
    let network = (Ipv4Dst, ip([100, 198, 0, 0]), ones(16));
    let packet = [IP, (IpProto, 132, ALL), (Ipv4Dst, ip([100, 198, 3, 33]), ALL)];
    check(&[&[IP, TCP], &[IP, TCP, network]], &packet, None, &[IP, TCP, network]);
}

#[test]
fn unmatched_ports_are_excluded_by_few_bits() {
    // Open vSwitch: nw_ecn=0,tp_src=0x0/0x8000
    let rules: &[&[Item]] = &[
        &[IP, UDP, (IpEcn, 0, ALL), (UdpSrc, 45499, ALL)],
        &[IP, UDP, (IpEcn, 1, ALL), (UdpSrc, 45499, ALL)],
        &[IP, UDP, (IpEcn, 0, ALL), (UdpSrc, 45498, ALL)],
    ];
    let packet = [IP, UDP, (IpEcn, 0, ALL), (UdpSrc, 7859, ALL)];
    let depends_on = [IP, UDP, (IpEcn, 0, ALL), (UdpSrc, 0, 0x8000)];
    check(rules, &packet, None, &depends_on);
    // Open vSwitch: tp_src=0xc000/0xe000, with the mask of the rules 0xff00
    let rules: &[&[Item]] = &[&[IP, UDP, (UdpSrc, 0xef00, 0xff00)]];
    let packet = [IP, UDP, (UdpSrc, 51421, ALL)];
    check(rules, &packet, None, &[IP, UDP, (UdpSrc, 0, 0xe000)]);
}

#[test]
fn destination_ports_are_excluded_by_their_own_bits() {
    let rules: &[&[Item]] = &[&[IP, TCP, (TcpDst, 80, ALL)], &[IP, TCP, (TcpDst, 443, ALL)]];
    let packet = [IP, TCP, (TcpSrc, 7, ALL), (TcpDst, 22, ALL)];
    // 22 = 0b0_0001_0110 differs from 80 = 0b0_0101_0000 at the tenth bit of 16.
    check(rules, &packet, None, &[IP, TCP, (TcpDst, 0, 0xffc0)]);
}

#[test]
fn early_miss_consults_no_later_layers() {
    // Open vSwitch: in_port=p3, without addresses or ToS
    let rules: &[&[Item]] = &[
        &[(InPort, 5, ALL), IP, UDP, (NwTos, 32, ALL), (Ipv4Src, ip([172, 14, 3, 53]), ALL)],
        &[],
    ];
    let packet = [(InPort, 3, ALL), IP, UDP, (Ipv4Src, ip([172, 14, 3, 53]), ALL)];
    check(rules, &packet, Some(1), &[(InPort, 0, ALL)]);
    let packet = [(InPort, 5, ALL), ARP];
    check(rules, &packet, Some(1), &[(InPort, 0, ALL), ARP]);
}

#[test]
fn a_subtable_below_the_result_is_not_probed() {
    let rules: &[&[Item]] = &[&[IP, TCP], &[IP, TCP, (Ipv4Dst, ip([100, 198, 0, 0]), ones(16))]];
    let packet = [IP, TCP, (Ipv4Dst, ip([100, 198, 3, 33]), ALL)];
    check(rules, &packet, Some(0), &[IP, TCP]);
}

#[test]
fn arp_addresses_have_tries_too() {
    let rules: &[&[Item]] = &[&[ARP, (ArpOp, 1, ALL), (ArpSpa, ip([192, 57, 1, 128]), ones(31))]];
    let packet = [ARP, (ArpOp, 1, ALL), (ArpSpa, ip([100, 187, 2, 121]), ALL)];
    check(rules, &packet, None, &[ARP, (ArpSpa, 0, ones(1))]);
}

#[test]
fn ipv6_addresses_have_tries_too() {
    let is_ipv6 = (EthType, 0x86dd, ALL);
    let network = (Ipv6Dst, 0x2001_0db8 << 96, ALL << 96);
    let rules: &[&[Item]] = &[&[is_ipv6, network]];
    let packet = [is_ipv6, (Ipv6Dst, 0x2001_0db9 << 96, ALL)];
    check(rules, &packet, None, &[is_ipv6, network]);
    let packet = [is_ipv6, (Ipv6Dst, 0xfd00 << 112, ALL)];
    check(rules, &packet, None, &[is_ipv6, (Ipv6Dst, 0, 1 << 127)]);
}

#[test]
fn leading_ones_exclude_mask_with_holes() {
    let holes = (Ipv4Dst, ip([10, 0, 0, 129]), ip([255, 0, 0, 255]));
    let packet = [IP, (Ipv4Dst, ip([11, 0, 0, 129]), ALL)];
    check(&[&[IP, holes]], &packet, None, &[IP, (Ipv4Dst, 0, ones(8))]);
    let packet = [IP, (Ipv4Dst, ip([10, 0, 0, 128]), ALL)];
    check(&[&[IP, holes]], &packet, None, &[IP, holes]);
}

#[test]
fn the_exclusion_with_fewest_bits_is_used() {
    let rules: &[&[Item]] =
        &[&[IP, (Ipv4Src, ip([10, 0, 0, 0]), ones(8)), (Ipv4Dst, ip([192, 168, 0, 0]), ones(16))]];
    let packet = [IP, (Ipv4Src, ip([11, 0, 0, 0]), ALL), (Ipv4Dst, ip([10, 0, 0, 1]), ALL)];
    check(rules, &packet, None, &[IP, (Ipv4Dst, 0, ones(1))]);
}

#[test]
fn a_longer_prefix_needs_its_own_exclusion() {
    let rules: &[&[Item]] = &[
        &[IP, (Ipv4Dst, ip([11, 0, 0, 0]), ones(8))],
        &[IP, (Ipv4Dst, ip([10, 0, 0, 0]), ones(9))],
    ];
    let packet = [IP, (Ipv4Dst, ip([10, 200, 0, 1]), ALL)];
    check(rules, &packet, None, &[IP, (Ipv4Dst, 0, ones(9))]);
}

/// A port that excludes the rule does not remove the TCP flags from the mask.
#[test]
fn flags_stay_in_masks_behind_known_ports() {
    let rules: &[&[Item]] = &[&[IP, TCP, (TcpDst, 80, ALL), (TcpFlags, 2, ALL)]];
    let packet = [IP, TCP, (TcpDst, 80, ALL), (TcpFlags, 16, ALL)];
    check(rules, &packet, None, &[IP, TCP, (TcpDst, 0, ALL), (TcpFlags, 0, ALL)]);
}

/// Bits that the result needed anyway are used to exclude further rules.
#[test]
fn bits_already_in_the_mask_exclude_rules() {
    // The mask has the network of the resulting rule, which proves that the second rule does not
    // match. The port of the second rule would be another proof.
    for field in [Ipv4Src, Ipv4Dst] {
        let network = (field, ip([10, 1, 0, 0]), ones(16));
        let rules: &[&[Item]] = &[
            &[IP, TCP, network],
            &[(InPort, 1, ALL), IP, (field, ip([192, 168, 7, 1]), ALL)],
            &[IP, (EthDst, 7, ALL)],
        ];
        let packet = [(InPort, 2, ALL), IP, UDP, (field, ip([10, 1, 2, 3]), ALL), (EthDst, 7, ALL)];
        check(rules, &packet, Some(2), &[IP, (IpProto, 0, ALL), network, (EthDst, 0, ALL)]);
    }
}

#[test]
fn one_mask_bit_excludes_several_subtables() {
    let host = (Ipv4Dst, ip([192, 168, 7, 1]), ALL);
    let rules: &[&[Item]] = &[&[IP, host], &[(InPort, 1, ALL), IP, host]];
    let packet = [(InPort, 2, ALL), IP, (Ipv4Dst, ip([10, 1, 2, 3]), ALL)];
    check(rules, &packet, None, &[IP, (Ipv4Dst, 0, ones(1))]);
}

#[test]
fn an_unmatched_address_excludes_without_other_fields() {
    let rules: &[&[Item]] = &[&[IP, TCP, (Ipv4Dst, ip([192, 168, 7, 1]), ALL), (TcpDst, 80, ALL)]];
    let packet = [IP, TCP, (Ipv4Dst, ip([10, 1, 2, 3]), ALL), (TcpDst, 80, ALL)];
    check(rules, &packet, None, &[IP, (Ipv4Dst, 0, ones(1))]);
}

/// Returns a rule for other ports than port 2, to add an address to the tries.
fn other_port_rule(field: FieldId, octets: [u8; 4]) -> [Item; 3] {
    [(InPort, 1, ALL), IP, (field, ip(octets), ALL)]
}

#[test]
fn one_unmatched_address_excludes_a_rule() {
    let (source, target) = ((Ipv4Src, ip([10, 0, 0, 1]), ALL), (Ipv4Dst, ip([10, 0, 0, 2]), ALL));
    let held = other_port_rule(Ipv4Src, [10, 0, 0, 9]);
    let packet = [(InPort, 2, ALL), IP, TCP, (Ipv4Src, ip([10, 0, 0, 9]), ALL), target];
    let depends_on = [(InPort, 0, ALL), IP, (Ipv4Src, 0, ALL)];
    // The address is after the last stage in the first table, and in the last stage in the second.
    check(&[&[IP, source, target], &held], &packet, None, &depends_on);
    let rule = [IP, TCP, source, target, (TcpDst, 80, ALL)];
    check(&[&rule, &held], &packet, None, &depends_on);
}

/// The mask has the address and its prerequisites alone.
#[test]
fn an_excluding_address_brings_its_layer_only() {
    let rule = [IP, UDP, (Ipv4Dst, ip([10, 0, 0, 2]), ALL), (UdpDst, 53, ALL)];
    let held = other_port_rule(Ipv4Dst, [10, 0, 0, 9]);
    let packet = [(InPort, 2, ALL), IP, UDP, (Ipv4Dst, ip([10, 0, 0, 9]), ALL)];
    let depends_on = [(InPort, 0, ALL), IP, (IpProto, 0, ALL), (Ipv4Dst, 0, ALL)];
    check(&[&rule, &held], &packet, None, &depends_on);
}

#[test]
fn an_address_in_the_mask_excludes_rules() {
    let target = (Ipv4Dst, ip([10, 0, 0, 9]), ALL);
    let rules: &[&[Item]] = &[
        &[IP, UDP, target],
        &[IP, (Ipv4Src, ip([10, 0, 0, 1]), ALL), (Ipv4Dst, ip([10, 0, 0, 2]), ALL)],
        &other_port_rule(Ipv4Src, [10, 0, 0, 8]),
    ];
    let packet = [(InPort, 2, ALL), IP, TCP, (Ipv4Src, ip([10, 0, 0, 8]), ALL), target];
    check(rules, &packet, None, &[(InPort, 0, ALL), IP, TCP, (Ipv4Dst, 0, ALL)]);
}
