//! `OFPT_GROUP_MOD` and buckets (OpenFlow 1.3.5, 7.3.4.2).

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::{Bucket, GroupCommand, GroupId, GroupKind, GroupMod, Selection};

use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::{
            action::{ActionFormat, put_actions, read_actions},
            length,
        },
    },
};

/// Length of a bucket without actions, in bytes.
const BUCKET_LEN: usize = 16;
/// `OFPG_ANY`: no group.
pub(in crate::wire) const GROUP_ANY: u32 = 0xffff_ffff;

/// `ofp_group_mod_command`, and `OFPGC11_ADD_OR_MOD` of Open vSwitch.
mod command {
    pub(super) const ADD: u16 = 0;
    pub(super) const MODIFY: u16 = 1;
    pub(super) const DELETE: u16 = 2;
    pub(super) const ADD_OR_MODIFY: u16 = 0x8000;
}

/// `ofp_group_type` in the order of the numbers.
const KINDS: [GroupKind; 4] =
    [GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover];

/// Returns the group type with this number.
pub(in crate::wire) fn read_kind(number: u8) -> Result<GroupKind, ErrorCode> {
    KINDS.get(usize::from(number)).copied().ok_or(ErrorCode::GroupType)
}

/// Returns the number of a group type.
pub(in crate::wire) const fn kind_number(kind: GroupKind) -> u8 {
    match kind {
        GroupKind::All => 0,
        GroupKind::Select => 1,
        GroupKind::Indirect => 2,
        GroupKind::FastFailover => 3,
    }
}

/// Reads the body of a group-mod.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<GroupMod, ErrorCode> {
    let (number, kind) = (reader.u16()?, reader.u8()?);
    reader.skip(1)?;
    let group = GroupId::new(reader.u32()?);
    let buckets = read_buckets(reader)?;
    if number == command::DELETE && !buckets.is_empty() {
        return Err(ErrorCode::GroupInvalid);
    }
    let kind = read_kind(kind)?;
    let command = match number {
        command::ADD => GroupCommand::Add,
        command::MODIFY => GroupCommand::Modify,
        command::DELETE => GroupCommand::Delete,
        command::ADD_OR_MODIFY => GroupCommand::AddOrModify,
        _ => return Err(ErrorCode::GroupCommand),
    };
    let is_delete = command == GroupCommand::Delete;
    // Fields that a command ignores are not stored, so equal requests are equal values.
    Ok(GroupMod {
        command,
        group: (!is_delete || group != GroupId::ALL).then_some(group),
        kind: if is_delete { GroupKind::All } else { kind },
        selection: Selection::Default,
        buckets,
    })
}

/// Returns the number of a command; `None` if OpenFlow 1.3 does not have it.
pub(in crate::wire) const fn command_number(command: GroupCommand) -> Option<u16> {
    match command {
        GroupCommand::Add => Some(command::ADD),
        GroupCommand::Modify => Some(command::MODIFY),
        GroupCommand::Delete => Some(command::DELETE),
        GroupCommand::AddOrModify => Some(command::ADD_OR_MODIFY),
        GroupCommand::InsertBuckets(_) | GroupCommand::RemoveBuckets(_) => None,
    }
}

/// Writes the body of a group-mod; its command must exist in OpenFlow 1.3.
/// OpenFlow 1.3 cannot express the selection method.
pub(in crate::wire) fn put(out: &mut Vec<u8>, group_mod: &GroupMod) {
    let Some(number) = command_number(group_mod.command) else { return };
    out.put_u16(number);
    out.put_u8(kind_number(group_mod.kind));
    out.put_u8(0);
    out.put_u32(group_mod.group.unwrap_or(GroupId::ALL).number());
    put_buckets(out, &group_mod.buckets);
}

/// Reads buckets to the end of the message.
pub(in crate::wire) fn read_buckets(
    reader: &mut ByteReader<'_>,
) -> Result<Box<[Bucket]>, ErrorCode> {
    if !reader.len().is_multiple_of(8) {
        return Err(ErrorCode::BadLength);
    }
    let mut buckets = Vec::new();
    for id in 0.. {
        if reader.is_empty() {
            break;
        }
        buckets.push(read_bucket(reader, id)?);
    }
    Ok(buckets.into())
}

/// Reads a bucket of a group.
fn read_bucket(reader: &mut ByteReader<'_>, id: u32) -> Result<Bucket, ErrorCode> {
    let length = usize::from(reader.clone().u16()?);
    let is_framed = (BUCKET_LEN..=reader.len()).contains(&length);
    if !is_framed {
        return Err(ErrorCode::GroupBucket);
    }
    if !length.is_multiple_of(8) {
        return Err(ErrorCode::BadLength);
    }
    let mut bucket = ByteReader::new(reader.bytes(length)?);
    bucket.skip(2)?;
    let (weight, watch_port) = (bucket.u16()?, PortNo::new(bucket.u32()?));
    let watch_group = bucket.u32()?;
    bucket.skip(4)?;
    let actions = read_actions(bucket.rest(), ActionFormat::V13)?;
    if !can_be_watched(watch_port) {
        return Err(ErrorCode::GroupWatchPort);
    }
    // Buckets run like action sets: an action that a set cannot hold is legal and has no effect.
    Ok(Bucket {
        id,
        weight,
        watch_port,
        watch_group: (watch_group != GROUP_ANY).then_some(GroupId::new(watch_group)),
        actions: actions.into(),
    })
}

/// Returns whether a port can be watched. A missing port is not live.
pub(in crate::wire) const fn can_be_watched(port: PortNo) -> bool {
    port.number() <= PortNo::MAX.number() || port.reserved_name().is_some()
}

/// Writes buckets in the order of their numbers.
pub(in crate::wire) fn put_buckets(out: &mut Vec<u8>, buckets: &[Bucket]) {
    for bucket in buckets {
        let start = out.len();
        let length_at = length::reserve(out);
        out.put_u16(bucket.weight);
        out.put_u32(bucket.watch_port.number());
        out.put_u32(bucket.watch_group.map_or(GROUP_ANY, GroupId::number));
        out.put_u32(0);
        put_actions(out, &bucket.actions, ActionFormat::V13);
        length::fill(out, length_at, start);
    }
}
