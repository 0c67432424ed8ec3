//! Actions of OpenFlow 1.0 that may add a VLAN tag, as OpenFlow 1.3 lists them.
//!
//! `mod_vlan_vid` and `mod_vlan_pcp` of OpenFlow 1.0 add a tag to an untagged packet. OpenFlow 1.3
//! has no such action, and lists a `push_vlan` before the write to the tag. As in Open vSwitch, no
//! `push_vlan` is listed if the match and the actions before give a tag to every packet.

use shunt_flow::{FieldId, FlowMask, Match};
use shunt_pipeline::Action;

/// The bit of `vlan_tci` that is set if the packet has a tag.
const VLAN_PRESENT: u64 = 0x1000;

/// Returns whether a match requires a VLAN tag.
pub(in crate::wire::v13) fn requires_tag(matching: &Match) -> bool {
    let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
    let field = FieldId::VlanTci;
    key.field(field) & mask.field(field) & u128::from(VLAN_PRESENT) != 0
}

/// Returns the actions with a `push_vlan` before each one that may add a tag.
///
/// `has_tag` is true if every packet has a tag. Returns `None` if no action may add a tag.
pub(in crate::wire::v13) fn with_vlan_pushes(
    actions: &[Action],
    mut has_tag: bool,
) -> Option<Vec<Action>> {
    if !actions.iter().any(may_add_tag) {
        return None;
    }
    let mut listed = Vec::with_capacity(actions.len());
    for action in actions {
        if writes_tag(action) && !has_tag {
            listed.push(Action::PushVlan { ethertype: 0x8100 });
        }
        let nested = match action {
            // A clone does not change the packet of later actions.
            Action::Clone(nested) => with_vlan_pushes(nested, has_tag),
            _ => None,
        };
        listed.push(nested.map_or_else(|| action.clone(), |nested| Action::Clone(nested.into())));
        has_tag = has_tag_after(action, has_tag);
    }
    Some(listed)
}

fn may_add_tag(action: &Action) -> bool {
    match action {
        Action::Clone(nested) => nested.iter().any(may_add_tag),
        _ => writes_tag(action),
    }
}

/// Returns whether an action writes to the tag, and adds one if there is none.
const fn writes_tag(action: &Action) -> bool {
    matches!(action, Action::SetField { field: FieldId::DlVlan | FieldId::DlVlanPcp, .. })
}

fn has_tag_after(action: &Action, before: bool) -> bool {
    match action {
        Action::PushVlan { .. } => true,
        Action::PopVlan => false,
        Action::SetField { field: FieldId::VlanTci, value, .. } => {
            value & u128::from(VLAN_PRESENT) != 0
        }
        // Open vSwitch takes a write to a part of the field as one to the whole field.
        Action::Load { target, value } if target.field == FieldId::VlanTci => {
            value.checked_shl(target.offset.into()).unwrap_or_default() & VLAN_PRESENT != 0
        }
        _ => before || writes_tag(action),
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        Instructions,
        text::{format_actions, parse_saved_rule},
    };

    use super::*;

    /// Open vSwitch 3.1 listed a `push_vlan` at the same places.
    #[test]
    fn a_tag_is_pushed_if_the_match_has_none() {
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
            let has_tag = requires_tag(&rule.matching);
            let apply = with_vlan_pushes(&rule.instructions.apply, has_tag).unwrap().into();
            let instructions = Instructions { apply, ..Instructions::default() };
            assert_eq!(format_actions(&instructions, &NoPortNames), listed);
        }
        let without = parse_saved_rule("actions=pop_vlan,output:2").unwrap();
        assert_eq!(with_vlan_pushes(&without.instructions.apply, false), None);
    }
}
