//! BFD sessions of some ports, and packets for them.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, FlowKey};

use crate::bridges::port::{PortBfd, PortInfo};

/// The destination address that some sessions require, and that few packets have.
const ADDRESS: [u8; 6] = [0x00, 0x23, 0x20, 0x00, 0x00, 0x01];

/// Packets: a few for BFD, and a few with another UDP port or TTL.
pub(super) fn few_for_bfd(
    packets: impl Strategy<Value = FlowKey>,
) -> impl Strategy<Value = FlowKey> {
    let port = select(vec![3784, 3784, 3784 ^ 1, 3784 ^ 0x800]);
    let ttl = select(vec![255, 255, 255, 254, 127]);
    (packets, 0u8..24, port, ttl).prop_map(|(mut key, kind, port, ttl)| {
        if kind < 2 {
            key.set_field(FieldId::EthType, 0x0800);
            key.set_field(FieldId::IpProto, 17);
            key.set_field(FieldId::UdpDst, port);
            key.set_field(FieldId::NwTtl, ttl);
        }
        if kind == 0 {
            key.set_field(FieldId::EthDst, 0x0023_2000_0001);
        }
        key
    })
}

/// Ports of which few have BFD sessions, so that most packets go to the tables.
pub(super) fn few_with_bfd(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    prop_oneof![6 => Just(ports.clone()), 1 => with_bfd(ports)]
}

/// Adds BFD sessions to some of the ports, up or down.
fn with_bfd(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    let session = (option::weighted(0.3, Just(ADDRESS)), prop::bool::weighted(0.7))
        .prop_map(|(destination, is_forwarding)| PortBfd { destination, is_forwarding });
    vec(option::weighted(0.6, session), ports.len()).prop_map(move |sessions| {
        let ports = ports.iter().zip(sessions);
        ports.map(|(port, bfd)| PortInfo { bfd, ..port.clone() }).collect()
    })
}
