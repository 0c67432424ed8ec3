//! The multicast tables of a switch, for programs.

use std::{net::IpAddr, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{MulticastEntry, Pipeline};

use crate::{error::SwitchError, switch::Switch};

/// An entry of a multicast table.
///
/// It is a port of a group, or a port with a multicast router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastEntryStatus {
    /// The port.
    pub port: PortNo,
    /// VLAN; 0 for untagged frames.
    pub vlan: u16,
    /// The group; `None` for a multicast router.
    pub group: Option<IpAddr>,
    /// Time since the last report, or the last query.
    pub age: Duration,
}

/// Numbers of messages of IGMP and MLD on bridges that snoop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MulticastMessages {
    /// Messages that were read.
    pub read: u64,
    /// Messages that were ignored, for example because of their checksum.
    pub ignored: u64,
}

impl Switch {
    /// Returns the multicast table of a bridge.
    ///
    /// First come the groups, by their last report, then the router ports.
    ///
    /// `None` if the bridge does not snoop.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub fn multicast(
        &self,
        bridge: &str,
    ) -> Result<Option<Vec<MulticastEntryStatus>>, SwitchError> {
        let plane = &self.control.plane;
        let (id, pipeline) = (self.control.bridges.id(bridge)?, plane.pipeline());
        let is_on = pipeline.settings(id).is_some_and(|own| own.multicast.is_some());
        let now = plane.now();
        let status = |entry: MulticastEntry| MulticastEntryStatus {
            port: entry.port,
            vlan: entry.vlan,
            group: entry.group,
            age: now.since(entry.seen),
        };
        Ok(is_on.then(|| pipeline.multicast(id).into_iter().map(status).collect()))
    }

    /// Removes all groups and router ports of one bridge, or of all bridges that snoop.
    ///
    /// Returns false for one bridge that does not snoop.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub async fn flush_multicast(&self, bridge: Option<&str>) -> Result<bool, SwitchError> {
        let ids = self.control.bridges.lock().ids(bridge)?;
        let plane = &self.control.plane;
        let mut snoops = bridge.is_none();
        for id in ids {
            snoops |= plane.pipeline().settings(id).is_some_and(|own| own.multicast.is_some());
            let flush = |pipeline: &Pipeline| Ok::<_, SwitchError>(pipeline.flush_multicast(id));
            let version = plane.publisher().change(flush)?;
            plane.adopted(version).await;
        }
        Ok(snoops)
    }

    /// Returns the numbers of messages that snooping has read, and has ignored.
    #[must_use]
    pub fn multicast_messages(&self) -> MulticastMessages {
        let counters = &self.control.multicast;
        MulticastMessages { read: counters.read(), ignored: counters.ignored() }
    }
}
