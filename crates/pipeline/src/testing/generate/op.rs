//! The changes of a world.

use std::collections::BTreeSet;

use shunt_flow::FlowKey;

use crate::{
    bridges::{
        mirror::Mirror,
        multicast::{MulticastSighting, MulticastSnooping},
        port::PortInfo,
    },
    id::BridgeId,
    tables::flow_mod::FlowMod,
    time::Time,
    update::{bundle::BundleStep, modification::Modification},
};

/// A change of a world.
#[derive(Clone, Debug)]
pub enum Op {
    /// Flow-mods, as one version.
    Apply(BridgeId, Vec<FlowMod>),
    /// Requests for rules, groups and meters, as one version.
    Modify(BridgeId, Vec<Modification>),
    /// A bundle, as one version.
    Commit(BridgeId, Vec<BundleStep>),
    /// Sets the ports of a bridge.
    SetPorts(BridgeId, Vec<PortInfo>),
    /// Sets the mirrors of a bridge.
    SetMirrors(BridgeId, Vec<Mirror>),
    /// Sets the VLANs of a bridge in which NORMAL learns nothing.
    SetFloodVlans(BridgeId, BTreeSet<u16>),
    /// Sets or ends multicast snooping of a bridge.
    SetSnooping(BridgeId, Option<MulticastSnooping>),
    /// Learns from a message of IGMP or MLD, which arrives at this moment.
    Snoop(MulticastSighting, Time),
    /// Removes the rules with timeouts that have passed at this moment, and the ports of groups by age.
    /// All other operations happen at time zero.
    Expire(Time),
    /// Learns the rules that the learn actions of this packet make.
    LearnFrom(Box<FlowKey>),
    /// Reclaims everything that only older versions see.
    Reclaim,
}
