//! Nicira's actions (`nx_action_*`; "Open vSwitch Extensions to OpenFlow").

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{Action, TableId};

use super::{
    controller,
    list::{CLONE_DEPTH_MAX, expect_len, put_actions, read_list},
    number as at,
    number::nx,
    register, set_field,
};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER},
    wire::{
        Reader,
        v13::{length, oxm::put_field, port_no},
    },
};

/// `resubmit` to the table that the rule stands in.
const TABLE_SAME: u8 = 255;
/// The least that `output_trunc` may leave: an Ethernet header.
const TRUNCATED_LEN_MIN: u32 = 14;

/// Reads an action behind its experimenter id.
pub(super) fn read(body: &mut Reader<'_>, depth: usize) -> Result<Action, ErrorCode> {
    let subtype = body.u16().map_err(|_| ErrorCode::ActionLength)?;
    Ok(match subtype {
        nx::RESUBMIT => register::read_resubmit(body)?,
        nx::RESUBMIT_TABLE => read_resubmit_table(body)?,
        nx::SET_TUNNEL => {
            expect_len(body, 6)?;
            body.skip(2)?;
            set_field::whole(FieldId::TunId, u128::from(body.u32()?))
        }
        nx::SET_TUNNEL64 => {
            expect_len(body, 14)?;
            body.skip(6)?;
            set_field::whole(FieldId::TunId, u128::from(body.u64()?))
        }
        nx::POP_QUEUE => expect_len(body, 6).map(|()| Action::PopQueue)?,
        nx::EXIT => expect_len(body, 6).map(|()| Action::Exit)?,
        nx::REG_MOVE => register::read_move(body).map_err(at_fault)?,
        nx::REG_LOAD => register::read_load(body)?,
        nx::REG_LOAD2 => set_field::read_masked(body)?,
        nx::OUTPUT_REG => register::read_output(body)?,
        nx::OUTPUT_REG2 => register::read_output2(body)?,
        nx::OUTPUT_TRUNC => read_output_truncated(body)?,
        nx::NOTE => Action::Note(body.rest().into()),
        nx::DEC_TTL_CNT_IDS => read_dec_ttl(body).map_err(at_fault)?,
        nx::CONTROLLER => controller::read(body)?,
        nx::CONTROLLER2 => controller::read_properties(body)?,
        nx::CLONE => read_clone(body, depth)?,
        _ => return Err(ErrorCode::ActionExperimenterType),
    })
}

/// In a body of any length, to end too early is the action's mistake and not the message's.
const fn at_fault(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::BadLength => ErrorCode::ActionLength,
        other => other,
    }
}

fn read_resubmit_table(body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    let port = register::resubmit_port(body.u16()?);
    let table = body.u8()?;
    if body.rest() != [0; 3] {
        return Err(ErrorCode::ActionArgument);
    }
    if table == TABLE_SAME {
        return Ok(Action::Resubmit { port, table: None });
    }
    let table = Some(TableId::new(table).ok_or(ErrorCode::ActionArgument)?);
    Ok(Action::Resubmit { port, table })
}

fn read_output_truncated(body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    let (port, max_len) = (port_no::widen(body.u16()?), body.u32()?);
    if max_len < TRUNCATED_LEN_MIN {
        return Err(ErrorCode::ActionArgument);
    }
    Ok(Action::OutputTruncated { port, max_len })
}

fn read_dec_ttl(body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let count = body.u16()?;
    if body.bytes(4)? != [0; 4] {
        return Err(ErrorCode::MustBeZero);
    }
    let controllers = (0..count).map(|_| body.u16()).collect::<Result<_, _>>()?;
    Ok(Action::DecTtl { controllers })
}

fn read_clone(body: &mut Reader<'_>, depth: usize) -> Result<Action, ErrorCode> {
    body.skip(6).map_err(|_| ErrorCode::ActionLength)?;
    if depth >= CLONE_DEPTH_MAX {
        return Err(ErrorCode::ActionTooMany);
    }
    Ok(Action::Clone(read_list(body.rest(), depth + 1)?.into()))
}

/// Writes an action that only Nicira has; others write nothing.
pub(super) fn put(out: &mut Vec<u8>, action: &Action) {
    match action {
        Action::OutputField { source, max_len } => register::put_output(out, *source, *max_len),
        Action::OutputTruncated { port, max_len } => experimenter(out, nx::OUTPUT_TRUNC, |out| {
            out.put_u16(narrow(*port));
            out.put_u32(*max_len);
        }),
        Action::Controller(action) => controller::put(out, action),
        Action::Load { target, value } => register::put_load(out, *target, *value),
        Action::Move { source, target } => register::put_move(out, *source, *target),
        Action::DecTtl { controllers } => experimenter(out, nx::DEC_TTL_CNT_IDS, |out| {
            out.put_u16(u16::try_from(controllers.len()).unwrap_or(u16::MAX));
            out.put_bytes(0, 4);
            controllers.iter().for_each(|id| out.put_u16(*id));
        }),
        Action::Resubmit { port, table } => put_resubmit(out, *port, *table),
        Action::PopQueue => experimenter(out, nx::POP_QUEUE, |_| {}),
        Action::Clone(actions) => experimenter(out, nx::CLONE, |out| {
            out.put_bytes(0, 6);
            put_actions(out, actions);
        }),
        Action::Note(note) => experimenter(out, nx::NOTE, |out| out.extend_from_slice(note)),
        Action::Exit => experimenter(out, nx::EXIT, |_| {}),
        Action::Output { .. }
        | Action::SetField { .. }
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::SetQueue(_) => {}
    }
}

fn put_resubmit(out: &mut Vec<u8>, port: Option<PortNo>, table: Option<TableId>) {
    experimenter(out, nx::RESUBMIT_TABLE, |out| {
        out.put_u16(narrow(port.unwrap_or(PortNo::IN_PORT)));
        out.put_u8(table.map_or(TABLE_SAME, TableId::number));
    });
}

/// A port in the 16 bits that the action has; one without such a number reads as none.
fn narrow(port: PortNo) -> u16 {
    port_no::narrow(port).unwrap_or(u16::MAX)
}

/// Writes a set-field of some bits as `NXAST_REG_LOAD2`.
pub(super) fn put_masked_set_field(out: &mut Vec<u8>, field: FieldId, value: u128, mask: u128) {
    experimenter(out, nx::REG_LOAD2, |out| put_field(out, field, value, mask));
}

/// Writes an action of Nicira: its header, its body, zeros to a multiple of eight bytes.
pub(super) fn experimenter(out: &mut Vec<u8>, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(at::EXPERIMENTER);
    let length_at = length::reserve(out);
    out.put_u32(NICIRA_EXPERIMENTER);
    out.put_u16(subtype);
    body(out);
    length::pad(out, start);
    length::fill(out, length_at, start);
}
