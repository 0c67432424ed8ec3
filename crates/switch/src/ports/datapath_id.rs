//! Bridges that share a datapath id.
//!
//! The id is the name of a bridge for its controllers (OpenFlow 1.3.5, 7.3.1). Bridges with the same
//! id work, but a controller that serves them all takes their connections for those of one bridge.

use super::registry::{BridgeRegistry, BridgeState};

impl BridgeRegistry {
    /// Returns the reason why controllers cannot distinguish a bridge from another.
    ///
    /// `None` if no other bridge has the datapath id of the bridge.
    pub(crate) fn datapath_id_problem(&self, bridge: &BridgeState) -> Option<String> {
        let id = bridge.datapath_id;
        let other = self.iter().find(|other| other.id != bridge.id && other.datapath_id == id)?;
        Some(format!(
            "bridge {} has the datapath id {id:016x} too, so controllers cannot distinguish the \
             bridges: set another `datapath_id` or `mac`",
            other.settings.name
        ))
    }
}
