//! Flows: what their packets have in common, and their counts.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The fields that the packets of a flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpfixFlowKey {
    /// Place where the packets were observed.
    pub observed_at: ObservationPoint,
    /// Direction in which the packets passed it (`flowDirection`).
    pub direction: FlowDirection,
    /// Interface that received the packets (`ingressInterface`).
    pub ingress: u32,
    /// Interface that sent the packets (`egressInterface`).
    ///
    /// 0: none, several, or not known.
    pub egress: u32,
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// TCI of the outermost VLAN tag.
    pub vlan_tci: Option<u16>,
    /// Ethernet type behind the tags.
    pub ethernet_type: u16,
    /// The IP header; `None` for other packets.
    pub network: Option<IpfixNetwork>,
    /// The header behind it.
    pub transport: FlowTransport,
}

/// A place where packets are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservationPoint {
    /// Observation domain (`observationDomainId`).
    pub domain: u32,
    /// Observation point in the domain (`observationPointId`).
    pub point: u32,
}

/// The direction in which packets pass an observation point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowDirection {
    /// The packets are received.
    #[default]
    Ingress,
    /// The packets are sent.
    Egress,
}

/// The fields of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpfixNetwork {
    /// IPv4.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
        /// Type of service.
        tos: u8,
        /// Protocol.
        protocol: u8,
    },
    /// IPv6.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
        /// Flow label (20 bits).
        flow_label: u32,
        /// Traffic class.
        tos: u8,
        /// Protocol of the last header that was parsed.
        protocol: u8,
    },
}

/// The fields of the header behind an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowTransport {
    /// None, or one that is not known.
    Other,
    /// TCP, UDP or SCTP.
    Ports {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Type of the message.
        kind: u8,
        /// Code of the message.
        code: u8,
    },
}

/// The counts of the samples of a flow.
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
    /// Flags of all TCP segments together (`tcpControlBits`).
    pub tcp_flags: u16,
    /// Smallest TTL or hop limit (`minimumTTL`).
    pub ttl_min: u8,
    /// Largest TTL or hop limit (`maximumTTL`).
    pub ttl_max: u8,
}

/// A flow to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpfixFlow {
    /// The fields of its packets.
    pub key: IpfixFlowKey,
    /// Its counts.
    pub counts: IpfixCounts,
    /// The reason why it is reported now.
    pub end_reason: FlowEndReason,
}

/// The reason why a flow is reported (`flowEndReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEndReason {
    /// It lasts for longer than the active timeout.
    ActiveTimeout,
    /// The exporter ends.
    ForcedEnd,
    /// There is no room for another flow.
    LackOfResources,
}

impl FlowEndReason {
    /// Returns the value in a record.
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
    /// Returns the version, the type of service and the protocol.
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
