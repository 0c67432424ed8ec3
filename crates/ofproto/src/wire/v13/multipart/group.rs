//! `OFPMP_GROUP`, `OFPMP_GROUP_DESC`, `OFPMP_GROUP_FEATURES` (OpenFlow 1.3.5, 7.3.5.9 to 7.3.5.11).

use bytes::BufMut;
use shunt_pipeline::{GroupId, PacketTotals, Selection};

use crate::{
    error::ErrorCode,
    message::{GroupDescription, GroupFeatures, GroupStatistics},
    wire::{
        ByteReader, MessageLengthError,
        v13::{
            body::{
                flow_removed::{put_duration, read_duration},
                group::{kind_number, put_buckets, read_buckets, read_kind},
            },
            length,
        },
    },
};

/// Reads the body of a group statistics request.
pub(in crate::wire) fn read_filter(
    body: &mut ByteReader<'_>,
) -> Result<Option<GroupId>, ErrorCode> {
    let group = GroupId::new(body.u32()?);
    body.skip(4)?;
    Ok(Some(group).filter(|group| *group != GroupId::ALL))
}

/// Writes the body of a group statistics request.
pub(in crate::wire) fn put_filter(out: &mut Vec<u8>, group: Option<GroupId>) {
    out.put_u32(group.unwrap_or(GroupId::ALL).number());
    out.put_u32(0);
}

/// Returns the rest of an entry that starts with its length.
fn entry<'a>(reader: &mut ByteReader<'a>) -> Result<ByteReader<'a>, MessageLengthError> {
    let length = usize::from(reader.u16()?).checked_sub(2).ok_or(MessageLengthError)?;
    reader.bytes(length).map(ByteReader::new)
}

/// Reads an entry of `OFPMP_GROUP`.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<GroupStatistics, ErrorCode> {
    let mut entry = entry(reader)?;
    entry.skip(2)?;
    let (group, references) = (GroupId::new(entry.u32()?), entry.u32()?);
    entry.skip(4)?;
    let total = read_totals(&mut entry)?;
    let duration = read_duration(&mut entry)?;
    let mut buckets = Vec::new();
    while !entry.is_empty() {
        buckets.push(read_totals(&mut entry)?);
    }
    Ok(GroupStatistics { group, references, duration, total, buckets })
}

/// Writes an entry of `OFPMP_GROUP`.
pub(in crate::wire) fn put(out: &mut Vec<u8>, group: &GroupStatistics) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u16(0);
    out.put_u32(group.group.number());
    out.put_u32(group.references);
    out.put_u32(0);
    put_totals(out, group.total);
    put_duration(out, group.duration);
    group.buckets.iter().for_each(|bucket| put_totals(out, *bucket));
    length::fill(out, length_at, start);
}

/// Reads an entry of `OFPMP_GROUP_DESC`.
pub(super) fn read_description(reader: &mut ByteReader<'_>) -> Result<GroupDescription, ErrorCode> {
    let mut entry = entry(reader)?;
    let kind = read_kind(entry.u8()?)?;
    entry.skip(1)?;
    let group = GroupId::new(entry.u32()?);
    let (selection, buckets) = (Selection::Default, read_buckets(&mut entry)?);
    Ok(GroupDescription { group, kind, selection, buckets })
}

/// Writes an entry of `OFPMP_GROUP_DESC`.
/// OpenFlow 1.3 cannot express the selection method.
pub(super) fn put_description(out: &mut Vec<u8>, group: &GroupDescription) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u8(kind_number(group.kind));
    out.put_u8(0);
    out.put_u32(group.group.number());
    put_buckets(out, &group.buckets);
    length::fill(out, length_at, start);
}

/// Reads the body of `OFPMP_GROUP_FEATURES`.
pub(in crate::wire) fn read_features(
    body: &mut ByteReader<'_>,
) -> Result<GroupFeatures, ErrorCode> {
    let (kinds, capabilities) = (body.u32()?, body.u32()?);
    let mut each =
        || Ok::<_, MessageLengthError>([body.u32()?, body.u32()?, body.u32()?, body.u32()?]);
    Ok(GroupFeatures { kinds, capabilities, groups_max: each()?, actions: each()? })
}

/// Writes the body of `OFPMP_GROUP_FEATURES`.
pub(in crate::wire) fn put_features(out: &mut Vec<u8>, features: &GroupFeatures) {
    out.put_u32(features.kinds);
    out.put_u32(features.capabilities);
    features.groups_max.iter().chain(&features.actions).for_each(|word| out.put_u32(*word));
}

/// Reads a packet and a byte count.
pub(super) fn read_totals(reader: &mut ByteReader<'_>) -> Result<PacketTotals, MessageLengthError> {
    Ok(PacketTotals { packets: reader.u64()?, bytes: reader.u64()? })
}

/// Writes a packet and a byte count.
pub(super) fn put_totals(out: &mut Vec<u8>, totals: PacketTotals) {
    out.put_u64(totals.packets);
    out.put_u64(totals.bytes);
}
