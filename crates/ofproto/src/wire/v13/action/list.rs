//! Action lists, and the actions of the standard.

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{Action, GroupId};

use super::{
    action_type::{self, nx},
    conntrack, controller,
    format::ActionFormat,
    hash, learn,
    mistake::find_mistake,
    nicira::{self, experimenter},
    register, sample, set_field,
};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    wire::{ByteReader, MessageLengthError, v10, v13::length},
};

/// Reads an action list to its end.
pub(crate) fn read_actions(bytes: &[u8], format: ActionFormat) -> Result<Vec<Action>, ErrorCode> {
    read_list(bytes, 0, format)
}

/// Writes an action list.
pub(crate) fn put_actions(out: &mut Vec<u8>, actions: &[Action], format: ActionFormat) {
    match format {
        ActionFormat::V10 => v10::put_actions(out, actions),
        ActionFormat::V13 => actions.iter().for_each(|action| put_action(out, action, format)),
    }
}

/// Actions, and the value and mask of metadata that the last action writes.
type AppliedActions = (Vec<Action>, Option<(u64, u64)>);

/// Reads the actions of `apply_actions`.
///
/// `NXAST_WRITE_METADATA`, which OpenFlow 1.0 has in place of the instruction, must be the last
/// action.
pub(crate) fn read_applied(
    bytes: &[u8],
    format: ActionFormat,
) -> Result<AppliedActions, ErrorCode> {
    let mut reader = ByteReader::new(bytes);
    let (mut actions, mut metadata, mut is_ordered) = (Vec::new(), None, true);
    while !reader.is_empty() {
        let (kind, body) = next(&mut reader)?;
        is_ordered &= metadata.is_none();
        match nicira::find_metadata(kind, &body) {
            Some(mut body) => metadata = Some(nicira::read_metadata(&mut body)?),
            None => read_one(&mut actions, kind, body, Position { depth: 0, format })?,
        }
    }
    if is_ordered { Ok((actions, metadata)) } else { Err(ErrorCode::ActionOrder) }
}

/// Reads an action list at nesting level `depth`.
pub(super) fn read_list(
    bytes: &[u8],
    depth: usize,
    format: ActionFormat,
) -> Result<Vec<Action>, ErrorCode> {
    let mut reader = ByteReader::new(bytes);
    let mut actions = Vec::new();
    while !reader.is_empty() {
        let (kind, body) = next(&mut reader)?;
        read_one(&mut actions, kind, body, Position { depth, format })?;
    }
    Ok(actions)
}

/// The list that an action is in.
#[derive(Clone, Copy)]
pub(super) struct Position {
    /// Number of lists around the list.
    pub(super) depth: usize,
    /// The format of the actions.
    pub(super) format: ActionFormat,
}

/// Reads one action, which OpenFlow 1.3 may express by several actions.
fn read_one(
    actions: &mut Vec<Action>,
    kind: u16,
    mut body: ByteReader<'_>,
    position: Position,
) -> Result<(), ErrorCode> {
    let action = match (kind, position.format) {
        (action_type::EXPERIMENTER, _) => read_experimenter(&mut body, position)?,
        (_, ActionFormat::V10) => return v10::read_action(actions, kind, &mut body),
        (_, ActionFormat::V13) => read_standard(kind, &mut body)?,
    };
    actions.push(action);
    Ok(())
}

/// Returns the type and the body of the next action.
fn next<'a>(reader: &mut ByteReader<'a>) -> Result<(u16, ByteReader<'a>), ErrorCode> {
    frame(reader).map_err(|MessageLengthError| ErrorCode::ActionLength)
}

/// Reads type and body of the next action.
fn frame<'a>(reader: &mut ByteReader<'a>) -> Result<(u16, ByteReader<'a>), MessageLengthError> {
    let (kind, length) = (reader.u16()?, reader.u16()?);
    let length = usize::from(length);
    if length < 8 || !length.is_multiple_of(8) {
        return Err(MessageLengthError);
    }
    Ok((kind, ByteReader::new(reader.bytes(length.saturating_sub(4))?)))
}

/// Checks the length of an action body.
pub(super) fn expect_len(body: &ByteReader<'_>, length: usize) -> Result<(), ErrorCode> {
    if body.len() == length { Ok(()) } else { Err(ErrorCode::ActionLength) }
}

/// Reads the body of a standard action.
fn read_standard(kind: u16, body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    match kind {
        action_type::OUTPUT | action_type::SET_DL_SRC | action_type::SET_DL_DST => {
            expect_len(body, 12)?;
        }
        action_type::SET_FIELD => return set_field::read(body),
        _ if !action_type::STANDARD.contains(&kind) && !action_type::OPENFLOW11.contains(&kind) => {
            return Err(ErrorCode::ActionType);
        }
        _ => expect_len(body, 4)?,
    }
    Ok(match kind {
        action_type::OUTPUT => {
            Action::Output { port: PortNo::new(body.u32()?), max_len: body.u16()? }
        }
        action_type::PUSH_VLAN => match body.u16()? {
            ethertype @ (0x8100 | 0x88a8) => Action::PushVlan { ethertype },
            _ => return Err(ErrorCode::PushVlanType),
        },
        action_type::POP_VLAN => Action::PopVlan,
        action_type::SET_QUEUE => Action::SetQueue(body.u32()?),
        action_type::GROUP => match GroupId::new(body.u32()?) {
            group if group <= GroupId::MAX => Action::Group(group),
            _ => return Err(ErrorCode::ActionOutGroup),
        },
        action_type::SET_NW_TTL => Action::SetNwTtl(body.u8()?),
        action_type::DEC_NW_TTL => Action::DecTtl { controllers: Box::new([0]) },
        action_type::SET_MPLS_TTL => Action::SetMplsTtl(body.u8()?),
        action_type::DEC_MPLS_TTL => Action::DecMplsTtl,
        action_type::PUSH_MPLS => match body.u16()? {
            ethertype @ (0x8847 | 0x8848) => Action::PushMpls { ethertype },
            _ => return Err(ErrorCode::PushMplsType),
        },
        action_type::POP_MPLS => Action::PopMpls { ethertype: body.u16()? },
        _ => return read_openflow11(kind, body),
    })
}

/// Reads an action of OpenFlow 1.1.
fn read_openflow11(kind: u16, body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    let (field, value) = match kind {
        action_type::SET_VLAN_VID => {
            (FieldId::VlanVid, check_max(body.u16()?, 0xfff)? | VLAN_PRESENT)
        }
        action_type::SET_VLAN_PCP => (FieldId::VlanPcp, check_max(body.u8()?, 7)?),
        action_type::SET_DL_SRC => (FieldId::EthSrc, mac(body)?),
        action_type::SET_DL_DST => (FieldId::EthDst, mac(body)?),
        action_type::SET_NW_SRC => (FieldId::Ipv4Src, body.u32()?.into()),
        action_type::SET_NW_DST => (FieldId::Ipv4Dst, body.u32()?.into()),
        action_type::SET_NW_TOS => match body.u8()? {
            tos if tos & ECN_BITS == 0 => (FieldId::IpDscp, u128::from(tos >> 2)),
            _ => return Err(ErrorCode::ActionArgument),
        },
        action_type::SET_NW_ECN => (FieldId::IpEcn, check_max(body.u8()?, ECN_BITS.into())?),
        // Open vSwitch ignores excess bits of an MPLS label or traffic class.
        action_type::SET_MPLS_LABEL => (FieldId::MplsLabel, u128::from(body.u32()? & 0xf_ffff)),
        action_type::SET_MPLS_TC => (FieldId::MplsTc, u128::from(body.u8()? & 7)),
        action_type::SET_TP_SRC => return Ok(Action::SetTpSrc(body.u16()?)),
        action_type::SET_TP_DST => return Ok(Action::SetTpDst(body.u16()?)),
        _ => return Err(ErrorCode::ActionType),
    };
    Ok(set_field::whole(field, value))
}

/// Returns a value that is at most `max`, or an error.
fn check_max(value: impl Into<u128>, max: u128) -> Result<u128, ErrorCode> {
    Some(value.into()).filter(|value| *value <= max).ok_or(ErrorCode::ActionArgument)
}

/// Reads a MAC address of six bytes.
fn mac(body: &mut ByteReader<'_>) -> Result<u128, MessageLengthError> {
    Ok(u128::from(body.u16()?) << 32 | u128::from(body.u32()?))
}

/// The bit of `vlan_vid` that is set if the packet has a tag (`OFPVID_PRESENT`).
const VLAN_PRESENT: u128 = 0x1000;
/// The ECN bits of the TOS byte.
const ECN_BITS: u8 = 3;

/// Reads the body of an action of a vendor.
fn read_experimenter(body: &mut ByteReader<'_>, position: Position) -> Result<Action, ErrorCode> {
    match body.u32()? {
        NICIRA_EXPERIMENTER => nicira::read(body, position),
        ONF_EXPERIMENTER => Err(ErrorCode::ActionExperimenterType),
        _ => Err(ErrorCode::ActionExperimenter),
    }
}

/// An action that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadAction {
    /// Position of the action in the list, from 1.
    position: usize,
    /// The type of the action.
    kind: u16,
    /// Experimenter and its action number.
    experimenter: Option<(u32, u16)>,
    /// The wrong argument, if it is known.
    mistake: Option<String>,
}

impl std::fmt::Display for BadAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { position, kind, experimenter, mistake } = self;
        match experimenter {
            Some((id, number)) => {
                write!(f, "action {position} of experimenter {id:#x}, type {number}")?;
            }
            None => write!(f, "action {position} of type {kind}")?,
        }
        match mistake {
            Some(mistake) => write!(f, ": {mistake}"),
            None => Ok(()),
        }
    }
}

/// Returns the first action of a list that cannot be decoded, for the log.
pub(crate) fn find_bad_action(bytes: &[u8], format: ActionFormat) -> Option<BadAction> {
    let mut reader = ByteReader::new(bytes);
    (1..).find_map(|position| {
        let (kind, body) = match frame(&mut reader) {
            Ok(framed) => framed,
            // The list ends, or the rest is too short for an action.
            Err(MessageLengthError) => return Some(None),
        };
        let mut id = body.clone();
        let mut experimenter = || Some((id.u32().ok()?, id.u16().ok()?));
        let experimenter = if kind == action_type::EXPERIMENTER { experimenter() } else { None };
        let position_in = Position { depth: 0, format };
        let is_bad = nicira::find_metadata(kind, &body).is_none()
            && read_one(&mut Vec::new(), kind, body.clone(), position_in).is_err();
        let mistake = || find_mistake(kind, &body, format);
        is_bad.then(|| Some(BadAction { position, kind, experimenter, mistake: mistake() }))
    })?
}

/// Writes one action in the first of its equivalent wire forms.
pub(crate) fn put_action(out: &mut Vec<u8>, action: &Action, format: ActionFormat) {
    match action {
        Action::Output { port, max_len } => standard(out, action_type::OUTPUT, |out| {
            out.put_u32(port.number());
            out.put_u16(*max_len);
            out.put_bytes(0, 6);
        }),
        Action::SetField { field, value, mask } => set_field::put(out, *field, *value, *mask),
        Action::SetNwTtl(ttl) => standard(out, action_type::SET_NW_TTL, |out| out.put_u8(*ttl)),
        Action::SetTpSrc(port) => put_u16(out, action_type::SET_TP_SRC, *port),
        Action::SetTpDst(port) => put_u16(out, action_type::SET_TP_DST, *port),
        Action::PushVlan { ethertype } => put_u16(out, action_type::PUSH_VLAN, *ethertype),
        Action::PopVlan => standard(out, action_type::POP_VLAN, |_| {}),
        Action::PushMpls { ethertype } => put_u16(out, action_type::PUSH_MPLS, *ethertype),
        Action::PopMpls { ethertype } => put_u16(out, action_type::POP_MPLS, *ethertype),
        Action::SetMplsTtl(ttl) => standard(out, action_type::SET_MPLS_TTL, |out| out.put_u8(*ttl)),
        Action::DecMplsTtl => standard(out, action_type::DEC_MPLS_TTL, |_| {}),
        Action::CopyTtlOut => standard(out, action_type::COPY_TTL_OUT, |_| {}),
        Action::CopyTtlIn => standard(out, action_type::COPY_TTL_IN, |_| {}),
        Action::SetQueue(queue) => standard(out, action_type::SET_QUEUE, |out| out.put_u32(*queue)),
        Action::Group(group) => {
            standard(out, action_type::GROUP, |out| out.put_u32(group.number()));
        }
        Action::DecTtl { controllers } if **controllers == [0] => {
            standard(out, action_type::DEC_NW_TTL, |_| {});
        }
        Action::DecTtl { controllers } => nicira::put_dec_ttl(out, controllers),
        Action::OutputField { source, max_len } => register::put_output(out, *source, *max_len),
        Action::OutputTruncated { port, max_len } => {
            nicira::put_output_truncated(out, *port, *max_len);
        }
        Action::Controller(action) => controller::put(out, action),
        Action::Load { target, value } => register::put_load(out, *target, *value),
        Action::Move { source, target } => register::put_move(out, *source, *target),
        Action::Resubmit { port, table } => nicira::put_resubmit(out, *port, *table),
        Action::PopQueue { .. } => experimenter(out, nx::POP_QUEUE, |_| {}),
        Action::Clone(actions) => nicira::put_clone(out, actions, format),
        Action::Note(note) => experimenter(out, nx::NOTE, |out| out.extend_from_slice(note)),
        Action::Exit => experimenter(out, nx::EXIT, |_| {}),
        Action::Push(bits) => register::put_stack(out, nx::STACK_PUSH, *bits),
        Action::Pop(bits) => register::put_stack(out, nx::STACK_POP, *bits),
        Action::Learn(learn) => learn::put(out, learn),
        Action::Conjunction { id, clause, clauses_count } => {
            nicira::put_conjunction(out, *id, *clause, *clauses_count);
        }
        Action::Multipath(multipath) => hash::put_multipath(out, multipath),
        Action::Bundle(bundle) => hash::put_bundle(out, bundle),
        Action::FinTimeout { idle, hard } => nicira::put_fin_timeout(out, *idle, *hard),
        Action::CheckPktLarger { length, target } => {
            register::put_check_larger(out, *length, *target);
        }
        Action::Ct(ct) => conntrack::put(out, ct, format),
        Action::CtClear => experimenter(out, nx::CT_CLEAR, |_| {}),
        Action::Nat(nat) => conntrack::put_nat(out, nat),
        Action::Sample(sample) => sample::put(out, sample),
        // OpenFlow 1.3 has an instruction for meters, but no action.
        Action::Meter(_) => {}
    }
}

/// Writes a standard action with a value of 16 bits.
fn put_u16(out: &mut Vec<u8>, kind: u16, value: u16) {
    standard(out, kind, |out| out.put_u16(value));
}

/// Writes an action of the standard: header, body, and padding to eight bytes.
pub(crate) fn standard(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    let length_at = length::reserve(out);
    body(out);
    let written = out.len().saturating_sub(start);
    out.put_bytes(0, 8_usize.saturating_sub(written));
    length::pad(out, start);
    length::fill(out, length_at, start);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list of actions.
    fn read(bytes: &[u8]) -> Result<Vec<Action>, ErrorCode> {
        read_actions(bytes, ActionFormat::V13)
    }

    #[test]
    fn features_list_the_actions_that_are_read() {
        let is_known =
            |number: u8| read(&[0, number, 0, 8, 0, 0, 0, 0]) != Err(ErrorCode::ActionType);
        let known: Vec<_> =
            (0..=u8::MAX).filter(|number| is_known(*number)).map(u16::from).collect();
        assert!(known.iter().all(|number| action_type::STANDARD.contains(number)
            || action_type::OPENFLOW11.contains(number)));
        assert!(action_type::STANDARD.iter().all(|number| known.contains(number)));
    }

    #[test]
    fn clones_nest_up_to_a_limit() {
        use shunt_pipeline::CLONE_DEPTH_MAX;

        let nested =
            |depth| (0..depth).fold(Action::Exit, |inner, _| Action::Clone(Box::new([inner])));
        let again = |depth, format| {
            let mut bytes = Vec::new();
            put_action(&mut bytes, &nested(depth), format);
            read_actions(&bytes, format)
        };
        for format in [ActionFormat::V10, ActionFormat::V13] {
            let deepest = vec![nested(CLONE_DEPTH_MAX)];
            assert_eq!(again(CLONE_DEPTH_MAX, format), Ok(deepest));
            let refused = Err(ErrorCode::ActionTooMany);
            assert_eq!(again(CLONE_DEPTH_MAX + 1, format), refused);
        }
    }
}
