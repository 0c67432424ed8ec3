//! Sizes and totals of the learned tables: MAC addresses, and multicast groups.

pub use shunt_pipeline::LearnedTotals;

use crate::{error::SwitchError, switch::Switch};

/// The size of the MAC table of a bridge, and the totals of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacTableStatus {
    /// Number of learned MAC addresses.
    pub entries: usize,
    /// Maximum number of learned MAC addresses.
    pub entries_max: usize,
    /// Totals of the changes of the table.
    pub totals: LearnedTotals,
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
        let (id, pipeline) = (self.control.bridges.id(bridge)?, self.control.plane.pipeline());
        Ok(MacTableStatus {
            entries: pipeline.macs_count(id),
            entries_max: pipeline.settings(id).map_or(0, |settings| settings.macs_max),
            totals: pipeline.mac_totals(id),
        })
    }

    /// Returns the totals of changes of the learned tables, summed over all bridges.
    #[must_use]
    pub fn learned_totals(&self) -> LearnedTableTotals {
        let ids: Vec<_> = self.control.bridges.lock().iter().map(|bridge| bridge.id).collect();
        let pipeline = self.control.plane.pipeline();
        ids.into_iter().fold(LearnedTableTotals::default(), |sum, id| LearnedTableTotals {
            macs: sum.macs.plus(pipeline.mac_totals(id)),
            multicast: sum.multicast.plus(pipeline.multicast_totals(id)),
        })
    }
}
