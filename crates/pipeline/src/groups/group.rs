//! Groups: lists of buckets that rules share (OpenFlow 1.3.5, 5.6).

use std::sync::Arc;

use shunt_flow::PortNo;

use crate::{
    action::Action,
    id::{BridgeId, GroupId},
    packet_count::{PacketCount, PacketTotals},
    time::Time,
};

/// A group, as one version sees it.
/// A group-mod that changes the group creates a new `Group`, with new counters.
#[derive(Debug)]
pub struct Group {
    /// The number of the group in its bridge.
    pub id: GroupId,
    /// The bridge that has the group.
    pub bridge: BridgeId,
    /// The type: it decides which buckets run.
    pub kind: GroupKind,
    /// The selection method of a select group.
    pub selection: Selection,
    /// The buckets, in order.
    pub buckets: Box<[Bucket]>,
    /// Time of the addition; a modification does not change it.
    pub created: Time,
    /// Counters of the group and of each bucket, in the order of the buckets.
    pub stats: Arc<GroupStats>,
}

impl Group {
    /// The most groups of a bridge.
    pub const COUNT_MAX: usize = 1 << 20;
    /// The most buckets of a group: their counters fit into one message.
    pub const BUCKETS_MAX: usize = 4000;
}

impl PartialEq for Group {
    /// Returns whether both are one revision of a group, which share their counters.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Group {}

/// The type of a group (`ofp_group_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// All buckets run, each on a copy.
    All,
    /// One bucket runs, chosen by a hash of the packet.
    Select,
    /// The only bucket of the group runs.
    Indirect,
    /// The first bucket that is live runs.
    FastFailover,
}

/// The selection method of a select group (`selection_method` of Open vSwitch).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The group has no method: the hash covers the transport connection.
    #[default]
    Default,
    /// `dp_hash`: the hash covers the transport connection and a basis.
    DatapathHash {
        /// The basis of the hash; Open vSwitch has the number of a hash in its upper half.
        basis: u64,
    },
    /// `hash`: the hash covers these fields under their masks.
    Fields {
        /// The basis of the hash.
        basis: u64,
        /// The fields, each with the mask of the bits to hash.
        fields: Box<[(shunt_flow::FieldId, u128)]>,
    },
}

/// One bucket (`ofp_bucket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The number in the group (OpenFlow 1.5); the index in the list for older
    /// versions.
    pub id: u32,
    /// The weight in a select group.
    pub weight: u16,
    /// The bucket is live while the link of this port is up; [`PortNo::ANY`]: no port.
    pub watch_port: PortNo,
    /// The bucket is live while this group has a live bucket.
    pub watch_group: Option<GroupId>,
    /// The actions: they run as an action set does, on a copy of the packet.
    pub actions: Box<[Action]>,
}

/// A request to change groups (`ofp_group_mod`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// The command of the request.
    pub command: GroupCommand,
    /// The group; `None`: all groups, which only a deletion may name.
    pub group: Option<GroupId>,
    /// The new type; commands for buckets and deletions ignore it.
    pub kind: GroupKind,
    /// The new selection method; commands for buckets and deletions ignore it.
    pub selection: Selection,
    /// The new buckets, or the inserted ones.
    pub buckets: Box<[Bucket]>,
}

/// Returns whether a protocol can describe a group, given with all its buckets.
pub type GroupCheck = fn(&GroupMod) -> bool;

/// The command of a group-mod (`ofp_group_mod_command`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    /// Add a group that does not exist.
    Add,
    /// Change an existing group.
    Modify,
    /// Add or change a group.
    AddOrModify,
    /// Delete the group, if it exists, and the rules that name it.
    Delete,
    /// Insert the buckets of the request into an existing group (OpenFlow 1.5).
    InsertBuckets(BucketPlace),
    /// Remove buckets of an existing group (OpenFlow 1.5).
    RemoveBuckets(BucketSelector),
}

/// The place of inserted buckets in a group (`command_bucket_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketPlace {
    /// Insert before all buckets of the group.
    First,
    /// Insert after all buckets of the group.
    Last,
    /// Insert after the bucket with this number.
    After(u32),
}

/// The buckets that a request removes (`command_bucket_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketSelector {
    /// The first bucket, if there is one.
    First,
    /// The last bucket, if there is one.
    Last,
    /// Remove all buckets of the group.
    All,
    /// The bucket with this number.
    Id(u32),
}

/// The reason why a group-mod was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupModError {
    /// The group exists already (`OFPGMFC_GROUP_EXISTS`).
    #[error("group {0} exists already: modify it")]
    Exists(GroupId),
    /// The group does not exist (`OFPGMFC_UNKNOWN_GROUP`).
    #[error("there is no group {0}: add it first")]
    Unknown(GroupId),
    /// The group is not valid (`OFPGMFC_INVALID_GROUP`).
    #[error("group {0} is refused: {1}")]
    Invalid(GroupId, &'static str),
    /// `OFPGMFC_WATCH_UNSUPPORTED`: only fast failover and select groups choose live
    /// buckets.
    #[error(
        "group {0}: a bucket sets watch_port or watch_group, but only fast_failover and select groups \
         may: remove them or change the type"
    )]
    Unwatchable(GroupId),
    /// The group leads back to itself (`OFPGMFC_LOOP`).
    #[error("group {0} would lead back to itself through its buckets: remove the loop")]
    Loop(GroupId),
    /// `OFPBAC_BAD_OUT_GROUP`: a bucket names a group that does not exist.
    #[error("a bucket names group {0}, which does not exist: add that group first")]
    NoSuchGroup(GroupId),
    /// `OFPBAC_BAD_EXP_TYPE`: the switch does not support this action of a bucket.
    #[error("action {0}: remove the action")]
    NotYet(&'static str),
    /// The group has no such bucket (`OFPGMFC_UNKNOWN_BUCKET`).
    #[error("group {0} has no bucket {1}: name one of its buckets")]
    UnknownBucket(GroupId, u32),
    /// The group has such a bucket already (`OFPGMFC_BUCKET_EXISTS`).
    #[error("group {0} has a bucket {1} already: give the new bucket another number")]
    BucketExists(GroupId, u32),
    /// The group has too many buckets (`OFPGMFC_OUT_OF_BUCKETS`).
    #[error(
        "group {0} would have {1} buckets, but the limit is {limit}: remove some first",
        limit = Group::BUCKETS_MAX
    )]
    TooManyBuckets(GroupId, usize),
    /// `OFPGMFC_OUT_OF_BUCKETS`: see [`GroupCheck`].
    #[error(
        "group {0} with {1} buckets would be too long for the OpenFlow message that describes \
         it: remove some buckets"
    )]
    TooLong(GroupId, usize),
    /// The bridge has too many groups (`OFPGMFC_OUT_OF_GROUPS`).
    #[error("the bridge has {0} groups, which is its limit: delete some first")]
    TooMany(usize),
}

/// Counters of a group and of its buckets.
#[derive(Debug, Default)]
pub struct GroupStats {
    /// The packets that entered the group.
    total: PacketCount,
    /// The packets of each bucket, in order.
    buckets: Box<[PacketCount]>,
}

impl GroupStats {
    /// Counters at zero for `buckets_count` buckets.
    #[must_use]
    pub fn new(buckets_count: usize) -> Self {
        let buckets = std::iter::repeat_with(PacketCount::default).take(buckets_count).collect();
        Self { total: PacketCount::default(), buckets }
    }

    /// Counts packets that matched the group.
    pub fn credit(&self, packets: u64, bytes: u64) {
        self.total.credit(packets, bytes);
    }

    /// Counts packets for which a bucket ran; ignores a bucket that does not exist.
    pub fn credit_bucket(&self, bucket: usize, packets: u64, bytes: u64) {
        if let Some(count) = self.buckets.get(bucket) {
            count.credit(packets, bytes);
        }
    }

    /// Returns the counters of the group.
    #[must_use]
    pub fn totals(&self) -> PacketTotals {
        self.total.totals()
    }

    /// Returns the counters of each bucket.
    #[must_use]
    pub fn bucket_totals(&self) -> Vec<PacketTotals> {
        self.buckets.iter().map(PacketCount::totals).collect()
    }
}
