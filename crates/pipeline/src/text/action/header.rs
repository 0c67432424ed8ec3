//! Actions that write whole fields, and that push and pop headers.

use shunt_flow::{
    FieldId,
    text::{integer, parse_value},
};

use super::super::{
    RuleTextError, RuleTextProblem,
    number::parse_as,
    scope::{PortProtocol, Scope},
    slice::TextSlice,
    subfield::{self, Writes},
};
use crate::action::Action;

/// The treatment of packets without a VLAN tag to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VlanTagPolicy {
    /// Push a VLAN tag before the write.
    PushIfNone,
    /// Refuse the action, unless the match requires a tag.
    Present,
}

/// One of the two ports of a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Target,
}

/// Parses `set_field:VALUE[/MASK]->FIELD`.
pub(super) fn set_field(argument: TextSlice<'_>, writes: Writes) -> Result<Action, RuleTextError> {
    let parts = argument.split_once("->");
    let (value, name) =
        parts.ok_or_else(|| argument.bad("set_field", "set_field:VALUE[/MASK]->FIELD"))?;
    let field = FieldId::find(name.text()).ok_or_else(|| subfield::unknown_field(name))?;
    subfield::writable(field, writes).map_err(|problem| name.error(problem))?;
    write(field, value)
}

/// Returns the field that an old action writes, such as `mod_dl_src`.
/// `None` if the action writes no whole field.
pub(super) fn field_of(name: &str) -> Option<FieldId> {
    Some(match name {
        "mod_dl_src" => FieldId::EthSrc,
        "mod_dl_dst" => FieldId::EthDst,
        "mod_nw_src" => FieldId::Ipv4Src,
        "mod_nw_dst" => FieldId::Ipv4Dst,
        "mod_nw_ecn" => FieldId::IpEcn,
        "set_tunnel" | "set_tunnel64" => FieldId::TunId,
        "set_mpls_label" => FieldId::MplsLabel,
        "set_mpls_tc" => FieldId::MplsTc,
        _ => return None,
    })
}

/// Returns the action that writes a value into a whole field.
pub(super) fn whole(field: FieldId, argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    match write(field, argument)? {
        Action::SetField { mask, .. } if mask != field.value_max() => {
            Err(argument.bad(field.name(), "a value without a mask"))
        }
        action => Ok(action),
    }
}

/// Parses `mod_nw_tos:TOS`, which writes the DSCP and keeps the bits of ECN.
pub(super) fn tos(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let tos = parse_as(argument, "a TOS", u8::MAX)?;
    if tos & ECN_BITS != 0 {
        let (value, field) = (u128::from(tos), FieldId::NwTos);
        return Err(argument.error(RuleTextProblem::BadValue { value, field, rule: TOS_RULE }));
    }
    Ok(exact(FieldId::IpDscp, u128::from(tos >> 2)))
}

/// Parses `mod_tp_src:PORT` and `mod_tp_dst:PORT`, for the protocol of the match.
///
/// Without a match, and in a saved rule, the actions write the port of the packet's protocol.
pub(super) fn transport(
    argument: TextSlice<'_>,
    scope: &Scope<'_>,
    end: End,
) -> Result<Action, RuleTextError> {
    let port = parse_as(argument, "a port", u16::MAX)?;
    let (name, unknown) = match end {
        End::Source => ("mod_tp_src", Action::SetTpSrc(port)),
        End::Target => ("mod_tp_dst", Action::SetTpDst(port)),
    };
    if scope.allows_absent() {
        return Ok(unknown);
    }
    let protocol =
        scope.transport().ok_or_else(|| argument.error(RuleTextProblem::NoTransport(name)))?;
    let field = match (protocol, end) {
        (PortProtocol::Tcp, End::Source) => FieldId::TcpSrc,
        (PortProtocol::Tcp, End::Target) => FieldId::TcpDst,
        (PortProtocol::Udp, End::Source) => FieldId::UdpSrc,
        (PortProtocol::Udp, End::Target) => FieldId::UdpDst,
        (PortProtocol::Sctp, End::Source) => FieldId::SctpSrc,
        (PortProtocol::Sctp, End::Target) => FieldId::SctpDst,
    };
    Ok(exact(field, u128::from(port)))
}

/// Parses `mod_vlan_vid:VID` and `set_vlan_vid:VID`.
pub(super) fn vlan_vid(
    argument: TextSlice<'_>,
    scope: &Scope<'_>,
    policy: VlanTagPolicy,
) -> Result<Vec<Action>, RuleTextError> {
    let vid = parse_as(argument, "a VLAN", VLAN_VID_MAX)?;
    Ok(with_vlan_tag(exact(FieldId::VlanVid, vid | VLAN_PRESENT), scope, policy))
}

/// Parses `mod_vlan_pcp:PCP` and `set_vlan_pcp:PCP`.
pub(super) fn vlan_pcp(
    argument: TextSlice<'_>,
    scope: &Scope<'_>,
    policy: VlanTagPolicy,
) -> Result<Vec<Action>, RuleTextError> {
    let pcp = parse_as(argument, "a VLAN priority", VLAN_PCP_MAX)?;
    Ok(with_vlan_tag(exact(FieldId::VlanPcp, pcp), scope, policy))
}

/// Returns an action, after a `push_vlan` if the packet has no tag.
fn with_vlan_tag(action: Action, scope: &Scope<'_>, policy: VlanTagPolicy) -> Vec<Action> {
    if policy == VlanTagPolicy::PushIfNone && !scope.has_vlan() {
        vec![Action::PushVlan { ethertype: 0x8100 }, action]
    } else {
        vec![action]
    }
}

/// Parses a value, and returns the action that writes it.
fn write(field: FieldId, text: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let (value, mask) =
        parse_value(field, text.text()).map_err(|error| text.error(error.into()))?;
    let bad = |rule| text.error(RuleTextProblem::BadValue { value, field, rule });
    match field {
        _ if mask == 0 => Err(text.error(RuleTextProblem::EmptyMask(field))),
        FieldId::VlanVid if mask & VLAN_PRESENT & !value != 0 => Err(bad(VID_RULE)),
        _ => Ok(Action::SetField { field, value, mask }),
    }
}

/// Returns the action that writes all bits of a field.
const fn exact(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

/// Reads the TTL of `mod_nw_ttl:TTL` and `set_mpls_ttl:TTL`.
pub(super) fn ttl(argument: TextSlice<'_>) -> Result<u8, RuleTextError> {
    parse_as(argument, "a TTL", u8::MAX)
}

/// Parses `dec_ttl` and `dec_ttl(ID,..)`; `dec_ttl()` notifies no controller.
pub(super) fn dec_ttl(argument: Option<TextSlice<'_>>) -> Result<Action, RuleTextError> {
    let Some(argument) = argument else {
        return Ok(Action::DecTtl { controllers: Box::new([0]) });
    };
    if argument.is_empty() {
        return Ok(Action::DecTtl { controllers: Box::default() });
    }
    let ids = argument.list().map(|id| parse_as(id, "a controller's id", u16::MAX));
    Ok(Action::DecTtl { controllers: ids.collect::<Result<_, _>>()? })
}

/// Prints `dec_ttl`, with its controllers unless they are the default.
pub(super) fn format_dec_ttl(controllers: &[u16]) -> String {
    if controllers == [0] {
        return "dec_ttl".to_owned();
    }
    let ids: Vec<String> = controllers.iter().map(u16::to_string).collect();
    format!("dec_ttl({})", ids.join(","))
}

/// Parses `push_vlan:TPID`.
pub(super) fn push_vlan(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    match integer(argument.text()) {
        Some(0x8100) => Ok(Action::PushVlan { ethertype: 0x8100 }),
        Some(0x88a8) => Ok(Action::PushVlan { ethertype: 0x88a8 }),
        _ => Err(argument.bad("push_vlan", "push_vlan:0x8100 or push_vlan:0x88a8")),
    }
}

/// Parses `push_mpls:TYPE`.
pub(super) fn push_mpls(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    match integer(argument.text()) {
        Some(0x8847) => Ok(Action::PushMpls { ethertype: 0x8847 }),
        Some(0x8848) => Ok(Action::PushMpls { ethertype: 0x8848 }),
        _ => Err(argument.bad("push_mpls", "push_mpls:0x8847 or push_mpls:0x8848")),
    }
}

/// Parses `pop_mpls:TYPE`.
pub(super) fn pop_mpls(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let ethertype = parse_as(argument, "an Ethernet type", u16::MAX)?;
    Ok(Action::PopMpls { ethertype })
}

/// The greatest VLAN id.
const VLAN_VID_MAX: u128 = 0xfff;
/// The greatest VLAN priority.
const VLAN_PCP_MAX: u128 = 7;
/// The bit of `vlan_vid` that is set if there is a tag.
const VLAN_PRESENT: u128 = 0x1000;
/// The bits of the TOS byte that belong to ECN.
const ECN_BITS: u8 = 3;
/// The advice for a VLAN id without the present bit.
const VID_RULE: &str = "add 0x1000, the bit that marks a present tag";
/// The advice for a TOS value with ECN bits.
const TOS_RULE: &str = "clear its two lowest bits, which are nw_ecn";
