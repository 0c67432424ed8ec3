//! `NXT_GROUP_MOD` and `NXST_GROUP_DESC`: groups over OpenFlow 1.0.
//!
//! OpenFlow 1.0 has no groups. As in Open vSwitch, its clients use the messages of OpenFlow 1.5
//! (OpenFlow 1.5.1, 7.3.4.3) inside vendor messages. There, a bucket has a number, and
//! its weight and the objects that it watches are properties. The actions of a bucket have the form
//! of OpenFlow 1.0. A property of Netronome names the selection method of a group.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo, oxm};
use shunt_pipeline::{
    Bucket, BucketPlace, BucketSelector, GroupCommand, GroupId, GroupKind, GroupMod, Selection,
};

use super::statistics::read_entry;
use crate::{
    error::ErrorCode,
    message::GroupDescription,
    wire::{
        ByteReader, MessageLengthError,
        v13::{
            action::{ActionFormat, put_actions, read_actions},
            body::group::{GROUP_ANY, can_be_watched, kind_number, read_kind},
            length,
            oxm::match_error,
            property,
        },
    },
};

/// Length of a bucket without actions and properties, in bytes.
const BUCKET_LEN: usize = 8;
/// The highest number of a bucket (`OFPG_BUCKET_MAX`).
const BUCKET_ID_MAX: u32 = 0xffff_ff00;
/// The vendor of the property with the selection method (`NTR_VENDOR_ID`).
const NETRONOME: u32 = 0x0000_154d;
/// `NTRT_SELECTION_METHOD`.
const SELECTION_METHOD: u32 = 1;
/// Length of the name of a selection method in bytes.
const METHOD_LEN: usize = 16;

/// `ofp_group_mod_command`, and `OFPGC11_ADD_OR_MOD` of Open vSwitch.
mod command {
    pub(super) const ADD: u16 = 0;
    pub(super) const MODIFY: u16 = 1;
    pub(super) const DELETE: u16 = 2;
    pub(super) const INSERT_BUCKET: u16 = 3;
    pub(super) const REMOVE_BUCKET: u16 = 5;
    pub(super) const ADD_OR_MODIFY: u16 = 0x8000;
}

/// Reserved values of `command_bucket_id`.
mod selector {
    pub(super) const FIRST: u32 = 0xffff_fffd;
    pub(super) const LAST: u32 = 0xffff_fffe;
    pub(super) const ALL: u32 = 0xffff_ffff;
}

/// `ofp_group_bucket_prop_type`.
mod kind {
    pub(super) const WEIGHT: u16 = 0;
    pub(super) const WATCH_PORT: u16 = 1;
    pub(super) const WATCH_GROUP: u16 = 2;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}

/// Reads the body of a group-mod.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<GroupMod, ErrorCode> {
    let (number, kind) = (reader.u16()?, reader.u8()?);
    reader.skip(1)?;
    let (group, buckets_len) = (GroupId::new(reader.u32()?), reader.u16()?);
    reader.skip(2)?;
    let command = read_command(number, reader.u32()?)?;
    let mut buckets = ByteReader::new(reader.bytes(buckets_len.into())?);
    let kind = read_kind(kind)?;
    let buckets = read_buckets(&mut buckets, kind)?;
    let selection = read_properties(reader, kind)?;
    // Fields that a command ignores are not stored, so equal requests are equal values.
    let (kind, buckets) = match command {
        GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify => (kind, buckets),
        GroupCommand::Delete | GroupCommand::InsertBuckets(_) | GroupCommand::RemoveBuckets(_)
            if selection != Selection::Default =>
        {
            return Err(ErrorCode::PropertyValue);
        }
        GroupCommand::Delete => (GroupKind::All, Box::default()),
        GroupCommand::RemoveBuckets(_) if !buckets.is_empty() => {
            return Err(ErrorCode::GroupBucket);
        }
        // As in Open vSwitch, the type of the request is checked, and the group keeps its own.
        GroupCommand::InsertBuckets(_) | GroupCommand::RemoveBuckets(_)
            if kind == GroupKind::Indirect && buckets.len() != 1 =>
        {
            return Err(ErrorCode::GroupInvalid);
        }
        GroupCommand::InsertBuckets(_) | GroupCommand::RemoveBuckets(_) => {
            (GroupKind::All, buckets)
        }
    };
    let names_all = command == GroupCommand::Delete && group == GroupId::ALL;
    let group = (!names_all).then_some(group);
    Ok(GroupMod { command, group, kind, selection, buckets })
}

/// Reads a command and its `command_bucket_id`.
fn read_command(number: u16, id: u32) -> Result<GroupCommand, ErrorCode> {
    let command = match (number, id) {
        (command::INSERT_BUCKET, selector::FIRST) => {
            GroupCommand::InsertBuckets(BucketPlace::First)
        }
        (command::INSERT_BUCKET, selector::LAST) => GroupCommand::InsertBuckets(BucketPlace::Last),
        (command::INSERT_BUCKET, ..=BUCKET_ID_MAX) => {
            GroupCommand::InsertBuckets(BucketPlace::After(id))
        }
        (command::REMOVE_BUCKET, selector::FIRST) => {
            GroupCommand::RemoveBuckets(BucketSelector::First)
        }
        (command::REMOVE_BUCKET, selector::LAST) => {
            GroupCommand::RemoveBuckets(BucketSelector::Last)
        }
        (command::REMOVE_BUCKET, selector::ALL) => GroupCommand::RemoveBuckets(BucketSelector::All),
        (command::REMOVE_BUCKET, ..=BUCKET_ID_MAX) => {
            GroupCommand::RemoveBuckets(BucketSelector::Id(id))
        }
        (command::ADD, selector::ALL) => GroupCommand::Add,
        (command::MODIFY, selector::ALL) => GroupCommand::Modify,
        (command::DELETE, selector::ALL) => GroupCommand::Delete,
        (command::ADD_OR_MODIFY, selector::ALL) => GroupCommand::AddOrModify,
        (_, selector::ALL) if number != command::INSERT_BUCKET => {
            return Err(ErrorCode::GroupCommand);
        }
        _ => return Err(ErrorCode::GroupBucket),
    };
    Ok(command)
}

/// Writes the body of a group-mod.
pub(super) fn put(out: &mut Vec<u8>, group_mod: &GroupMod) {
    let (number, selector) = match group_mod.command {
        GroupCommand::Add => (command::ADD, selector::ALL),
        GroupCommand::Modify => (command::MODIFY, selector::ALL),
        GroupCommand::AddOrModify => (command::ADD_OR_MODIFY, selector::ALL),
        GroupCommand::Delete => (command::DELETE, selector::ALL),
        GroupCommand::InsertBuckets(place) => (
            command::INSERT_BUCKET,
            match place {
                BucketPlace::First => selector::FIRST,
                BucketPlace::Last => selector::LAST,
                BucketPlace::After(id) => id,
            },
        ),
        GroupCommand::RemoveBuckets(removed) => (
            command::REMOVE_BUCKET,
            match removed {
                BucketSelector::First => selector::FIRST,
                BucketSelector::Last => selector::LAST,
                BucketSelector::All => selector::ALL,
                BucketSelector::Id(id) => id,
            },
        ),
    };
    out.put_u16(number);
    out.put_u8(kind_number(group_mod.kind));
    out.put_u8(0);
    out.put_u32(group_mod.group.unwrap_or(GroupId::ALL).number());
    let length_at = length::reserve(out);
    out.put_u16(0);
    out.put_u32(selector);
    put_buckets(out, length_at, group_mod.kind, &group_mod.buckets);
    put_selection(out, &group_mod.selection);
}

/// Reads an entry of `NXST_GROUP_DESC`.
pub(super) fn read_description(reader: &mut ByteReader<'_>) -> Result<GroupDescription, ErrorCode> {
    let mut entry = read_entry(reader)?;
    let kind = read_kind(entry.u8()?)?;
    entry.skip(1)?;
    let (group, buckets_len) = (GroupId::new(entry.u32()?), entry.u16()?);
    entry.skip(6)?;
    let mut buckets = ByteReader::new(entry.bytes(buckets_len.into())?);
    let buckets = read_buckets(&mut buckets, kind)?;
    let selection = read_properties(&mut entry, kind)?;
    Ok(GroupDescription { group, kind, selection, buckets })
}

/// Writes an entry of `NXST_GROUP_DESC`.
pub(super) fn put_description(out: &mut Vec<u8>, group: &GroupDescription) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u8(kind_number(group.kind));
    out.put_u8(0);
    out.put_u32(group.group.number());
    let buckets_len_at = length::reserve(out);
    out.put_bytes(0, 6);
    put_buckets(out, buckets_len_at, group.kind, &group.buckets);
    put_selection(out, &group.selection);
    length::fill(out, length_at, start);
}

/// Reads buckets to the end of `reader`; no number may occur twice.
fn read_buckets(reader: &mut ByteReader<'_>, kind: GroupKind) -> Result<Box<[Bucket]>, ErrorCode> {
    let (mut buckets, mut ids) = (Vec::new(), BTreeSet::new());
    while !reader.is_empty() {
        let bucket = read_bucket(reader, kind)?;
        if !ids.insert(bucket.id) {
            return Err(ErrorCode::GroupBucket);
        }
        buckets.push(bucket);
    }
    Ok(buckets.into())
}

/// Reads a bucket of a group.
fn read_bucket(reader: &mut ByteReader<'_>, group: GroupKind) -> Result<Bucket, ErrorCode> {
    let length = usize::from(reader.clone().u16()?);
    let is_framed = (BUCKET_LEN..=reader.len()).contains(&length);
    if !is_framed {
        return Err(ErrorCode::GroupBucket);
    }
    let mut bucket = ByteReader::new(reader.bytes(length)?);
    bucket.skip(2)?;
    let (actions_len, id) = (usize::from(bucket.u16()?), bucket.u32()?);
    if actions_len > bucket.len() {
        return Err(ErrorCode::GroupBucket);
    }
    if !length.is_multiple_of(8) || !actions_len.is_multiple_of(8) {
        return Err(ErrorCode::BadLength);
    }
    let actions = read_actions(bucket.bytes(actions_len)?, ActionFormat::V10)?;
    let mut weight = u16::from(group == GroupKind::Select);
    let (mut watch_port, mut watch_group) = (PortNo::ANY, GROUP_ANY);
    while !bucket.is_empty() {
        let (property, mut value) = property::read(&mut bucket)?;
        match property {
            kind::WEIGHT => weight = property::u16(&mut value)?,
            kind::WATCH_PORT => watch_port = PortNo::new(property::u32(&mut value)?),
            kind::WATCH_GROUP => watch_group = property::u32(&mut value)?,
            kind::EXPERIMENTER => return Err(ErrorCode::PropertyExperimenter),
            _ => return Err(ErrorCode::PropertyType),
        }
    }
    if !can_be_watched(watch_port) {
        return Err(ErrorCode::GroupWatchPort);
    }
    if id > BUCKET_ID_MAX {
        return Err(ErrorCode::GroupBucket);
    }
    Ok(Bucket {
        id,
        weight,
        watch_port,
        watch_group: (watch_group != GROUP_ANY).then_some(GroupId::new(watch_group)),
        actions: actions.into(),
    })
}

/// Writes buckets, and their length at offset `length_at`.
fn put_buckets(out: &mut Vec<u8>, length_at: usize, kind: GroupKind, buckets: &[Bucket]) {
    let start = out.len();
    buckets.iter().for_each(|bucket| put_bucket(out, kind, bucket));
    length::fill(out, length_at, start);
}

/// Writes a bucket of a group.
fn put_bucket(out: &mut Vec<u8>, group: GroupKind, bucket: &Bucket) {
    let start = out.len();
    let (length_at, actions_len_at) = (length::reserve(out), length::reserve(out));
    out.put_u32(bucket.id);
    let actions_start = out.len();
    put_actions(out, &bucket.actions, ActionFormat::V10);
    length::fill(out, actions_len_at, actions_start);
    if group == GroupKind::Select || bucket.weight != 0 {
        property::put_u16(out, kind::WEIGHT, bucket.weight);
    }
    if bucket.watch_port != PortNo::ANY {
        property::put(out, kind::WATCH_PORT, &bucket.watch_port.number().to_be_bytes());
    }
    if let Some(watched) = bucket.watch_group {
        property::put(out, kind::WATCH_GROUP, &watched.number().to_be_bytes());
    }
    length::fill(out, length_at, start);
}

/// Reads the properties of a group to the end of `reader`.
fn read_properties(reader: &mut ByteReader<'_>, kind: GroupKind) -> Result<Selection, ErrorCode> {
    let mut selection = Selection::Default;
    while !reader.is_empty() {
        let (property, mut value) = property::read(reader)?;
        if property != kind::EXPERIMENTER {
            return Err(ErrorCode::PropertyType);
        }
        let (vendor, number) = (property::u32(&mut value)?, property::u32(&mut value)?);
        if (vendor, number) != (NETRONOME, SELECTION_METHOD) {
            return Err(ErrorCode::PropertyExperimenter);
        }
        if kind != GroupKind::Select {
            return Err(ErrorCode::PropertyValue);
        }
        selection = read_selection(&mut value)?;
    }
    Ok(selection)
}

/// Reads the selection method of a group.
fn read_selection(value: &mut ByteReader<'_>) -> Result<Selection, ErrorCode> {
    let mut frame = || {
        value.skip(4)?;
        Ok::<_, MessageLengthError>((value.array::<METHOD_LEN>()?, value.u64()?))
    };
    let (method, basis) = frame().map_err(|MessageLengthError| ErrorCode::PropertyLength)?;
    let fields = value.rest();
    match method.split(|byte| *byte == 0).next() {
        Some(b"hash") => Ok(Selection::Fields { basis, fields: read_fields(fields)? }),
        Some(b"dp_hash") if fields.is_empty() => Ok(Selection::DatapathHash { basis }),
        _ => Err(ErrorCode::PropertyValue),
    }
}

/// Reads fields in the form of match entries.
///
/// The value of an entry is the mask of a field.
fn read_fields(mut entries: &[u8]) -> Result<Box<[(FieldId, u128)]>, ErrorCode> {
    let mut fields = BTreeMap::new();
    while !entries.is_empty() {
        let (entry, length) = oxm::decode_field(entries).map_err(match_error)?;
        if entry.has_mask {
            return Err(ErrorCode::MatchMask);
        }
        if fields.insert(entry.field, entry.value).is_some() {
            return Err(ErrorCode::MatchDuplicate);
        }
        entries = entries.get(length..).unwrap_or_default();
    }
    Ok(fields.into_iter().collect())
}

/// Writes the selection method, unless it is the default one.
fn put_selection(out: &mut Vec<u8>, selection: &Selection) {
    let (method, basis, fields) = match selection {
        Selection::Default => return,
        Selection::DatapathHash { basis } => (b"dp_hash".as_slice(), *basis, <&[_]>::default()),
        Selection::Fields { basis, fields } => (b"hash".as_slice(), *basis, &**fields),
    };
    let mut value = Vec::new();
    value.put_u32(NETRONOME);
    value.put_u32(SELECTION_METHOD);
    value.put_u32(0);
    value.extend_from_slice(method);
    value.put_bytes(0, METHOD_LEN.saturating_sub(method.len()));
    value.put_u64(basis);
    for (field, mask) in fields {
        oxm::encode_nxm_value(*field, *mask, &mut value);
    }
    property::put(out, kind::EXPERIMENTER, &value);
}
