//! The addresses and ports of a flow.

use shunt_flow::{FieldId, FlowKey};

/// The addresses and ports of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowEnds {
    /// The bridge of the flow.
    pub(crate) bridge: u64,
    /// True for IPv4, false for IPv6.
    pub(crate) is_ipv4: bool,
    /// The IP protocol of the flow.
    pub(crate) protocol: u128,
    /// The source address of the flow.
    pub(crate) source: u128,
    /// The destination address of the flow.
    pub(crate) destination: u128,
    /// The source port of the flow.
    pub(crate) source_port: u128,
    /// The destination port of the flow.
    pub(crate) destination_port: u128,
}

/// The service that a flow goes to: destination address, protocol and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowService {
    /// The bridge of the flow.
    bridge: u64,
    /// True for IPv4, false for IPv6.
    pub(crate) is_ipv4: bool,
    /// The IP protocol of the service.
    protocol: u128,
    /// The destination address of the service.
    pub(crate) address: u128,
    /// The destination port of the service.
    pub(crate) port: u128,
}

impl FlowService {
    /// Returns words that identify the service, to be hashed.
    pub(crate) fn words(&self) -> [u64; 4] {
        let low = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or_default();
        let kind = low(self.protocol) << 32 | low(self.port) << 1 | u64::from(self.is_ipv4);
        [self.bridge, kind, low(self.address >> 64), low(self.address)]
    }
}

impl FlowEnds {
    /// Returns the addresses and ports of a TCP, UDP or SCTP flow, else `None`.
    pub(crate) fn of(key: &FlowKey) -> Option<Self> {
        let is_ipv4 = match key.eth_type() {
            0x0800 => true,
            0x86dd => false,
            _ => return None,
        };
        let protocol = key.field(FieldId::IpProto);
        if ![6, 17, 132].contains(&protocol) || key.field(FieldId::NwFrag) != 0 {
            return None;
        }
        let [source, destination] = Self::address_fields(is_ipv4);
        Some(Self {
            bridge: key.bridge(),
            is_ipv4,
            protocol,
            source: key.field(source),
            destination: key.field(destination),
            source_port: key.field(FieldId::UdpSrc),
            destination_port: key.field(FieldId::UdpDst),
        })
    }

    /// Returns the source and destination fields of IPv4 or IPv6.
    pub(crate) const fn address_fields(is_ipv4: bool) -> [FieldId; 2] {
        if is_ipv4 {
            [FieldId::Ipv4Src, FieldId::Ipv4Dst]
        } else {
            [FieldId::Ipv6Src, FieldId::Ipv6Dst]
        }
    }

    /// Returns the addresses and ports of the reply to the flow.
    pub(crate) const fn reverse(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }

    /// Returns the service that the flow is sent to.
    pub(crate) const fn service(&self) -> FlowService {
        FlowService {
            bridge: self.bridge,
            is_ipv4: self.is_ipv4,
            protocol: self.protocol,
            address: self.destination,
            port: self.destination_port,
        }
    }

    /// Returns the source with its protocol and port, as the service of a reply.
    pub(crate) const fn source_socket(&self) -> FlowService {
        self.reverse().service()
    }
}
