//! IPFIX flows: the fields that their packets have in common, and their counts.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The fields that the packets of a flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpfixFlowKey {
    /// Observation point of the packets.
    pub observed_at: ObservationPoint,
    /// Direction in which the packets passed the observation point (`flowDirection`).
    pub direction: FlowDirection,
    /// Interface that received the packets (`ingressInterface`).
    pub ingress: u32,
    /// Interface that sent the packets (`egressInterface`).
    ///
    /// 0: no interface, several interfaces, or an unknown interface.
    pub egress: u32,
    /// Source MAC address of the packets.
    pub source_mac: [u8; 6],
    /// Destination MAC address of the packets.
    pub destination_mac: [u8; 6],
    /// TCI of the outermost VLAN tag.
    pub vlan_tci: Option<u16>,
    /// Ethernet type after the VLAN tags.
    pub ethernet_type: u16,
    /// Fields of the IP header; `None` for packets of other protocols.
    pub network: Option<IpfixNetwork>,
    /// Fields of the header after the IP header.
    pub transport: FlowTransport,
}

/// A place where packets are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservationPoint {
    /// Number of the observation domain (`observationDomainId`).
    pub domain: u32,
    /// Number of the observation point in the domain (`observationPointId`).
    pub point: u32,
}

/// The direction in which packets pass an observation point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowDirection {
    /// The packets arrive at the observation point.
    #[default]
    Ingress,
    /// The packets leave by the observation point.
    Egress,
}

/// The fields of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpfixNetwork {
    /// The fields of an IPv4 header.
    V4 {
        /// Source address of the packets.
        source: Ipv4Addr,
        /// Destination address of the packets.
        destination: Ipv4Addr,
        /// Type of service of the packets.
        tos: u8,
        /// Number of the protocol above IP.
        protocol: u8,
    },
    /// The fields of an IPv6 header.
    V6 {
        /// Source address of the packets.
        source: Ipv6Addr,
        /// Destination address of the packets.
        destination: Ipv6Addr,
        /// Flow label of the IPv6 header (20 bits).
        flow_label: u32,
        /// Traffic class of the packets.
        tos: u8,
        /// Protocol number of the last header that was parsed.
        protocol: u8,
    },
}

/// The fields of the transport or ICMP header after an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowTransport {
    /// The packet has no transport header, or an unknown one.
    Other,
    /// The flow has ports: TCP, UDP or SCTP.
    Ports {
        /// Source port of the packets.
        source: u16,
        /// Destination port of the packets.
        destination: u16,
    },
    /// The flow has a header of ICMP or ICMPv6.
    Icmp {
        /// Type of the ICMP message.
        kind: u8,
        /// Code of the ICMP message.
        code: u8,
    },
}

/// The counts of a flow, summed over its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpfixCounts {
    /// Number of packets (`packetDeltaCount`).
    pub packets: u64,
    /// Bytes of the IP packets; 0 for other packets (`octetDeltaCount`).
    pub ip_bytes: u64,
    /// Bytes of the frames (`layer2OctetDeltaCount`).
    pub frame_bytes: u64,
    /// Milliseconds since 1970 of the first packet (`flowStartMilliseconds`).
    pub start_ms: u64,
    /// Milliseconds since 1970 of the last packet (`flowEndMilliseconds`).
    pub end_ms: u64,
    /// Flags of all TCP segments of the flow, combined by OR (`tcpControlBits`).
    pub tcp_flags: u16,
    /// Smallest TTL or hop limit (`minimumTTL`).
    pub ttl_min: u8,
    /// Largest TTL or hop limit (`maximumTTL`).
    pub ttl_max: u8,
}

/// A flow that is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpfixFlow {
    /// The fields that the packets of the flow have in common.
    pub key: IpfixFlowKey,
    /// The counts of the flow.
    pub counts: IpfixCounts,
    /// The reason why the flow is reported.
    pub end_reason: FlowEndReason,
}

/// The reason why a flow is reported (`flowEndReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEndReason {
    /// The flow has lasted for the active timeout.
    ActiveTimeout,
    /// The exporter of the flow is ending.
    ForcedEnd,
    /// The cache has no space for another flow.
    LackOfResources,
}

impl FlowEndReason {
    /// Returns the value of `flowEndReason` in a record.
    #[must_use]
    pub const fn value(self) -> u8 {
        match self {
            Self::ActiveTimeout => 2,
            Self::ForcedEnd => 4,
            Self::LackOfResources => 5,
        }
    }
}

impl IpfixNetwork {
    /// Returns the IP version, the type of service and the protocol.
    pub(super) const fn common(self) -> (u8, u8, u8) {
        match self {
            Self::V4 { tos, protocol, .. } => (4, tos, protocol),
            Self::V6 { tos, protocol, .. } => (6, tos, protocol),
        }
    }
}

impl IpfixCounts {
    /// Adds the counts of later packets.
    pub(super) fn add(&mut self, later: &Self) {
        self.packets = self.packets.saturating_add(later.packets);
        self.ip_bytes = self.ip_bytes.saturating_add(later.ip_bytes);
        self.frame_bytes = self.frame_bytes.saturating_add(later.frame_bytes);
        self.start_ms = self.start_ms.min(later.start_ms);
        self.end_ms = self.end_ms.max(later.end_ms);
        self.tcp_flags |= later.tcp_flags;
        self.ttl_min = self.ttl_min.min(later.ttl_min);
        self.ttl_max = self.ttl_max.max(later.ttl_max);
    }
}
