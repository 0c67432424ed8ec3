//! Settings of a bridge.

use std::{collections::BTreeMap, time::Duration};

use crate::id::TableId;

/// What can be set of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// Its name: at most 15 bytes.
    pub name: String,
    /// The most rules that a table may hold; a table that is not named has no limit.
    pub rules_max: BTreeMap<TableId, usize>,
    /// What happens to an addition to a full table.
    pub overflow: Overflow,
    /// Time without a frame after which NORMAL forgets a MAC address.
    pub mac_ageing: Duration,
    /// The most MAC addresses that NORMAL knows, at least 1.
    pub macs_max: usize,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            rules_max: BTreeMap::new(),
            overflow: Overflow::Refuse,
            mac_ageing: Duration::from_secs(300),
            macs_max: 8192,
        }
    }
}

/// What happens to an addition to a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is refused.
    #[default]
    Refuse,
    /// A rule with a timeout makes room for it: the least important, then the one that would expire
    /// first. Without such a rule the addition is refused.
    Evict,
}

impl BridgeSettings {
    /// The most rules that `table` may hold.
    #[must_use]
    pub fn rules_max(&self, table: TableId) -> usize {
        self.rules_max.get(&table).copied().unwrap_or(usize::MAX)
    }
}
