//! Hashes of the packet, which choose buckets, links and ports.
//!
//! A choice is a function of the hashed fields, which are all consulted. So all packets that agree
//! in these fields make the same choice, and share a cache entry.
//!
//! Fields are added one by one, each mixed by the finalizer of MurmurHash3 (Austin Appleby). A
//! symmetric hash takes the lower one of two addresses or ports first. A field that the packet
//! lacks adds nothing. A fragment has no ports, not even the first fragment, so all fragments of a
//! packet make the same choice. The hash has no seed, so parallel switches, and a switch after a
//! restart, make the same choices. Another basis gives other choices.

use shunt_flow::FieldId;

use crate::{action::HashFields, translate::working_packet::WorkingPacket};

/// The hash of the values that were added so far.
#[derive(Clone, Copy, Debug)]
pub(in crate::translate) struct Hash(u64);

/// The source port field of TCP, by which `hash_fields` names the protocol.
const TCP: FieldId = FieldId::TcpSrc;
/// The source port field of UDP, by which `hash_fields` names the protocol.
const UDP: FieldId = FieldId::UdpSrc;
/// The source port field of SCTP, by which `hash_fields` names the protocol.
const SCTP: FieldId = FieldId::SctpSrc;
/// The bit of `nw_frag` that fragments have.
const ANY_FRAGMENT: u128 = 1;

impl Hash {
    /// Begins a hash with the basis that the controller gives.
    pub(in crate::translate) const fn of(basis: u64) -> Self {
        Self(basis)
    }

    /// Returns the hash after the addition of a value.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "each half is used separately")]
    pub(in crate::translate) const fn with(self, value: u128) -> Self {
        Self(mix(mix(self.0 ^ (value >> 64) as u64) ^ value as u64))
    }

    /// Returns all bits of the hash.
    pub(in crate::translate) const fn whole(self) -> u64 {
        self.0
    }

    /// Returns the 32 bits of the hash that the algorithms of `multipath` use.
    pub(in crate::translate) const fn short(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Mixes a number: each bit of the result depends on every bit of the number.
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// Returns the hash of a transport connection, the same for both of its directions.
///
/// The hash of an IP packet covers addresses, protocol and ports. The hash of another packet covers
/// MAC addresses, VLAN and Ethernet type.
pub(in crate::translate) fn hash_connection(packet: &mut WorkingPacket, basis: u64) -> Hash {
    let hash = Hash::of(basis);
    if packet.has_field(FieldId::IpProto) {
        let hash = add_addresses(packet, hash);
        let hash = add(packet, hash, FieldId::IpProto);
        add_ports(packet, hash, &[TCP, UDP, SCTP])
    } else {
        add_link(packet, hash)
    }
}

/// Returns the hash of the fields that an action names.
pub(in crate::translate) fn hash_fields(
    packet: &mut WorkingPacket,
    fields: HashFields,
    basis: u16,
) -> Hash {
    let hash = Hash::of(basis.into());
    match fields {
        HashFields::EthSrc => add(packet, hash, FieldId::EthSrc),
        HashFields::NwSrc => add_either(packet, hash, FieldId::Ipv4Src, FieldId::Ipv6Src),
        HashFields::NwDst => add_either(packet, hash, FieldId::Ipv4Dst, FieldId::Ipv6Dst),
        HashFields::SymmetricL3 => add_addresses(packet, hash),
        HashFields::SymmetricL3L4 => {
            let hash = add_addresses(packet, hash);
            add_ports(packet, hash, &[TCP, SCTP])
        }
        HashFields::SymmetricL3L4Udp => {
            let hash = add_addresses(packet, hash);
            add_ports(packet, hash, &[TCP, UDP, SCTP])
        }
        HashFields::SymmetricL4 => {
            let hash = add_link(packet, hash);
            let hash = add_addresses(packet, hash);
            add_ports(packet, hash, &[TCP, SCTP])
        }
    }
}

/// Returns the hash of any fields, under masks.
pub(in crate::translate) fn hash_masked(
    packet: &mut WorkingPacket,
    fields: &[(FieldId, u128)],
    basis: u64,
) -> Hash {
    fields.iter().fold(Hash::of(basis), |hash, (field, mask)| {
        if packet.has_field(*field) { add_masked(packet, hash, *field, *mask) } else { hash }
    })
}

/// Adds MAC addresses, VLAN and Ethernet type.
fn add_link(packet: &mut WorkingPacket, hash: Hash) -> Hash {
    let hash = add_ends(packet, hash, FieldId::EthSrc, FieldId::EthDst);
    let hash = add(packet, hash, FieldId::VlanVid);
    add(packet, hash, FieldId::EthType)
}

/// Adds the addresses of an IP packet.
fn add_addresses(packet: &mut WorkingPacket, hash: Hash) -> Hash {
    if packet.has_field(FieldId::Ipv4Src) {
        add_ends(packet, hash, FieldId::Ipv4Src, FieldId::Ipv4Dst)
    } else if packet.has_field(FieldId::Ipv6Src) {
        add_ends(packet, hash, FieldId::Ipv6Src, FieldId::Ipv6Dst)
    } else {
        hash
    }
}

/// Adds the ports of a packet, if its protocol is one of `sources`.
/// `sources` names protocols by their source port fields.
fn add_ports(packet: &mut WorkingPacket, hash: Hash, sources: &[FieldId]) -> Hash {
    if !sources.iter().any(|source| packet.has_field(*source)) {
        return hash;
    }
    packet.recorder.consult(FieldId::NwFrag, ANY_FRAGMENT);
    if packet.key().field(FieldId::NwFrag) & ANY_FRAGMENT != 0 {
        return hash;
    }
    // All protocols have their ports in the same bits of the key.
    add_ends(packet, hash, FieldId::TcpSrc, FieldId::TcpDst)
}

/// Adds the first of two fields that the packet has.
fn add_either(packet: &mut WorkingPacket, hash: Hash, first: FieldId, second: FieldId) -> Hash {
    match [first, second].into_iter().find(|field| packet.has_field(*field)) {
        Some(field) => add(packet, hash, field),
        None => hash,
    }
}

/// Adds two fields in ascending order of their values.
fn add_ends(packet: &mut WorkingPacket, hash: Hash, source: FieldId, target: FieldId) -> Hash {
    let ends = [source, target].map(|field| {
        packet.recorder.consult(field, u128::MAX);
        packet.key().field(field)
    });
    hash.with(ends[0].min(ends[1])).with(ends[0].max(ends[1]))
}

/// Adds a field of the packet to a hash.
fn add(packet: &mut WorkingPacket, hash: Hash, field: FieldId) -> Hash {
    add_masked(packet, hash, field, u128::MAX)
}

/// Adds some bits of a field to a hash, and consults them.
fn add_masked(packet: &mut WorkingPacket, hash: Hash, field: FieldId, mask: u128) -> Hash {
    packet.recorder.consult(field, mask);
    hash.with(packet.key().field(field) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest bits choose buckets and links.
    /// So the change of one bit of a value must change about half of the bits of the hash.
    #[test]
    fn every_value_bit_flips_half_of_the_hash() {
        for value in [0, 1, 0x0a00_0001, u128::MAX] {
            for bit in 0..128 {
                let hashes = [value, value ^ 1 << bit].map(|value| Hash::of(7).with(value));
                let [whole, other] = hashes.map(Hash::whole);
                let changed = (whole ^ other).count_ones();
                assert!((12..=52).contains(&changed), "{changed} by bit {bit} of {value:x}");
                let [short, other] = hashes.map(Hash::short);
                let changed = (short ^ other).count_ones();
                assert!((4..=28).contains(&changed), "{changed} by bit {bit} of {value:x}");
            }
        }
    }

    /// Parallel switches of different releases make the same choices.
    #[test]
    fn the_hash_never_changes() {
        assert_eq!(Hash::of(7).with(1).whole(), 0x8c33_56ff_d800_1115);
        let two = Hash::of(8).with(2 << 64 | 3).with(0x0a00_0001);
        assert_eq!((two.whole(), two.short()), (0x023b_4607_903b_a87b, 0x023b_4607));
    }

    #[test]
    fn the_hash_depends_on_basis_and_value_order() {
        let hash = Hash::of(7).with(1).with(2).whole();
        assert_ne!(hash, Hash::of(8).with(1).with(2).whole());
        assert_ne!(hash, Hash::of(7).with(2).with(1).whole());
    }
}
