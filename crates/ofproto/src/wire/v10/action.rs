//! Actions of OpenFlow 1.0 (OpenFlow 1.0.0, 5.2.4), and Nicira actions that only it needs.
//!
//! Some actions mean more than the action of the same name in later versions:
//!
//! * `OFPAT_SET_VLAN_VID` and `OFPAT_SET_VLAN_PCP` add a tag to an untagged packet. These actions
//!   are writes to `dl_vlan` and `dl_vlan_pcp`.
//! * `OFPAT_ENQUEUE` is an output between the choice of a queue and the return to the default one.
//!   The last of these actions has a mark (`ends_enqueue`), so that the action is listed again.

use bytes::BufMut;
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{Action, GroupId, Instructions, Subfield};

use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::{
            action::{ActionFormat, nicira, put_action, standard},
            port_no,
        },
    },
};

/// `ofp_action_type`.
mod action_type {
    pub(super) const OUTPUT: u16 = 0;
    pub(super) const SET_VLAN_VID: u16 = 1;
    pub(super) const SET_VLAN_PCP: u16 = 2;
    pub(super) const STRIP_VLAN: u16 = 3;
    pub(super) const SET_DL_SRC: u16 = 4;
    pub(super) const SET_DL_DST: u16 = 5;
    pub(super) const SET_NW_SRC: u16 = 6;
    pub(super) const SET_NW_DST: u16 = 7;
    pub(super) const SET_NW_TOS: u16 = 8;
    pub(super) const SET_TP_SRC: u16 = 9;
    pub(super) const SET_TP_DST: u16 = 10;
    pub(super) const ENQUEUE: u16 = 11;
}

/// Subtypes of Nicira actions in place of standard actions of later versions.
mod nx {
    pub(super) const SET_TUNNEL: u16 = 2;
    pub(super) const SET_QUEUE: u16 = 4;
    pub(super) const SET_TUNNEL64: u16 = 9;
    pub(super) const DEC_TTL: u16 = 18;
    pub(super) const PUSH_MPLS: u16 = 23;
    pub(super) const POP_MPLS: u16 = 24;
    pub(super) const SET_MPLS_TTL: u16 = 25;
    pub(super) const DEC_MPLS_TTL: u16 = 26;
    pub(super) const SET_MPLS_LABEL: u16 = 30;
    pub(super) const SET_MPLS_TC: u16 = 31;
    pub(super) const GROUP: u16 = 40;
}

/// The actions of OpenFlow 1.0, bit `n` for action `n` (`ofp_action_type`).
pub(super) const SUPPORTED: u32 = 0xfff;

/// The actions of [`SUPPORTED`] as numbers.
pub(crate) const STANDARD_ACTIONS: [u16; 12] = [
    action_type::OUTPUT,
    action_type::SET_VLAN_VID,
    action_type::SET_VLAN_PCP,
    action_type::STRIP_VLAN,
    action_type::SET_DL_SRC,
    action_type::SET_DL_DST,
    action_type::SET_NW_SRC,
    action_type::SET_NW_DST,
    action_type::SET_NW_TOS,
    action_type::SET_TP_SRC,
    action_type::SET_TP_DST,
    action_type::ENQUEUE,
];

/// The DSCP bits of the TOS byte.
const DSCP_BITS: u8 = 0xfc;

/// The bit of `vlan_tci` that is set if the packet has a tag.
const VLAN_PRESENT: u128 = 0x1000;

/// Reads a standard action after its header, and appends the actions that it means.
pub(crate) fn read_action(
    actions: &mut Vec<Action>,
    kind: u16,
    body: &mut ByteReader<'_>,
) -> Result<(), ErrorCode> {
    let length = match kind {
        action_type::SET_DL_SRC | action_type::SET_DL_DST | action_type::ENQUEUE => 12,
        action_type::OUTPUT..=action_type::SET_TP_DST => 4,
        _ => return Err(ErrorCode::ActionType),
    };
    if body.len() != length {
        return Err(ErrorCode::ActionLength);
    }
    let write =
        |field: FieldId, value: u128| Action::SetField { field, value, mask: field.value_max() };
    actions.push(match kind {
        action_type::OUTPUT => {
            Action::Output { port: port_no::widen(body.u16()?), max_len: body.u16()? }
        }
        action_type::SET_VLAN_VID => match u128::from(body.u16()?) {
            vid @ 0..=0xfff => write(FieldId::DlVlan, vid),
            _ => return Err(ErrorCode::ActionArgument),
        },
        action_type::SET_VLAN_PCP => match u128::from(body.u8()?) {
            pcp @ 0..=7 => write(FieldId::DlVlanPcp, pcp),
            _ => return Err(ErrorCode::ActionArgument),
        },
        action_type::STRIP_VLAN => Action::PopVlan,
        action_type::SET_DL_SRC => write(FieldId::EthSrc, read_mac(body)?),
        action_type::SET_DL_DST => write(FieldId::EthDst, read_mac(body)?),
        action_type::SET_NW_SRC => write(FieldId::Ipv4Src, body.u32()?.into()),
        action_type::SET_NW_DST => write(FieldId::Ipv4Dst, body.u32()?.into()),
        action_type::SET_NW_TOS => match body.u8()? {
            tos if tos & !DSCP_BITS == 0 => write(FieldId::IpDscp, u128::from(tos >> 2)),
            _ => return Err(ErrorCode::ActionArgument),
        },
        action_type::SET_TP_SRC => Action::SetTpSrc(body.u16()?),
        action_type::SET_TP_DST => Action::SetTpDst(body.u16()?),
        // The length check refused unknown actions.
        _ => return read_enqueue(actions, body),
    });
    Ok(())
}

/// Reads a MAC address of six bytes.
fn read_mac(body: &mut ByteReader<'_>) -> Result<u128, ErrorCode> {
    Ok(u128::from(body.u16()?) << 32 | u128::from(body.u32()?))
}

/// Reads an `OFPAT_ENQUEUE` as actions that set the queue and output.
fn read_enqueue(actions: &mut Vec<Action>, body: &mut ByteReader<'_>) -> Result<(), ErrorCode> {
    let port = port_no::widen(body.u16()?);
    body.skip(6)?;
    let queue = body.u32()?;
    if !can_enqueue(port) {
        return Err(ErrorCode::ActionOutPort);
    }
    let output = Action::Output { port, max_len: 0 };
    let end = Action::PopQueue { ends_enqueue: true };
    actions.extend([Action::SetQueue(queue), output, end]);
    Ok(())
}

/// Returns whether a port can have queues.
const fn can_enqueue(port: PortNo) -> bool {
    port.number() <= PortNo::MAX.number() || matches!(port, PortNo::IN_PORT | PortNo::LOCAL)
}

/// Reads a Nicira action, after its subtype, that only OpenFlow 1.0 has.
pub(crate) fn read_nicira_action(
    subtype: u16,
    body: &mut ByteReader<'_>,
) -> Result<Action, ErrorCode> {
    if !matches!(
        subtype,
        nx::SET_QUEUE | nx::DEC_TTL | nx::PUSH_MPLS
            ..=nx::DEC_MPLS_TTL | nx::SET_MPLS_LABEL | nx::SET_MPLS_TC | nx::GROUP
    ) {
        return Err(ErrorCode::ActionExperimenterType);
    }
    if body.len() != 6 {
        return Err(ErrorCode::ActionLength);
    }
    Ok(match subtype {
        nx::SET_QUEUE => Action::SetQueue(read_aligned(body)?),
        nx::GROUP => match GroupId::new(read_aligned(body)?) {
            group if group <= GroupId::MAX => Action::Group(group),
            _ => return Err(ErrorCode::ActionOutGroup),
        },
        nx::DEC_TTL => Action::DecTtl { controllers: Box::new([0]) },
        nx::PUSH_MPLS => match body.u16()? {
            ethertype @ (0x8847 | 0x8848) => Action::PushMpls { ethertype },
            _ => return Err(ErrorCode::ActionArgument),
        },
        nx::POP_MPLS => Action::PopMpls { ethertype: body.u16()? },
        nx::SET_MPLS_TTL => Action::SetMplsTtl(body.u8()?),
        nx::DEC_MPLS_TTL => Action::DecMplsTtl,
        // Open vSwitch ignores excess bits of an MPLS label or traffic class.
        nx::SET_MPLS_LABEL => {
            let field = FieldId::MplsLabel;
            let value = u128::from(read_aligned(body)?) & field.value_max();
            Action::SetField { field, value, mask: field.value_max() }
        }
        _ => {
            let field = FieldId::MplsTc;
            let value = u128::from(body.u8()?) & field.value_max();
            Action::SetField { field, value, mask: field.value_max() }
        }
    })
}

/// Reads a number that begins at a multiple of four bytes.
fn read_aligned(body: &mut ByteReader<'_>) -> Result<u32, ErrorCode> {
    body.skip(2)?;
    Ok(body.u32()?)
}

/// Writes the instructions of a rule as one action list.
pub(super) fn put_instructions(out: &mut Vec<u8>, instructions: &Instructions) {
    let Instructions { meter: _, apply, clear: _, write: _, metadata, goto } = instructions;
    put_actions(out, apply);
    match metadata.filter(|(_, mask)| *mask != 0) {
        // A client reads no action after `NXAST_WRITE_METADATA`.
        Some((value, mask)) if goto.is_some() => {
            put_loads(out, FieldId::Metadata, value.into(), mask.into());
        }
        Some((value, mask)) => nicira::put_write_metadata(out, value, mask),
        None => {}
    }
    if goto.is_some() {
        nicira::put_resubmit(out, None, *goto);
    }
}

/// Writes an action list.
pub(crate) fn put_actions(out: &mut Vec<u8>, actions: &[Action]) {
    let mut rest = actions;
    loop {
        rest = match rest {
            [
                Action::SetQueue(queue),
                Action::Output { port, max_len: 0 },
                Action::PopQueue { ends_enqueue: true },
                rest @ ..,
            ] if can_enqueue(*port) => {
                put_enqueue(out, *port, *queue);
                rest
            }
            [action, rest @ ..] => {
                put(out, action);
                rest
            }
            [] => return,
        };
    }
}

/// Writes an `OFPAT_ENQUEUE`.
fn put_enqueue(out: &mut Vec<u8>, port: PortNo, queue: u32) {
    standard(out, action_type::ENQUEUE, |out| {
        out.put_u16(nicira::narrow(port));
        out.put_bytes(0, 6);
        out.put_u32(queue);
    });
}

/// Writes an action.
fn put(out: &mut Vec<u8>, action: &Action) {
    let mut put_nicira = |subtype: u16, body: &dyn Fn(&mut Vec<u8>)| {
        nicira::experimenter(out, subtype, body);
    };
    match action {
        Action::Output { port, max_len } => standard(out, action_type::OUTPUT, |out| {
            out.put_u16(nicira::narrow(*port));
            out.put_u16(*max_len);
        }),
        Action::SetField { field, value, mask } => put_set_field(out, *field, *value, *mask),
        Action::SetTpSrc(port) => standard(out, action_type::SET_TP_SRC, |out| out.put_u16(*port)),
        Action::SetTpDst(port) => standard(out, action_type::SET_TP_DST, |out| out.put_u16(*port)),
        Action::PopVlan => standard(out, action_type::STRIP_VLAN, |_| {}),
        Action::SetNwTtl(ttl) => {
            put_loads(out, FieldId::NwTtl, (*ttl).into(), FieldId::NwTtl.value_max());
        }
        Action::SetQueue(queue) => put_nicira(nx::SET_QUEUE, &|out| put_aligned(out, *queue)),
        Action::DecTtl { controllers } if **controllers == [0] => {
            put_nicira(nx::DEC_TTL, &|_| {});
        }
        Action::PushMpls { ethertype } => {
            put_nicira(nx::PUSH_MPLS, &|out| out.put_u16(*ethertype));
        }
        Action::PopMpls { ethertype } => {
            put_nicira(nx::POP_MPLS, &|out| out.put_u16(*ethertype));
        }
        Action::SetMplsTtl(ttl) => put_nicira(nx::SET_MPLS_TTL, &|out| out.put_u8(*ttl)),
        Action::DecMplsTtl => put_nicira(nx::DEC_MPLS_TTL, &|_| {}),
        Action::Group(group) => put_nicira(nx::GROUP, &|out| put_aligned(out, group.number())),
        // OpenFlow 1.0 has no form for these actions. A write to the tag follows a push.
        Action::PushVlan { .. } | Action::CopyTtlOut | Action::CopyTtlIn | Action::Meter(_) => {}
        // The actions of Nicira are the same in every version.
        Action::OutputTruncated { .. }
        | Action::DecTtl { .. }
        | Action::OutputField { .. }
        | Action::Controller(_)
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::Resubmit { .. }
        | Action::PopQueue { .. }
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit
        | Action::Push(_)
        | Action::Pop(_)
        | Action::Learn(_)
        | Action::Conjunction { .. }
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::FinTimeout { .. }
        | Action::CheckPktLarger { .. }
        | Action::Ct(_)
        | Action::CtClear
        | Action::Nat(_)
        | Action::Sample(_) => put_action(out, action, ActionFormat::V10),
    }
}

/// Writes a number at the next multiple of four bytes.
fn put_aligned(out: &mut Vec<u8>, number: u32) {
    out.put_u16(0);
    out.put_u32(number);
}

/// Writes the action that sets a tunnel key; a large key needs 64 bits.
fn put_tunnel(out: &mut Vec<u8>, id: u64) {
    match u32::try_from(id) {
        Ok(id) => nicira::experimenter(out, nx::SET_TUNNEL, |out| put_aligned(out, id)),
        Err(_) => nicira::experimenter(out, nx::SET_TUNNEL64, |out| {
            out.put_bytes(0, 6);
            out.put_u64(id);
        }),
    }
}

/// Writes the actions that set a field, as Open vSwitch does.
///
/// A field without a standard action is written by `NXAST_REG_LOAD`.
fn put_set_field(out: &mut Vec<u8>, field: FieldId, value: u128, mask: u128) {
    use FieldId::{
        DlVlan, DlVlanPcp, EthDst, EthSrc, InPort, IpDscp, Ipv4Dst, Ipv4Src, MplsLabel, MplsTc,
        NwTos, SctpDst, SctpSrc, TcpDst, TcpSrc, TunId, UdpDst, UdpSrc, VlanPcp, VlanTci, VlanVid,
    };

    let is_whole = mask == field.value_max();
    // Every field with a standard action has less than 64 bits.
    let number = u64::try_from(value).unwrap_or(u64::MAX);
    let (kind, number, length) = match field {
        VlanVid | DlVlan if is_whole => (action_type::SET_VLAN_VID, number & 0xfff, 2),
        VlanPcp | DlVlanPcp if is_whole => (action_type::SET_VLAN_PCP, number, 1),
        EthSrc if is_whole => (action_type::SET_DL_SRC, number, 6),
        EthDst if is_whole => (action_type::SET_DL_DST, number, 6),
        Ipv4Src if is_whole => (action_type::SET_NW_SRC, number, 4),
        Ipv4Dst if is_whole => (action_type::SET_NW_DST, number, 4),
        IpDscp if is_whole => (action_type::SET_NW_TOS, number << 2, 1),
        NwTos if is_whole => (action_type::SET_NW_TOS, number, 1),
        TcpSrc | UdpSrc | SctpSrc if is_whole => (action_type::SET_TP_SRC, number, 2),
        TcpDst | UdpDst | SctpDst if is_whole => (action_type::SET_TP_DST, number, 2),
        TunId if is_whole => return put_tunnel(out, number),
        MplsLabel if is_whole => {
            let label = u32::try_from(number).unwrap_or(u32::MAX);
            nicira::experimenter(out, nx::SET_MPLS_LABEL, |out| put_aligned(out, label));
            return;
        }
        MplsTc if is_whole => {
            nicira::experimenter(out, nx::SET_MPLS_TC, |out| out.put_uint(number, 1));
            return;
        }
        VlanTci if is_whole => return put_tci(out, value),
        // The field has 16 bits in OpenFlow 1.0, which name each port.
        InPort if is_whole => return put_loads(out, field, value, 0xffff),
        _ => return put_loads(out, field, value, mask),
    };
    standard(out, kind, |out| out.put_uint(number, length));
}

/// Writes the actions that give a packet this tag, or none.
fn put_tci(out: &mut Vec<u8>, tci: u128) {
    if tci & VLAN_PRESENT == 0 {
        standard(out, action_type::STRIP_VLAN, |_| {});
        return;
    }
    put_set_field(out, FieldId::DlVlan, tci & 0xfff, FieldId::DlVlan.value_max());
    put_set_field(out, FieldId::DlVlanPcp, tci >> 13, FieldId::DlVlanPcp.value_max());
}

/// Writes one `NXAST_REG_LOAD` for each run of bits in `mask`, of 64 bits at most.
fn put_loads(out: &mut Vec<u8>, field: FieldId, value: u128, mask: u128) {
    let mut rest = mask & field.value_max();
    while rest != 0 {
        let offset = rest.trailing_zeros();
        let width = (rest >> offset).trailing_ones().min(u64::BITS);
        let run = !u128::MAX.unbounded_shl(width);
        rest &= !(run << offset);
        let (Ok(first), Ok(count)) = (u8::try_from(offset), u8::try_from(width)) else { return };
        let Some(target) = Subfield::new(field, first, count) else { return };
        let value = u64::try_from(value >> offset & run).unwrap_or(u64::MAX);
        put_action(out, &Action::Load { target, value }, ActionFormat::V10);
    }
}
