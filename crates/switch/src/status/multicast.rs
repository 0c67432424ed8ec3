//! The status of multicast snooping.

use serde::Serialize;
use shunt_pipeline::{BridgeId, LearnedTotals, MulticastSnooping, Pipeline};

/// The status of multicast snooping on a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MulticastStatus {
    /// Number of multicast groups; a group is counted once in each VLAN.
    pub multicast_groups: u64,
    /// Maximum number of multicast groups.
    pub multicast_groups_max: u64,
    /// Number of router ports; a port is counted once in each VLAN.
    pub router_ports: u64,
    /// Number of ports that joined a group, or became router ports.
    pub multicast_learned: u64,
    /// Number of ports that left a group, or ceased to be router ports,
    /// because of their age.
    pub multicast_expired: u64,
    /// Number of ports that were removed because there were too many groups.
    pub multicast_evicted: u64,
}

impl MulticastStatus {
    /// Returns the status of a bridge; `None` if multicast snooping is off.
    pub(crate) fn of_bridge(pipeline: &Pipeline, id: BridgeId) -> Option<Self> {
        let MulticastSnooping { groups_max, .. } = pipeline.settings(id)?.multicast?;
        let LearnedTotals { learned, expired, evicted, .. } = pipeline.multicast_totals(id);
        let mut status = Self {
            multicast_groups_max: groups_max as u64,
            multicast_learned: learned,
            multicast_expired: expired,
            multicast_evicted: evicted,
            ..Self::default()
        };
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
