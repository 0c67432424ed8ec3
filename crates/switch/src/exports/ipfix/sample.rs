//! The IPFIX flow of a sampled packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use shunt_datapath::sample::SampledPacket;
use shunt_flow::{
    FieldId, FlowKey,
    extract::{VlanLimit, extract},
};
use shunt_flow_export::ipfix::{
    FlowDirection, FlowTransport, IpfixCounts, IpfixFlowKey, IpfixNetwork, ObservationPoint,
};

/// Ethernet types and IP protocol numbers.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// The bit of a flow key's TCI that is set if the packet has a tag.
const TAG_PRESENT: u16 = 0x1000;

/// The bit of `nw_frag` that is set in fragments without a transport header.
const LATER_FRAGMENT: u8 = 2;

/// Lengths in bytes of an Ethernet header and of a VLAN tag.
const ETHERNET_BYTES: usize = 14;
/// Length of a VLAN tag.
const TAG_BYTES: usize = 4;

/// The part of a sampled packet that determines its flow.
#[derive(Clone, Copy, Debug)]
struct SampledFrame<'a> {
    /// The first bytes of the frame, up to the sampled length.
    header: &'a [u8],
    /// Length of the frame in bytes.
    length: usize,
    /// TCI of the outermost VLAN tag.
    vlan_tci: Option<u16>,
}

/// The place where a packet was sampled: domain, point and interfaces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleObservation {
    pub(super) observed_at: ObservationPoint,
    pub(super) direction: FlowDirection,
    /// Indices of the ingress and the egress interface.
    pub(super) interfaces: [u32; 2],
}

/// Parses sampled packets.
///
/// The parser of flow keys refuses an IP packet that is longer than its frame. So a sampled frame
/// is extended with zeros to its original length.
#[derive(Debug, Default)]
pub(super) struct SampleParser {
    /// A buffer as long as the longest frame so far.
    ///
    /// Between two samples all bytes are zero.
    frame: Vec<u8>,
}

impl SampleParser {
    /// Returns the flow of a sampled packet, and its counts.
    ///
    /// `now_ms` is the time of the sample.
    pub(super) fn flow_of(
        &mut self,
        packet: &SampledPacket,
        observation: &SampleObservation,
        now_ms: u64,
    ) -> (IpfixFlowKey, IpfixCounts) {
        let frame = SampledFrame {
            header: packet.header(),
            length: packet.frame_length,
            vlan_tci: packet.vlan_in,
        };
        frame.flow(&self.parse(&frame), observation, now_ms)
    }

    /// Returns the flow of a packet that the action of a rule has sampled,
    /// and its counts.
    ///
    /// The VLAN tag of the flow is read from the frame.
    pub(super) fn flow_by_rule(
        &mut self,
        packet: &SampledPacket,
        observation: &SampleObservation,
        now_ms: u64,
    ) -> (IpfixFlowKey, IpfixCounts) {
        let (header, length) = (packet.header(), packet.frame_length);
        let frame = SampledFrame { header, length, vlan_tci: None };
        let key = self.parse(&frame);
        let tci = field_u16(&key, FieldId::VlanTci);
        let vlan_tci = (tci & TAG_PRESENT != 0).then_some(tci);
        SampledFrame { vlan_tci, ..frame }.flow(&key, observation, now_ms)
    }

    /// Extracts the flow key of a sampled frame.
    fn parse(&mut self, sampled: &SampledFrame<'_>) -> FlowKey {
        let (header, mut key) = (sampled.header, FlowKey::ZERO);
        let length = sampled.length.max(header.len());
        if self.frame.len() < length {
            self.frame.resize(length, 0);
        }
        self.frame[..header.len()].copy_from_slice(header);
        extract(&self.frame[..length], VlanLimit::One, &mut key);
        self.frame[..header.len()].fill(0);
        key
    }
}

impl SampledFrame<'_> {
    /// Returns the flow and the counts of the sample.
    fn flow(
        &self,
        key: &FlowKey,
        observation: &SampleObservation,
        now_ms: u64,
    ) -> (IpfixFlowKey, IpfixCounts) {
        let SampleObservation { observed_at, direction, interfaces: [ingress, egress] } =
            *observation;
        let network = network(key);
        let transport = if network.is_some() { transport(key) } else { FlowTransport::Other };
        let tag_bytes = if self.vlan_tci.is_some() { TAG_BYTES } else { 0 };
        let ip_bytes = self.length.saturating_sub(ETHERNET_BYTES + tag_bytes);
        let ttl = if network.is_some() { field_u8(key, FieldId::NwTtl) } else { 0 };
        let is_tcp = network.is_some() && field_u8(key, FieldId::IpProto) == TCP;
        let flow = IpfixFlowKey {
            observed_at,
            direction,
            ingress,
            egress,
            source_mac: mac(key, FieldId::EthSrc),
            destination_mac: mac(key, FieldId::EthDst),
            vlan_tci: self.vlan_tci,
            ethernet_type: key.eth_type(),
            network,
            transport,
        };
        let counts = IpfixCounts {
            packets: 1,
            ip_bytes: if network.is_some() { ip_bytes as u64 } else { 0 },
            frame_bytes: self.length as u64,
            start_ms: now_ms,
            end_ms: now_ms,
            tcp_flags: if is_tcp { field_u16(key, FieldId::TcpFlags) } else { 0 },
            ttl_min: ttl,
            ttl_max: ttl,
        };
        (flow, counts)
    }
}

/// Returns the fields of the network header.
fn network(key: &FlowKey) -> Option<IpfixNetwork> {
    let tos = field_u8(key, FieldId::IpDscp) << 2 | field_u8(key, FieldId::IpEcn);
    let protocol = field_u8(key, FieldId::IpProto);
    match key.eth_type() {
        IPV4 => {
            let [source, destination] = [FieldId::Ipv4Src, FieldId::Ipv4Dst]
                .map(|field| Ipv4Addr::from(u32::try_from(key.field(field)).unwrap_or_default()));
            Some(IpfixNetwork::V4 { source, destination, tos, protocol })
        }
        IPV6 => {
            let [source, destination] =
                [FieldId::Ipv6Src, FieldId::Ipv6Dst].map(|field| Ipv6Addr::from(key.field(field)));
            let flow_label = u32::try_from(key.field(FieldId::Ipv6Label)).unwrap_or_default();
            Some(IpfixNetwork::V6 { source, destination, flow_label, tos, protocol })
        }
        _ => None,
    }
}

/// Returns the transport header of an IP packet.
///
/// The two header fields of each protocol are at the same two places of the flow key.
fn transport(key: &FlowKey) -> FlowTransport {
    if field_u8(key, FieldId::NwFrag) & LATER_FRAGMENT != 0 {
        return FlowTransport::Other;
    }
    match (field_u8(key, FieldId::IpProto), key.eth_type()) {
        (TCP | UDP | SCTP, _) => FlowTransport::Ports {
            source: field_u16(key, FieldId::TcpSrc),
            destination: field_u16(key, FieldId::TcpDst),
        },
        (ICMP, IPV4) | (ICMPV6, IPV6) => FlowTransport::Icmp {
            kind: field_u8(key, FieldId::IcmpType),
            code: field_u8(key, FieldId::IcmpCode),
        },
        _ => FlowTransport::Other,
    }
}

/// Returns a MAC address of a key.
fn mac(key: &FlowKey, field: FieldId) -> [u8; 6] {
    let [.., a, b, c, d, e, f] = key.field(field).to_be_bytes();
    [a, b, c, d, e, f]
}

/// Returns a field of at most 8 bits.
fn field_u8(key: &FlowKey, field: FieldId) -> u8 {
    let [.., low] = key.field(field).to_be_bytes();
    low
}

/// Returns a field of at most 16 bits.
fn field_u16(key: &FlowKey, field: FieldId) -> u16 {
    let [.., high, low] = key.field(field).to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use shunt_flow::testing::packet::PacketBuilder;

    use super::*;

    /// The observation of the samples.
    const OBSERVATION: SampleObservation = SampleObservation {
        observed_at: ObservationPoint { domain: 7, point: 9 },
        direction: FlowDirection::Egress,
        interfaces: [3, 5],
    };

    fn flow_by(
        parser: &mut SampleParser,
        packet: &PacketBuilder,
        vlan_tci: Option<u16>,
    ) -> (IpfixFlowKey, IpfixCounts) {
        let frame = packet.build();
        let (header, length) = (&frame[..frame.len().min(128)], frame.len());
        let sampled = SampledFrame { header, length, vlan_tci };
        sampled.flow(&parser.parse(&sampled), &OBSERVATION, 1000)
    }

    /// Returns the flow of a sampled packet.
    fn flow(packet: &PacketBuilder, vlan_tci: Option<u16>) -> (IpfixFlowKey, IpfixCounts) {
        flow_by(&mut SampleParser::default(), packet, vlan_tci)
    }

    /// Returns the network header of an IPv4 packet.
    fn v4(protocol: u8) -> IpfixNetwork {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        IpfixNetwork::V4 { source, destination, tos: 0x2b, protocol }
    }

    /// Returns an IPv4 packet.
    fn ipv4() -> PacketBuilder {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tos(0x2b).ttl(63)
    }

    #[test]
    fn a_tcp_segment_has_its_ports_and_flags() {
        let packet = ipv4().tcp(6000, 80).tcp_flags(0x12).payload(vec![0; 900]);
        let length = packet.build().len() as u64;
        let (key, counts) = flow(&packet, None);
        assert_eq!((key.ingress, key.egress, key.ethernet_type), (3, 5, 0x0800));
        assert_eq!(
            (key.observed_at, key.direction),
            (OBSERVATION.observed_at, FlowDirection::Egress)
        );
        assert_eq!(key.network, Some(v4(6)));
        assert_eq!(key.transport, FlowTransport::Ports { source: 6000, destination: 80 });
        let expected = IpfixCounts {
            packets: 1,
            ip_bytes: length - 14,
            frame_bytes: length,
            start_ms: 1000,
            end_ms: 1000,
            tcp_flags: 0x12,
            ttl_min: 63,
            ttl_max: 63,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn tag_is_no_part_of_ip_packet() {
        let packet = ipv4().tag(0x8100, 0x6007).udp(1, 2);
        let (key, counts) = flow(&packet, Some(0x6007));
        assert_eq!((key.vlan_tci, key.network), (Some(0x6007), Some(v4(17))));
        assert_eq!(counts.ip_bytes + 18, counts.frame_bytes);
        assert_eq!(counts.tcp_flags, 0);
    }

    #[test]
    fn icmp_type_and_code_replace_ports() {
        let transport = |packet: &PacketBuilder| flow(packet, None).0.transport;
        let message = FlowTransport::Icmp { kind: 8, code: 3 };
        assert_eq!(transport(&ipv4().icmp(8, 3)), message);
        let ipv6 = PacketBuilder::ipv6([1; 16], [2; 16]).tos(4).flow_label(77);
        let (key, counts) = flow(&ipv6.icmp(8, 3), None);
        let network = IpfixNetwork::V6 {
            source: [1; 16].into(),
            destination: [2; 16].into(),
            flow_label: 77,
            tos: 4,
            protocol: 58,
        };
        assert_eq!((key.network, key.transport), (Some(network), message));
        assert_eq!(counts.ip_bytes + 14, counts.frame_bytes);
    }

    #[test]
    fn headers_that_are_missing_are_left_out() {
        let later = ipv4().udp(1, 2).fragment(5);
        let (key, _) = flow(&later, None);
        assert_eq!((key.network, key.transport), (Some(v4(17)), FlowTransport::Other));
        let (key, counts) = flow(&PacketBuilder::ethernet(0x88b5), None);
        assert_eq!((key.ethernet_type, key.network), (0x88b5, None));
        assert_eq!((counts.ip_bytes, counts.ttl_max, key.transport), (0, 0, FlowTransport::Other));
        let short = SampledFrame { header: &[1, 2, 3], length: 3, vlan_tci: None };
        let key = SampleParser::default().parse(&short);
        assert_eq!(short.flow(&key, &OBSERVATION, 0).1.frame_bytes, 3);
    }

    #[test]
    fn a_sample_does_not_change_later_ones() {
        let mut parser = SampleParser::default();
        let packets = [
            ipv4().tcp(6000, 80).payload(vec![0xff; 60_000]),
            ipv4().udp(1, 2).fragment(5),
            PacketBuilder::ethernet(0x88b5),
            PacketBuilder::ipv6([1; 16], [2; 16]).icmp(8, 3),
            ipv4().icmp(8, 3),
        ];
        for packet in packets.iter().chain(packets.iter().rev()) {
            assert_eq!(flow_by(&mut parser, packet, None), flow(packet, None));
        }
    }
}
