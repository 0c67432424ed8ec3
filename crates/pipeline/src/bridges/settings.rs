//! Settings of a bridge.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{mirror::Mirror, multicast::MulticastSnooping};
use crate::id::TableId;

/// The settings of a bridge for its tables and for `NORMAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// The name: at most 15 bytes.
    pub name: String,
    /// The most rules of a table; a table that is not listed has no limit.
    pub rules_max: BTreeMap<TableId, usize>,
    /// The handling of additions to a full table.
    pub overflow: OverflowPolicy,
    /// The handling of the tables that differ from `overflow`.
    pub table_overflow: BTreeMap<TableId, OverflowPolicy>,
    /// Time without a frame after which NORMAL removes a MAC address.
    pub mac_ageing: Duration,
    /// The most MAC addresses that NORMAL learns, at least 1.
    pub macs_max: usize,
    /// The VLANs in which NORMAL learns no addresses, and floods every packet.
    pub flood_vlans: BTreeSet<u16>,
    /// The mirrors, at most [`Mirror::COUNT_MAX`].
    ///
    /// Mirrors of equal names share a counter.
    pub mirrors: Vec<Mirror>,
    /// Multicast snooping by NORMAL; `None`: multicast packets are flooded.
    pub multicast: Option<MulticastSnooping>,
    /// True if a packet that no rule of the first table matches is sent to controllers.
    ///
    /// OpenFlow 1.0 to 1.2 require this; later versions drop the packet.
    pub sends_misses: bool,
    /// True if every packet is forwarded by NORMAL, and the tables are not consulted.
    ///
    /// A bridge with `fail_mode` `standalone` does so while no controller is reachable.
    pub fails_open: bool,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            rules_max: BTreeMap::new(),
            overflow: OverflowPolicy::Refuse,
            table_overflow: BTreeMap::new(),
            mac_ageing: Duration::from_secs(300),
            macs_max: 8192,
            flood_vlans: BTreeSet::new(),
            mirrors: Vec::new(),
            multicast: None,
            sends_misses: false,
            fails_open: false,
        }
    }
}

/// The handling of additions to a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum OverflowPolicy {
    /// Refuse the addition of a rule.
    #[default]
    Refuse,
    /// Evict a rule that has a timeout.
    ///
    /// The least important rules are evicted first, and of these the rule that would expire first.
    /// The addition is refused if no rule has a timeout.
    Evict,
}

impl BridgeSettings {
    /// Returns the most rules that `table` may hold.
    #[must_use]
    pub fn rules_max(&self, table: TableId) -> usize {
        // A table that the map does not list has no limit.
        self.rules_max.get(&table).copied().unwrap_or(usize::MAX)
    }

    /// Returns the handling of additions to `table` when it is full.
    #[must_use]
    pub fn overflow(&self, table: TableId) -> OverflowPolicy {
        self.table_overflow.get(&table).copied().unwrap_or(self.overflow)
    }

    /// Returns whether rules are evicted from some table when it is full.
    pub(crate) fn evicts(&self) -> bool {
        self.table_overflow
            .values()
            .chain([&self.overflow])
            .any(|own| *own == OverflowPolicy::Evict)
    }
}
