//! Encoding and decoding of a message by its type.

use super::{
    VERSION,
    body::{
        experimenter, flow_mod, flow_removed, group, meter, packet, port, queue, role, session,
    },
    kind, length, multipart,
};
use crate::{
    error::{EncodeError, ErrorCode},
    message::{Message, Xid},
    wire::{ByteReader, header::Header},
};

/// Decodes one complete message.
///
/// A hello may have any version; all other messages must have version 1.3.
///
/// # Errors
///
/// The error to send to the peer.
pub fn decode(frame: &[u8]) -> Result<(Xid, Message), ErrorCode> {
    let header = Header::parse(frame).ok_or(ErrorCode::BadLength)?;
    if frame.len() != usize::from(header.length) {
        return Err(ErrorCode::BadLength);
    }
    if header.version != VERSION && header.kind != kind::HELLO {
        return Err(ErrorCode::BadVersion);
    }
    let mut body = ByteReader::new(frame.get(Header::LEN..).unwrap_or_default());
    let message = read_body(&header, &mut body)?;
    body.finish()?;
    Ok((header.xid, message))
}

/// Reads the body of a message.
fn read_body(header: &Header, body: &mut ByteReader<'_>) -> Result<Message, ErrorCode> {
    let mut take_all = || {
        let bytes = body.rest().to_vec();
        *body = ByteReader::new(&[]);
        bytes
    };
    Ok(match header.kind {
        kind::HELLO => Message::Hello(session::read_hello(header.version, body)),
        kind::ERROR => Message::Error(session::read_error(body)?),
        kind::ECHO_REQUEST => Message::EchoRequest(take_all()),
        kind::ECHO_REPLY => Message::EchoReply(take_all()),
        kind::EXPERIMENTER => experimenter::read(header.xid, body)?,
        kind::FEATURES_REQUEST => Message::FeaturesRequest,
        kind::FEATURES_REPLY => {
            let features = session::read_features(body)?;
            Message::FeaturesReply { features, ports: Vec::new() }
        }
        kind::GET_CONFIG_REQUEST => Message::GetConfigRequest,
        kind::GET_CONFIG_REPLY => Message::GetConfigReply(session::read_config(body)?),
        kind::SET_CONFIG => Message::SetConfig(session::read_config(body)?),
        kind::PACKET_IN => Message::PacketIn(packet::read_in(body)?),
        kind::FLOW_REMOVED => Message::FlowRemoved(flow_removed::read(body)?),
        kind::PORT_STATUS => Message::PortStatus(port::read_status(body)?),
        kind::PACKET_OUT => Message::PacketOut(packet::read_out(body)?),
        kind::FLOW_MOD => Message::FlowMod(flow_mod::read(body)?),
        kind::GROUP_MOD => Message::GroupMod(group::read(body)?),
        kind::PORT_MOD => Message::PortMod(port::read_mod(body)?),
        kind::TABLE_MOD => Message::TableMod(session::read_table_mod(body)?),
        kind::MULTIPART_REQUEST => multipart::read_request_message(body)?,
        kind::MULTIPART_REPLY => multipart::read_reply_message(body)?,
        kind::BARRIER_REQUEST => Message::BarrierRequest,
        kind::BARRIER_REPLY => Message::BarrierReply,
        kind::QUEUE_GET_CONFIG_REQUEST => Message::QueueConfigRequest(queue::read_request(body)?),
        kind::QUEUE_GET_CONFIG_REPLY => Message::QueueConfigReply(queue::read_config(body)?),
        kind::ROLE_REQUEST => Message::RoleRequest(role::read(body)?),
        kind::ROLE_REPLY => Message::RoleReply(role::read(body)?),
        kind::GET_ASYNC_REQUEST => Message::GetAsyncRequest,
        kind::GET_ASYNC_REPLY => Message::GetAsyncReply(role::read_async(body)?),
        kind::SET_ASYNC => Message::SetAsync(role::read_async(body)?),
        kind::METER_MOD => Message::MeterMod(meter::read(body)?),
        _ => return Err(ErrorCode::BadType),
    })
}

/// Encodes one message.
///
/// # Errors
///
/// The message does not exist in OpenFlow 1.3, or does not fit into its 16-bit length. Packets and
/// quoted messages are truncated instead.
pub fn encode(xid: Xid, message: &Message) -> Result<Vec<u8>, EncodeError> {
    let kind = message_kind(message).ok_or(EncodeError::Absent { version: VERSION })?;
    let mut out = length::begin(VERSION, kind, xid);
    if let Message::Hello(hello) = message
        && let Some(version) = out.first_mut()
    {
        *version = hello.version;
    }
    put_body(&mut out, message);
    Ok(length::finish(out)?)
}

/// Returns the type of a message; `None` if only OpenFlow 1.0 has it.
const fn message_kind(message: &Message) -> Option<u8> {
    Some(match message {
        Message::Hello(_) => kind::HELLO,
        Message::Error(_) => kind::ERROR,
        Message::EchoRequest(_) => kind::ECHO_REQUEST,
        Message::EchoReply(_) => kind::ECHO_REPLY,
        Message::FeaturesRequest => kind::FEATURES_REQUEST,
        Message::FeaturesReply { .. } => kind::FEATURES_REPLY,
        Message::GetConfigRequest => kind::GET_CONFIG_REQUEST,
        Message::GetConfigReply(_) => kind::GET_CONFIG_REPLY,
        Message::SetConfig(_) => kind::SET_CONFIG,
        Message::PacketIn(_) => kind::PACKET_IN,
        Message::FlowRemoved(_) => kind::FLOW_REMOVED,
        Message::PortStatus(_) => kind::PORT_STATUS,
        Message::PacketOut(_) => kind::PACKET_OUT,
        Message::FlowMod(_) => kind::FLOW_MOD,
        Message::GroupMod(group_mod) if group::command_number(group_mod.command).is_some() => {
            kind::GROUP_MOD
        }
        Message::PortMod(_) => kind::PORT_MOD,
        Message::TableMod(_) => kind::TABLE_MOD,
        Message::MultipartRequest(request) if multipart::request_kind(request).is_some() => {
            kind::MULTIPART_REQUEST
        }
        Message::MultipartReply { reply, .. } if multipart::reply_kind(reply).is_some() => {
            kind::MULTIPART_REPLY
        }
        Message::BarrierRequest => kind::BARRIER_REQUEST,
        Message::BarrierReply => kind::BARRIER_REPLY,
        Message::QueueConfigRequest(_) => kind::QUEUE_GET_CONFIG_REQUEST,
        Message::QueueConfigReply(_) => kind::QUEUE_GET_CONFIG_REPLY,
        Message::RoleRequest(_) => kind::ROLE_REQUEST,
        Message::RoleReply(_) => kind::ROLE_REPLY,
        Message::GetAsyncRequest => kind::GET_ASYNC_REQUEST,
        Message::GetAsyncReply(_) => kind::GET_ASYNC_REPLY,
        Message::SetAsync(_) => kind::SET_ASYNC,
        Message::MeterMod(_) => kind::METER_MOD,
        Message::NiciraPacketIn(_)
        | Message::PacketIn2(_)
        | Message::Resume(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_)
        | Message::FlowMonitorCancel(_)
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed
        | Message::SetPacketInFormat(_)
        | Message::SetControllerId(_) => kind::EXPERIMENTER,
        Message::MultipartRequest(_)
        | Message::MultipartReply { .. }
        | Message::GroupMod(_)
        | Message::SetFlowFormat(_)
        | Message::FlowModTableId(_) => return None,
    })
}

/// Writes the body of a message.
fn put_body(out: &mut Vec<u8>, message: &Message) {
    match message {
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest
        | Message::SetFlowFormat(_)
        | Message::FlowModTableId(_) => {}
        Message::Hello(hello) => session::put_hello(out, *hello),
        Message::Error(error) => session::put_error(out, error),
        Message::EchoRequest(payload) | Message::EchoReply(payload) => {
            out.extend_from_slice(payload);
        }
        Message::FeaturesReply { features, ports: _ } => session::put_features(out, features),
        Message::GetConfigReply(config) | Message::SetConfig(config) => {
            session::put_config(out, *config);
        }
        Message::PacketIn(packet) => packet::put_in(out, packet),
        Message::FlowRemoved(removed) => flow_removed::put(out, removed),
        Message::PortStatus(status) => port::put_status(out, status),
        Message::PacketOut(packet) => packet::put_out(out, packet),
        Message::FlowMod(flow_mod) => flow_mod::put(out, flow_mod),
        Message::GroupMod(group_mod) => group::put(out, group_mod),
        Message::PortMod(port_mod) => port::put_mod(out, port_mod),
        Message::TableMod(table_mod) => session::put_table_mod(out, *table_mod),
        Message::MultipartRequest(request) => multipart::put_request(out, request),
        Message::MultipartReply { more, reply } => multipart::put_reply(out, *more, reply),
        Message::QueueConfigRequest(port) => queue::put_request(out, *port),
        Message::QueueConfigReply(config) => queue::put_config(out, config),
        Message::RoleRequest(role) | Message::RoleReply(role) => role::put(out, *role),
        Message::GetAsyncReply(config) | Message::SetAsync(config) => role::put_async(out, config),
        Message::MeterMod(meter_mod) => meter::put(out, meter_mod),
        Message::NiciraPacketIn(_)
        | Message::PacketIn2(_)
        | Message::Resume(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_)
        | Message::FlowMonitorCancel(_)
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed
        | Message::SetPacketInFormat(_)
        | Message::SetControllerId(_) => experimenter::put(out, message),
    }
}
