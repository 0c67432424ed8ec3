//! UDP flows over IPv4, by the headers in which the flows of a test differ.

use crate::{FieldId, FlowKey, PortNo};

/// The ingress port, addresses and ports of a UDP flow over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UdpFlow {
    /// The ingress port of the flow.
    pub in_port: u32,
    /// The address and the port of the source.
    pub source: (u32, u16),
    /// The address and the port of the destination.
    pub destination: (u32, u16),
}

impl UdpFlow {
    /// Returns the flow of a key; absent fields are zero.
    #[must_use]
    pub fn of(key: &FlowKey) -> Self {
        let address = |field| u32::try_from(key.field(field)).unwrap_or_default();
        let port = |field| u16::try_from(key.field(field)).unwrap_or_default();
        Self {
            in_port: key.in_port().number(),
            source: (address(FieldId::Ipv4Src), port(FieldId::UdpSrc)),
            destination: (address(FieldId::Ipv4Dst), port(FieldId::UdpDst)),
        }
    }

    /// Returns the key of the packets of the flow in bridge 1.
    ///
    /// All flows have the same Ethernet addresses and TTL.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        key.set_in_port(PortNo::new(self.in_port));
        for (field, value) in [
            (FieldId::EthSrc, 0x0200_0000_0001),
            (FieldId::EthDst, 0x0200_0000_0002),
            (FieldId::EthType, 0x0800),
            (FieldId::NwTtl, 64),
            (FieldId::IpProto, 17),
            (FieldId::Ipv4Src, self.source.0.into()),
            (FieldId::Ipv4Dst, self.destination.0.into()),
            (FieldId::UdpSrc, self.source.1.into()),
            (FieldId::UdpDst, self.destination.1.into()),
        ] {
            key.set_field(field, value);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_headers_of_its_flow() {
        let (source, destination) = ((0x0a00_0001, 4000), (0x0a00_0002, 53));
        let flow = UdpFlow { in_port: 7, source, destination };
        assert_eq!(UdpFlow::of(&flow.key()), flow);
        assert_eq!(UdpFlow::of(&FlowKey::ZERO).source, (0, 0));
    }
}
