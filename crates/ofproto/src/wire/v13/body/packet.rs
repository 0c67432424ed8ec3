//! `OFPT_PACKET_IN`, `NXT_PACKET_IN2`, `NXT_RESUME`, `OFPT_PACKET_OUT` (OpenFlow 1.3.5, 7.4.1,
//! 7.3.7).
//!
//! Packets are never buffered. A packet-in carries the whole packet, regardless of the `max_len` of
//! its action. A packet is truncated only if it does not fit into a message. A packet-out with a
//! buffer id is refused.

use bytes::BufMut;
use shunt_flow::{Match, PortNo};
use shunt_pipeline::{Cookie, PacketInReason, TableId};

use crate::{
    error::ErrorCode,
    message::{PacketIn, PacketOut},
    wire::{
        ByteReader,
        v13::{
            NO_BUFFER,
            action::{ActionFormat, put_actions, read_actions},
            length,
            oxm::{put_match, read_match},
            property, reason,
        },
    },
};

/// The cookie of packet-ins that no rule sent.
pub(in crate::wire) const NO_COOKIE: Cookie = Cookie::new(u64::MAX);

/// `nx_packet_in2_prop_type`.
mod property_type {
    pub(super) const PACKET: u16 = 0;
    pub(super) const FULL_LEN: u16 = 1;
    pub(super) const TABLE_ID: u16 = 3;
    pub(super) const COOKIE: u16 = 4;
    pub(super) const REASON: u16 = 5;
    pub(super) const METADATA: u16 = 6;
    pub(super) const USERDATA: u16 = 7;
    pub(super) const CONTINUATION: u16 = 8;
}

/// Reads the body of a packet-in.
pub(in crate::wire) fn read_in(reader: &mut ByteReader<'_>) -> Result<PacketIn, ErrorCode> {
    reader.skip(4)?;
    let (length, reason, table) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let cookie = Cookie::new(reader.u64()?);
    let metadata = read_match(reader)?;
    reader.skip(2)?;
    Ok(PacketIn {
        reason: reason::from_packet_in(reason)?,
        table: TableId::new(table).ok_or(ErrorCode::BadTableId)?,
        cookie,
        metadata,
        userdata: Vec::new(),
        continuation: Vec::new(),
        length: length.into(),
        data: take_rest(reader),
    })
}

/// Writes the body of a packet-in; truncates a packet that does not fit.
pub(in crate::wire) fn put_in(out: &mut Vec<u8>, packet: &PacketIn) {
    out.put_u32(NO_BUFFER);
    // The field has 16 bits; a longer packet is truncated anyway.
    out.put_u16(u16::try_from(packet.length).unwrap_or(u16::MAX));
    out.put_u8(reason::of_packet_in(packet.reason));
    out.put_u8(packet.table.number());
    out.put_u64(packet.cookie.number());
    put_match(out, &packet.metadata);
    out.put_u16(0);
    let room = usize::from(u16::MAX).saturating_sub(out.len());
    out.extend_from_slice(packet.data.get(..room).unwrap_or(&packet.data));
}

/// Reads the properties of a `NXT_PACKET_IN2` or `NXT_RESUME`.
pub(in crate::wire) fn read_in2(reader: &mut ByteReader<'_>) -> Result<PacketIn, ErrorCode> {
    let mut packet = PacketIn {
        reason: PacketInReason::Action,
        table: TableId::FIRST,
        cookie: NO_COOKIE,
        metadata: Match::any(),
        userdata: Vec::new(),
        continuation: Vec::new(),
        length: 0,
        data: Vec::new(),
    };
    let mut length = None;
    while !reader.is_empty() {
        let (kind, mut value) = property::read(reader)?;
        match kind {
            property_type::PACKET => packet.data = value.rest().to_vec(),
            property_type::FULL_LEN => length = Some(property::u32(&mut value)?),
            property_type::TABLE_ID => {
                let table = property::u8(&mut value)?;
                packet.table = TableId::new(table).ok_or(ErrorCode::BadTableId)?;
            }
            property_type::COOKIE => {
                value.skip(4)?;
                packet.cookie = Cookie::new(property::u64(&mut value)?);
            }
            property_type::REASON => {
                packet.reason = reason::from_packet_in(property::u8(&mut value)?)?;
            }
            property_type::METADATA => {
                let decoded = shunt_flow::oxm::decode_match(value.rest());
                packet.metadata = decoded.map_err(|_| ErrorCode::MatchField)?;
            }
            property_type::USERDATA => packet.userdata = value.rest().to_vec(),
            property_type::CONTINUATION => {
                value.skip(4).map_err(|_| ErrorCode::PropertyLength)?;
                packet.continuation = value.rest().to_vec();
            }
            _ => return Err(ErrorCode::PropertyType),
        }
    }
    debug_assert!(packet.data.len() <= 1 << 16, "a message has at most 64 KiB");
    packet.length = length.unwrap_or_else(|| u32::try_from(packet.data.len()).unwrap_or(u32::MAX));
    Ok(packet)
}

/// Writes the properties of a `NXT_PACKET_IN2` or `NXT_RESUME`.
///
/// A packet that does not fit is truncated.
pub(in crate::wire) fn put_in2(out: &mut Vec<u8>, packet: &PacketIn) {
    let mut rest = Vec::new();
    property::put(&mut rest, property_type::TABLE_ID, &[packet.table.number()]);
    if packet.cookie != NO_COOKIE {
        let mut padded = [0; 12];
        padded[4..].copy_from_slice(&packet.cookie.number().to_be_bytes());
        property::put(&mut rest, property_type::COOKIE, &padded);
    }
    property::put(&mut rest, property_type::REASON, &[reason::of_packet_in(packet.reason)]);
    let mut metadata = Vec::new();
    shunt_flow::oxm::encode_match(&packet.metadata, &mut metadata);
    property::put(&mut rest, property_type::METADATA, &metadata);
    if !packet.userdata.is_empty() {
        property::put(&mut rest, property_type::USERDATA, &packet.userdata);
    }
    if !packet.continuation.is_empty() {
        // Nested properties begin at a multiple of eight bytes.
        let padded = [&[0; 4], &*packet.continuation].concat();
        property::put(&mut rest, property_type::CONTINUATION, &padded);
    }
    // Header and padding of the packet property, and the full-length property.
    let around = out.len().saturating_add(rest.len()).saturating_add(4 + 7 + 8);
    let room = usize::from(u16::MAX).saturating_sub(around);
    let data = packet.data.get(..room).unwrap_or(&packet.data);
    property::put(out, property_type::PACKET, data);
    if usize::try_from(packet.length) != Ok(data.len()) {
        property::put(out, property_type::FULL_LEN, &packet.length.to_be_bytes());
    }
    out.extend_from_slice(&rest);
}

/// Reads the body of a packet-out.
pub(in crate::wire) fn read_out(reader: &mut ByteReader<'_>) -> Result<PacketOut, ErrorCode> {
    let (buffer, in_port) = (reader.u32()?, PortNo::new(reader.u32()?));
    if in_port > PortNo::MAX && in_port < PortNo::RESERVED_MIN {
        return Err(ErrorCode::ActionOutPort);
    }
    let actions_len = usize::from(reader.u16()?);
    reader.skip(6)?;
    if length::padding(actions_len) != 0 {
        return Err(ErrorCode::BadLength);
    }
    let actions = read_actions(reader.bytes(actions_len)?, ActionFormat::V13)?;
    if !can_be_in_port(in_port) {
        return Err(ErrorCode::BadPort);
    }
    if buffer != NO_BUFFER {
        return Err(ErrorCode::BufferUnknown);
    }
    Ok(PacketOut { in_port, actions, data: take_rest(reader) })
}

/// Returns whether `port` is a legal ingress port of a packet-out.
///
/// Port 0 and ports that do not exist are legal, as in Open vSwitch: they match no rule on
/// `in_port`.
pub(in crate::wire) const fn can_be_in_port(port: PortNo) -> bool {
    port.number() <= PortNo::MAX.number()
        || matches!(port, PortNo::LOCAL | PortNo::CONTROLLER | PortNo::ANY)
}

/// Writes the body of a packet-out.
pub(in crate::wire) fn put_out(out: &mut Vec<u8>, packet: &PacketOut) {
    out.put_u32(NO_BUFFER);
    out.put_u32(packet.in_port.number());
    let length_at = length::reserve(out);
    out.put_bytes(0, 6);
    let start = out.len();
    put_actions(out, &packet.actions, ActionFormat::V13);
    length::fill(out, length_at, start);
    out.extend_from_slice(&packet.data);
}

/// Returns the unread bytes, and leaves none.
pub(in crate::wire) fn take_rest(reader: &mut ByteReader<'_>) -> Vec<u8> {
    let rest = reader.rest().to_vec();
    *reader = ByteReader::new(&[]);
    rest
}
