//! Actions for connection tracking, address translation and packet samples.
//!
//! The codec and the text parser read, check and print these actions. A pipeline refuses these
//! actions, because it does not execute them yet.

use std::{net::IpAddr, ops::RangeInclusive};

use shunt_flow::PortNo;

use super::{Action, Subfield};
use crate::id::TableId;

/// The arguments of a `ct` action (`nx_action_conntrack`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CtAction {
    /// Commit the connection (`NX_CT_F_COMMIT`).
    pub commit: bool,
    /// Replace a connection of the opposite direction (`NX_CT_F_FORCE`).
    pub force: bool,
    /// The zone in which the connection is looked up.
    pub zone: CtZone,
    /// The table in which the packet continues, with its connection state.
    pub table: Option<TableId>,
    /// Transport port of the application protocol to follow (21: FTP); 0: none.
    pub alg: u16,
    /// Actions on the connection: `nat`, and writes of its mark and label.
    pub actions: Box<[Action]>,
}

/// A zone of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CtZone {
    /// The zone with this number.
    Number(u16),
    /// The zone with the number in this field.
    Field(Subfield),
}

/// The arguments of a `nat` action (`nx_action_nat`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatAction {
    /// The address to translate; `None`: as for the existing connection.
    pub kind: Option<NatKind>,
    /// The new addresses and ports; `None`: any.
    pub range: Option<NatRange>,
    /// Keep the chosen address and port across restarts (`NX_NAT_F_PERSISTENT`).
    pub persistent: bool,
    /// Choose a port by a hash (`NX_NAT_F_PROTO_HASH`).
    pub hash: bool,
    /// Choose a port at random (`NX_NAT_F_PROTO_RANDOM`).
    pub random: bool,
}

/// The address to translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatKind {
    /// `src`: translate the source address.
    Source,
    /// `dst`: translate the destination address.
    Destination,
}

/// Addresses and ports to choose from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatRange {
    /// From the first to the last address; both of one family.
    pub addresses: RangeInclusive<IpAddr>,
    /// The ports of NAT, from the first to the last.
    pub ports: Option<RangeInclusive<u16>>,
}

/// The arguments of a `sample` action (`nx_action_sample2`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampleAction {
    /// Number of packets to sample, out of 65535.
    pub probability: u16,
    /// Number of the set of collectors that receive the samples.
    pub collector_set_id: u32,
    /// Observation domain to report to the collector (`observationDomainId`).
    pub observation_domain_id: u32,
    /// Observation point to report to the collector (`observationPointId`).
    pub observation_point_id: u32,
    /// Port of the tunnel to report with the sample, if any.
    pub sampling_port: Option<PortNo>,
    /// The direction to report, if any.
    pub direction: Option<SampleDirection>,
}

/// The direction of a packet that is sampled by `sample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleDirection {
    /// The packet was received, and not sent.
    Ingress,
    /// The packet is to be sent.
    Egress,
}
