//! Actions of OpenFlow 1.0 as OpenFlow 1.3 lists them.
//!
//! `mod_vlan_vid` and `mod_vlan_pcp` of OpenFlow 1.0 add a tag to an untagged packet. OpenFlow 1.3
//! has no such action, and lists a `push_vlan` before the write to the tag. As in Open vSwitch, no
//! `push_vlan` is listed if the match and the actions before give a tag to every packet.
//!
//! `mod_tp_src` and `mod_tp_dst` write a port of TCP, UDP or SCTP. OpenFlow 1.3 has no such action
//! either, and lists a `set_field` of the protocol that the match requires. If the match requires
//! none of them, the number of OpenFlow 1.1 is sent, as in Open vSwitch.

use shunt_flow::{FieldId, FlowMask, Match, prerequisite};
use shunt_pipeline::Action;

/// The bit of `vlan_tci` that is set if the packet has a tag.
const TCI_PRESENT: u64 = 0x1000;

/// The headers that every packet of a rule has when an action runs.
#[derive(Clone, Copy)]
pub(in crate::wire::v13) struct CommonHeaders {
    /// True if every packet has a VLAN tag.
    has_tag: bool,
    /// The source and destination port fields, if all packets have the same protocol.
    ports: Option<[FieldId; 2]>,
}

impl CommonHeaders {
    /// Returns the headers that a match requires.
    pub(in crate::wire::v13) fn of(matching: &Match) -> Self {
        use FieldId::{SctpDst, SctpSrc, TcpDst, TcpSrc, UdpDst, UdpSrc, VlanTci};

        let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
        let has_tag = key.field(VlanTci) & mask.field(VlanTci) & u128::from(TCI_PRESENT) != 0;
        let protocols = [[TcpSrc, TcpDst], [UdpSrc, UdpDst], [SctpSrc, SctpDst]];
        let is_required = |[source, _]: &[FieldId; 2]| prerequisite::is_met(*source, &key, &mask);
        Self { has_tag, ports: protocols.into_iter().find(is_required) }
    }

    /// Returns the headers after an action.
    fn after(self, action: &Action) -> Self {
        let has_tag = has_tag_after(action, self.has_tag);
        // The headers after a label are unknown.
        let ports = self.ports.filter(|_| !matches!(action, Action::PushMpls { .. }));
        Self { has_tag, ports }
    }
}

/// Returns the actions in the form of OpenFlow 1.3, if that form differs.
///
/// Every packet has `headers` before the first action.
pub(in crate::wire::v13) fn in_openflow_13(
    actions: &[Action],
    mut headers: CommonHeaders,
) -> Option<Vec<Action>> {
    if !actions.iter().any(has_other_form) {
        return None;
    }
    let mut listed = Vec::with_capacity(actions.len());
    for action in actions {
        if writes_tag(action) && !headers.has_tag {
            listed.push(Action::PushVlan { ethertype: 0x8100 });
        }
        listed.push(other_form(action, headers).unwrap_or_else(|| action.clone()));
        headers = headers.after(action);
    }
    Some(listed)
}

/// Returns an action as OpenFlow 1.3 lists it, if that differs from the action.
fn other_form(action: &Action, headers: CommonHeaders) -> Option<Action> {
    match action {
        Action::SetTpSrc(port) => headers.ports.map(|[source, _]| write(source, *port)),
        Action::SetTpDst(port) => headers.ports.map(|[_, destination]| write(destination, *port)),
        // A clone does not change the packet of later actions.
        Action::Clone(nested) => {
            in_openflow_13(nested, headers).map(|nested| Action::Clone(nested.into()))
        }
        _ => None,
    }
}

/// Returns the action that sets a whole field to a port.
fn write(field: FieldId, port: u16) -> Action {
    Action::SetField { field, value: port.into(), mask: field.value_max() }
}

/// Returns whether OpenFlow 1.3 may list an action in another form.
fn has_other_form(action: &Action) -> bool {
    match action {
        Action::Clone(nested) => nested.iter().any(has_other_form),
        Action::SetTpSrc(_) | Action::SetTpDst(_) => true,
        _ => writes_tag(action),
    }
}

/// Returns whether an action writes to the tag, and adds one if there is none.
const fn writes_tag(action: &Action) -> bool {
    matches!(action, Action::SetField { field: FieldId::DlVlan | FieldId::DlVlanPcp, .. })
}

/// Returns whether a packet has a VLAN tag after an action.
fn has_tag_after(action: &Action, before: bool) -> bool {
    match action {
        Action::PushVlan { .. } => true,
        Action::PopVlan => false,
        Action::SetField { field: FieldId::VlanTci, value, .. } => {
            value & u128::from(TCI_PRESENT) != 0
        }
        // Open vSwitch takes a write to a part of the field as one to the whole field.
        Action::Load { target, value } if target.field == FieldId::VlanTci => {
            value.checked_shl(target.offset.into()).unwrap_or_default() & TCI_PRESENT != 0
        }
        _ => before || writes_tag(action),
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        FlowMod, Instructions,
        text::{format_actions, parse_saved_rule},
    };

    use super::*;

    /// Open vSwitch 3.1 listed a `push_vlan` at the same places.
    #[test]
    fn tag_is_pushed_if_match_has_none() {
        for (rule, listed) in [
            ("actions=set_field:5->dl_vlan", "push_vlan:0x8100,set_field:5->dl_vlan"),
            ("dl_vlan=7,actions=set_field:5->dl_vlan", "set_field:5->dl_vlan"),
            ("vlan_tci=0x1000/0x1000,actions=set_field:5->dl_vlan", "set_field:5->dl_vlan"),
            ("vlan_tci=0,actions=set_field:5->dl_vlan", "push_vlan:0x8100,set_field:5->dl_vlan"),
            (
                "actions=set_field:3->dl_vlan_pcp,set_field:5->dl_vlan",
                "push_vlan:0x8100,set_field:3->dl_vlan_pcp,set_field:5->dl_vlan",
            ),
            (
                "dl_vlan=7,actions=pop_vlan,set_field:5->dl_vlan",
                "pop_vlan,push_vlan:0x8100,set_field:5->dl_vlan",
            ),
            (
                "dl_vlan=7,actions=clone(pop_vlan),set_field:2->dl_vlan_pcp",
                "clone(pop_vlan),set_field:2->dl_vlan_pcp",
            ),
            (
                "actions=clone(set_field:1->dl_vlan),set_field:2->dl_vlan",
                "clone(push_vlan:0x8100,set_field:1->dl_vlan),push_vlan:0x8100,set_field:2->dl_vlan",
            ),
            // A controller may send the packet back without a tag; Open vSwitch lists no push either.
            (
                "dl_vlan=7,actions=controller(pause),set_field:5->dl_vlan",
                "controller(pause),set_field:5->dl_vlan",
            ),
            (
                "actions=controller(pause),set_field:5->dl_vlan",
                "controller(pause),push_vlan:0x8100,set_field:5->dl_vlan",
            ),
            (
                "actions=load:0x1007->NXM_OF_VLAN_TCI[],set_field:5->dl_vlan",
                "load:0x1007->NXM_OF_VLAN_TCI[],set_field:5->dl_vlan",
            ),
            (
                "dl_vlan=7,actions=load:0->NXM_OF_VLAN_TCI[],set_field:5->dl_vlan",
                "load:0->NXM_OF_VLAN_TCI[],push_vlan:0x8100,set_field:5->dl_vlan",
            ),
        ] {
            let rule = parse_saved_rule(rule).unwrap();
            assert_eq!(listed_actions(&rule).unwrap(), listed);
        }
        let without = parse_saved_rule("actions=pop_vlan,output:2").unwrap();
        assert_eq!(listed_actions(&without), None);
    }

    /// Open vSwitch 3.1 listed the same fields.
    #[test]
    fn port_is_listed_as_field_of_protocol() {
        for (rule, listed) in [
            ("tcp,actions=mod_tp_dst:7", "set_field:7->tcp_dst"),
            ("udp6,actions=mod_tp_src:7", "set_field:7->udp_src"),
            ("sctp,actions=mod_tp_src:7", "set_field:7->sctp_src"),
            ("tcp,actions=clone(mod_tp_src:7)", "clone(set_field:7->tcp_src)"),
            ("ip,actions=mod_tp_dst:7", "mod_tp_dst:7"),
            ("actions=mod_tp_src:7", "mod_tp_src:7"),
            ("tcp,actions=push_mpls:0x8847,mod_tp_dst:7", "push_mpls:0x8847,mod_tp_dst:7"),
        ] {
            let (text, actions) = rule.split_once("actions=").unwrap();
            let mut rule = parse_saved_rule(&format!("{text}actions=drop")).unwrap();
            rule.instructions =
                parse_saved_rule(&format!("actions={actions}")).unwrap().instructions;
            assert_eq!(listed_actions(&rule).unwrap(), listed);
        }
    }

    /// Returns the text of the actions that are listed, if they are other ones.
    fn listed_actions(rule: &FlowMod) -> Option<String> {
        let headers = CommonHeaders::of(&rule.matching);
        let apply = in_openflow_13(&rule.instructions.apply, headers)?.into();
        let instructions = Instructions { apply, ..Instructions::default() };
        Some(format_actions(&instructions, &NoPortNames))
    }
}
