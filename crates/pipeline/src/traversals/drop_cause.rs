//! The cause of a drop: the reason why the tables do not output a packet.
//!
//! A traversal has the cause of the last decision of its translation. So the cause is known for
//! each cache entry, and a hit does not compute it.

use std::net::IpAddr;

use shunt_flow::PortNo;

use crate::{
    bridges::port_vlans::VlanMode,
    id::{BridgeId, GroupId},
};

/// The reason why the tables do not output a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// The rules that match have no output.
    #[default]
    RuleWithoutOutput,
    /// No rule of the last table matches.
    NoMatchingRule,
    /// A controller disabled reception on the ingress port.
    ///
    /// The port has `OFPPC_PORT_DOWN` or `OFPPC_NO_RECV`.
    IngressPortDisabled,
    /// The ingress port is the output port of a mirror.
    MirrorOutputPort,
    /// A controller disabled sending on the output port.
    ///
    /// The port has `OFPPC_PORT_DOWN` or `OFPPC_NO_FWD`.
    OutputPortDisabled,
    /// The output port does not exist, or has no device.
    OutputPortMissing,
    /// The only output is to the ingress port.
    Hairpin,
    /// A controller disabled packet-ins of the ingress port (`OFPPC_NO_PACKET_IN`).
    PacketInDisabled,
    /// NORMAL: the bridge has no port with the number of the ingress port.
    UnknownIngressPort,
    /// NORMAL: the ingress port does not carry the VLAN of the packet.
    VlanNotAllowed,
    /// NORMAL: the ingress port is a member of a bond that is not in use.
    ///
    /// The member is not the active member, or LACP does not use it.
    BondMemberInactive,
    /// NORMAL: the frame came back on a bond: its source address is at another port.
    BondLoop,
    /// NORMAL: the bond of the output has no active member.
    BondWithoutMember,
    /// NORMAL: the ingress port and the port of the destination are protected.
    BothPortsProtected,
    /// NORMAL: the frame has a VLAN tag that was not parsed.
    UnparsedVlanTag,
    /// NORMAL: the destination is an address that bridges do not forward.
    ReservedDestination,
    /// NORMAL: the destination was learned on the ingress port.
    LearnedOnIngressPort,
    /// NORMAL: the VLAN of a flooded packet has no other port.
    FloodWithoutPorts,
    /// NORMAL: multicast snooping knows no other port that wants the packet.
    MulticastWithoutReceiver,
    /// The TTL of the packet has expired.
    TtlExpired,
    /// The group does not exist, or has no live bucket.
    NoLiveBucket,
}

/// A decision that the matched rules do not show, for traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslationNote {
    /// Index of the visit with the running actions; `None` without a visit.
    pub visit: Option<usize>,
    /// Bridge of the ports in the decision.
    pub bridge: BridgeId,
    /// The decision that the matched rules do not show.
    pub decision: NotedDecision,
}

/// A decision by port settings, by a group, or by NORMAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotedDecision {
    /// Receiving is disabled on the ingress port.
    IngressPortDisabled(PortNo),
    /// The ingress port is the output port of a mirror.
    MirrorOutputPort(PortNo),
    /// The frame goes to the LACP actor of the bond of this port.
    LacpFrame(PortNo),
    /// The packet goes to the BFD session of this port.
    BfdPacket(PortNo),
    /// The bridge fails open: NORMAL forwards the packet, and no table is consulted.
    FailOpen,
    /// A mirror copies the packet.
    Mirrored {
        /// Index of the mirror among those of its bridge.
        mirror: u8,
    },
    /// A mirror has a copy for a port that is disabled or has no device.
    CopyNotSent {
        /// Index of the mirror among those of its bridge.
        mirror: u8,
        /// The port for which the copy is meant.
        port: PortNo,
    },
    /// Sending is disabled on the output port.
    OutputPortDisabled(PortNo),
    /// The output port does not exist, or has no device.
    OutputPortMissing(PortNo),
    /// The output port is the ingress port.
    Hairpin(PortNo),
    /// Packet-ins are disabled for the ingress port.
    PacketInDisabled(PortNo),
    /// The TTL of the packet has expired.
    TtlExpired,
    /// The group does not exist, or has no live bucket.
    NoLiveBucket(GroupId),
    /// NORMAL: the bridge has no port with this number, the ingress port of the packet.
    UnknownIngressPort(PortNo),
    /// NORMAL: the ingress port does not accept the VLAN.
    VlanNotAllowed {
        /// The port on which the packet arrived.
        port: PortNo,
        /// The VLAN id of the frame; 0 without a tag.
        vlan: u16,
        /// The VLAN mode of the port.
        mode: VlanMode,
    },
    /// NORMAL: the packet arrived on a dot1q-tunnel port, and is in its service VLAN.
    ServiceVlan {
        /// The port on which the packet arrived.
        port: PortNo,
        /// The customer's VLAN id, which the frame has; 0 without a tag.
        vlan: u16,
        /// The service VLAN of the port.
        service: u16,
    },
    /// NORMAL: the ingress port is a member of a bond that is not in use.
    ///
    /// The member is not the active member, or LACP does not use it.
    BondMemberInactive(PortNo),
    /// NORMAL: the packet came back on a bond.
    BondLoop {
        /// The port of the bond on which the packet arrived.
        port: PortNo,
        /// The port at which the source address was learned.
        learned: PortNo,
    },
    /// NORMAL: the bond of this port has no active member.
    BondWithoutMember(PortNo),
    /// NORMAL: the bond sends the packet on this member.
    BondMemberChosen(PortNo),
    /// NORMAL: the ingress port and this port of the destination are protected.
    BothPortsProtected(PortNo),
    /// NORMAL: the frame has a VLAN tag that was not parsed.
    UnparsedVlanTag,
    /// NORMAL: bridges do not forward frames to this address.
    ReservedDestination([u8; 6]),
    /// NORMAL: source and destination address are equal.
    SourceIsDestination([u8; 6]),
    /// NORMAL: the destination was learned on the ingress port.
    LearnedOnIngressPort {
        /// The port on which the packet arrived.
        port: PortNo,
        /// The VLAN of the packet.
        vlan: u16,
    },
    /// NORMAL: the destination was learned on this port.
    Learned {
        /// The port on which the destination was learned.
        port: PortNo,
        /// The VLAN of the packet.
        vlan: u16,
    },
    /// NORMAL: the destination is unknown, or a group address.
    Flood {
        /// The VLAN of the packet.
        vlan: u16,
        /// True if the destination is a group address.
        is_group: bool,
    },
    /// NORMAL: a decision of multicast snooping.
    Multicast(MulticastDecision),
}

/// A decision of multicast snooping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastDecision {
    /// The packet is flooded in its VLAN.
    Flood {
        /// The VLAN of the packet.
        vlan: u16,
        /// The reason why the packet is flooded.
        reason: MulticastFloodReason,
    },
    /// The packet is a report, which goes to router ports.
    Report {
        /// The VLAN of the packet.
        vlan: u16,
    },
    /// The packet is for this group, which hosts have reported.
    Group {
        /// The address of the multicast group.
        group: IpAddr,
        /// The VLAN of the packet.
        vlan: u16,
    },
    /// No host has reported this group, and the bridge does not flood it.
    Unregistered {
        /// The address of the multicast group.
        group: IpAddr,
        /// The VLAN of the packet.
        vlan: u16,
    },
    /// The packet is sent to this port.
    Output {
        /// The port on which the packet is sent.
        port: PortNo,
        /// The reason why this port gets the packet.
        reason: MulticastOutputReason,
    },
    /// No port other than the ingress port wants the packet.
    WithoutReceiver,
}

/// The reason why a bridge that snoops floods a multicast packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastFloodReason {
    /// The packet is a query of IGMP or MLD.
    Query,
    /// The packet is a message of IGMP that is neither query, report nor leave.
    OtherIgmp,
    /// The destination is in 224.0.0.0/24, or is ff02::1.
    LinkLocal,
    /// No host has reported the multicast group.
    Unregistered,
}

/// The reason why a multicast packet leaves on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastOutputReason {
    /// A host behind the port has reported the group.
    Member,
    /// The port is a router port.
    Router,
    /// The port gets the packets of all groups.
    Flooded,
    /// The port gets all reports.
    FloodedReports,
}

impl NotedDecision {
    /// Returns the drop cause of a packet without output after this decision.
    #[must_use]
    pub const fn drop_cause(self) -> Option<DropCause> {
        Some(match self {
            Self::IngressPortDisabled(_) => DropCause::IngressPortDisabled,
            Self::MirrorOutputPort(_) => DropCause::MirrorOutputPort,
            Self::OutputPortDisabled(_) => DropCause::OutputPortDisabled,
            Self::OutputPortMissing(_) => DropCause::OutputPortMissing,
            Self::Hairpin(_) => DropCause::Hairpin,
            Self::PacketInDisabled(_) => DropCause::PacketInDisabled,
            Self::TtlExpired => DropCause::TtlExpired,
            Self::NoLiveBucket(_) => DropCause::NoLiveBucket,
            Self::UnknownIngressPort(_) => DropCause::UnknownIngressPort,
            Self::VlanNotAllowed { .. } => DropCause::VlanNotAllowed,
            Self::BondMemberInactive(_) => DropCause::BondMemberInactive,
            Self::BondLoop { .. } => DropCause::BondLoop,
            Self::BondWithoutMember(_) => DropCause::BondWithoutMember,
            Self::BothPortsProtected(_) => DropCause::BothPortsProtected,
            Self::UnparsedVlanTag => DropCause::UnparsedVlanTag,
            Self::ReservedDestination(_) => DropCause::ReservedDestination,
            Self::SourceIsDestination(_) | Self::LearnedOnIngressPort { .. } => {
                DropCause::LearnedOnIngressPort
            }
            Self::Flood { .. } => DropCause::FloodWithoutPorts,
            Self::Multicast(decision) => return decision.drop_cause(),
            Self::Learned { .. }
            | Self::ServiceVlan { .. }
            | Self::BondMemberChosen(_)
            | Self::LacpFrame(_)
            | Self::BfdPacket(_)
            | Self::FailOpen
            | Self::Mirrored { .. }
            | Self::CopyNotSent { .. } => return None,
        })
    }
}

impl MulticastDecision {
    /// Returns why a packet is dropped, if the decision drops it.
    const fn drop_cause(self) -> Option<DropCause> {
        match self {
            Self::Flood { .. } => Some(DropCause::FloodWithoutPorts),
            Self::WithoutReceiver => Some(DropCause::MulticastWithoutReceiver),
            Self::Report { .. }
            | Self::Group { .. }
            | Self::Unregistered { .. }
            | Self::Output { .. } => None,
        }
    }
}
