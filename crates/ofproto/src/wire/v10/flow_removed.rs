//! `OFPT_FLOW_REMOVED` and `NXT_FLOW_REMOVED` (OpenFlow 1.0.0, 5.4.3; `struct nx_flow_removed`).

use std::time::Duration;

use bytes::BufMut;
use shunt_pipeline::{Cookie, Priority, TableId};

use super::{
    ofp_match::{self, ReadMatch, ReadNxMatch},
    settings::FlowFormat,
};
use crate::{
    error::ErrorCode,
    message::FlowRemoved,
    wire::{
        ByteReader,
        v13::{
            body::{
                flow_mod::seconds,
                flow_removed::{put_duration, read_duration, read_reason, reason_number},
            },
            length,
        },
    },
};

/// Reads the body of `OFPT_FLOW_REMOVED`, which names no table.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<FlowRemoved, ErrorCode> {
    let ReadMatch { matching, is_exact: _ } = ofp_match::read(reader)?;
    let cookie = Cookie::new(reader.u64()?);
    let (priority, reason) = (Priority::new(reader.u16()?), reader.u8()?);
    reader.skip(1)?;
    let duration = read_duration(reader)?;
    let idle_timeout = reader.u16()?;
    reader.skip(2)?;
    let (packets, bytes) = (reader.u64()?, reader.u64()?);
    Ok(FlowRemoved {
        table: TableId::FIRST,
        reason: read_reason(reason)?,
        duration,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::ZERO,
        cookie,
        packets,
        bytes,
        matching,
    })
}

/// Reads the body of `NXT_FLOW_REMOVED`.
pub(super) fn read_nicira(reader: &mut ByteReader<'_>) -> Result<FlowRemoved, ErrorCode> {
    let cookie = Cookie::new(reader.u64()?);
    let (priority, reason) = (Priority::new(reader.u16()?), reader.u8()?);
    // The number of the table plus one; zero if it is unknown.
    let table = reader.u8()?.checked_sub(1).map_or(Some(TableId::FIRST), TableId::new);
    let duration = read_duration(reader)?;
    let (idle_timeout, match_len) = (reader.u16()?, reader.u16()?);
    let (packets, bytes) = (reader.u64()?, reader.u64()?);
    let ReadNxMatch { matching, cookie_mask, .. } = ofp_match::read_nxm(reader, match_len)?;
    if cookie_mask != 0 {
        return Err(ErrorCode::MatchNicira);
    }
    Ok(FlowRemoved {
        table: table.ok_or(ErrorCode::BadTableId)?,
        reason: read_reason(reason)?,
        duration,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::ZERO,
        cookie,
        packets,
        bytes,
        matching,
    })
}

/// Writes the body of a flow-removed message.
pub(super) fn put(out: &mut Vec<u8>, removed: &FlowRemoved, format: FlowFormat) {
    let idle_timeout = seconds(removed.idle_timeout);
    match format {
        FlowFormat::OpenFlow10 => {
            ofp_match::put(out, &removed.matching);
            put_start(out, removed, 0);
            out.put_u16(idle_timeout);
            out.put_u16(0);
            out.put_u64(removed.packets);
            out.put_u64(removed.bytes);
        }
        FlowFormat::Nxm => {
            // Every table number is below 254.
            put_start(out, removed, removed.table.number().saturating_add(1));
            out.put_u16(idle_timeout);
            let length_at = length::reserve(out);
            out.put_u64(removed.packets);
            out.put_u64(removed.bytes);
            let match_len = ofp_match::put_nxm(out, &removed.matching, Cookie::new(0), 0);
            length::set(out, length_at, match_len);
        }
    }
}

/// Writes the fields from the cookie to the duration.
fn put_start(out: &mut Vec<u8>, removed: &FlowRemoved, table: u8) {
    out.put_u64(removed.cookie.number());
    out.put_u16(removed.priority.number());
    // OpenFlow 1.0 has no deletion of groups; later versions have this number.
    out.put_u8(reason_number(removed.reason));
    out.put_u8(table);
    put_duration(out, removed.duration);
}
