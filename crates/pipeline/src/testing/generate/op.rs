//! Operations that change the bridges of a test.

use std::collections::BTreeSet;

use shunt_flow::FlowKey;

use crate::{
    bridges::{
        mac_table::static_macs::StaticMac,
        mirror::Mirror,
        multicast::{MulticastObservation, MulticastSnooping},
        port::PortInfo,
    },
    id::BridgeId,
    tables::flow_mod::FlowMod,
    time::Time,
    update::{bundle::BundleStep, modification::Modification},
};

/// An operation that changes the bridges of a test.
#[derive(Clone, Debug)]
pub enum Op {
    /// Flow-mods of a bridge, applied as one version.
    Apply(BridgeId, Vec<FlowMod>),
    /// Requests for rules, groups and meters, as one version.
    Modify(BridgeId, Vec<Modification>),
    /// The steps of a bundle, as one version.
    Commit(BridgeId, Vec<BundleStep>),
    /// Sets the ports of a bridge.
    SetPorts(BridgeId, Vec<PortInfo>),
    /// Sets the mirrors of a bridge.
    SetMirrors(BridgeId, Vec<Mirror>),
    /// Sets the VLANs of a bridge in which NORMAL learns no addresses.
    SetFloodVlans(BridgeId, BTreeSet<u16>),
    /// Sets whether a bridge sends misses to controllers.
    SetSendsMisses(BridgeId, bool),
    /// Sets whether NORMAL forwards every packet of a bridge, in place of its tables.
    SetFailsOpen(BridgeId, bool),
    /// Begins, changes or ends multicast snooping of a bridge.
    SetSnooping(BridgeId, Option<MulticastSnooping>),
    /// Learns from a message of IGMP or MLD, which arrives at this time.
    Snoop(MulticastObservation, Time),
    /// Makes a MAC address of a VLAN static on a port.
    AddStaticMac(BridgeId, StaticMac),
    /// Removes the static entry of a MAC address in a VLAN.
    RemoveStaticMac(BridgeId, u16, [u8; 6]),
    /// Removes the rules, and the ports of groups, that have expired at this time.
    /// All other operations are applied at time zero.
    Expire(Time),
    /// Learns the rules and addresses that the translation of this packet requests.
    LearnFrom(Box<FlowKey>),
    /// Reclaims the rules and objects that only older versions see.
    Reclaim,
}
