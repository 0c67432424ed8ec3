//! Instructions of a rule (OpenFlow 1.3.5, 7.2.4).
//!
//! Each instruction may occur once, in any order. The encoder writes instructions in execution
//! order. An empty apply-actions or write-actions instruction has no effect and is not written.

use bytes::BufMut;
use shunt_pipeline::{Action, Instructions, MeterId, TableId};

use super::{
    action::{ActionFormat, find_bad_action, put_actions, read_actions, read_applied},
    length,
};
use crate::{
    error::ErrorCode,
    wire::{ByteReader, MessageLengthError},
};

/// `ofp_instruction_type`.
mod instruction_type {
    pub(super) const GOTO_TABLE: u16 = 1;
    pub(super) const WRITE_METADATA: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 3;
    pub(super) const APPLY_ACTIONS: u16 = 4;
    pub(super) const CLEAR_ACTIONS: u16 = 5;
    pub(super) const METER: u16 = 6;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}

/// Reads instructions to the end of the message.
pub(super) fn read_instructions(reader: &mut ByteReader<'_>) -> Result<Instructions, ErrorCode> {
    if !reader.len().is_multiple_of(8) {
        return Err(ErrorCode::BadLength);
    }
    let mut instructions = Instructions::default();
    let mut seen = 0_u32;
    while !reader.is_empty() {
        let (kind, mut body) =
            frame(reader).map_err(|MessageLengthError| ErrorCode::InstructionLength)?;
        let bit = 1_u32.checked_shl(u32::from(kind)).unwrap_or(0);
        if seen & bit != 0 {
            return Err(ErrorCode::InstructionDuplicate);
        }
        seen |= bit;
        read_one(kind, &mut body, &mut instructions)?;
    }
    // `NXAST_WRITE_METADATA` writes before clear-actions and write-actions are executed, which the
    // instruction write-metadata cannot express, so the order is refused.
    let is_after = |kind: u16| seen >> kind & 1 == 1;
    if instructions.metadata.is_some()
        && !is_after(instruction_type::WRITE_METADATA)
        && (is_after(instruction_type::WRITE_ACTIONS) || is_after(instruction_type::CLEAR_ACTIONS))
    {
        return Err(ErrorCode::ActionOrder);
    }
    Ok(instructions)
}

/// Records the metadata to write, which may be written only once.
fn set_metadata(instructions: &mut Instructions, metadata: (u64, u64)) -> Result<(), ErrorCode> {
    match instructions.metadata.replace(metadata) {
        None => Ok(()),
        Some(_) => Err(ErrorCode::ActionOrder),
    }
}

/// Reads type and body of the next instruction.
fn frame<'a>(reader: &mut ByteReader<'a>) -> Result<(u16, ByteReader<'a>), MessageLengthError> {
    let (kind, length) = (reader.u16()?, reader.u16()?);
    let length = usize::from(length);
    if length < 8 || !length.is_multiple_of(8) {
        return Err(MessageLengthError);
    }
    Ok((kind, ByteReader::new(reader.bytes(length.saturating_sub(4))?)))
}

/// Reads one instruction, and adds it to the others.
fn read_one(
    kind: u16,
    body: &mut ByteReader<'_>,
    instructions: &mut Instructions,
) -> Result<(), ErrorCode> {
    let length = match kind {
        instruction_type::GOTO_TABLE
        | instruction_type::CLEAR_ACTIONS
        | instruction_type::METER => Some(4),
        instruction_type::WRITE_METADATA => Some(20),
        _ => None,
    };
    if length.is_some_and(|length| length != body.len()) {
        return Err(ErrorCode::InstructionLength);
    }
    match kind {
        instruction_type::GOTO_TABLE => {
            let table = TableId::new(body.u8()?).ok_or(ErrorCode::InstructionTableId)?;
            instructions.goto = Some(table);
        }
        instruction_type::WRITE_METADATA => {
            body.skip(4)?;
            let (value, mask) = (body.u64()?, body.u64()?);
            set_metadata(instructions, (value & mask, mask))?;
        }
        instruction_type::WRITE_ACTIONS => {
            body.skip(4)?;
            instructions.write = read_action_set(body.rest())?.into();
        }
        instruction_type::APPLY_ACTIONS => {
            body.skip(4)?;
            let (actions, metadata) = read_applied(body.rest(), ActionFormat::V13)?;
            instructions.apply = actions.into();
            metadata.map_or(Ok(()), |metadata| set_metadata(instructions, metadata))?;
        }
        instruction_type::CLEAR_ACTIONS => instructions.clear = true,
        instruction_type::METER => {
            let meter = MeterId::new(body.u32()?);
            if meter.number() == 0 || meter > MeterId::MAX {
                return Err(ErrorCode::MeterInvalid);
            }
            instructions.meter = Some(meter);
        }
        instruction_type::EXPERIMENTER => return Err(ErrorCode::InstructionExperimenter),
        _ => return Err(ErrorCode::InstructionUnknown),
    }
    Ok(())
}

/// Reads actions for the action set; refuses actions that a set cannot hold.
///
/// Unsupported actions pass: a later check refuses them as unsupported.
fn read_action_set(bytes: &[u8]) -> Result<Vec<Action>, ErrorCode> {
    let actions = read_actions(bytes, ActionFormat::V13).map_err(|code| match code {
        ErrorCode::InstructionUnsupported => ErrorCode::ActionType,
        code => code,
    })?;
    let is_legal = |action: &Action| action.is_settable() || action.unsupported().is_some();
    if actions.iter().all(is_legal) { Ok(actions) } else { Err(ErrorCode::ActionType) }
}

/// Returns the first instruction or action that cannot be decoded, for the log.
pub(super) fn find_bad_instruction(bytes: &[u8]) -> Option<String> {
    let mut reader = ByteReader::new(bytes);
    for position in 1_u32.. {
        let Ok((kind, body)) = frame(&mut reader) else { break };
        let list = body.rest().get(4..).filter(|_| {
            kind == instruction_type::APPLY_ACTIONS || kind == instruction_type::WRITE_ACTIONS
        });
        if let Some(bad) = list.and_then(|list| find_bad_action(list, ActionFormat::V13)) {
            return Some(bad.to_string());
        }
        if read_one(kind, &mut body.clone(), &mut Instructions::default()).is_err() {
            let target = body.rest().first().filter(|_| kind == instruction_type::GOTO_TABLE);
            return Some(match target {
                Some(table) => format!("instruction {position}, goto_table:{table}"),
                None => format!("instruction {position} of type {kind}"),
            });
        }
    }
    None
}

/// Writes instructions.
pub(super) fn put_instructions(out: &mut Vec<u8>, instructions: &Instructions) {
    let Instructions { meter, apply, clear, write, metadata, goto } = instructions;
    if let Some(meter) = meter {
        out.put_u16(instruction_type::METER);
        out.put_u16(8);
        out.put_u32(meter.number());
    }
    if !apply.is_empty() {
        put_list(out, instruction_type::APPLY_ACTIONS, apply);
    }
    if *clear {
        put_list(out, instruction_type::CLEAR_ACTIONS, &[]);
    }
    if !write.is_empty() {
        put_list(out, instruction_type::WRITE_ACTIONS, write);
    }
    if let Some((value, mask)) = metadata {
        out.put_u16(instruction_type::WRITE_METADATA);
        out.put_u16(24);
        out.put_u32(0);
        out.put_u64(*value);
        out.put_u64(*mask);
    }
    if let Some(table) = goto {
        out.put_u16(instruction_type::GOTO_TABLE);
        out.put_u16(8);
        out.put_u8(table.number());
        out.put_bytes(0, 3);
    }
}

/// Writes an instruction that has a list of actions.
fn put_list(out: &mut Vec<u8>, kind: u16, actions: &[Action]) {
    let start = out.len();
    out.put_u16(kind);
    let length_at = length::reserve(out);
    out.put_u32(0);
    put_actions(out, actions, ActionFormat::V13);
    length::fill(out, length_at, start);
}
