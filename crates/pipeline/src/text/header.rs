//! Arguments of actions that write headers and registers.

use shunt_flow::{
    FieldId,
    text::{integer, parse_value},
};

use super::{
    RuleTextError, RuleTextProblem,
    argument::bad,
    number::parse_as,
    piece::Piece,
    scope::{Scope, Transport},
    subfield,
};
use crate::{Action, Subfield};

/// What to do where a packet has no VLAN tag to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// Push one first.
    PushIfNone,
    /// There must be one.
    Present,
}

/// Which of the two ports of a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Target,
}

/// `set_field:VALUE[/MASK]->FIELD`.
pub(super) fn set_field(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    let (value, name) = arrow(argument, "set_field", "set_field:VALUE[/MASK]->FIELD")?;
    let field = FieldId::find(name.text()).ok_or_else(|| subfield::unknown_field(name))?;
    subfield::writable(field).map_err(|problem| name.error(problem))?;
    write(field, value)
}

/// `load:VALUE->FIELD[..]`; a field of more than 64 bits is loaded in two halves.
pub(super) fn load(argument: Piece<'_>) -> Result<Vec<Action>, RuleTextError> {
    let (text, target) = arrow(argument, "load", "load:VALUE->FIELD[FIRST..LAST]")?;
    let target = subfield::parse_target(target)?;
    let width = target.width;
    let value = limited(text, "a value of so many bits", u128::MAX >> (128 - width))?;
    let halves = [(0, width.min(64)), (64, width.saturating_sub(64))];
    let part = |(offset, width): (u8, u8)| {
        let target = Subfield::new(target.field, target.offset + offset, width)?;
        let value = u64::try_from(value >> offset & u128::from(u64::MAX)).ok()?;
        Some(Action::Load { target, value })
    };
    Ok(halves.into_iter().filter_map(part).collect())
}

/// `move:FIELD[..]->FIELD[..]`.
pub(super) fn moved(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    let (source, target) = arrow(argument, "move", "move:FIELD[..]->FIELD[..]")?;
    let (source, target) = (subfield::parse(source)?, subfield::parse_target(target)?);
    if source.width != target.width {
        let (source_width, target_width) = (source.width, target.width);
        return Err(argument.error(RuleTextProblem::Widths { source_width, target_width }));
    }
    Ok(Action::Move { source, target })
}

/// The field that an action writes whole: the actions of OpenFlow 1.0 and 1.1, and `set_tunnel`.
pub(super) fn field_of(name: &str) -> Option<FieldId> {
    Some(match name {
        "mod_dl_src" => FieldId::EthSrc,
        "mod_dl_dst" => FieldId::EthDst,
        "mod_nw_src" => FieldId::Ipv4Src,
        "mod_nw_dst" => FieldId::Ipv4Dst,
        "mod_nw_ecn" => FieldId::IpEcn,
        "mod_nw_ttl" | "set_nw_ttl" => FieldId::NwTtl,
        "set_tunnel" | "set_tunnel64" => FieldId::TunId,
        "set_mpls_label" => FieldId::MplsLabel,
        "set_mpls_tc" => FieldId::MplsTc,
        _ => return None,
    })
}

/// Writes a field whole.
pub(super) fn whole(field: FieldId, argument: Piece<'_>) -> Result<Action, RuleTextError> {
    match write(field, argument)? {
        Action::SetField { mask, .. } if mask != field.value_max() => {
            Err(argument.error(bad(argument, field.name(), "a value without a mask")))
        }
        action => Ok(action),
    }
}

/// `mod_nw_tos:TOS`: the six bits of it that are not those of ECN.
pub(super) fn tos(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    let tos = parse_as(argument, "a TOS", u8::MAX)?;
    if tos & ECN_BITS != 0 {
        let (value, field) = (u128::from(tos), FieldId::NwTos);
        return Err(argument.error(RuleTextProblem::BadValue { value, field, rule: TOS_RULE }));
    }
    Ok(exact(FieldId::IpDscp, u128::from(tos >> 2)))
}

/// `mod_tp_src:PORT` and `mod_tp_dst:PORT`, of the protocol that the rule matches.
pub(super) fn transport(
    argument: Piece<'_>,
    scope: &Scope<'_>,
    end: End,
) -> Result<Action, RuleTextError> {
    let name = match end {
        End::Source => "mod_tp_src",
        End::Target => "mod_tp_dst",
    };
    let protocol =
        scope.transport().ok_or_else(|| argument.error(RuleTextProblem::NoTransport(name)))?;
    let field = match (protocol, end) {
        (Transport::Tcp, End::Source) => FieldId::TcpSrc,
        (Transport::Tcp, End::Target) => FieldId::TcpDst,
        (Transport::Udp, End::Source) => FieldId::UdpSrc,
        (Transport::Udp, End::Target) => FieldId::UdpDst,
        (Transport::Sctp, End::Source) => FieldId::SctpSrc,
        (Transport::Sctp, End::Target) => FieldId::SctpDst,
    };
    let port = parse_as(argument, "a port", u16::MAX)?;
    Ok(exact(field, u128::from(port)))
}

/// `mod_vlan_vid:VID`, `set_vlan_vid:VID`.
pub(super) fn vlan_vid(
    argument: Piece<'_>,
    scope: &Scope<'_>,
    tag: Tag,
) -> Result<Vec<Action>, RuleTextError> {
    let vid = limited(argument, "a VLAN", VLAN_VID_MAX)?;
    Ok(tagged(exact(FieldId::VlanVid, vid | VLAN_PRESENT), scope, tag))
}

/// `mod_vlan_pcp:PCP`, `set_vlan_pcp:PCP`.
pub(super) fn vlan_pcp(
    argument: Piece<'_>,
    scope: &Scope<'_>,
    tag: Tag,
) -> Result<Vec<Action>, RuleTextError> {
    let pcp = limited(argument, "a VLAN priority", VLAN_PCP_MAX)?;
    Ok(tagged(exact(FieldId::VlanPcp, pcp), scope, tag))
}

fn tagged(action: Action, scope: &Scope<'_>, tag: Tag) -> Vec<Action> {
    if tag == Tag::PushIfNone && !scope.has_vlan() {
        vec![Action::PushVlan { ethertype: 0x8100 }, action]
    } else {
        vec![action]
    }
}

fn limited(argument: Piece<'_>, of: &'static str, max: u128) -> Result<u128, RuleTextError> {
    integer(argument.text()).filter(|value| *value <= max).ok_or_else(|| {
        let text = argument.text().to_owned();
        argument.error(RuleTextProblem::BadNumber { of, text, max })
    })
}

fn write(field: FieldId, text: Piece<'_>) -> Result<Action, RuleTextError> {
    let (value, mask) =
        parse_value(field, text.text()).map_err(|error| text.error(error.into()))?;
    let bad = |rule| text.error(RuleTextProblem::BadValue { value, field, rule });
    match field {
        _ if mask == 0 => Err(text.error(RuleTextProblem::EmptyMask(field))),
        FieldId::VlanVid if mask & VLAN_PRESENT & !value != 0 => Err(bad(VID_RULE)),
        _ => Ok(Action::SetField { field, value, mask }),
    }
}

const fn exact(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

fn arrow<'a>(
    argument: Piece<'a>,
    action: &'static str,
    form: &'static str,
) -> Result<(Piece<'a>, Piece<'a>), RuleTextError> {
    argument.split_once("->").ok_or_else(|| argument.error(bad(argument, action, form)))
}

const VLAN_VID_MAX: u128 = 0xfff;
const VLAN_PCP_MAX: u128 = 7;
/// The bit of `vlan_vid` that says that there is a tag.
const VLAN_PRESENT: u128 = 0x1000;
/// The bits of the TOS byte that belong to ECN.
const ECN_BITS: u8 = 3;
const VID_RULE: &str = "add 0x1000, the bit that says that there is a tag";
const TOS_RULE: &str = "its two lowest bits are nw_ecn";
