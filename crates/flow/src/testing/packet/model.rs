//! The flow key of a described packet, and the effect of setting a field: the oracle of extraction
//! and of rewriting.

use super::builder::{Arp, Ipv4, Ipv6, NetworkLayer, PacketBuilder, TransportLayer};
use crate::{FieldId, FlowKey, extract::VlanLimit};

impl PacketBuilder {
    /// Returns the key that extraction must produce for the frame.
    #[must_use]
    pub fn key(&self, vlan_limit: VlanLimit) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::EthSrc, number(&self.source));
        key.set_field(FieldId::EthDst, number(&self.destination));
        let places =
            [(FieldId::VlanTpid, FieldId::VlanTci), (FieldId::VlanTpid1, FieldId::VlanTci1)];
        let limit = if vlan_limit == VlanLimit::One { 1 } else { 2 };
        for ((tpid, tci), (tpid_field, tci_field)) in self.tags.iter().zip(places).take(limit) {
            key.set_field(tpid_field, u128::from(*tpid));
            key.set_field(tci_field, u128::from(*tci) | 0x1000);
        }
        if let Some((tpid, _)) = self.tags.get(limit) {
            key.set_field(FieldId::EthType, u128::from(*tpid));
        } else if self.labels.is_empty() {
            self.add_network(&mut key);
        } else {
            self.add_labels(&mut key);
        }
        key
    }

    /// Adds the fields of the MPLS labels to the key.
    fn add_labels(&self, key: &mut FlowKey) {
        key.set_field(FieldId::EthType, 0x8847);
        let entry = |index: usize| match self.labels.get(index) {
            Some(label) if index + 1 == self.labels.len() => u128::from(label | 0x100),
            label => u128::from(label.copied().unwrap_or(0)),
        };
        key.set_field(FieldId::MplsLabel, entry(0) >> 12);
        key.set_field(FieldId::MplsTc, entry(0) >> 9);
        key.set_field(FieldId::MplsBos, entry(0) >> 8);
        key.set_field(FieldId::MplsTtl, entry(0));
        key.set_field(FieldId::MplsLse1, entry(1));
        key.set_field(FieldId::MplsLse2, entry(2));
    }

    /// Adds the fields of the network layer to the key.
    fn add_network(&self, key: &mut FlowKey) {
        match &self.network {
            NetworkLayer::Raw { ether_type } => {
                key.set_field(FieldId::EthType, u128::from(*ether_type));
                if *ether_type == 0x88e7 && self.payload.len() >= 4 {
                    key.set_field(FieldId::PbbUca, u128::from(self.payload[0]) >> 3);
                    key.set_field(FieldId::PbbIsid, number(&self.payload[1..4]));
                }
            }
            NetworkLayer::Arp(arp) => arp.add_to(key),
            NetworkLayer::Ipv4(ip) => {
                ip.add_to(key);
                self.add_transport(key, 1);
            }
            NetworkLayer::Ipv6(ip) => {
                ip.add_to(key);
                self.add_transport(key, 58);
            }
        }
    }

    /// Adds the fields of the transport layer to the key.
    fn add_transport(&self, key: &mut FlowKey, icmp: u8) {
        let protocol = match &self.transport {
            TransportLayer::Raw { protocol } => *protocol,
            TransportLayer::Tcp { .. } => 6,
            TransportLayer::Udp { .. } => 17,
            TransportLayer::Sctp { .. } => 132,
            TransportLayer::Icmp { .. } => icmp,
            TransportLayer::Neighbour(_) => 58,
        };
        if self.is_later_fragment() {
            let shown = if icmp == 58 { 44 } else { protocol };
            return key.set_field(FieldId::IpProto, u128::from(shown));
        }
        key.set_field(FieldId::IpProto, u128::from(protocol));
        match &self.transport {
            TransportLayer::Raw { .. } => {}
            TransportLayer::Tcp { ports, .. }
            | TransportLayer::Udp { ports }
            | TransportLayer::Sctp { ports } => {
                key.set_field(FieldId::TcpSrc, u128::from(ports[0]));
                key.set_field(FieldId::TcpDst, u128::from(ports[1]));
            }
            TransportLayer::Icmp { kind, code } => {
                key.set_field(FieldId::IcmpType, u128::from(*kind));
                key.set_field(FieldId::IcmpCode, u128::from(*code));
            }
            TransportLayer::Neighbour(message) => {
                key.set_field(FieldId::Icmpv6Type, u128::from(message.kind));
                key.set_field(FieldId::NdReserved, u128::from(message.reserved));
                let first = if message.source.is_some() { 1 } else { 2 };
                let has_option = message.source.or(message.destination).is_some();
                key.set_field(FieldId::NdOptionsType, if has_option { first } else { 0 });
                key.set_field(FieldId::NdTarget, number(&message.target));
                key.set_field(FieldId::NdSll, number(&message.source.unwrap_or_default()));
                key.set_field(FieldId::NdTll, number(&message.destination.unwrap_or_default()));
            }
        }
        if let TransportLayer::Tcp { flags, .. } = &self.transport {
            key.set_field(FieldId::TcpFlags, u128::from(*flags));
        }
    }

    /// Returns the writable fields of the packet, when one VLAN tag is parsed.
    #[must_use]
    pub fn writable_fields(&self) -> Vec<FieldId> {
        let mut fields = vec![FieldId::EthSrc, FieldId::EthDst];
        if !self.tags.is_empty() {
            fields.extend([
                FieldId::VlanTci,
                FieldId::DlVlan,
                FieldId::DlVlanPcp,
                FieldId::VlanVid,
                FieldId::VlanPcp,
            ]);
        }
        match (self.tags.len(), self.labels.len(), &self.network) {
            (2.., ..) | (_, 0, NetworkLayer::Raw { .. }) => {}
            (_, 1.., _) => {
                fields.extend([FieldId::MplsLabel, FieldId::MplsTc, FieldId::MplsTtl]);
            }
            (_, 0, NetworkLayer::Arp(_)) => fields.extend([
                FieldId::ArpOp,
                FieldId::ArpSpa,
                FieldId::ArpTpa,
                FieldId::ArpSha,
                FieldId::ArpTha,
            ]),
            (_, 0, NetworkLayer::Ipv4(_)) => {
                fields.extend([FieldId::Ipv4Src, FieldId::Ipv4Dst]);
                self.add_writable_transport(&mut fields);
            }
            (_, 0, NetworkLayer::Ipv6(_)) => {
                fields.extend([FieldId::Ipv6Src, FieldId::Ipv6Dst, FieldId::Ipv6Label]);
                self.add_writable_transport(&mut fields);
            }
        }
        fields
    }

    /// Adds the writable fields of the transport layer to `fields`.
    fn add_writable_transport(&self, fields: &mut Vec<FieldId>) {
        fields.extend([FieldId::NwTos, FieldId::IpDscp, FieldId::IpEcn, FieldId::NwTtl]);
        if self.is_later_fragment() {
            return;
        }
        match &self.transport {
            TransportLayer::Raw { .. } => {}
            TransportLayer::Tcp { .. } => fields.extend([FieldId::TcpSrc, FieldId::TcpDst]),
            TransportLayer::Udp { .. } => fields.extend([FieldId::UdpSrc, FieldId::UdpDst]),
            TransportLayer::Sctp { .. } => fields.extend([FieldId::SctpSrc, FieldId::SctpDst]),
            TransportLayer::Icmp { .. } => fields.extend([FieldId::IcmpType, FieldId::IcmpCode]),
            TransportLayer::Neighbour(message) => {
                fields.extend([FieldId::NdTarget, FieldId::NdReserved]);
                fields.extend(message.source.map(|_| FieldId::NdSll));
                fields.extend(message.destination.map(|_| FieldId::NdTll));
            }
        }
    }

    /// Sets a writable field of the packet.
    ///
    /// # Panics
    ///
    /// If the packet does not have the field.
    pub fn set(&mut self, field: FieldId, value: u128) {
        match field {
            FieldId::EthSrc => self.source = octets(value),
            FieldId::EthDst => self.destination = octets(value),
            FieldId::VlanTci => self.tags[0].1 = low::<u16>(value) & !0x1000,
            FieldId::DlVlan | FieldId::VlanVid => {
                self.tags[0].1 = self.tags[0].1 & 0xe000 | low::<u16>(value) & 0x0fff;
            }
            FieldId::DlVlanPcp | FieldId::VlanPcp => {
                self.tags[0].1 = self.tags[0].1 & 0x0fff | low::<u16>(value) << 13;
            }
            FieldId::MplsLabel => self.set_label(12, 0xfffff, value),
            FieldId::MplsTc => self.set_label(9, 0x7, value),
            FieldId::MplsTtl => self.set_label(0, 0xff, value),
            _ => self.set_behind_link(field, value),
        }
    }

    /// Sets a field behind the link headers.
    fn set_behind_link(&mut self, field: FieldId, value: u128) {
        let is_of_network = match &mut self.network {
            NetworkLayer::Raw { .. } => false,
            NetworkLayer::Arp(arp) => arp.set(field, value),
            NetworkLayer::Ipv4(ip) => ip.set(field, value),
            NetworkLayer::Ipv6(ip) => ip.set(field, value),
        };
        if !is_of_network {
            self.transport.set(field, value);
        }
    }

    /// Sets bits of the outermost MPLS label.
    fn set_label(&mut self, shift: u32, mask: u32, value: u128) {
        let value = u32::try_from(value).expect("a field of at most 20 bits");
        self.labels[0] = self.labels[0] & !(mask << shift) | value << shift;
    }
}

impl Arp {
    /// Adds the fields of the ARP packet to the key.
    fn add_to(&self, key: &mut FlowKey) {
        key.set_field(FieldId::EthType, 0x0806);
        let operation = if self.operation > 0xff { 0 } else { self.operation };
        key.set_field(FieldId::ArpOp, u128::from(operation));
        key.set_field(FieldId::ArpSha, number(&self.sender.0));
        key.set_field(FieldId::ArpSpa, number(&self.sender.1));
        key.set_field(FieldId::ArpTha, number(&self.target.0));
        key.set_field(FieldId::ArpTpa, number(&self.target.1));
    }

    /// Sets a field of ARP; returns whether `field` is one.
    fn set(&mut self, field: FieldId, value: u128) -> bool {
        match field {
            FieldId::ArpOp => self.operation = low(value),
            FieldId::ArpSha => self.sender.0 = octets(value),
            FieldId::ArpSpa => self.sender.1 = octets(value),
            FieldId::ArpTha => self.target.0 = octets(value),
            FieldId::ArpTpa => self.target.1 = octets(value),
            _ => return false,
        }
        true
    }
}

impl Ipv4 {
    /// Adds the fields of the IPv4 header to the key.
    fn add_to(&self, key: &mut FlowKey) {
        key.set_field(FieldId::EthType, 0x0800);
        key.set_field(FieldId::Ipv4Src, number(&self.source));
        key.set_field(FieldId::Ipv4Dst, number(&self.destination));
        write_tos(key, self.tos);
        key.set_field(FieldId::NwTtl, u128::from(self.ttl));
        key.set_field(FieldId::NwFrag, fragment_state(self.fragment & 0x1fff, self.fragment));
    }

    /// Sets a field if it is one of this header.
    fn set(&mut self, field: FieldId, value: u128) -> bool {
        match field {
            FieldId::Ipv4Src => self.source = octets(value),
            FieldId::Ipv4Dst => self.destination = octets(value),
            FieldId::NwTtl => self.ttl = low(value),
            _ => return set_tos(&mut self.tos, field, value),
        }
        true
    }
}

impl Ipv6 {
    /// Adds the fields of the IPv6 header to the key.
    fn add_to(&self, key: &mut FlowKey) {
        key.set_field(FieldId::EthType, 0x86dd);
        key.set_field(FieldId::Ipv6Src, number(&self.source));
        key.set_field(FieldId::Ipv6Dst, number(&self.destination));
        key.set_field(FieldId::Ipv6Label, u128::from(self.label));
        write_tos(key, self.tos);
        key.set_field(FieldId::NwTtl, u128::from(self.ttl));
        if let Some((_, content)) = self.extensions.iter().find(|(protocol, _)| *protocol == 44) {
            let field = u16::from_be_bytes([content[0], content[1]]);
            key.set_field(FieldId::NwFrag, fragment_state(field >> 3, field));
        }
    }

    /// Sets a field if it is one of this header.
    fn set(&mut self, field: FieldId, value: u128) -> bool {
        match field {
            FieldId::Ipv6Src => self.source = octets(value),
            FieldId::Ipv6Dst => self.destination = octets(value),
            FieldId::Ipv6Label => self.label = u32::try_from(value).expect("20 bits"),
            FieldId::NwTtl => self.ttl = low(value),
            _ => return set_tos(&mut self.tos, field, value),
        }
        true
    }
}

impl TransportLayer {
    /// Sets a field of the model.
    fn set(&mut self, field: FieldId, value: u128) {
        match (field, self) {
            (FieldId::TcpSrc, Self::Tcp { ports, .. })
            | (FieldId::UdpSrc, Self::Udp { ports })
            | (FieldId::SctpSrc, Self::Sctp { ports }) => ports[0] = low(value),
            (FieldId::TcpDst, Self::Tcp { ports, .. })
            | (FieldId::UdpDst, Self::Udp { ports })
            | (FieldId::SctpDst, Self::Sctp { ports }) => ports[1] = low(value),
            (FieldId::IcmpType, Self::Icmp { kind, .. }) => *kind = low(value),
            (FieldId::IcmpCode, Self::Icmp { code, .. }) => *code = low(value),
            (FieldId::NdTarget, Self::Neighbour(message)) => message.target = octets(value),
            (FieldId::NdReserved, Self::Neighbour(message)) => message.reserved = low(value),
            (FieldId::NdSll, Self::Neighbour(message)) => message.source = Some(octets(value)),
            (FieldId::NdTll, Self::Neighbour(message)) => message.destination = Some(octets(value)),
            (_, transport) => panic!("no {field:?} in {transport:?}"),
        }
    }
}

/// Writes both fields of the ToS byte: `nw_tos` is its upper six bits only.
fn write_tos(key: &mut FlowKey, tos: u8) {
    key.set_field(FieldId::NwTos, u128::from(tos));
    key.set_field(FieldId::IpEcn, u128::from(tos));
}

/// Sets a field of the ToS byte; returns whether `field` is one.
fn set_tos(tos: &mut u8, field: FieldId, value: u128) -> bool {
    match field {
        FieldId::NwTos => *tos = *tos & 0x03 | low::<u8>(value) & 0xfc,
        FieldId::IpDscp => *tos = *tos & 0x03 | low::<u8>(value) << 2,
        FieldId::IpEcn => *tos = *tos & 0xfc | low::<u8>(value),
        _ => return false,
    }
    true
}

/// Returns the fragment state of a fragment offset.
const fn fragment_state(offset: u16, field: u16) -> u128 {
    match (offset, field) {
        (0, 0) => 0,
        (0, _) => 1,
        _ => 3,
    }
}

/// Returns bytes as a number.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Returns a number as bytes.
fn octets<const N: usize>(value: u128) -> [u8; N] {
    *value.to_be_bytes().last_chunk().expect("a field of at most sixteen bytes")
}

/// Converts the value of a field to an integer as wide as the field.
fn low<T: TryFrom<u128>>(value: u128) -> T {
    T::try_from(value).ok().expect("a field of the width of its type")
}
