//! Hashes in the oracle, written from the documentation of `translate::actions::hash`.

use shunt_flow::FieldId;

use super::packet::Packet;
use crate::action::HashFields;

/// Returns the hash of a list of values, with `basis` as initial value.
pub(super) fn hash(basis: u64, values: &[u128]) -> u64 {
    let halves = values.iter().flat_map(|value| {
        let bytes = value.to_be_bytes();
        bytes
            .chunks(8)
            .map(|half| half.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
            .collect::<Vec<_>>()
    });
    halves.fold(basis, |hash, half| {
        let mut mixed = (hash ^ half).wrapping_add(0x9e37_79b9_7f4a_7c15);
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            mixed ^= mixed >> 33;
            mixed = mixed.wrapping_mul(factor);
        }
        mixed ^ mixed >> 33
    })
}

impl Packet {
    /// Returns the values that identify a connection.
    pub(super) fn connection(&self) -> Vec<u128> {
        let mut values = self.addresses();
        if self.has(FieldId::IpProto) {
            values.push(self.value(FieldId::IpProto));
            values.extend(self.ports(&[6, 17, 132]));
        } else {
            values.extend(self.link());
        }
        values
    }

    /// Returns the values that an action hashes.
    pub(super) fn hashed(&self, fields: HashFields) -> Vec<u128> {
        let first = |fields: [FieldId; 2]| {
            let there = fields.into_iter().filter(|field| self.has(*field));
            there.map(|field| self.value(field)).collect()
        };
        match fields {
            HashFields::EthSrc => vec![self.value(FieldId::EthSrc)],
            HashFields::NwSrc => first([FieldId::Ipv4Src, FieldId::Ipv6Src]),
            HashFields::NwDst => first([FieldId::Ipv4Dst, FieldId::Ipv6Dst]),
            HashFields::SymmetricL3 => self.addresses(),
            HashFields::SymmetricL3L4 => [self.addresses(), self.ports(&[6, 132])].concat(),
            HashFields::SymmetricL3L4Udp => [self.addresses(), self.ports(&[6, 17, 132])].concat(),
            HashFields::SymmetricL4 => {
                [self.link(), self.addresses(), self.ports(&[6, 132])].concat()
            }
        }
    }

    /// Returns the value of a field.
    fn value(&self, field: FieldId) -> u128 {
        self.key().field(field)
    }

    /// Returns the values of two fields in ascending order.
    fn sorted_values(&self, fields: [FieldId; 2]) -> Vec<u128> {
        let mut values = fields.map(|field| self.value(field));
        values.sort_unstable();
        values.to_vec()
    }

    /// Returns the hashed fields of the Ethernet header.
    fn link(&self) -> Vec<u128> {
        let mut values = self.sorted_values([FieldId::EthSrc, FieldId::EthDst]);
        values.extend([FieldId::VlanVid, FieldId::EthType].map(|field| self.value(field)));
        values
    }

    /// Returns the network addresses.
    fn addresses(&self) -> Vec<u128> {
        match self.value(FieldId::EthType) {
            0x0800 => self.sorted_values([FieldId::Ipv4Src, FieldId::Ipv4Dst]),
            0x86dd => self.sorted_values([FieldId::Ipv6Src, FieldId::Ipv6Dst]),
            _ => Vec::new(),
        }
    }

    /// Returns the ports, if the protocol is one of some protocols.
    fn ports(&self, protocols: &[u128]) -> Vec<u128> {
        let has_ports = self.has(FieldId::IpProto)
            && protocols.contains(&self.value(FieldId::IpProto))
            && self.value(FieldId::NwFrag) == 0;
        if has_ports { self.sorted_values([FieldId::TcpSrc, FieldId::TcpDst]) } else { Vec::new() }
    }
}
