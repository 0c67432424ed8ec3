//! `OFPT_PACKET_IN`, `NXT_PACKET_IN`, `OFPT_PACKET_OUT` (OpenFlow 1.0.0, 5.4.1, 5.3.6).
//!
//! Packets are never buffered: see the codec of OpenFlow 1.3.

use bytes::BufMut;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_pipeline::{Cookie, TableId};

use super::{
    ofp_match::{self, ReadNxMatch},
    port::put_port_number,
};
use crate::{
    error::ErrorCode,
    message::{PacketIn, PacketOut},
    wire::{
        ByteReader,
        v13::{
            NO_BUFFER,
            action::{ActionFormat, put_actions, read_actions},
            body::packet::{NO_COOKIE, can_be_in_port, take_rest},
            length, port_no, reason,
        },
    },
};

/// Reads the body of `OFPT_PACKET_IN`.
pub(super) fn read_in(reader: &mut ByteReader<'_>) -> Result<PacketIn, ErrorCode> {
    reader.skip(4)?;
    let (length, in_port, reason) = (reader.u16()?, reader.u16()?, reader.u8()?);
    reader.skip(1)?;
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_in_port(port_no::widen(in_port));
    mask.add_field(FieldId::InPort);
    Ok(PacketIn {
        reason: reason::from_packet_in(reason)?,
        table: TableId::FIRST,
        cookie: NO_COOKIE,
        metadata: Match::new(&key, &mask),
        userdata: Vec::new(),
        continuation: Vec::new(),
        length: length.into(),
        data: take_rest(reader),
    })
}

/// Writes the body of `OFPT_PACKET_IN`; truncates a packet that does not fit.
pub(super) fn put_in(out: &mut Vec<u8>, packet: &PacketIn) {
    out.put_u32(NO_BUFFER);
    // The field has 16 bits; a longer packet is truncated anyway.
    out.put_u16(u16::try_from(packet.length).unwrap_or(u16::MAX));
    let in_port = packet.metadata.key().in_port();
    put_port_number(out, in_port);
    out.put_u8(reason::of_packet_in(packet.reason));
    out.put_u8(0);
    put_data(out, &packet.data);
}

/// Reads the body of `NXT_PACKET_IN`.
pub(in crate::wire) fn read_nicira_packet_in(
    reader: &mut ByteReader<'_>,
) -> Result<PacketIn, ErrorCode> {
    reader.skip(4)?;
    let (length, reason, table) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let (cookie, match_len) = (Cookie::new(reader.u64()?), reader.u16()?);
    reader.skip(6)?;
    let ReadNxMatch { matching, .. } = ofp_match::read_nxm(reader, match_len)?;
    reader.skip(2)?;
    Ok(PacketIn {
        reason: reason::from_packet_in(reason)?,
        table: TableId::new(table).ok_or(ErrorCode::BadTableId)?,
        cookie,
        metadata: matching,
        userdata: Vec::new(),
        continuation: Vec::new(),
        length: length.into(),
        data: take_rest(reader),
    })
}

/// Writes the body of `NXT_PACKET_IN`; truncates a packet that does not fit.
pub(in crate::wire) fn put_nicira_packet_in(out: &mut Vec<u8>, packet: &PacketIn) {
    out.put_u32(NO_BUFFER);
    out.put_u16(u16::try_from(packet.length).unwrap_or(u16::MAX));
    out.put_u8(reason::of_packet_in(packet.reason));
    out.put_u8(packet.table.number());
    out.put_u64(packet.cookie.number());
    let length_at = length::reserve(out);
    out.put_bytes(0, 6);
    let match_len = ofp_match::put_nxm(out, &packet.metadata, Cookie::new(0), 0);
    length::set(out, length_at, match_len);
    out.put_u16(0);
    put_data(out, &packet.data);
}

/// Writes a packet as the rest of a message.
fn put_data(out: &mut Vec<u8>, data: &[u8]) {
    let room = usize::from(u16::MAX).saturating_sub(out.len());
    out.extend_from_slice(data.get(..room).unwrap_or(data));
}

/// Reads the body of `OFPT_PACKET_OUT`.
pub(super) fn read_out(reader: &mut ByteReader<'_>) -> Result<PacketOut, ErrorCode> {
    let (buffer, in_port) = (reader.u32()?, port_no::widen(reader.u16()?));
    let actions_len = usize::from(reader.u16()?);
    let actions = read_actions(reader.bytes(actions_len)?, ActionFormat::V10)?;
    if !can_be_in_port(in_port) {
        return Err(ErrorCode::BadPort);
    }
    if buffer != NO_BUFFER {
        return Err(ErrorCode::BufferUnknown);
    }
    Ok(PacketOut { in_port, actions, data: take_rest(reader) })
}

/// Writes the body of `OFPT_PACKET_OUT`.
pub(super) fn put_out(out: &mut Vec<u8>, packet: &PacketOut) {
    out.put_u32(NO_BUFFER);
    put_port_number(out, packet.in_port);
    let length_at = length::reserve(out);
    let start = out.len();
    put_actions(out, &packet.actions, ActionFormat::V10);
    length::fill(out, length_at, start);
    out.extend_from_slice(&packet.data);
}
