//! Nicira's actions (`nx_action_*`; "Open vSwitch Extensions to OpenFlow").

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{Action, CLONE_DEPTH_MAX, TableId};

use super::{
    action_type::{self, nx},
    conntrack, controller,
    format::ActionFormat,
    hash::{self, BundleResult},
    learn::{self, LearnVersion},
    list::{Position, expect_len, put_actions, read_list},
    register, sample, set_field, subfield,
};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER},
    wire::{
        ByteReader, v10,
        v13::{length, oxm::put_field, port_no},
    },
};

/// `resubmit` to the table of the rule itself.
const TABLE_SAME: u8 = 255;
/// Minimum length for `output_trunc`: an Ethernet header.
const TRUNCATED_LEN_MIN: u32 = 14;

/// Reads an action after its experimenter id.
pub(super) fn read(body: &mut ByteReader<'_>, position: Position) -> Result<Action, ErrorCode> {
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
        nx::POP_QUEUE => expect_len(body, 6).map(|()| Action::PopQueue { ends_enqueue: false })?,
        nx::EXIT => expect_len(body, 6).map(|()| Action::Exit)?,
        nx::REG_MOVE => register::read_move(body).map_err(as_action_error)?,
        nx::REG_LOAD => register::read_load(body)?,
        nx::REG_LOAD2 => set_field::read_masked(body)?,
        nx::OUTPUT_REG => register::read_output(body)?,
        nx::OUTPUT_REG2 => register::read_output2(body)?,
        nx::OUTPUT_TRUNC => read_output_truncated(body)?,
        nx::NOTE => Action::Note(body.rest().into()),
        nx::DEC_TTL_CNT_IDS => read_dec_ttl(body).map_err(as_action_error)?,
        nx::CONTROLLER => controller::read(body)?,
        nx::CONTROLLER2 => controller::read_properties(body)?,
        nx::CLONE => read_clone(body, position)?,
        nx::STACK_PUSH => Action::Push(register::read_stack(body)?),
        nx::STACK_POP => Action::Pop(subfield::writable(register::read_stack(body)?)?),
        nx::MULTIPATH => Action::Multipath(hash::read_multipath(body)?.into()),
        nx::BUNDLE => Action::Bundle(
            hash::read_bundle(body, BundleResult::Output).map_err(as_action_error)?.into(),
        ),
        nx::BUNDLE_LOAD => Action::Bundle(
            hash::read_bundle(body, BundleResult::Load).map_err(as_action_error)?.into(),
        ),
        nx::LEARN => {
            Action::Learn(learn::read(body, LearnVersion::Short).map_err(as_action_error)?.into())
        }
        nx::LEARN2 => {
            Action::Learn(learn::read(body, LearnVersion::Long).map_err(as_action_error)?.into())
        }
        nx::CONJUNCTION => read_conjunction(body)?,
        nx::FIN_TIMEOUT => read_fin_timeout(body)?,
        nx::CHECK_PKT_LARGER => register::read_check_larger(body)?,
        nx::WRITE_METADATA => {
            read_metadata(body)?;
            return Err(ErrorCode::InstructionUnsupported);
        }
        nx::CT => Action::Ct(conntrack::read(body, position).map_err(as_action_error)?.into()),
        nx::CT_CLEAR => expect_len(body, 6).map(|()| Action::CtClear)?,
        nx::NAT => Action::Nat(conntrack::read_nat(body).map_err(as_action_error)?.into()),
        nx::SAMPLE | nx::SAMPLE2 | nx::SAMPLE3 => {
            Action::Sample(sample::read(body, subtype)?.into())
        }
        _ if position.format == ActionFormat::V10 => v10::read_nicira_action(subtype, body)?,
        _ => return Err(ErrorCode::ActionExperimenterType),
    })
}

/// Returns the rest of an action body if the action is `NXAST_WRITE_METADATA`.
pub(super) fn find_metadata<'a>(kind: u16, body: &ByteReader<'a>) -> Option<ByteReader<'a>> {
    let mut body = body.clone();
    let is_nicira = kind == action_type::EXPERIMENTER && body.u32() == Ok(NICIRA_EXPERIMENTER);
    (is_nicira && body.u16() == Ok(nx::WRITE_METADATA)).then_some(body)
}

/// Reads value and mask of `NXAST_WRITE_METADATA`.
pub(super) fn read_metadata(body: &mut ByteReader<'_>) -> Result<(u64, u64), ErrorCode> {
    expect_len(body, 22)?;
    if body.bytes(6)? != [0; 6] {
        return Err(ErrorCode::MustBeZero);
    }
    let (value, mask) = (body.u64()?, body.u64()?);
    Ok((value & mask, mask))
}

/// Maps a bad message length to a bad action length, for bodies of variable length.
const fn as_action_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::BadLength => ErrorCode::ActionLength,
        other => other,
    }
}

/// Reads `NXAST_RESUBMIT_TABLE`.
fn read_resubmit_table(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
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

/// Reads `NXAST_OUTPUT_TRUNC`.
fn read_output_truncated(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    let (port, max_len) = (port_no::widen(body.u16()?), body.u32()?);
    if max_len < TRUNCATED_LEN_MIN {
        return Err(ErrorCode::ActionArgument);
    }
    Ok(Action::OutputTruncated { port, max_len })
}

/// Reads `NXAST_DEC_TTL_CNT_IDS`.
fn read_dec_ttl(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    let count = body.u16()?;
    if body.bytes(4)? != [0; 4] {
        return Err(ErrorCode::MustBeZero);
    }
    let controllers = (0..count).map(|_| body.u16()).collect::<Result<_, _>>()?;
    Ok(Action::DecTtl { controllers })
}

/// Reads `NXAST_CLONE`.
fn read_clone(body: &mut ByteReader<'_>, position: Position) -> Result<Action, ErrorCode> {
    let Position { depth, format } = position;
    body.skip(6).map_err(|_| ErrorCode::ActionLength)?;
    if depth >= CLONE_DEPTH_MAX {
        return Err(ErrorCode::ActionTooMany);
    }
    Ok(Action::Clone(read_list(body.rest(), depth.saturating_add(1), format)?.into()))
}

/// Reads `NXAST_CONJUNCTION`.
fn read_conjunction(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    let (clause, clauses_count, id) = (body.u8()?, body.u8()?, body.u32()?);
    if !(2..=64).contains(&clauses_count) || clause >= clauses_count {
        return Err(ErrorCode::ActionConjunction);
    }
    Ok(Action::Conjunction { id, clause, clauses_count })
}

/// Reads `NXAST_FIN_TIMEOUT`.
fn read_fin_timeout(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    Ok(Action::FinTimeout { idle: body.u16()?, hard: body.u16()? })
}

/// Writes `NXAST_OUTPUT_TRUNC`.
pub(super) fn put_output_truncated(out: &mut Vec<u8>, port: PortNo, max_len: u32) {
    experimenter(out, nx::OUTPUT_TRUNC, |out| {
        out.put_u16(narrow(port));
        out.put_u32(max_len);
    });
}

/// Writes `NXAST_DEC_TTL_CNT_IDS`.
pub(super) fn put_dec_ttl(out: &mut Vec<u8>, controllers: &[u16]) {
    experimenter(out, nx::DEC_TTL_CNT_IDS, |out| {
        // An action of 64 KiB or more fails when the message is finished: see `length::fill`.
        out.put_u16(u16::try_from(controllers.len()).unwrap_or(u16::MAX));
        out.put_bytes(0, 4);
        controllers.iter().for_each(|id| out.put_u16(*id));
    });
}

/// Writes `NXAST_CLONE`.
pub(super) fn put_clone(out: &mut Vec<u8>, actions: &[Action], format: ActionFormat) {
    experimenter(out, nx::CLONE, |out| {
        out.put_bytes(0, 6);
        put_actions(out, actions, format);
    });
}

/// Writes `NXAST_CONJUNCTION`.
pub(super) fn put_conjunction(out: &mut Vec<u8>, id: u32, clause: u8, clauses_count: u8) {
    experimenter(out, nx::CONJUNCTION, |out| {
        out.put_u8(clause);
        out.put_u8(clauses_count);
        out.put_u32(id);
    });
}

/// Writes `NXAST_FIN_TIMEOUT`.
pub(super) fn put_fin_timeout(out: &mut Vec<u8>, idle: u16, hard: u16) {
    experimenter(out, nx::FIN_TIMEOUT, |out| {
        out.put_u16(idle);
        out.put_u16(hard);
    });
}

/// Writes `NXAST_RESUBMIT_TABLE`.
pub(in crate::wire) fn put_resubmit(
    out: &mut Vec<u8>,
    port: Option<PortNo>,
    table: Option<TableId>,
) {
    experimenter(out, nx::RESUBMIT_TABLE, |out| {
        out.put_u16(narrow(port.unwrap_or(PortNo::IN_PORT)));
        out.put_u8(table.map_or(TABLE_SAME, TableId::number));
    });
}

/// Returns the 16-bit number of a port; `OFPP_NONE` if it has none.
pub(in crate::wire) fn narrow(port: PortNo) -> u16 {
    port_no::narrow(port).unwrap_or(u16::MAX)
}

/// Writes a masked set-field as `NXAST_REG_LOAD2`.
pub(in crate::wire) fn put_masked_set_field(
    out: &mut Vec<u8>,
    field: FieldId,
    value: u128,
    mask: u128,
) {
    experimenter(out, nx::REG_LOAD2, |out| put_field(out, field, value, mask));
}

/// Writes `NXAST_WRITE_METADATA`.
pub(in crate::wire) fn put_write_metadata(out: &mut Vec<u8>, value: u64, mask: u64) {
    experimenter(out, nx::WRITE_METADATA, |out| {
        out.put_bytes(0, 6);
        out.put_u64(value);
        out.put_u64(mask);
    });
}

/// Writes a Nicira action: header, body, and padding to eight bytes.
pub(in crate::wire) fn experimenter(
    out: &mut Vec<u8>,
    subtype: u16,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.put_u16(action_type::EXPERIMENTER);
    let length_at = length::reserve(out);
    out.put_u32(NICIRA_EXPERIMENTER);
    out.put_u16(subtype);
    body(out);
    length::pad(out, start);
    length::fill(out, length_at, start);
}
