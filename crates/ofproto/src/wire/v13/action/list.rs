//! Lists of actions, and the actions of the standard.

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::Action;

use super::{nicira, number as at, set_field};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    wire::{Reader, Short, v13::length},
};

/// How deep `clone` may nest; Open vSwitch has no bound but its stack.
pub const CLONE_DEPTH_MAX: usize = 32;

/// Reads a list of actions to its end.
pub(crate) fn read_actions(bytes: &[u8]) -> Result<Vec<Action>, ErrorCode> {
    read_list(bytes, 0)
}

/// Writes a list of actions.
pub(crate) fn put_actions(out: &mut Vec<u8>, actions: &[Action]) {
    actions.iter().for_each(|action| put(out, action));
}

/// Reads the actions within `depth` clones.
pub(super) fn read_list(bytes: &[u8], depth: usize) -> Result<Vec<Action>, ErrorCode> {
    let mut reader = Reader::new(bytes);
    let mut actions = Vec::new();
    while !reader.is_empty() {
        let (kind, mut body) = frame(&mut reader).map_err(|Short| ErrorCode::ActionLength)?;
        actions.push(match kind {
            at::EXPERIMENTER => read_experimenter(&mut body, depth)?,
            _ => read_standard(kind, &mut body)?,
        });
    }
    Ok(actions)
}

/// Type and body of the next action.
fn frame<'a>(reader: &mut Reader<'a>) -> Result<(u16, Reader<'a>), Short> {
    let (kind, length) = (reader.u16()?, reader.u16()?);
    let length = usize::from(length);
    if length < 8 || !length.is_multiple_of(8) {
        return Err(Short);
    }
    Ok((kind, Reader::new(reader.bytes(length - 4)?)))
}

/// Asks that the body has this length.
pub(super) fn expect_len(body: &Reader<'_>, length: usize) -> Result<(), ErrorCode> {
    if body.len() == length { Ok(()) } else { Err(ErrorCode::ActionLength) }
}

fn read_standard(kind: u16, body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    match kind {
        at::OUTPUT => expect_len(body, 12)?,
        at::SET_FIELD => return set_field::read(body),
        _ => expect_len(body, 4)?,
    }
    Ok(match kind {
        at::OUTPUT => Action::Output { port: PortNo::new(body.u32()?), max_len: body.u16()? },
        at::PUSH_VLAN => match body.u16()? {
            ethertype @ (0x8100 | 0x88a8) => Action::PushVlan { ethertype },
            _ => return Err(ErrorCode::ActionArgument),
        },
        at::POP_VLAN => Action::PopVlan,
        at::SET_QUEUE => Action::SetQueue(body.u32()?),
        at::GROUP => return Err(ErrorCode::ActionOutGroup),
        at::SET_NW_TTL => set_field::whole(FieldId::NwTtl, u128::from(body.u8()?)),
        at::DEC_NW_TTL => Action::DecTtl { controllers: Box::new([0]) },
        _ => return Err(ErrorCode::ActionType),
    })
}

fn read_experimenter(body: &mut Reader<'_>, depth: usize) -> Result<Action, ErrorCode> {
    match body.u32()? {
        NICIRA_EXPERIMENTER => nicira::read(body, depth),
        ONF_EXPERIMENTER => Err(ErrorCode::ActionExperimenterType),
        _ => Err(ErrorCode::ActionExperimenter),
    }
}

/// Writes one action.
fn put(out: &mut Vec<u8>, action: &Action) {
    match action {
        Action::Output { port, max_len } => standard(out, at::OUTPUT, |out| {
            out.put_u32(port.number());
            out.put_u16(*max_len);
            out.put_bytes(0, 6);
        }),
        Action::SetField { field, value, mask } => set_field::put(out, *field, *value, *mask),
        Action::PushVlan { ethertype } => standard(out, at::PUSH_VLAN, |out| {
            out.put_u16(*ethertype);
        }),
        Action::PopVlan => standard(out, at::POP_VLAN, |_| {}),
        Action::SetQueue(queue) => standard(out, at::SET_QUEUE, |out| out.put_u32(*queue)),
        Action::DecTtl { controllers } if **controllers == [0] => {
            standard(out, at::DEC_NW_TTL, |_| {});
        }
        Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_)
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::DecTtl { .. }
        | Action::Resubmit { .. }
        | Action::PopQueue
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit => nicira::put(out, action),
    }
}

/// Writes an action of the standard: its header, its body, zeros to a multiple of eight bytes.
pub(super) fn standard(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    let length_at = length::reserve(out);
    body(out);
    if out.len() < start + 8 {
        out.put_bytes(0, start + 8 - out.len());
    }
    length::pad(out, start);
    length::fill(out, length_at, start);
}
