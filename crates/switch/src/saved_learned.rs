//! The saved tables that packets filled: MAC addresses, multicast groups and router ports.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use shunt_flow::PortNo;
use shunt_pipeline::{
    BridgeId, Learning, MacObservation, MulticastEvent, MulticastObservation, Pipeline, StaticMac,
    StaticMacError,
};

use crate::{
    config::mac_text, control::ControlPlane, error::SwitchError, saved_state::SavedTables,
};

/// A learned or static MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMac {
    /// VLAN of the frames; 0: untagged frames.
    pub vlan: u16,
    /// The MAC address of the entry.
    pub mac: [u8; 6],
    /// Number of the port of the address.
    pub port: u32,
    /// True for an address that an operator added.
    #[serde(default, rename = "static", skip_serializing_if = "std::ops::Not::not")]
    pub is_static: bool,
}

/// A port of a learned multicast group, or a router port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMulticast {
    /// VLAN of the frames; 0: untagged frames.
    pub vlan: u16,
    /// The multicast group; `None` for a router port.
    pub group: Option<IpAddr>,
    /// OpenFlow number of the port.
    pub port: u32,
}

/// Returns the learned and static MAC addresses of a bridge.
pub(crate) fn saved_macs(pipeline: &Pipeline, id: BridgeId) -> Vec<SavedMac> {
    let macs = pipeline.macs(id);
    macs.iter()
        .map(|own| SavedMac {
            vlan: own.vlan,
            mac: own.mac,
            port: own.port.number(),
            is_static: own.is_static,
        })
        .collect()
}

/// Returns the learned multicast groups and router ports of a bridge.
pub(crate) fn saved_multicast(pipeline: &Pipeline, id: BridgeId) -> Vec<SavedMulticast> {
    let entries = pipeline.multicast(id);
    entries
        .iter()
        .map(|own| SavedMulticast { vlan: own.vlan, group: own.group, port: own.port.number() })
        .collect()
}

/// Returns the learn requests that restore saved learned addresses and groups.
pub(crate) fn learnings(bridge: BridgeId, saved: &SavedTables) -> Vec<Learning> {
    let mac = |SavedMac { vlan, mac, port, .. }: &SavedMac| {
        Learning::Mac(MacObservation {
            bridge,
            vlan: *vlan,
            mac: *mac,
            port: PortNo::new(*port),
            is_announcement: false,
            precedes_packet: false,
        })
    };
    let multicast = |SavedMulticast { vlan, group, port }: &SavedMulticast| {
        let event = group.map_or(MulticastEvent::Query, MulticastEvent::Join);
        let port = PortNo::new(*port);
        Learning::Multicast(MulticastObservation { bridge, vlan: *vlan, port, event })
    };
    // Router ports are last, because a group on a router port would be refused.
    let macs = saved.macs.iter().filter(|own| !own.is_static);
    macs.map(mac).chain(saved.multicast.iter().map(multicast)).collect()
}

/// Adds saved static MAC addresses in one version, and returns the refusals.
pub(crate) fn restore_statics(
    control: &ControlPlane,
    id: BridgeId,
    saved: &SavedTables,
) -> Vec<String> {
    let saved_statics = saved.macs.iter().filter(|own| own.is_static);
    let statics: Vec<_> = saved_statics
        .map(|own| StaticMac { vlan: own.vlan, mac: own.mac, port: PortNo::new(own.port) })
        .collect();
    if statics.is_empty() {
        return Vec::new();
    }
    let now = control.plane.now();
    let mut refused = Vec::new();
    let add = |pipeline: &Pipeline| {
        let (change, errors) = pipeline.add_static_macs(id, &statics, now);
        refused = errors;
        Ok::<_, SwitchError>(change)
    };
    // The refused addresses are returned, so the change itself never fails.
    let _ = control.plane.publisher().change(add);
    let refusal = |(own, error): &(StaticMac, StaticMacError)| {
        let (bridge, mac) = (&saved.bridge, mac_text(own.mac));
        format!("bridge {bridge}: static MAC address {mac}: {error}")
    };
    refused.iter().map(refusal).collect()
}

/// Learns saved MAC addresses and multicast groups.
pub(crate) fn restore_learned(control: &ControlPlane, learnings: &[Learning]) {
    if learnings.is_empty() {
        return;
    }
    let now = control.plane.now();
    let learn = |pipeline: &Pipeline| Ok::<_, SwitchError>(pipeline.learn(learnings, now));
    // A change by learn requests never fails.
    let _ = control.plane.publisher().change(learn);
}
