//! Settings of a bridge.

use std::collections::BTreeMap;

use crate::TableId;

/// What can be set of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeSettings {
    /// Its name: at most 15 bytes.
    pub name: String,
    /// The most rules that a table may hold; a table that is not named has no limit.
    pub rules_max: BTreeMap<TableId, usize>,
}

impl BridgeSettings {
    /// The most rules that `table` may hold.
    #[must_use]
    pub fn rules_max(&self, table: TableId) -> usize {
        self.rules_max.get(&table).copied().unwrap_or(usize::MAX)
    }
}
