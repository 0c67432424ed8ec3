//! Statistics requests and replies, by type (OpenFlow 1.0.0, 5.3.5; `NXST_*`).

use std::{sync::Arc, time::Duration};

use bytes::BufMut;
use shunt_pipeline::{
    Cookie, FlowFlags, Instructions, Priority, QueueId, RuleFilter, TableId, TableSelector,
};

use super::{
    VERSION,
    action::put_instructions,
    flow_monitor, group, kind,
    ofp_match::{self, ReadNxMatch},
    port,
};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER},
    message::{
        FlowStatistics, Message, MultipartReply, MultipartRequest, PortStatistics, QueueFilter,
        QueueStatistics, TableStatistics, Xid,
    },
    wire::{
        ByteReader, MessageLengthError,
        part_writer::{PartHeader, ReplyEntry},
        v13::{
            action::{ActionFormat, read_applied},
            body::{
                flow_mod::{seconds, table_number, table_selector},
                flow_removed::{put_duration, read_duration},
            },
            length,
            multipart::{
                description, entries, group as group_v13, multipart_type, put_aggregate,
                put_counters, read_aggregate, read_counters,
            },
            port_no,
        },
    },
};

/// `OFPST_VENDOR`.
const VENDOR: u16 = 0xffff;
/// `NXST_FLOW`.
const NICIRA_FLOW: u32 = 0;
/// `NXST_AGGREGATE`.
const NICIRA_AGGREGATE: u32 = 1;
/// `NXST_FLOW_MONITOR`.
const NICIRA_FLOW_MONITOR: u32 = 2;
/// `NXST_GROUP`.
const NICIRA_GROUP: u32 = 7;
/// `NXST_GROUP_DESC`.
const NICIRA_GROUP_DESC: u32 = 8;
/// `NXST_GROUP_FEATURES`.
const NICIRA_GROUP_FEATURES: u32 = 9;
/// `OFPSF_REPLY_MORE`; a request has one part.
const MORE: u16 = 1;
/// `OFPQ_ALL`.
const QUEUE_ALL: u32 = 0xffff_ffff;
/// Length of the name of a table in bytes.
const TABLE_NAME_LEN: usize = 32;
/// The maximum number of rules that the reply reports for each table.
const TABLE_ENTRIES_MAX: u32 = 1_000_000;

/// Reads the header of a statistics message.
pub(crate) fn read_part_header(reader: &mut ByteReader<'_>) -> Result<PartHeader, ErrorCode> {
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    Ok(PartHeader { kind, more: flags & MORE != 0 })
}

/// Reads a whole statistics request, with its header.
pub(super) fn read_request_message(reader: &mut ByteReader<'_>) -> Result<Message, ErrorCode> {
    let header = read_part_header(reader)?;
    read_request(header.kind, reader).map(Message::MultipartRequest)
}

/// Reads the body of a request.
pub(crate) fn read_request(
    kind: u16,
    body: &mut ByteReader<'_>,
) -> Result<MultipartRequest, ErrorCode> {
    let request = match kind {
        multipart_type::DESC => MultipartRequest::Description,
        multipart_type::FLOW => MultipartRequest::Flow(read_filter(body)?),
        multipart_type::AGGREGATE => MultipartRequest::Aggregate(read_filter(body)?),
        multipart_type::TABLE => MultipartRequest::Table,
        multipart_type::PORT_STATS => {
            let port = port_no::widen(body.u16()?);
            body.skip(6)?;
            MultipartRequest::Port(port)
        }
        multipart_type::QUEUE => {
            let port = port::read_queue_port(body)?;
            body.skip(2)?;
            let queue = body.u32()?;
            let queue = (queue != QUEUE_ALL).then_some(QueueId::new(queue));
            MultipartRequest::Queue(QueueFilter { port, queue })
        }
        multipart_type::PORT_DESC => MultipartRequest::PortDescription,
        VENDOR => match read_nicira_subtype(body)? {
            NICIRA_FLOW => MultipartRequest::NiciraFlow(read_nicira_filter(body)?),
            NICIRA_AGGREGATE => MultipartRequest::NiciraAggregate(read_nicira_filter(body)?),
            NICIRA_FLOW_MONITOR => {
                MultipartRequest::FlowMonitor(entries(body, flow_monitor::read_request)?)
            }
            NICIRA_GROUP => MultipartRequest::Group(group_v13::read_filter(body)?),
            NICIRA_GROUP_DESC => MultipartRequest::GroupDescription(group_v13::read_filter(body)?),
            NICIRA_GROUP_FEATURES => MultipartRequest::GroupFeatures,
            _ => return Err(ErrorCode::BadExperimenterType),
        },
        _ => return Err(ErrorCode::BadMultipart),
    };
    body.clone().finish()?;
    Ok(request)
}

/// Reads the subtype of a Nicira statistics message.
fn read_nicira_subtype(body: &mut ByteReader<'_>) -> Result<u32, ErrorCode> {
    let (vendor, subtype) = (body.u32()?, body.u32()?);
    if vendor != NICIRA_EXPERIMENTER {
        return Err(ErrorCode::BadExperimenter);
    }
    body.skip(4)?;
    Ok(subtype)
}

/// Reads the body of `OFPST_FLOW` and `OFPST_AGGREGATE` requests.
fn read_filter(body: &mut ByteReader<'_>) -> Result<RuleFilter, ErrorCode> {
    let matching = ofp_match::read(body)?.matching;
    let table = read_table(body.u8()?)?;
    body.skip(1)?;
    let out_port = port_no::widen(body.u16()?);
    Ok(RuleFilter { table, matching, out_port, ..RuleFilter::all() })
}

/// Reads the body of `NXST_FLOW` and `NXST_AGGREGATE` requests.
fn read_nicira_filter(body: &mut ByteReader<'_>) -> Result<RuleFilter, ErrorCode> {
    let (out_port, match_len) = (port_no::widen(body.u16()?), body.u16()?);
    let table = read_table(body.u8()?)?;
    body.skip(3)?;
    let ReadNxMatch { matching, cookie, cookie_mask } = ofp_match::read_nxm(body, match_len)?;
    Ok(RuleFilter { table, matching, cookie, cookie_mask, out_port, ..RuleFilter::all() })
}

/// Returns the table of a request; 255 selects all tables.
fn read_table(number: u8) -> Result<TableSelector, ErrorCode> {
    table_selector(number).ok_or(ErrorCode::BadTableId)
}

/// Writes a request; its type must exist in OpenFlow 1.0.
pub(super) fn put_request(out: &mut Vec<u8>, request: &MultipartRequest) {
    let Some(kind) = request_kind(request) else { return };
    out.put_u16(kind);
    out.put_u16(0);
    match request {
        MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter) => {
            ofp_match::put(out, &filter.matching);
            out.put_u8(table_number(filter.table));
            out.put_u8(0);
            port::put_port_number(out, filter.out_port);
        }
        MultipartRequest::NiciraFlow(filter) => put_nicira_filter(out, NICIRA_FLOW, filter),
        MultipartRequest::NiciraAggregate(filter) => {
            put_nicira_filter(out, NICIRA_AGGREGATE, filter);
        }
        MultipartRequest::FlowMonitor(monitors) => {
            put_nicira_header(out, NICIRA_FLOW_MONITOR);
            monitors.iter().for_each(|monitor| flow_monitor::put_request(out, monitor));
        }
        MultipartRequest::Group(group) => {
            put_nicira_header(out, NICIRA_GROUP);
            group_v13::put_filter(out, *group);
        }
        MultipartRequest::GroupDescription(group) => {
            put_nicira_header(out, NICIRA_GROUP_DESC);
            group_v13::put_filter(out, *group);
        }
        MultipartRequest::GroupFeatures => put_nicira_header(out, NICIRA_GROUP_FEATURES),
        MultipartRequest::Port(port) => {
            port::put_port_number(out, *port);
            out.put_bytes(0, 6);
        }
        MultipartRequest::Queue(filter) => {
            port::put_queue_port(out, filter.port);
            out.put_u16(0);
            out.put_u32(filter.queue.map_or(QUEUE_ALL, QueueId::number));
        }
        _ => {}
    }
}

/// Writes the body of a Nicira request that selects rules.
fn put_nicira_filter(out: &mut Vec<u8>, subtype: u32, filter: &RuleFilter) {
    put_nicira_header(out, subtype);
    port::put_port_number(out, filter.out_port);
    let length_at = length::reserve(out);
    out.put_u8(table_number(filter.table));
    out.put_bytes(0, 3);
    let (cookie, cookie_mask) = (filter.cookie, filter.cookie_mask);
    let match_len = ofp_match::put_nxm(out, &filter.matching, cookie, cookie_mask);
    length::set(out, length_at, match_len);
}

/// Writes the header of a Nicira statistics message.
fn put_nicira_header(out: &mut Vec<u8>, subtype: u32) {
    out.put_u32(NICIRA_EXPERIMENTER);
    out.put_u32(subtype);
    out.put_u32(0);
}

/// Returns the type of a request; `None` if OpenFlow 1.0 does not have it.
pub(super) const fn request_kind(request: &MultipartRequest) -> Option<u16> {
    Some(match request {
        MultipartRequest::Description => multipart_type::DESC,
        MultipartRequest::Flow(_) => multipart_type::FLOW,
        MultipartRequest::Aggregate(_) => multipart_type::AGGREGATE,
        MultipartRequest::Table => multipart_type::TABLE,
        MultipartRequest::Port(_) => multipart_type::PORT_STATS,
        MultipartRequest::Queue(_) => multipart_type::QUEUE,
        MultipartRequest::PortDescription => multipart_type::PORT_DESC,
        MultipartRequest::NiciraFlow(_)
        | MultipartRequest::NiciraAggregate(_)
        | MultipartRequest::FlowMonitor(_)
        | MultipartRequest::Group(_)
        | MultipartRequest::GroupDescription(_)
        | MultipartRequest::GroupFeatures => VENDOR,
        MultipartRequest::Meter(_)
        | MultipartRequest::MeterConfig(_)
        | MultipartRequest::MeterFeatures
        | MultipartRequest::TableFeatures => return None,
    })
}

/// Returns the type of a reply; `None` if OpenFlow 1.0 does not have it.
pub(super) const fn reply_kind(reply: &MultipartReply) -> Option<u16> {
    Some(match reply {
        MultipartReply::Description(_) => multipart_type::DESC,
        MultipartReply::Flow(_) => multipart_type::FLOW,
        MultipartReply::Aggregate(_) => multipart_type::AGGREGATE,
        MultipartReply::Table(_) => multipart_type::TABLE,
        MultipartReply::Port(_) => multipart_type::PORT_STATS,
        MultipartReply::Queue(_) => multipart_type::QUEUE,
        MultipartReply::PortDescription(_) => multipart_type::PORT_DESC,
        MultipartReply::NiciraFlow(_)
        | MultipartReply::NiciraAggregate(_)
        | MultipartReply::FlowMonitor(_)
        | MultipartReply::Group(_)
        | MultipartReply::GroupDescription(_)
        | MultipartReply::GroupFeatures(_) => VENDOR,
        MultipartReply::Meter(_)
        | MultipartReply::MeterConfig(_)
        | MultipartReply::MeterFeatures(_)
        | MultipartReply::TableFeatures(_) => return None,
    })
}

/// Reads one part of a reply.
pub(super) fn read_reply_message(reader: &mut ByteReader<'_>) -> Result<Message, ErrorCode> {
    let PartHeader { kind, more } = read_part_header(reader)?;
    let reply = match kind {
        multipart_type::DESC => MultipartReply::Description(description::read(reader)?),
        multipart_type::FLOW => MultipartReply::Flow(entries(reader, read_flow)?),
        multipart_type::AGGREGATE => MultipartReply::Aggregate(read_aggregate(reader)?),
        multipart_type::TABLE => MultipartReply::Table(entries(reader, read_table_entry)?),
        multipart_type::PORT_STATS => MultipartReply::Port(entries(reader, read_port_entry)?),
        multipart_type::QUEUE => MultipartReply::Queue(entries(reader, read_queue_entry)?),
        multipart_type::PORT_DESC => {
            MultipartReply::PortDescription(entries(reader, port::read_port)?)
        }
        VENDOR => match read_nicira_subtype(reader)? {
            NICIRA_FLOW => MultipartReply::NiciraFlow(entries(reader, read_nicira_flow)?),
            NICIRA_AGGREGATE => MultipartReply::NiciraAggregate(read_aggregate(reader)?),
            NICIRA_FLOW_MONITOR => {
                MultipartReply::FlowMonitor(entries(reader, flow_monitor::read)?)
            }
            NICIRA_GROUP => MultipartReply::Group(entries(reader, group_v13::read)?),
            NICIRA_GROUP_DESC => {
                MultipartReply::GroupDescription(entries(reader, group::read_description)?)
            }
            NICIRA_GROUP_FEATURES => {
                MultipartReply::GroupFeatures(group_v13::read_features(reader)?)
            }
            _ => return Err(ErrorCode::BadExperimenterType),
        },
        _ => return Err(ErrorCode::BadMultipart),
    };
    Ok(Message::MultipartReply { more, reply })
}

/// Writes one part of a reply; its type must exist in OpenFlow 1.0.
pub(super) fn put_reply(out: &mut Vec<u8>, more: bool, reply: &MultipartReply) {
    put_reply_header(out, more, reply);
    match reply {
        MultipartReply::Description(description) => description::put(out, description),
        MultipartReply::Aggregate(totals) | MultipartReply::NiciraAggregate(totals) => {
            put_aggregate(out, totals);
        }
        MultipartReply::Flow(flows) => flows.iter().for_each(|entry| put_flow(out, entry)),
        MultipartReply::NiciraFlow(flows) => {
            flows.iter().for_each(|entry| put_nicira_flow(out, entry));
        }
        MultipartReply::FlowMonitor(updates) => {
            updates.iter().for_each(|update| flow_monitor::put(out, update));
        }
        MultipartReply::Table(tables) => {
            tables.iter().for_each(|entry| put_table_entry(out, entry));
        }
        MultipartReply::Port(ports) => ports.iter().for_each(|entry| put_port_entry(out, entry)),
        MultipartReply::Queue(queues) => {
            queues.iter().for_each(|entry| put_queue_entry(out, entry));
        }
        MultipartReply::PortDescription(ports) => {
            ports.iter().for_each(|entry| port::put_port(out, entry));
        }
        MultipartReply::Group(groups) => {
            groups.iter().for_each(|entry| group_v13::put(out, entry));
        }
        MultipartReply::GroupDescription(groups) => {
            groups.iter().for_each(|entry| group::put_description(out, entry));
        }
        MultipartReply::GroupFeatures(features) => group_v13::put_features(out, features),
        _ => {}
    }
}

/// Writes the header of a statistics reply.
fn put_reply_header(out: &mut Vec<u8>, more: bool, reply: &MultipartReply) {
    let Some(kind) = reply_kind(reply) else { return };
    out.put_u16(kind);
    out.put_u16(if more { MORE } else { 0 });
    match reply {
        MultipartReply::NiciraFlow(_) => put_nicira_header(out, NICIRA_FLOW),
        MultipartReply::NiciraAggregate(_) => put_nicira_header(out, NICIRA_AGGREGATE),
        MultipartReply::FlowMonitor(_) => put_nicira_header(out, NICIRA_FLOW_MONITOR),
        MultipartReply::Group(_) => put_nicira_header(out, NICIRA_GROUP),
        MultipartReply::GroupDescription(_) => put_nicira_header(out, NICIRA_GROUP_DESC),
        MultipartReply::GroupFeatures(_) => put_nicira_header(out, NICIRA_GROUP_FEATURES),
        _ => {}
    }
}

/// Begins a reply of the type of `reply`, without entries.
pub(crate) fn begin_reply(xid: Xid, reply: &MultipartReply) -> Vec<u8> {
    let mut part = length::begin(VERSION, kind::STATS_REPLY, xid);
    put_reply_header(&mut part, false, reply);
    part
}

/// Writes an entry of a reply; its type must exist in OpenFlow 1.0.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: ReplyEntry<'_>) {
    match entry {
        ReplyEntry::Flow(entry) => put_flow(out, entry),
        ReplyEntry::NiciraFlow(entry) => put_nicira_flow(out, entry),
        ReplyEntry::FlowUpdate(update) => flow_monitor::put(out, update),
        ReplyEntry::Table(entry) => put_table_entry(out, entry),
        ReplyEntry::Port(entry) => put_port_entry(out, entry),
        ReplyEntry::Queue(entry) => put_queue_entry(out, entry),
        ReplyEntry::PortDescription(entry) => port::put_port(out, entry),
        ReplyEntry::Group(entry) => group_v13::put(out, entry),
        ReplyEntry::GroupDescription(entry) => group::put_description(out, entry),
        ReplyEntry::Meter(_) | ReplyEntry::MeterConfig(_) | ReplyEntry::TableFeatures(_) => {}
    }
}

/// Reads an `ofp_flow_stats`.
fn read_flow(reader: &mut ByteReader<'_>) -> Result<FlowStatistics, ErrorCode> {
    let mut entry = read_entry(reader)?;
    let table = TableId::new(entry.u8()?).ok_or(ErrorCode::BadTableId)?;
    entry.skip(1)?;
    let matching = ofp_match::read(&mut entry)?.matching;
    let duration = read_duration(&mut entry)?;
    let priority = Priority::new(entry.u16()?);
    let (idle_timeout, hard_timeout) = (entry.u16()?, entry.u16()?);
    entry.skip(6)?;
    let cookie = Cookie::new(entry.u64()?);
    let (packets, bytes) = (entry.u64()?, entry.u64()?);
    Ok(FlowStatistics {
        table,
        duration,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::from_secs(hard_timeout.into()),
        flags: FlowFlags::default(),
        cookie,
        packets,
        bytes,
        matching,
        instructions: read_instructions(&entry)?,
    })
}

/// Reads an `nx_flow_stats`.
fn read_nicira_flow(reader: &mut ByteReader<'_>) -> Result<FlowStatistics, ErrorCode> {
    let mut entry = read_entry(reader)?;
    let table = TableId::new(entry.u8()?).ok_or(ErrorCode::BadTableId)?;
    entry.skip(1)?;
    let duration = read_duration(&mut entry)?;
    let priority = Priority::new(entry.u16()?);
    let (idle_timeout, hard_timeout) = (entry.u16()?, entry.u16()?);
    let match_len = entry.u16()?;
    // The ages since the last packet and the last change.
    entry.skip(4)?;
    let cookie = Cookie::new(entry.u64()?);
    let (packets, bytes) = (entry.u64()?, entry.u64()?);
    let ReadNxMatch { matching, cookie_mask, .. } = ofp_match::read_nxm(&mut entry, match_len)?;
    if cookie_mask != 0 {
        return Err(ErrorCode::MatchNicira);
    }
    Ok(FlowStatistics {
        table,
        duration,
        priority,
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::from_secs(hard_timeout.into()),
        flags: FlowFlags::default(),
        cookie,
        packets,
        bytes,
        matching,
        instructions: read_instructions(&entry)?,
    })
}

/// Reads the length of an entry, and returns the rest of the entry.
pub(super) fn read_entry<'a>(reader: &mut ByteReader<'a>) -> Result<ByteReader<'a>, ErrorCode> {
    let length = usize::from(reader.u16()?).checked_sub(2).ok_or(MessageLengthError)?;
    Ok(ByteReader::new(reader.bytes(length)?))
}

/// Reads the actions of a rule as its instructions.
fn read_instructions(actions: &ByteReader<'_>) -> Result<Arc<Instructions>, ErrorCode> {
    let (actions, metadata) = read_applied(actions.rest(), ActionFormat::V10)?;
    Ok(Arc::new(Instructions { apply: actions.into(), metadata, ..Instructions::default() }))
}

/// Writes an `ofp_flow_stats`.
fn put_flow(out: &mut Vec<u8>, flow: &FlowStatistics) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u8(flow.table.number());
    out.put_u8(0);
    ofp_match::put(out, &flow.matching);
    put_times(out, flow);
    out.put_bytes(0, 6);
    put_counts(out, flow);
    put_instructions(out, &flow.instructions);
    length::fill(out, length_at, start);
}

/// Writes an `nx_flow_stats`.
fn put_nicira_flow(out: &mut Vec<u8>, flow: &FlowStatistics) {
    let start = out.len();
    let length_at = length::reserve(out);
    out.put_u8(flow.table.number());
    out.put_u8(0);
    put_times(out, flow);
    let match_len_at = length::reserve(out);
    // Zero is an unknown age.
    out.put_u32(0);
    put_counts(out, flow);
    let match_len = ofp_match::put_nxm(out, &flow.matching, Cookie::new(0), 0);
    length::set(out, match_len_at, match_len);
    put_instructions(out, &flow.instructions);
    length::fill(out, length_at, start);
}

/// Writes the duration and the timeouts of a rule.
fn put_times(out: &mut Vec<u8>, flow: &FlowStatistics) {
    put_duration(out, flow.duration);
    out.put_u16(flow.priority.number());
    out.put_u16(seconds(flow.idle_timeout));
    out.put_u16(seconds(flow.hard_timeout));
}

/// Writes the packet and byte counts of a rule.
fn put_counts(out: &mut Vec<u8>, flow: &FlowStatistics) {
    out.put_u64(flow.cookie.number());
    out.put_u64(flow.packets);
    out.put_u64(flow.bytes);
}

/// Reads the statistics of a table.
fn read_table_entry(reader: &mut ByteReader<'_>) -> Result<TableStatistics, ErrorCode> {
    let table = TableId::new(reader.u8()?).ok_or(ErrorCode::BadTableId)?;
    // Padding, name, wildcards and the maximum number of rules.
    reader.skip(3 + TABLE_NAME_LEN + 4 + 4)?;
    let (active, lookups, matches) = (reader.u32()?, reader.u64()?, reader.u64()?);
    Ok(TableStatistics { table, active, lookups, matches })
}

/// Writes the statistics of a table.
fn put_table_entry(out: &mut Vec<u8>, table: &TableStatistics) {
    out.put_u8(table.table.number());
    out.put_bytes(0, 3);
    // As in Open vSwitch, a table has no name here.
    out.put_bytes(0, TABLE_NAME_LEN);
    out.put_u32(ofp_match::WILDCARDS_ALL);
    out.put_u32(TABLE_ENTRIES_MAX);
    out.put_u32(table.active);
    out.put_u64(table.lookups);
    out.put_u64(table.matches);
}

/// Reads the statistics of a port.
fn read_port_entry(reader: &mut ByteReader<'_>) -> Result<PortStatistics, ErrorCode> {
    let port = port_no::widen(reader.u16()?);
    reader.skip(6)?;
    Ok(PortStatistics { port, counters: read_counters(reader)?, duration: Duration::ZERO })
}

/// Writes an `ofp_port_stats`, which has no duration.
fn put_port_entry(out: &mut Vec<u8>, port: &PortStatistics) {
    port::put_port_number(out, port.port);
    out.put_bytes(0, 6);
    put_counters(out, &port.counters);
}

/// Reads the statistics of a queue.
fn read_queue_entry(reader: &mut ByteReader<'_>) -> Result<QueueStatistics, ErrorCode> {
    let port = port_no::widen(reader.u16()?);
    reader.skip(2)?;
    Ok(QueueStatistics {
        port,
        queue: QueueId::new(reader.u32()?),
        tx_bytes: reader.u64()?,
        tx_packets: reader.u64()?,
        tx_errors: reader.u64()?,
        duration: Duration::ZERO,
    })
}

/// Writes an `ofp_queue_stats`, which has no duration.
fn put_queue_entry(out: &mut Vec<u8>, queue: &QueueStatistics) {
    port::put_port_number(out, queue.port);
    out.put_u16(0);
    out.put_u32(queue.queue.number());
    out.put_u64(queue.tx_bytes);
    out.put_u64(queue.tx_packets);
    out.put_u64(queue.tx_errors);
}
