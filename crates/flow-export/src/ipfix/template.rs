//! Templates: the list of elements in the records of each kind of flow.

use super::flow::{FlowDirection, FlowTransport, IpfixFlow, IpfixFlowKey, IpfixNetwork};

/// An information element: its number in the registry of IANA,
/// and its length in bytes.
pub(super) type Element = (u16, u16);

/// The form of a record, which depends on the headers of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemplateShape {
    /// True if the record has a VLAN tag.
    has_vlan: bool,
    /// The network header: IPv4, IPv6 or none.
    network: NetworkShape,
    /// The transport header of the flow.
    transport: TransportShape,
}

/// The network addresses that a template contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkShape {
    None,
    V4,
    V6,
}

/// The transport fields that a template contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportShape {
    None,
    Ports,
    Icmp,
}

/// The lowest template id (RFC 7011, 3.4.1).
const TEMPLATE_MIN: u16 = 256;

/// The template id of the options record.
pub(super) const SAMPLING_TEMPLATE: u16 = TEMPLATE_MIN + 18;

/// The elements of the options record, without its scope.
pub(super) const SAMPLING_ELEMENTS: [Element; 2] = [(34, 4), (35, 1)];

/// The enterprise and number of `virtualObsID`, an element of VMware.
///
/// The element has a variable length, and follows the other elements of a record.
pub(super) const VIRTUAL_ID: (u32, u16) = (6876, 898);

/// The bit in the number of an element that marks an enterprise-specific element.
pub(super) const ENTERPRISE_BIT: u16 = 0x8000;

/// The length in a template that marks an element of variable length.
pub(super) const VARIABLE_LENGTH: u16 = 65_535;

/// The scope element of the options record: `observationDomainId`.
pub(super) const SAMPLING_SCOPE: Element = (149, 4);

/// The elements that precede the others in every template.
const HEAD: [Element; 8] = [
    (138, 4), // observationPointId
    (61, 1),  // flowDirection
    (10, 4),  // ingressInterface
    (14, 4),  // egressInterface
    (56, 6),  // sourceMacAddress
    (80, 6),  // destinationMacAddress
    (256, 2), // ethernetType
    (240, 1), // ethernetHeaderLength
];

/// The elements of a flow with a VLAN tag.
const VLAN: [Element; 3] = [
    (58, 2),  // vlanId
    (243, 2), // dot1qVlanId
    (244, 1), // dot1qPriority
];

/// The elements of an IP flow.
const IP: [Element; 6] = [
    (60, 1),  // ipVersion
    (4, 1),   // protocolIdentifier
    (5, 1),   // ipClassOfService
    (195, 1), // ipDiffServCodePoint
    (52, 1),  // minimumTTL
    (53, 1),  // maximumTTL
];

/// Elements of the addresses of an IPv4 flow.
const ADDRESSES_V4: [Element; 2] = [
    (8, 4),  // sourceIPv4Address
    (12, 4), // destinationIPv4Address
];

/// Elements of the addresses and the flow label of an IPv6 flow.
const ADDRESSES_V6: [Element; 3] = [
    (27, 16), // sourceIPv6Address
    (28, 16), // destinationIPv6Address
    (31, 4),  // flowLabelIPv6
];

/// The elements of a flow with transport ports.
const PORTS: [Element; 3] = [
    (7, 2),  // sourceTransportPort
    (11, 2), // destinationTransportPort
    (6, 2),  // tcpControlBits
];

/// Elements of the ICMP type and code.
const ICMP_V4: [Element; 2] = [
    (176, 1), // icmpTypeIPv4
    (177, 1), // icmpCodeIPv4
];

/// Elements of the ICMPv6 type and code.
const ICMP_V6: [Element; 2] = [
    (178, 1), // icmpTypeIPv6
    (179, 1), // icmpCodeIPv6
];

const TAIL: [Element; 5] = [
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (2, 8),   // packetDeltaCount
    (352, 8), // layer2OctetDeltaCount
    (136, 1), // flowEndReason
];

/// The byte count that only IP packets have.
const IP_TAIL: [Element; 1] = [
    (1, 8), // octetDeltaCount
];

/// Length of an Ethernet header, in bytes.
const ETHERNET_BYTES: u8 = 14;
/// Length of a VLAN tag, in bytes.
const TAG_BYTES: u8 = 4;

impl TemplateShape {
    /// Returns the forms of records for all kinds of flows.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let networks = [NetworkShape::None, NetworkShape::V4, NetworkShape::V6];
        let transports = [TransportShape::None, TransportShape::Ports, TransportShape::Icmp];
        let shapes = [false, true].into_iter().flat_map(move |has_vlan| {
            networks.into_iter().flat_map(move |network| {
                transports.map(|transport| Self { has_vlan, network, transport })
            })
        });
        shapes.filter(|own| {
            own.network != NetworkShape::None || own.transport == TransportShape::None
        })
    }

    /// Returns the form of the record for a flow.
    pub(super) const fn of(key: &IpfixFlowKey) -> Self {
        let network = match key.network {
            None => NetworkShape::None,
            Some(IpfixNetwork::V4 { .. }) => NetworkShape::V4,
            Some(IpfixNetwork::V6 { .. }) => NetworkShape::V6,
        };
        let transport = match (key.transport, network) {
            (FlowTransport::Other, _) | (_, NetworkShape::None) => TransportShape::None,
            (FlowTransport::Ports { .. }, _) => TransportShape::Ports,
            (FlowTransport::Icmp { .. }, _) => TransportShape::Icmp,
        };
        Self { has_vlan: key.vlan_tci.is_some(), network, transport }
    }

    /// Returns the template id of the form.
    pub(super) const fn template(self) -> u16 {
        let network = match self.network {
            NetworkShape::None => 0,
            NetworkShape::V4 => 3,
            NetworkShape::V6 => 6,
        };
        let transport = match self.transport {
            TransportShape::None => 0,
            TransportShape::Ports => 1,
            TransportShape::Icmp => 2,
        };
        let vlan = if self.has_vlan { 9 } else { 0 };
        TEMPLATE_MIN + vlan + network + transport
    }

    /// Returns the elements of a record of this form, in order.
    pub(super) fn elements(self) -> Vec<Element> {
        let vlan: &[Element] = if self.has_vlan { &VLAN } else { &[] };
        let (ip, addresses): (&[Element], &[Element]) = match self.network {
            NetworkShape::None => (&[], &[]),
            NetworkShape::V4 => (&IP, &ADDRESSES_V4),
            NetworkShape::V6 => (&IP, &ADDRESSES_V6),
        };
        let transport: &[Element] = match (self.transport, self.network) {
            (TransportShape::None, _) => &[],
            (TransportShape::Ports, _) => &PORTS,
            (TransportShape::Icmp, NetworkShape::V6) => &ICMP_V6,
            (TransportShape::Icmp, _) => &ICMP_V4,
        };
        let tail: &[Element] = if self.network == NetworkShape::None { &[] } else { &IP_TAIL };
        [&HEAD, vlan, ip, addresses, transport, &TAIL, tail].concat()
    }
}

/// Appends the record of a flow, in the order of [`TemplateShape::elements`].
pub(super) fn encode(buffer: &mut Vec<u8>, flow: &IpfixFlow) {
    let IpfixFlow { key, counts, end_reason } = flow;
    buffer.extend_from_slice(&key.observed_at.point.to_be_bytes());
    buffer.push(match key.direction {
        FlowDirection::Ingress => 0,
        FlowDirection::Egress => 1,
    });
    buffer.extend_from_slice(&key.ingress.to_be_bytes());
    buffer.extend_from_slice(&key.egress.to_be_bytes());
    buffer.extend_from_slice(&key.source_mac);
    buffer.extend_from_slice(&key.destination_mac);
    buffer.extend_from_slice(&key.ethernet_type.to_be_bytes());
    buffer.push(ETHERNET_BYTES + if key.vlan_tci.is_some() { TAG_BYTES } else { 0 });
    if let Some(tci) = key.vlan_tci {
        let id = (tci & 0x0fff).to_be_bytes();
        let [high, _] = tci.to_be_bytes();
        buffer.extend_from_slice(&[id, id].concat());
        buffer.push(high >> 5);
    }
    if let Some(network) = key.network {
        let (version, tos, protocol) = network.common();
        let fields = [version, protocol, tos, tos >> 2, counts.ttl_min, counts.ttl_max];
        buffer.extend_from_slice(&fields);
        match network {
            IpfixNetwork::V4 { source, destination, .. } => {
                buffer.extend_from_slice(&source.octets());
                buffer.extend_from_slice(&destination.octets());
            }
            IpfixNetwork::V6 { source, destination, flow_label, .. } => {
                buffer.extend_from_slice(&source.octets());
                buffer.extend_from_slice(&destination.octets());
                buffer.extend_from_slice(&flow_label.to_be_bytes());
            }
        }
        match key.transport {
            FlowTransport::Other => {}
            FlowTransport::Ports { source, destination } => {
                for field in [source, destination, counts.tcp_flags] {
                    buffer.extend_from_slice(&field.to_be_bytes());
                }
            }
            FlowTransport::Icmp { kind, code } => buffer.extend_from_slice(&[kind, code]),
        }
    }
    for count in [counts.start_ms, counts.end_ms, counts.packets, counts.frame_bytes] {
        buffer.extend_from_slice(&count.to_be_bytes());
    }
    buffer.push(end_reason.value());
    if key.network.is_some() {
        buffer.extend_from_slice(&counts.ip_bytes.to_be_bytes());
    }
}
