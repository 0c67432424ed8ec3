//! Flow monitors of the ONF: `ONFST_FLOW_MONITOR` (EXT-187, as in Open vSwitch).
//!
//! OpenFlow 1.0 has the same messages of Nicira. An update has the same fields in both, and differs
//! in the form of its match and its actions.

use std::{sync::Arc, time::Duration};

use bytes::BufMut;
use shunt_flow::Match;
use shunt_pipeline::{Cookie, Instructions, Priority, RemovedReason, TableId};

use super::flow::put_listed_instructions;
use crate::{
    error::{ErrorCode, ONF_EXPERIMENTER},
    message::{
        FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent,
        FullFlowUpdate, Xid,
    },
    wire::{
        ByteReader, MessageLengthError,
        v13::{
            body::flow_mod::{seconds, table_number, table_selector},
            instruction::read_instructions,
            length,
            oxm::{put_match, read_match},
            port_no,
        },
    },
};

/// `ONFMP_FLOW_MONITOR`.
pub(super) const FLOW_MONITOR: u32 = 1870;

/// `nx_flow_update_event`.
mod event {
    pub(super) const ADDED: u16 = 0;
    pub(super) const DELETED: u16 = 1;
    pub(super) const MODIFIED: u16 = 2;
    pub(super) const ABBREVIATED: u16 = 3;
}

/// A wire bit and the field of [`FlowMonitorFlags`] that holds it.
type MonitorFlag = (u16, fn(&mut FlowMonitorFlags) -> &mut bool);

/// Bits of `nx_flow_monitor_flags`.
const FLAGS: [MonitorFlag; 6] = [
    (1, |flags| &mut flags.initial),
    (1 << 1, |flags| &mut flags.add),
    (1 << 2, |flags| &mut flags.delete),
    (1 << 3, |flags| &mut flags.modify),
    (1 << 4, |flags| &mut flags.actions),
    (1 << 5, |flags| &mut flags.own),
];

/// The part of an update that differs between versions.
pub(in crate::wire) struct MonitoredFlow {
    pub(in crate::wire) matching: Match,
    pub(in crate::wire) instructions: Instructions,
}

/// Returns the flags of a request, of which one must request updates.
pub(in crate::wire) fn read_monitor_flags(bits: u16) -> Result<FlowMonitorFlags, ErrorCode> {
    let mut flags = FlowMonitorFlags::default();
    let mut rest = bits;
    for (bit, flag) in FLAGS {
        *flag(&mut flags) = bits & bit != 0;
        rest &= !bit;
    }
    let has_updates = flags.add || flags.delete || flags.modify;
    if rest == 0 && has_updates { Ok(flags) } else { Err(ErrorCode::MonitorFlags) }
}

/// Returns the bits of the flags of a request.
pub(in crate::wire) fn monitor_flags_bits(mut flags: FlowMonitorFlags) -> u16 {
    FLAGS.iter().fold(0, |bits, (bit, flag)| if *flag(&mut flags) { bits | bit } else { bits })
}

/// Writes the header of an experimenter's multipart.
pub(super) fn put_header(out: &mut Vec<u8>) {
    out.put_u32(ONF_EXPERIMENTER);
    out.put_u32(FLOW_MONITOR);
}

/// Reads one request for a monitor.
pub(super) fn read_request(body: &mut ByteReader<'_>) -> Result<FlowMonitorRequest, ErrorCode> {
    let (id, flags) = (FlowMonitorId(body.u32()?), body.u16()?);
    // The match has its own length.
    body.skip(2)?;
    let (out_port, table) = (body.u32()?, body.u8()?);
    let reserved: [u8; 3] = body.array()?;
    let flags = read_monitor_flags(flags)?;
    if reserved != [0; 3] {
        return Err(ErrorCode::MustBeZero);
    }
    let out_port = port_no::read_out_port(out_port)?;
    let matching = read_match(body)?;
    let table = table_selector(table).ok_or(ErrorCode::BadTableId)?;
    Ok(FlowMonitorRequest { id, flags, table, matching, out_port })
}

/// Writes one request for a monitor.
pub(super) fn put_request(out: &mut Vec<u8>, request: &FlowMonitorRequest) {
    out.put_u32(request.id.0);
    out.put_u16(monitor_flags_bits(request.flags));
    let length_at = length::reserve(out);
    out.put_u32(request.out_port.number());
    out.put_u8(table_number(request.table));
    out.put_bytes(0, 3);
    put_measured_match(out, length_at, &request.matching);
}

/// Writes a match, and at `length_at` its length without padding.
fn put_measured_match(out: &mut Vec<u8>, length_at: usize, matching: &Match) {
    let start = out.len();
    put_match(out, matching);
    // The second field of a match is its length.
    let length = out.get(start.saturating_add(2)..).and_then(|rest| rest.first_chunk());
    let length = length.map_or(0, |bytes| u16::from_be_bytes(*bytes));
    length::set(out, length_at, length);
}

/// Reads an update of OpenFlow 1.3.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<FlowUpdate, ErrorCode> {
    read_update(reader, |entry, _match_len| {
        let matching = read_match(entry)?;
        Ok(MonitoredFlow { matching, instructions: read_instructions(entry)? })
    })
}

/// Writes an update of OpenFlow 1.3.
pub(super) fn put(out: &mut Vec<u8>, update: &FlowUpdate) {
    put_update(out, update, |out, length_at, full| {
        put_measured_match(out, length_at, &full.matching);
        put_listed_instructions(out, &full.matching, &full.instructions);
    });
}

/// Reads an update; `read_flow` gets the length of the match.
pub(in crate::wire) fn read_update(
    reader: &mut ByteReader<'_>,
    read_flow: impl Fn(&mut ByteReader<'_>, u16) -> Result<MonitoredFlow, ErrorCode>,
) -> Result<FlowUpdate, ErrorCode> {
    let length = usize::from(reader.u16()?).checked_sub(2).ok_or(MessageLengthError)?;
    let mut entry = ByteReader::new(reader.bytes(length)?);
    let number = entry.u16()?;
    if number == event::ABBREVIATED {
        let xid = Xid::new(entry.u32()?);
        entry.finish()?;
        return Ok(FlowUpdate::Abbreviated(xid));
    }
    let reason = entry.u16()?;
    let event = match number {
        event::ADDED => FlowUpdateEvent::Added,
        event::DELETED => FlowUpdateEvent::Deleted(read_reason(reason)?),
        event::MODIFIED => FlowUpdateEvent::Modified,
        _ => return Err(ErrorCode::BadType),
    };
    let priority = Priority::new(entry.u16()?);
    let (idle_timeout, hard_timeout) = (entry.u16()?, entry.u16()?);
    let (match_len, table) = (entry.u16()?, entry.u8()?);
    entry.skip(1)?;
    let cookie = Cookie::new(entry.u64()?);
    let MonitoredFlow { matching, instructions } = read_flow(&mut entry, match_len)?;
    Ok(FlowUpdate::Full(FullFlowUpdate {
        event,
        table: TableId::new(table).ok_or(ErrorCode::BadTableId)?,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::from_secs(hard_timeout.into()),
        cookie,
        matching,
        instructions: Arc::new(instructions),
    }))
}

/// Writes an update; `put_flow` gets the offset of the length of the match.
pub(in crate::wire) fn put_update(
    out: &mut Vec<u8>,
    update: &FlowUpdate,
    put_flow: impl FnOnce(&mut Vec<u8>, usize, &FullFlowUpdate),
) {
    let start = out.len();
    let length_at = length::reserve(out);
    match update {
        FlowUpdate::Abbreviated(xid) => {
            out.put_u16(event::ABBREVIATED);
            out.put_u32(xid.number());
        }
        FlowUpdate::Full(full) => {
            let (number, reason) = match full.event {
                FlowUpdateEvent::Added => (event::ADDED, 0),
                FlowUpdateEvent::Deleted(reason) => (event::DELETED, reason_number(reason)),
                FlowUpdateEvent::Modified => (event::MODIFIED, 0),
            };
            out.put_u16(number);
            out.put_u16(reason);
            out.put_u16(full.priority.number());
            out.put_u16(seconds(full.idle_timeout));
            out.put_u16(seconds(full.hard_timeout));
            let match_len_at = length::reserve(out);
            out.put_u8(full.table.number());
            out.put_u8(0);
            out.put_u64(full.cookie.number());
            put_flow(out, match_len_at, full);
        }
    }
    length::fill(out, length_at, start);
}

/// Returns the reason with a number of OpenFlow 1.4.
const fn read_reason(number: u16) -> Result<RemovedReason, ErrorCode> {
    Ok(match number {
        0 => RemovedReason::IdleTimeout,
        1 => RemovedReason::HardTimeout,
        2 => RemovedReason::Delete,
        3 => RemovedReason::GroupDelete,
        4 => RemovedReason::MeterDelete,
        5 => RemovedReason::Eviction,
        _ => return Err(ErrorCode::BadType),
    })
}

/// Returns the number of a reason, as in OpenFlow 1.4.
const fn reason_number(reason: RemovedReason) -> u16 {
    match reason {
        RemovedReason::IdleTimeout => 0,
        RemovedReason::HardTimeout => 1,
        // A replaced rule causes the update of the rule that replaces it.
        RemovedReason::Delete | RemovedReason::Replaced => 2,
        RemovedReason::GroupDelete => 3,
        RemovedReason::MeterDelete => 4,
        RemovedReason::Eviction => 5,
    }
}
