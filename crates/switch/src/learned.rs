//! Sizes and totals of the learned tables: MAC addresses, and multicast groups.

pub use shunt_pipeline::{BridgeId, LearnedTotals, ReplacedMac, StaticMacError};
use shunt_pipeline::{Pipeline, StaticMac};

use crate::{error::SwitchError, ports::registry::listed, switch::Switch};

/// The size of the MAC table of a bridge, and the totals of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacTableStatus {
    /// The bridge. A later bridge of the same name has another id.
    pub bridge: BridgeId,
    /// Number of learned and static MAC addresses.
    pub entries: usize,
    /// Number of static MAC addresses.
    pub statics: usize,
    /// Maximum number of MAC addresses.
    pub entries_max: usize,
    /// Totals of the changes of the table.
    pub totals: LearnedTotals,
}

impl MacTableStatus {
    /// Returns the size of the MAC table of a bridge.
    fn new(pipeline: &Pipeline, bridge: BridgeId) -> Self {
        Self {
            bridge,
            entries: pipeline.macs_count(bridge),
            statics: pipeline.static_macs_count(bridge),
            entries_max: pipeline.settings(bridge).map_or(0, |settings| settings.macs_max),
            totals: pipeline.mac_totals(bridge),
        }
    }
}

/// The totals of changes of the learned tables, summed over all bridges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedTableTotals {
    /// Totals of the changes of MAC addresses.
    pub macs: LearnedTotals,
    /// Totals of the changes of ports of multicast groups, and of router ports.
    pub multicast: LearnedTotals,
}

impl Switch {
    /// Returns the size of the MAC table of a bridge, and the totals of its changes.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub fn mac_table(&self, bridge: &str) -> Result<MacTableStatus, SwitchError> {
        Ok(MacTableStatus::new(self.control.plane.pipeline(), self.control.bridges.id(bridge)?))
    }

    /// Returns the sizes of the MAC tables of all bridges, and totals of changes.
    #[must_use]
    pub fn mac_tables(&self) -> Vec<MacTableStatus> {
        let pipeline = self.control.plane.pipeline();
        self.bridge_ids().into_iter().map(|id| MacTableStatus::new(pipeline, id)).collect()
    }

    /// Adds a static MAC address to a bridge, and returns the entry that it replaces.
    ///
    /// The address does not age, and packets do not move it.
    ///
    /// # Errors
    ///
    /// If the bridge or the port does not exist, if the port does not carry the VLAN, or if the
    /// table has no place left.
    pub async fn add_static_mac(
        &self,
        bridge: &str,
        port: &str,
        vlan: u16,
        mac: [u8; 6],
    ) -> Result<Option<ReplacedMac>, SwitchError> {
        let (id, plane) = (self.control.bridges.id(bridge)?, &self.control.plane);
        let ports = plane.pipeline().ports(id).unwrap_or_default();
        let own = ports.iter().find(|own| own.name == port);
        let port = own.ok_or_else(|| SwitchError::NoSuchPort {
            name: port.to_owned(),
            known: listed(ports.iter().map(|own| own.name.as_str())),
        })?;
        let (added, now) = (StaticMac { vlan, mac, port: port.number }, plane.now());
        let mut replaced = None;
        let add = |pipeline: &Pipeline| {
            let (change, old) = pipeline.add_static_mac(id, added, now)?;
            replaced = old;
            Ok(change)
        };
        let refused = |error| SwitchError::StaticMac { bridge: bridge.to_owned(), error };
        let version = plane.publisher().change(add).map_err(refused)?;
        plane.adopted(version).await;
        Ok(replaced)
    }

    /// Removes a static MAC address of a bridge.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or does not have this static address.
    pub async fn remove_static_mac(
        &self,
        bridge: &str,
        vlan: u16,
        mac: [u8; 6],
    ) -> Result<(), SwitchError> {
        let (id, plane) = (self.control.bridges.id(bridge)?, &self.control.plane);
        let remove = |pipeline: &Pipeline| pipeline.remove_static_mac(id, vlan, mac);
        let refused = |error| SwitchError::StaticMac { bridge: bridge.to_owned(), error };
        let version = plane.publisher().change(remove).map_err(refused)?;
        plane.adopted(version).await;
        Ok(())
    }

    /// Returns the totals of changes of the learned tables, summed over all bridges.
    #[must_use]
    pub fn learned_totals(&self) -> LearnedTableTotals {
        let pipeline = self.control.plane.pipeline();
        self.bridge_ids().into_iter().fold(LearnedTableTotals::default(), |sum, id| {
            LearnedTableTotals {
                macs: sum.macs.plus(pipeline.mac_totals(id)),
                multicast: sum.multicast.plus(pipeline.multicast_totals(id)),
            }
        })
    }

    /// Returns the ids of all bridges.
    fn bridge_ids(&self) -> Vec<BridgeId> {
        self.control.bridges.lock().iter().map(|bridge| bridge.id).collect()
    }
}
