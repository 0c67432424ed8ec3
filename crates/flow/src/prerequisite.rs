//! Prerequisites: the conditions under which a field exists, in a match or in a packet.
//!
//! `tcp_dst` and `udp_dst` are the same bits of a key, and the protocol decides which field the
//! bits are. Therefore OpenFlow lets a match name a field only together with the fields that make
//! it exist (OpenFlow 1.3.5, 7.2.3.6). An action on a field does nothing to a packet without the
//! field. One set of conditions answers three questions:
//!
//! - [`is_met`]: does a match have the prerequisites of a field (decoding, set-field checks);
//! - [`is_legal`]: is every bit of a match part of a field that the match may name;
//! - [`consult`]: does *this packet* have a field, and which bits of the packet decide it.

use crate::{
    FieldId, FlowKey, FlowMask, Match,
    field::{Maskable, Prerequisite, vlan},
    layout::word,
};

/// Returns whether a match has the prerequisite of `field`.
///
/// The match is `mask` and the values of `key` under it. Bits of `key` outside `mask` are ignored.
///
/// ```
/// use shunt_flow::{FieldId, FlowKey, FlowMask, prerequisite};
///
/// let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
/// assert!(!prerequisite::is_met(FieldId::Ipv4Dst, &key, &mask));
/// key.set_field(FieldId::EthType, 0x0800);
/// mask.add_field(FieldId::EthType);
/// assert!(prerequisite::is_met(FieldId::Ipv4Dst, &key, &mask));
/// ```
#[must_use]
pub fn is_met(field: FieldId, key: &FlowKey, mask: &FlowMask) -> bool {
    match field.info().prerequisite {
        Prerequisite::InPort => mask.field(FieldId::InPort) == FieldId::InPort.value_max(),
        Prerequisite::Ct => is_tracked(key, mask),
        prerequisite => {
            holds(prerequisite, &mut |field, bits| key.field(field) & mask.field(field) & bits)
        }
    }
}

/// Returns whether every bit of a match belongs to a field that the match may name.
///
/// A field that cannot be masked must be matched whole.
#[must_use]
pub fn is_legal(matching: &Match) -> bool {
    let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
    let mut unexplained = mask.clone();
    // A match may require the presence of a tunnel option alone, but not its absence.
    let present = key.tunnel_options();
    unexplained.words_mut()[usize::from(word::TUN_METADATA_PRESENT)] &= !present;
    let is_asked = |option| present >> option & 1 == 1;
    for field in FieldId::all().filter(|field| !field.info().oxms.is_empty()) {
        let bits = mask.field(field);
        let whole = bits == field.value_max() || field.info().maskable == Maskable::Maskable;
        let exists = field.tunnel_option().is_none_or(is_asked);
        if whole && exists && is_met(field, &key, &mask) {
            unexplained.remove_bits(field, bits);
        }
    }
    unexplained.is_empty()
}

/// Returns whether the packet of `key` has `field`.
/// Adds the bits of the key that decide the result to `mask`.
///
/// Two keys that agree under the added bits get the same result, and the same bits.
///
/// ```
/// use shunt_flow::{FieldId, FlowKey, FlowMask, prerequisite};
///
/// let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
/// key.set_field(FieldId::EthType, 0x0806);
/// assert!(!prerequisite::consult(FieldId::TcpDst, &key, &mut mask));
/// // The Ethernet type of ARP is enough to decide.
/// let mut expected = FlowMask::EMPTY;
/// expected.add_field(FieldId::EthType);
/// assert_eq!(mask, expected);
/// ```
#[must_use]
pub fn consult(field: FieldId, key: &FlowKey, mask: &mut FlowMask) -> bool {
    let mut read = |field: FieldId, bits: u128| {
        mask.add_bits(field, bits);
        key.field(field) & bits
    };
    match field.info().prerequisite {
        // Every packet is Ethernet so far, and has an ingress port.
        Prerequisite::Any | Prerequisite::Ethernet | Prerequisite::InPort => true,
        Prerequisite::Ct => read(FieldId::CtState, ct::VALID) != 0,
        prerequisite => {
            // A match on the ICMP type of a later fragment is accepted, but no later fragment has
            // an ICMP type.
            holds(prerequisite, &mut read)
                && (!is_transport(prerequisite) || read(FieldId::NwFrag, LATER) == 0)
        }
    }
}

/// Returns whether a prerequisite holds.
///
/// `read` is given a field and a mask, and returns the value of the masked bits; unknown bits are
/// zero.
fn holds(prerequisite: Prerequisite, read: &mut impl FnMut(FieldId, u128) -> u128) -> bool {
    let mut is = |field: FieldId, values: &[u128]| values.contains(&read(field, u128::MAX));
    match prerequisite {
        Prerequisite::Any | Prerequisite::InPort | Prerequisite::Ct => true,
        Prerequisite::Ethernet => is(FieldId::PacketType, &[0]),
        Prerequisite::VlanVid => read(FieldId::VlanTci, vlan::PRESENT) != 0,
        Prerequisite::Mpls => is(FieldId::EthType, &[0x8847, 0x8848]),
        Prerequisite::Pbb => is(FieldId::EthType, &[0x88e7]),
        Prerequisite::Ipv4 => is(FieldId::EthType, &[0x0800]),
        Prerequisite::Ipv6 => is(FieldId::EthType, &[0x86dd]),
        Prerequisite::Ip => is(FieldId::EthType, &[0x0800, 0x86dd]),
        Prerequisite::Arp => is(FieldId::EthType, &[0x0806, 0x8035]),
        Prerequisite::Nsh => is(FieldId::EthType, &[0x894f]),
        Prerequisite::Icmp => is(FieldId::EthType, &[0x0800]) && is(FieldId::IpProto, &[1]),
        Prerequisite::Icmpv6 => is(FieldId::EthType, &[0x86dd]) && is(FieldId::IpProto, &[58]),
        Prerequisite::Tcp => is_ip_with(6, read),
        Prerequisite::Udp => is_ip_with(17, read),
        Prerequisite::Sctp => is_ip_with(132, read),
        Prerequisite::Nd => is_nd(&[135, 136], read),
        Prerequisite::NdSolicit => is_nd(&[135], read),
        Prerequisite::NdAdvert => is_nd(&[136], read),
    }
}

/// Returns whether packets are IP with `protocol`, and no later fragments.
fn is_ip_with(protocol: u128, read: &mut impl FnMut(FieldId, u128) -> u128) -> bool {
    holds(Prerequisite::Ip, read)
        && read(FieldId::IpProto, u128::MAX) == protocol
        && read(FieldId::NwFrag, LATER) == 0
}

/// Returns whether packets are messages of neighbour discovery of these types.
fn is_nd(types: &[u128], read: &mut impl FnMut(FieldId, u128) -> u128) -> bool {
    holds(Prerequisite::Icmpv6, read)
        && types.contains(&read(FieldId::Icmpv6Type, u128::MAX))
        && read(FieldId::Icmpv6Code, u128::MAX) == 0
}

/// Returns whether a match covers only valid tracked packets.
///
/// The match must require a bit of `ct_state` that only valid tracked packets have, or `+trk-inv`.
fn is_tracked(key: &FlowKey, mask: &FlowMask) -> bool {
    let state_mask = mask.field(FieldId::CtState);
    let state = key.field(FieldId::CtState) & state_mask;
    let never_invalid = state_mask & ct::INVALID != 0 && state & ct::INVALID == 0;
    state & ct::IMPLIES_VALID != 0 || state & ct::TRACKED != 0 && never_invalid
}

/// Returns whether a prerequisite is a transport protocol.
const fn is_transport(prerequisite: Prerequisite) -> bool {
    matches!(
        prerequisite,
        Prerequisite::Tcp
            | Prerequisite::Udp
            | Prerequisite::Sctp
            | Prerequisite::Icmp
            | Prerequisite::Icmpv6
            | Prerequisite::Nd
            | Prerequisite::NdSolicit
            | Prerequisite::NdAdvert
    )
}

/// The bit of `nw_frag` that later fragments have.
const LATER: u128 = 2;

/// Bits of `ct_state` (`ovs-fields(7)`).
mod ct {
    /// `new`, `est`, `rpl`: every valid tracked packet has one of them.
    pub(super) const VALID: u128 = 0x0b;
    /// `new`, `est`, `rel`, `rpl`, `snat`, `dnat`.
    /// Only valid tracked packets have these bits.
    pub(super) const IMPLIES_VALID: u128 = 0xcf;
    /// The bit `inv`: the packet is not a valid part of a connection.
    pub(super) const INVALID: u128 = 0x10;
    /// The bit `trk`: connection tracking has seen the packet.
    pub(super) const TRACKED: u128 = 0x20;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::matching::any_key;

    /// The rules of `ovs-fields(7)` in plain words, for a packet.
    fn exists(field: FieldId, key: &FlowKey) -> bool {
        let eth_type = key.field(FieldId::EthType);
        let (ipv4, ipv6) = (eth_type == 0x0800, eth_type == 0x86dd);
        let protocol = key.field(FieldId::IpProto);
        let has_transport = key.field(FieldId::NwFrag) & 2 == 0;
        let over_ip = |number| (ipv4 || ipv6) && protocol == number && has_transport;
        let icmpv6 = ipv6 && protocol == 58 && has_transport;
        let icmpv6_type = key.field(FieldId::Icmpv6Type);
        let nd = |number| icmpv6 && icmpv6_type == number && key.field(FieldId::Icmpv6Code) == 0;
        match field.info().prerequisite {
            Prerequisite::Any | Prerequisite::Ethernet | Prerequisite::InPort => true,
            Prerequisite::VlanVid => key.field(FieldId::VlanTci) & 0x1000 != 0,
            Prerequisite::Mpls => eth_type == 0x8847 || eth_type == 0x8848,
            Prerequisite::Pbb => eth_type == 0x88e7,
            Prerequisite::Ipv4 => ipv4,
            Prerequisite::Ipv6 => ipv6,
            Prerequisite::Ip => ipv4 || ipv6,
            Prerequisite::Arp => eth_type == 0x0806 || eth_type == 0x8035,
            Prerequisite::Nsh => eth_type == 0x894f,
            Prerequisite::Tcp => over_ip(6),
            Prerequisite::Udp => over_ip(17),
            Prerequisite::Sctp => over_ip(132),
            Prerequisite::Icmp => ipv4 && protocol == 1 && has_transport,
            Prerequisite::Icmpv6 => icmpv6,
            Prerequisite::Nd => nd(135) || nd(136),
            Prerequisite::NdSolicit => nd(135),
            Prerequisite::NdAdvert => nd(136),
            Prerequisite::Ct => key.field(FieldId::CtState) & 0x0b != 0,
        }
    }

    fn any_field() -> impl Strategy<Value = FieldId> {
        prop::sample::select(FieldId::all().collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn every_packet_has_the_documented_fields(field in any_field(), key in any_key()) {
            prop_assert_eq!(consult(field, &key, &mut FlowMask::EMPTY.clone()), exists(field, &key));
        }

        #[test]
        fn equal_consulted_bits_give_one_result(
            field in any_field(),
            key in any_key(),
            other in any_key(),
        ) {
            let mut mask = FlowMask::EMPTY;
            let answer = consult(field, &key, &mut mask);
            // `same` is any other key, with the consulted bits taken from the first key.
            let mut same = other;
            for (index, bits) in mask.words().iter().enumerate() {
                let word = &mut same.words_mut()[index];
                *word = *word & !bits | key.words()[index] & bits;
            }
            let mut same_mask = FlowMask::EMPTY;
            prop_assert_eq!(consult(field, &same, &mut same_mask), answer);
            prop_assert_eq!(same_mask, mask);
        }

        #[test]
        fn exact_match_may_name_fields_of_packet(
            field in any_field(),
            key in any_key(),
        ) {
            let mut whole = FlowMask::EMPTY;
            whole.words_mut().fill(u64::MAX);
            let mut key = key;
            key.set_field(FieldId::PacketType, 0);
            prop_assume!(consult(field, &key, &mut FlowMask::EMPTY.clone()));
            prop_assert!(is_met(field, &key, &whole));
        }
    }

    #[test]
    fn a_field_with_a_partial_prerequisite_is_illegal() {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::EthType, 0x0800);
        mask.add_bits(FieldId::EthType, 0xff00);
        assert!(!is_legal(&Match::new(&key, &mask)));
        mask.add_field(FieldId::EthType);
        assert!(is_legal(&Match::new(&key, &mask)));
        mask.add_field(FieldId::TcpDst);
        assert!(!is_legal(&Match::new(&key, &mask)));
    }
}
