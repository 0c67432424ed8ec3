//! Bridges that share a datapath id.
//!
//! The id is the name of a bridge for its controllers (OpenFlow 1.3.5, 7.3.1). Bridges with the same
//! id work, but a controller that serves them all takes their connections for those of one bridge.

use std::collections::BTreeMap;

use super::registry::{BridgeRegistry, BridgeState};
use crate::config::Config;

impl BridgeRegistry {
    /// Returns the reason why controllers cannot distinguish a bridge from another.
    ///
    /// `None` if no other bridge has the datapath id of the bridge.
    pub(crate) fn datapath_id_problem(&self, bridge: &BridgeState) -> Option<String> {
        let id = bridge.datapath_id;
        let other = self.iter().find(|other| other.id != bridge.id && other.datapath_id == id)?;
        Some(problem(&other.settings.name, id))
    }
}

impl Config {
    /// Returns a warning for each bridge with the datapath id of an earlier bridge.
    ///
    /// A switch that starts with the configuration logs the same warnings.
    #[must_use]
    pub fn datapath_id_warnings(&self) -> Vec<String> {
        let mut first = BTreeMap::new();
        let mut warnings = Vec::new();
        for bridge in &self.bridges {
            // `check` refuses an invalid id.
            let Ok(id) = bridge.datapath_id() else { continue };
            let other = *first.entry(id).or_insert(bridge.name.as_str());
            if other != bridge.name {
                warnings.push(format!("bridge {}: {}", bridge.name, problem(other, id)));
            }
        }
        warnings
    }
}

/// Returns the problem of a bridge with the datapath id of the bridge `other`.
fn problem(other: &str, id: u64) -> String {
    format!(
        "bridge {other} has the datapath id {id:016x} too, so controllers cannot distinguish the \
         bridges: set another `datapath_id` or `mac`"
    )
}
