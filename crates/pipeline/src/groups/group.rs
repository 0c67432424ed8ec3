//! Groups: lists of buckets that rules share (OpenFlow 1.3.5, 5.6).

use std::sync::Arc;

use shunt_flow::PortNo;

use crate::{
    action::Action,
    id::{BridgeId, GroupId},
    packet_count::{PacketCount, PacketTotals},
    time::Time,
};

/// A group, as one version sees it. A change makes a new value, with new counters.
#[derive(Debug)]
pub struct Group {
    /// Its number in its bridge.
    pub id: GroupId,
    /// Its bridge.
    pub bridge: BridgeId,
    /// Which buckets run.
    pub kind: GroupKind,
    /// How a bucket of a select group is chosen.
    pub selection: Selection,
    /// The buckets, in order.
    pub buckets: Box<[Bucket]>,
    /// When it was added; changes since do not count.
    pub created: Time,
    /// Counters of the group and of each bucket, in the order of the buckets.
    pub stats: Arc<GroupStats>,
}

impl Group {
    /// The most groups that a bridge may have.
    pub const COUNT_MAX: usize = 1 << 20;
}

impl PartialEq for Group {
    /// Two values are the same group if they share its counters.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Group {}

/// Which buckets of a group run (`ofp_group_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// All, each on a copy.
    All,
    /// One, by a hash of the packet.
    Select,
    /// The only one.
    Indirect,
    /// The first that is live.
    FastFailover,
}

/// How a bucket of a select group is chosen (`selection_method` of the Open vSwitch extension).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// Not said: by the transport connection.
    #[default]
    Default,
    /// `dp_hash`: by the transport connection, beginning with a parameter.
    DatapathHash {
        /// What the hash begins with; in its upper half Open vSwitch has the number of a hash.
        basis: u64,
    },
    /// `hash`: by these fields, under these masks.
    Fields {
        /// What the hash begins with.
        basis: u64,
        /// The fields and the bits of them that count.
        fields: Box<[(shunt_flow::FieldId, u128)]>,
    },
}

/// One bucket (`ofp_bucket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its number in the group (OpenFlow 1.5); the place in the list where the version has none.
    pub id: u32,
    /// Its share in a select group.
    pub weight: u16,
    /// It is live while the link of this port is up; [`PortNo::ANY`]: no port.
    pub watch_port: PortNo,
    /// It is live while this group has a live bucket.
    pub watch_group: Option<GroupId>,
    /// Run as an action set is, on a copy of the packet.
    pub actions: Box<[Action]>,
}

/// A request to change groups (`ofp_group_mod`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupCommand,
    /// Which group; `None`: all, only to delete.
    pub group: Option<GroupId>,
    /// The new kind; commands that keep or delete a group do not look at it.
    pub kind: GroupKind,
    /// The new selection; as `kind`.
    pub selection: Selection,
    /// The new buckets.
    pub buckets: Box<[Bucket]>,
}

/// What a group-mod does (`ofp_group_mod_command`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    /// Add a group that does not exist.
    Add,
    /// Change one that does.
    Modify,
    /// Either.
    AddOrModify,
    /// Delete it, if it exists, and the rules that name it.
    Delete,
}

/// Why a group-mod was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupModError {
    /// `OFPGMFC_GROUP_EXISTS`.
    #[error("group {0} exists already: modify it")]
    Exists(GroupId),
    /// `OFPGMFC_UNKNOWN_GROUP`.
    #[error("there is no group {0}: add it")]
    Unknown(GroupId),
    /// `OFPGMFC_INVALID_GROUP`.
    #[error("group {0} cannot be so: {1}")]
    Invalid(GroupId, &'static str),
    /// `OFPGMFC_WATCH_UNSUPPORTED`: only fast failover and select groups choose by liveness.
    #[error("group {0} chooses no bucket by what is live, so none watches anything")]
    Unwatchable(GroupId),
    /// `OFPGMFC_LOOP`.
    #[error("group {0} would lead back to itself")]
    Loop(GroupId),
    /// `OFPBAC_BAD_OUT_GROUP`: a bucket names a group that is not there.
    #[error("a bucket names group {0}, which does not exist")]
    NoSuchRule(GroupId),
    /// As [`FlowModError::NotYet`](crate::FlowModError::NotYet), of an action in a bucket.
    #[error("this switch has no action {0} yet")]
    NotYet(&'static str),
    /// `OFPGMFC_OUT_OF_GROUPS`.
    #[error("the bridge has {0} groups, its limit")]
    TooMany(usize),
}

/// Counters of a group and of its buckets.
#[derive(Debug, Default)]
pub struct GroupStats {
    total: PacketCount,
    buckets: Box<[PacketCount]>,
}

impl GroupStats {
    /// Counters at zero for so many buckets.
    #[must_use]
    pub fn new(buckets_count: usize) -> Self {
        let buckets = std::iter::repeat_with(PacketCount::default).take(buckets_count).collect();
        Self { total: PacketCount::default(), buckets }
    }

    /// Counts packets that met the group.
    pub fn credit(&self, packets: u64, bytes: u64) {
        self.total.credit(packets, bytes);
    }

    /// Counts packets that ran a bucket; one that is not there counts nothing.
    pub fn credit_bucket(&self, bucket: usize, packets: u64, bytes: u64) {
        if let Some(count) = self.buckets.get(bucket) {
            count.credit(packets, bytes);
        }
    }

    /// What the group has counted so far.
    #[must_use]
    pub fn totals(&self) -> PacketTotals {
        self.total.totals()
    }

    /// What each bucket has counted so far.
    #[must_use]
    pub fn bucket_totals(&self) -> Vec<PacketTotals> {
        self.buckets.iter().map(PacketCount::totals).collect()
    }
}
