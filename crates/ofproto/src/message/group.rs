//! What is told of groups.

use std::time::Duration;

use shunt_pipeline::{Bucket, Group, GroupId, GroupKind, PacketTotals, Time};

/// What a group has counted (`ofp_group_stats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatistics {
    /// Which group.
    pub group: GroupId,
    /// Rules that name it.
    pub references: u32,
    /// How long it has been there.
    pub duration: Duration,
    /// Packets that met it.
    pub total: PacketTotals,
    /// Packets that ran each bucket, in the order of the buckets.
    pub buckets: Vec<PacketTotals>,
}

impl GroupStatistics {
    /// What there is to tell of `group`, which so many rules name, at `now`.
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

/// What a group is (`ofp_group_desc`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Which group.
    pub group: GroupId,
    /// Which buckets run.
    pub kind: GroupKind,
    /// The buckets.
    pub buckets: Box<[Bucket]>,
}

impl GroupDescription {
    /// What there is to tell of `group`.
    #[must_use]
    pub fn of(group: &Group) -> Self {
        Self { group: group.id, kind: group.kind, buckets: group.buckets.clone() }
    }
}

/// What groups can be (`ofp_group_features`); arrays go by `ofp_group_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// One bit for each type.
    pub kinds: u32,
    /// `ofp_group_capabilities`.
    pub capabilities: u32,
    /// The most groups of each type.
    pub groups_max: [u32; 4],
    /// The actions that buckets may have, one bit for each number of `ofp_action_type`.
    pub actions: [u32; 4],
}

impl GroupFeatures {
    /// Buckets of select groups have weights (`OFPGFC_SELECT_WEIGHT`).
    pub const SELECT_WEIGHT: u32 = 1;
    /// Buckets of select groups may watch ports and groups (`OFPGFC_SELECT_LIVENESS`).
    pub const SELECT_LIVENESS: u32 = 1 << 1;
    /// Groups may lead to groups (`OFPGFC_CHAINING`).
    pub const CHAINING: u32 = 1 << 2;
}
