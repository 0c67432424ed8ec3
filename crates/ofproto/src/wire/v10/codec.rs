//! Encoding and decoding of a message by its type.

use super::{
    VERSION, flow_mod, flow_removed, kind, packet, port, session,
    settings::{FlowFormat, V10Settings},
    statistics, vendor,
};
use crate::{
    error::{EncodeError, ErrorCode},
    message::{Message, Xid},
    wire::{
        ByteReader,
        header::Header,
        v13::{body::session as common, length},
    },
};

/// Decodes one complete message.
///
/// # Errors
///
/// The error to send to the peer.
pub fn decode(frame: &[u8], settings: V10Settings) -> Result<(Xid, Message), ErrorCode> {
    let header = Header::parse(frame).ok_or(ErrorCode::BadLength)?;
    if frame.len() != usize::from(header.length) {
        return Err(ErrorCode::BadLength);
    }
    if header.version != VERSION && header.kind != kind::HELLO {
        return Err(ErrorCode::BadVersion);
    }
    let mut body = ByteReader::new(frame.get(Header::LEN..).unwrap_or_default());
    let message = read_body(&header, &mut body, settings)?;
    body.finish()?;
    Ok((header.xid, message))
}

/// Reads the body of a message.
fn read_body(
    header: &Header,
    body: &mut ByteReader<'_>,
    settings: V10Settings,
) -> Result<Message, ErrorCode> {
    let mut take_all = || {
        let bytes = body.rest().to_vec();
        *body = ByteReader::new(&[]);
        bytes
    };
    Ok(match header.kind {
        kind::HELLO => Message::Hello(common::read_hello(header.version, body)),
        kind::ERROR => Message::Error(session::read_error(body)?),
        kind::ECHO_REQUEST => Message::EchoRequest(take_all()),
        kind::ECHO_REPLY => Message::EchoReply(take_all()),
        kind::VENDOR => vendor::read(header.xid, body, settings)?,
        kind::FEATURES_REQUEST => Message::FeaturesRequest,
        kind::FEATURES_REPLY => {
            let (features, ports) = session::read_features(body)?;
            Message::FeaturesReply { features, ports }
        }
        kind::GET_CONFIG_REQUEST => Message::GetConfigRequest,
        kind::GET_CONFIG_REPLY => Message::GetConfigReply(common::read_config(body)?),
        kind::SET_CONFIG => Message::SetConfig(common::read_config(body)?),
        kind::PACKET_IN => Message::PacketIn(packet::read_in(body)?),
        kind::FLOW_REMOVED => Message::FlowRemoved(flow_removed::read(body)?),
        kind::PORT_STATUS => Message::PortStatus(port::read_status(body)?),
        kind::PACKET_OUT => Message::PacketOut(packet::read_out(body)?),
        kind::FLOW_MOD => Message::FlowMod(flow_mod::read(body, settings)?),
        kind::PORT_MOD => Message::PortMod(port::read_mod(body)?),
        kind::STATS_REQUEST => statistics::read_request_message(body)?,
        kind::STATS_REPLY => statistics::read_reply_message(body)?,
        kind::BARRIER_REQUEST => Message::BarrierRequest,
        kind::BARRIER_REPLY => Message::BarrierReply,
        kind::QUEUE_GET_CONFIG_REQUEST => {
            Message::QueueConfigRequest(port::read_queues_request(body)?)
        }
        kind::QUEUE_GET_CONFIG_REPLY => Message::QueueConfigReply(port::read_queues(body)?),
        _ => return Err(ErrorCode::BadType),
    })
}

/// Encodes one message.
///
/// # Errors
///
/// The message does not exist in OpenFlow 1.0, or does not fit into its 16-bit length.
pub fn encode(xid: Xid, message: &Message, settings: V10Settings) -> Result<Vec<u8>, EncodeError> {
    let kind = message_kind(message, settings);
    let kind = kind.ok_or(EncodeError::Absent { version: VERSION })?;
    let mut out = length::begin(VERSION, kind, xid);
    if let Message::Hello(hello) = message
        && let Some(version) = out.first_mut()
    {
        *version = hello.version;
    }
    put_body(&mut out, message, settings);
    Ok(length::finish(out)?)
}

/// Returns the type of a message; `None` if OpenFlow 1.0 does not have it.
const fn message_kind(message: &Message, settings: V10Settings) -> Option<u8> {
    let is_nxm = matches!(settings.flow_format, FlowFormat::Nxm);
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
        Message::FlowRemoved(_) if !is_nxm => kind::FLOW_REMOVED,
        Message::PortStatus(_) => kind::PORT_STATUS,
        Message::PacketOut(_) => kind::PACKET_OUT,
        Message::FlowMod(_) if !is_nxm => kind::FLOW_MOD,
        Message::PortMod(_) => kind::PORT_MOD,
        Message::MultipartRequest(request) if statistics::request_kind(request).is_some() => {
            kind::STATS_REQUEST
        }
        Message::MultipartReply { reply, .. } if statistics::reply_kind(reply).is_some() => {
            kind::STATS_REPLY
        }
        Message::BarrierRequest => kind::BARRIER_REQUEST,
        Message::BarrierReply => kind::BARRIER_REPLY,
        Message::QueueConfigRequest(_) => kind::QUEUE_GET_CONFIG_REQUEST,
        Message::QueueConfigReply(_) => kind::QUEUE_GET_CONFIG_REPLY,
        Message::FlowMod(_)
        | Message::FlowRemoved(_)
        | Message::RoleRequest(_)
        | Message::RoleReply(_)
        | Message::SetAsync(_)
        | Message::NiciraPacketIn(_)
        | Message::PacketIn2(_)
        | Message::Resume(_)
        | Message::SetPacketInFormat(_)
        | Message::SetControllerId(_)
        | Message::SetFlowFormat(_)
        | Message::FlowModTableId(_)
        | Message::GroupMod(_)
        | Message::FlowMonitorCancel(_)
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed => kind::VENDOR,
        Message::MultipartRequest(_)
        | Message::MultipartReply { .. }
        | Message::MeterMod(_)
        | Message::TableMod(_)
        | Message::GetAsyncRequest
        | Message::GetAsyncReply(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_) => return None,
    })
}

/// Writes the body of a message.
fn put_body(out: &mut Vec<u8>, message: &Message, settings: V10Settings) {
    let is_nxm = settings.flow_format == FlowFormat::Nxm;
    match message {
        Message::Hello(hello) => common::put_hello(out, *hello),
        Message::Error(error) => session::put_error(out, error),
        Message::EchoRequest(payload) | Message::EchoReply(payload) => {
            out.extend_from_slice(payload);
        }
        Message::FeaturesReply { features, ports } => session::put_features(out, features, ports),
        Message::GetConfigReply(config) | Message::SetConfig(config) => {
            common::put_config(out, *config);
        }
        Message::PacketIn(packet) => packet::put_in(out, packet),
        Message::FlowRemoved(removed) if !is_nxm => {
            flow_removed::put(out, removed, settings.flow_format);
        }
        Message::PortStatus(status) => port::put_status(out, status),
        Message::PacketOut(packet) => packet::put_out(out, packet),
        Message::FlowMod(flow_mod) if !is_nxm => flow_mod::put(out, flow_mod, settings),
        Message::PortMod(port_mod) => port::put_mod(out, port_mod),
        Message::MultipartRequest(request) => statistics::put_request(out, request),
        Message::MultipartReply { more, reply } => statistics::put_reply(out, *more, reply),
        Message::QueueConfigRequest(port) => port::put_queues_request(out, *port),
        Message::QueueConfigReply(config) => port::put_queues(out, config),
        // Messages without a body, and vendor messages.
        _ => vendor::put(out, message, settings),
    }
}
