//! Encoding and decoding of multipart requests and of parts of replies, by type.

use bytes::BufMut;
use shunt_flow::PortNo;

use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    message::{Message, MultipartReply, MultipartRequest},
    wire::{ByteReader, part_writer::PartHeader, v13},
};

use super::{description, flow, flow_monitor, group, meter, port, queue, table};

/// `OFPMPF_REQ_MORE` and `OFPMPF_REPLY_MORE`.
pub(crate) const MORE: u16 = 1;

/// `ofp_multipart_type`.
pub(crate) mod multipart_type {
    pub(crate) const DESC: u16 = 0;
    pub(crate) const FLOW: u16 = 1;
    pub(crate) const AGGREGATE: u16 = 2;
    pub(crate) const TABLE: u16 = 3;
    pub(crate) const PORT_STATS: u16 = 4;
    pub(crate) const QUEUE: u16 = 5;
    pub(crate) const GROUP: u16 = 6;
    pub(crate) const GROUP_DESC: u16 = 7;
    pub(crate) const GROUP_FEATURES: u16 = 8;
    pub(crate) const METER: u16 = 9;
    pub(crate) const METER_CONFIG: u16 = 10;
    pub(crate) const METER_FEATURES: u16 = 11;
    pub(crate) const TABLE_FEATURES: u16 = 12;
    pub(crate) const PORT_DESC: u16 = 13;
    pub(crate) const EXPERIMENTER: u16 = 0xffff;
}

/// Reads the header of one part of a multipart message.
pub(crate) fn read_part_header(reader: &mut ByteReader<'_>) -> Result<PartHeader, ErrorCode> {
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    Ok(PartHeader { kind, more: flags & MORE != 0 })
}

/// Writes the header of one part of a multipart message.
pub(super) fn put_part_header(out: &mut Vec<u8>, header: PartHeader) {
    out.put_u16(header.kind);
    out.put_u16(if header.more { MORE } else { 0 });
    out.put_u32(0);
}

/// Reads a request that fits into one message.
pub(in crate::wire) fn read_request_message(
    reader: &mut ByteReader<'_>,
) -> Result<Message, ErrorCode> {
    let header = read_part_header(reader)?;
    if header.more {
        return Err(ErrorCode::MultipartOverflow);
    }
    read_request(header.kind, reader).map(Message::MultipartRequest)
}

/// Reads the body of a request, joined from all parts.
pub(crate) fn read_request(
    kind: u16,
    body: &mut ByteReader<'_>,
) -> Result<MultipartRequest, ErrorCode> {
    let request = match kind {
        multipart_type::DESC => MultipartRequest::Description,
        multipart_type::FLOW => MultipartRequest::Flow(flow::read_filter(body)?),
        multipart_type::AGGREGATE => MultipartRequest::Aggregate(flow::read_filter(body)?),
        multipart_type::TABLE => MultipartRequest::Table,
        multipart_type::PORT_STATS => {
            let port = PortNo::new(body.u32()?);
            body.skip(4)?;
            MultipartRequest::Port(port)
        }
        multipart_type::QUEUE => MultipartRequest::Queue(queue::read_filter(body)?),
        multipart_type::GROUP => MultipartRequest::Group(group::read_filter(body)?),
        multipart_type::GROUP_DESC => MultipartRequest::GroupDescription(None),
        multipart_type::GROUP_FEATURES => MultipartRequest::GroupFeatures,
        multipart_type::METER => MultipartRequest::Meter(meter::read_filter(body)?),
        multipart_type::METER_CONFIG => MultipartRequest::MeterConfig(meter::read_filter(body)?),
        multipart_type::METER_FEATURES => MultipartRequest::MeterFeatures,
        multipart_type::TABLE_FEATURES => {
            table::check_request(body)?;
            MultipartRequest::TableFeatures
        }
        multipart_type::PORT_DESC => MultipartRequest::PortDescription,
        multipart_type::EXPERIMENTER => {
            expect_flow_monitor(body)?;
            MultipartRequest::FlowMonitor(entries(body, flow_monitor::read_request)?)
        }
        _ => return Err(ErrorCode::BadMultipart),
    };
    body.clone().finish()?;
    Ok(request)
}

/// Writes a request.
pub(in crate::wire) fn put_request(out: &mut Vec<u8>, request: &MultipartRequest) {
    let Some(kind) = request_kind(request) else { return };
    put_part_header(out, PartHeader { kind, more: false });
    match request {
        MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter) => {
            flow::put_filter(out, filter);
        }
        MultipartRequest::Port(port) => {
            out.put_u32(port.number());
            out.put_u32(0);
        }
        MultipartRequest::Queue(filter) => queue::put_filter(out, *filter),
        MultipartRequest::Group(group) => group::put_filter(out, *group),
        MultipartRequest::Meter(meter) | MultipartRequest::MeterConfig(meter) => {
            meter::put_filter(out, *meter);
        }
        MultipartRequest::FlowMonitor(monitors) => {
            flow_monitor::put_header(out);
            monitors.iter().for_each(|monitor| flow_monitor::put_request(out, monitor));
        }
        MultipartRequest::Description
        | MultipartRequest::Table
        | MultipartRequest::GroupDescription(_)
        | MultipartRequest::GroupFeatures
        | MultipartRequest::MeterFeatures
        | MultipartRequest::TableFeatures
        | MultipartRequest::PortDescription
        | MultipartRequest::NiciraFlow(_)
        | MultipartRequest::NiciraAggregate(_) => {}
    }
}

/// Returns the type of a request; `None` if only OpenFlow 1.0 has it.
pub(in crate::wire) const fn request_kind(request: &MultipartRequest) -> Option<u16> {
    Some(match request {
        MultipartRequest::Description => multipart_type::DESC,
        MultipartRequest::Flow(_) => multipart_type::FLOW,
        MultipartRequest::Aggregate(_) => multipart_type::AGGREGATE,
        MultipartRequest::Table => multipart_type::TABLE,
        MultipartRequest::Port(_) => multipart_type::PORT_STATS,
        MultipartRequest::Queue(_) => multipart_type::QUEUE,
        MultipartRequest::Group(_) => multipart_type::GROUP,
        MultipartRequest::GroupDescription(_) => multipart_type::GROUP_DESC,
        MultipartRequest::GroupFeatures => multipart_type::GROUP_FEATURES,
        MultipartRequest::Meter(_) => multipart_type::METER,
        MultipartRequest::MeterConfig(_) => multipart_type::METER_CONFIG,
        MultipartRequest::MeterFeatures => multipart_type::METER_FEATURES,
        MultipartRequest::TableFeatures => multipart_type::TABLE_FEATURES,
        MultipartRequest::PortDescription => multipart_type::PORT_DESC,
        MultipartRequest::FlowMonitor(_) => multipart_type::EXPERIMENTER,
        MultipartRequest::NiciraFlow(_) | MultipartRequest::NiciraAggregate(_) => return None,
    })
}

/// Reads one part of a reply.
pub(in crate::wire) fn read_reply_message(
    reader: &mut ByteReader<'_>,
) -> Result<Message, ErrorCode> {
    let PartHeader { kind, more } = read_part_header(reader)?;
    let reply = match kind {
        multipart_type::DESC => MultipartReply::Description(description::read(reader)?),
        multipart_type::FLOW => MultipartReply::Flow(entries(reader, flow::read)?),
        multipart_type::AGGREGATE => MultipartReply::Aggregate(flow::read_aggregate(reader)?),
        multipart_type::TABLE => MultipartReply::Table(entries(reader, table::read_statistics)?),
        multipart_type::PORT_STATS => MultipartReply::Port(entries(reader, port::read)?),
        multipart_type::QUEUE => MultipartReply::Queue(entries(reader, queue::read)?),
        multipart_type::GROUP => MultipartReply::Group(entries(reader, group::read)?),
        multipart_type::GROUP_DESC => {
            MultipartReply::GroupDescription(entries(reader, group::read_description)?)
        }
        multipart_type::GROUP_FEATURES => {
            MultipartReply::GroupFeatures(group::read_features(reader)?)
        }
        multipart_type::METER => MultipartReply::Meter(entries(reader, meter::read)?),
        multipart_type::METER_CONFIG => {
            MultipartReply::MeterConfig(entries(reader, meter::read_description)?)
        }
        multipart_type::METER_FEATURES => {
            MultipartReply::MeterFeatures(meter::read_features(reader)?)
        }
        multipart_type::TABLE_FEATURES => {
            MultipartReply::TableFeatures(entries(reader, table::read_features)?)
        }
        multipart_type::PORT_DESC => {
            MultipartReply::PortDescription(entries(reader, v13::body::port::read_port)?)
        }
        multipart_type::EXPERIMENTER => {
            expect_flow_monitor(reader)?;
            MultipartReply::FlowMonitor(entries(reader, flow_monitor::read)?)
        }
        _ => return Err(ErrorCode::BadMultipart),
    };
    Ok(Message::MultipartReply { more, reply })
}

/// Reads the entries of a reply to the end of the message.
pub(in crate::wire) fn entries<T>(
    reader: &mut ByteReader<'_>,
    read: impl Fn(&mut ByteReader<'_>) -> Result<T, ErrorCode>,
) -> Result<Vec<T>, ErrorCode> {
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push(read(reader)?);
    }
    Ok(entries)
}

/// Writes one part of a reply.
pub(in crate::wire) fn put_reply(out: &mut Vec<u8>, more: bool, reply: &MultipartReply) {
    let Some(kind) = reply_kind(reply) else { return };
    put_part_header(out, PartHeader { kind, more });
    match reply {
        MultipartReply::Description(description) => description::put(out, description),
        MultipartReply::Flow(flows) => flows.iter().for_each(|entry| flow::put(out, entry)),
        MultipartReply::Aggregate(totals) => flow::put_aggregate(out, totals),
        MultipartReply::Table(tables) => {
            tables.iter().for_each(|entry| table::put_statistics(out, entry));
        }
        MultipartReply::Port(ports) => ports.iter().for_each(|entry| port::put(out, entry)),
        MultipartReply::Queue(queues) => queues.iter().for_each(|entry| queue::put(out, entry)),
        MultipartReply::Group(groups) => groups.iter().for_each(|entry| group::put(out, entry)),
        MultipartReply::GroupDescription(groups) => {
            groups.iter().for_each(|entry| group::put_description(out, entry));
        }
        MultipartReply::GroupFeatures(features) => group::put_features(out, features),
        MultipartReply::Meter(meters) => meters.iter().for_each(|entry| meter::put(out, entry)),
        MultipartReply::MeterConfig(meters) => {
            meters.iter().for_each(|entry| meter::put_description(out, entry));
        }
        MultipartReply::MeterFeatures(features) => meter::put_features(out, features),
        MultipartReply::TableFeatures(tables) => {
            tables.iter().for_each(|entry| table::put_features(out, entry));
        }
        MultipartReply::PortDescription(ports) => {
            ports.iter().for_each(|port| v13::body::port::put_port(out, port));
        }
        MultipartReply::FlowMonitor(updates) => {
            flow_monitor::put_header(out);
            updates.iter().for_each(|update| flow_monitor::put(out, update));
        }
        MultipartReply::NiciraFlow(_) | MultipartReply::NiciraAggregate(_) => {}
    }
}

/// Returns the type of a reply; `None` if only OpenFlow 1.0 has it.
pub(in crate::wire) const fn reply_kind(reply: &MultipartReply) -> Option<u16> {
    Some(match reply {
        MultipartReply::Description(_) => multipart_type::DESC,
        MultipartReply::Flow(_) => multipart_type::FLOW,
        MultipartReply::Aggregate(_) => multipart_type::AGGREGATE,
        MultipartReply::Table(_) => multipart_type::TABLE,
        MultipartReply::Port(_) => multipart_type::PORT_STATS,
        MultipartReply::Queue(_) => multipart_type::QUEUE,
        MultipartReply::Group(_) => multipart_type::GROUP,
        MultipartReply::GroupDescription(_) => multipart_type::GROUP_DESC,
        MultipartReply::GroupFeatures(_) => multipart_type::GROUP_FEATURES,
        MultipartReply::Meter(_) => multipart_type::METER,
        MultipartReply::MeterConfig(_) => multipart_type::METER_CONFIG,
        MultipartReply::MeterFeatures(_) => multipart_type::METER_FEATURES,
        MultipartReply::TableFeatures(_) => multipart_type::TABLE_FEATURES,
        MultipartReply::PortDescription(_) => multipart_type::PORT_DESC,
        MultipartReply::FlowMonitor(_) => multipart_type::EXPERIMENTER,
        MultipartReply::NiciraFlow(_) | MultipartReply::NiciraAggregate(_) => return None,
    })
}

/// Reads the header of an experimenter's multipart, which must be a flow monitor.
fn expect_flow_monitor(body: &mut ByteReader<'_>) -> Result<(), ErrorCode> {
    let (experimenter, kind) = (body.u32()?, body.u32()?);
    match experimenter {
        ONF_EXPERIMENTER if kind == flow_monitor::FLOW_MONITOR => Ok(()),
        ONF_EXPERIMENTER | NICIRA_EXPERIMENTER => Err(ErrorCode::BadExperimenterType),
        _ => Err(ErrorCode::BadExperimenter),
    }
}
