//! Group statistics, descriptions and features.

use std::time::Duration;

use shunt_pipeline::{Bucket, Group, GroupId, GroupKind, PacketTotals, Selection, Time};

/// Counters of a group (`ofp_group_stats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatistics {
    /// Number of the group.
    pub group: GroupId,
    /// Number of rules that reference the group.
    pub references: u32,
    /// Time since the group was added.
    pub duration: Duration,
    /// Packets that the group processed.
    pub total: PacketTotals,
    /// Packets that each bucket processed, in bucket order.
    pub buckets: Vec<PacketTotals>,
}

impl GroupStatistics {
    /// Returns the counters of `group` at time `now`.
    #[must_use]
    pub fn of(group: &Group, references: u32, now: Time) -> Self {
        Self {
            group: group.id,
            references,
            duration: now.since(group.created),
            total: group.stats.totals(),
            buckets: group.stats.bucket_totals(),
        }
    }
}

/// Configuration of a group (`ofp_group_desc`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Number of the group.
    pub group: GroupId,
    /// The group type, which selects the buckets.
    pub kind: GroupKind,
    /// The selection method of a select group.
    pub selection: Selection,
    /// The buckets of the group, in the order of the group-mod.
    pub buckets: Box<[Bucket]>,
}

impl GroupDescription {
    /// Returns the configuration of `group`.
    #[must_use]
    pub fn of(group: &Group) -> Self {
        Self {
            group: group.id,
            kind: group.kind,
            selection: group.selection.clone(),
            buckets: group.buckets.clone(),
        }
    }
}

/// Group features of the switch (`ofp_group_features`); arrays are indexed by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Supported group types, one bit each.
    pub kinds: u32,
    /// The capabilities of groups (`ofp_group_capabilities`).
    pub capabilities: u32,
    /// Maximum number of groups per type.
    pub groups_max: [u32; 4],
    /// Actions that buckets support, one bit for each number of `ofp_action_type`.
    pub actions: [u32; 4],
}

impl GroupFeatures {
    /// Buckets of select groups support weights (`OFPGFC_SELECT_WEIGHT`).
    pub const SELECT_WEIGHT: u32 = 1;
    /// Buckets of select groups can watch ports and groups (`OFPGFC_SELECT_LIVENESS`).
    pub const SELECT_LIVENESS: u32 = 1 << 1;
    /// Groups can reference groups (`OFPGFC_CHAINING`).
    pub const CHAINING: u32 = 1 << 2;
}
