//! `NXST_FLOW_MONITOR` (`struct nx_flow_monitor_request`, `struct nx_flow_update_full`).

use bytes::BufMut;
use shunt_pipeline::{Cookie, Instructions};

use super::{
    action::put_instructions,
    ofp_match::{self, ReadNxMatch},
    port::put_port_number,
};
use crate::{
    error::ErrorCode,
    message::{FlowMonitorId, FlowMonitorRequest, FlowUpdate},
    wire::{
        ByteReader,
        v13::{
            action::{ActionFormat, read_applied},
            body::flow_mod::{table_number, table_selector},
            length,
            multipart::flow_monitor::{
                MonitoredFlow, monitor_flags_bits, put_update, read_monitor_flags, read_update,
            },
            port_no,
        },
    },
};

/// Reads one request for a monitor.
pub(super) fn read_request(body: &mut ByteReader<'_>) -> Result<FlowMonitorRequest, ErrorCode> {
    let (id, flags) = (FlowMonitorId(body.u32()?), body.u16()?);
    let (out_port, match_len) = (port_no::widen(body.u16()?), body.u16()?);
    let table = body.u8()?;
    let reserved: [u8; 5] = body.array()?;
    let flags = read_monitor_flags(flags)?;
    if reserved != [0; 5] {
        return Err(ErrorCode::MustBeZero);
    }
    let ReadNxMatch { matching, cookie_mask, .. } = ofp_match::read_nxm(body, match_len)?;
    if cookie_mask != 0 {
        return Err(ErrorCode::MatchNicira);
    }
    let table = table_selector(table).ok_or(ErrorCode::BadTableId)?;
    Ok(FlowMonitorRequest { id, flags, table, matching, out_port })
}

/// Writes one request for a monitor.
pub(super) fn put_request(out: &mut Vec<u8>, request: &FlowMonitorRequest) {
    out.put_u32(request.id.0);
    out.put_u16(monitor_flags_bits(request.flags));
    put_port_number(out, request.out_port);
    let length_at = length::reserve(out);
    out.put_u8(table_number(request.table));
    out.put_bytes(0, 5);
    let match_len = ofp_match::put_nxm(out, &request.matching, Cookie::new(0), 0);
    length::set(out, length_at, match_len);
}

/// Reads an update.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<FlowUpdate, ErrorCode> {
    read_update(reader, |entry, match_len| {
        let ReadNxMatch { matching, cookie_mask, .. } = ofp_match::read_nxm(entry, match_len)?;
        if cookie_mask != 0 {
            return Err(ErrorCode::MatchNicira);
        }
        let (actions, metadata) = read_applied(entry.rest(), ActionFormat::V10)?;
        let instructions =
            Instructions { apply: actions.into(), metadata, ..Instructions::default() };
        Ok(MonitoredFlow { matching, instructions })
    })
}

/// Writes an update.
pub(super) fn put(out: &mut Vec<u8>, update: &FlowUpdate) {
    put_update(out, update, |out, length_at, full| {
        let match_len = ofp_match::put_nxm(out, &full.matching, Cookie::new(0), 0);
        length::set(out, length_at, match_len);
        put_instructions(out, &full.instructions);
    });
}
