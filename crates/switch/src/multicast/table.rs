//! The multicast tables of a switch, for programs that embed it.

use std::{net::IpAddr, time::Duration};

use shunt_datapath::DropReason;
use shunt_flow::PortNo;
use shunt_pipeline::{MulticastEntry, Pipeline};

use crate::{error::SwitchError, switch::Switch};

/// An entry of a multicast table.
///
/// An entry is a port of a multicast group, or a router port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastEntryStatus {
    /// OpenFlow number of the port.
    pub port: PortNo,
    /// VLAN; 0 for untagged frames.
    pub vlan: u16,
    /// The multicast group; `None` for a router port.
    pub group: Option<IpAddr>,
    /// Time since the last report of the group, or the last query of the router.
    pub age: Duration,
}

/// Counters of IGMP and MLD messages on bridges with multicast snooping.
///
/// The sum of the counters is the number of received messages, without messages that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MulticastMessages {
    /// Messages that snooping has read.
    pub read: u64,
    /// Messages that snooping has ignored, for example because of a wrong checksum.
    pub ignored: u64,
    /// Messages that snooping has not read.
    ///
    /// Messages are lost if their port receives too many, or if a queue is full.
    pub lost: u64,
}

impl Switch {
    /// Returns the multicast table of a bridge.
    ///
    /// The groups are first, ordered by their last report; the router ports follow.
    ///
    /// `None` if the bridge has no multicast snooping.
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

    /// Removes all groups and router ports of a bridge, or of all snooping bridges.
    ///
    /// Returns false if the given bridge has no multicast snooping.
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

    /// Returns the numbers of messages that snooping has read, ignored and lost.
    #[must_use]
    pub fn multicast_messages(&self) -> MulticastMessages {
        let (counters, threads) = (&self.control.multicast, self.control.plane.counters().iter());
        let refused = DropReason::SnoopingMessageRefused as usize;
        let refused = threads.map(|thread| thread.dropped[refused].get()).sum::<u64>();
        let lost = refused.saturating_add(counters.lost());
        MulticastMessages { read: counters.read(), ignored: counters.ignored(), lost }
    }
}
