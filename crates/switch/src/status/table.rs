//! The status of tables.

use serde::Serialize;
use shunt_pipeline::Pipeline;

use crate::ports::registry::{BridgeRegistry, BridgeState};

/// The status of a table that has rules, or had lookups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowTableStatus {
    /// Name of the bridge.
    pub bridge: String,
    /// Number of the table.
    pub table: u8,
    /// Number of rules of the table.
    pub rules: u64,
    /// Packets that were looked up in the table.
    pub lookups: u64,
    /// Packets that matched a rule of the table.
    pub matches: u64,
}

impl FlowTableStatus {
    /// Returns the tables of all bridges, ordered by number.
    pub(crate) fn of_all(bridges: &BridgeRegistry, pipeline: &Pipeline) -> Vec<Self> {
        let of = |bridge: &BridgeState| {
            let name = bridge.settings.name.clone();
            let tables = pipeline.table_stats(bridge.id).into_iter();
            let used = tables.filter(|table| table.rules_count > 0 || table.lookups > 0);
            used.map(move |table| Self {
                bridge: name.clone(),
                table: table.table.number(),
                rules: table.rules_count as u64,
                lookups: table.lookups,
                matches: table.matches,
            })
            .collect::<Vec<_>>()
        };
        bridges.iter().flat_map(of).collect()
    }
}
