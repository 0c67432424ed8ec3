//! `OFPT_FLOW_REMOVED` (OpenFlow 1.3.5, 7.4.2).

use std::time::Duration;

use bytes::BufMut;
use shunt_pipeline::{Cookie, Priority, RemovedReason, TableId};

use super::flow_mod::seconds;
use crate::{
    error::ErrorCode,
    message::FlowRemoved,
    wire::{
        ByteReader,
        v13::oxm::{put_match, read_match},
    },
};

/// Reads the body of a flow-removed message.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<FlowRemoved, ErrorCode> {
    let cookie = Cookie::new(reader.u64()?);
    let priority = Priority::new(reader.u16()?);
    let (reason, table) = (reader.u8()?, reader.u8()?);
    let duration = read_duration(reader)?;
    let (idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?);
    let (packets, bytes) = (reader.u64()?, reader.u64()?);
    let matching = read_match(reader)?;
    Ok(FlowRemoved {
        table: TableId::new(table).ok_or(ErrorCode::BadTableId)?,
        reason: read_reason(reason)?,
        duration,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::from_secs(hard_timeout.into()),
        cookie,
        packets,
        bytes,
        matching,
    })
}

/// Returns the reason for a number of `ofp_flow_removed_reason`.
pub(in crate::wire) const fn read_reason(number: u8) -> Result<RemovedReason, ErrorCode> {
    Ok(match number {
        0 => RemovedReason::IdleTimeout,
        1 => RemovedReason::HardTimeout,
        2 => RemovedReason::Delete,
        3 => RemovedReason::GroupDelete,
        _ => return Err(ErrorCode::BadType),
    })
}

/// Returns the number of a reason, which is also its bit in asynchronous masks.
pub(crate) const fn reason_number(reason: RemovedReason) -> u8 {
    match reason {
        RemovedReason::IdleTimeout => 0,
        RemovedReason::HardTimeout => 1,
        // OpenFlow 1.3 has no own numbers for these reasons of OpenFlow 1.4.
        RemovedReason::Delete
        | RemovedReason::MeterDelete
        | RemovedReason::Eviction
        | RemovedReason::Replaced => 2,
        RemovedReason::GroupDelete => 3,
    }
}

/// Writes the body of a flow-removed message.
pub(in crate::wire) fn put(out: &mut Vec<u8>, removed: &FlowRemoved) {
    out.put_u64(removed.cookie.number());
    out.put_u16(removed.priority.number());
    out.put_u8(reason_number(removed.reason));
    out.put_u8(removed.table.number());
    put_duration(out, removed.duration);
    out.put_u16(seconds(removed.idle_timeout));
    out.put_u16(seconds(removed.hard_timeout));
    out.put_u64(removed.packets);
    out.put_u64(removed.bytes);
    put_match(out, &removed.matching);
}

/// Writes seconds and nanoseconds.
pub(in crate::wire) fn put_duration(out: &mut Vec<u8>, duration: Duration) {
    // 32 bits of seconds last for 136 years.
    out.put_u32(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
    out.put_u32(duration.subsec_nanos());
}

/// Maximum number of nanoseconds beside whole seconds.
const NANOSECONDS_MAX: u32 = 999_999_999;

/// Reads seconds and nanoseconds.
pub(in crate::wire) fn read_duration(reader: &mut ByteReader<'_>) -> Result<Duration, ErrorCode> {
    let (seconds, nanoseconds) = (reader.u32()?, reader.u32()?);
    // A larger number of nanoseconds is not a fraction of a second and could not be encoded again.
    Ok(Duration::new(seconds.into(), nanoseconds.min(NANOSECONDS_MAX)))
}
