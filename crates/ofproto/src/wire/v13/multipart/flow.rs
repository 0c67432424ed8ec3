//! `OFPMP_FLOW` and `OFPMP_AGGREGATE` (OpenFlow 1.3.5, 7.3.5.2, 7.3.5.3).

use std::{sync::Arc, time::Duration};

use bytes::BufMut;
use shunt_flow::Match;
use shunt_pipeline::{Cookie, Instructions, Priority, RuleFilter, TableId};

use crate::{
    error::ErrorCode,
    message::{AggregateStatistics, FlowStatistics},
    wire::{
        ByteReader, MessageLengthError,
        v13::{
            action::{CommonHeaders, in_openflow_13},
            body::{
                flow_mod::{flags_bits, read_flags, seconds, table_number, table_selector},
                flow_removed::{put_duration, read_duration},
            },
            instruction::{put_instructions, read_instructions},
            length,
            oxm::{put_match, read_match},
            port_no,
        },
    },
};

/// Reads the body of a flow or aggregate statistics request.
pub(super) fn read_filter(body: &mut ByteReader<'_>) -> Result<RuleFilter, ErrorCode> {
    let table = body.u8()?;
    body.skip(3)?;
    let (out_port, out_group) = (port_no::read_out_port(body.u32()?)?, body.u32()?);
    body.skip(4)?;
    let (cookie, cookie_mask) = (Cookie::new(body.u64()?), body.u64()?);
    let matching = read_match(body)?;
    let table = table_selector(table).ok_or(ErrorCode::BadTableId)?;
    Ok(RuleFilter { table, matching, cookie, cookie_mask, out_port, out_group })
}

/// Writes the body of a flow or aggregate statistics request.
pub(super) fn put_filter(out: &mut Vec<u8>, filter: &RuleFilter) {
    out.put_u8(table_number(filter.table));
    out.put_bytes(0, 3);
    out.put_u32(filter.out_port.number());
    out.put_u32(filter.out_group);
    out.put_u32(0);
    out.put_u64(filter.cookie.number());
    out.put_u64(filter.cookie_mask);
    put_match(out, &filter.matching);
}

/// Reads an entry of a flow statistics reply.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<FlowStatistics, ErrorCode> {
    let length = usize::from(reader.u16()?).checked_sub(2).ok_or(MessageLengthError)?;
    let mut entry = ByteReader::new(reader.bytes(length)?);
    let table = TableId::new(entry.u8()?).ok_or(ErrorCode::BadTableId)?;
    entry.skip(1)?;
    let duration = read_duration(&mut entry)?;
    let priority = Priority::new(entry.u16()?);
    let (idle_timeout, hard_timeout) = (entry.u16()?, entry.u16()?);
    let flags = read_flags(entry.u16()?)?;
    entry.skip(4)?;
    let cookie = Cookie::new(entry.u64()?);
    let (packets, bytes) = (entry.u64()?, entry.u64()?);
    let matching = read_match(&mut entry)?;
    let instructions = Arc::new(read_instructions(&mut entry)?);
    Ok(FlowStatistics {
        table,
        duration,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::from_secs(hard_timeout.into()),
        flags,
        cookie,
        packets,
        bytes,
        matching,
        instructions,
    })
}

/// Writes an entry of a flow statistics reply.
pub(super) fn put(out: &mut Vec<u8>, flow: &FlowStatistics) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u8(flow.table.number());
    out.put_u8(0);
    put_duration(out, flow.duration);
    out.put_u16(flow.priority.number());
    out.put_u16(seconds(flow.idle_timeout));
    out.put_u16(seconds(flow.hard_timeout));
    out.put_u16(flags_bits(flow.flags));
    out.put_u32(0);
    out.put_u64(flow.cookie.number());
    out.put_u64(flow.packets);
    out.put_u64(flow.bytes);
    put_match(out, &flow.matching);
    put_listed_instructions(out, &flow.matching, &flow.instructions);
    length::fill(out, length_at, start);
}

/// Writes the instructions of a rule in the form of OpenFlow 1.3.
pub(super) fn put_listed_instructions(
    out: &mut Vec<u8>,
    matching: &Match,
    instructions: &Instructions,
) {
    match in_openflow_13(&instructions.apply, CommonHeaders::of(matching)) {
        Some(apply) => {
            let listed = Instructions { apply: apply.into(), ..instructions.clone() };
            put_instructions(out, &listed);
        }
        None => put_instructions(out, instructions),
    }
}

/// Reads the body of an aggregate reply.
pub(in crate::wire) fn read_aggregate(
    reader: &mut ByteReader<'_>,
) -> Result<AggregateStatistics, ErrorCode> {
    let (packets, bytes, flows) = (reader.u64()?, reader.u64()?, reader.u32()?);
    reader.skip(4)?;
    Ok(AggregateStatistics { packets, bytes, flows })
}

/// Writes the body of an aggregate reply.
pub(in crate::wire) fn put_aggregate(out: &mut Vec<u8>, totals: &AggregateStatistics) {
    out.put_u64(totals.packets);
    out.put_u64(totals.bytes);
    out.put_u32(totals.flows);
    out.put_u32(0);
}
