//! The status of multicast snooping.

use serde::Serialize;
use shunt_pipeline::{BridgeId, Pipeline};

/// The status of multicast snooping on a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MulticastStatus {
    /// Number of multicast groups; a group is counted once in each VLAN.
    pub multicast_groups: u64,
    /// Number of router ports; a port is counted once in each VLAN.
    pub router_ports: u64,
}

impl MulticastStatus {
    /// Returns the status of a bridge; `None` if multicast snooping is off.
    pub(crate) fn of_bridge(pipeline: &Pipeline, id: BridgeId) -> Option<Self> {
        pipeline.settings(id)?.multicast?;
        let mut status = Self::default();
        let mut last = None;
        // The entries of one group are adjacent.
        for entry in pipeline.multicast(id) {
            let place = entry.group.map(|group| (entry.vlan, group));
            status.router_ports += u64::from(place.is_none());
            status.multicast_groups += u64::from(place.is_some() && place != last);
            last = place;
        }
        Some(status)
    }
}
