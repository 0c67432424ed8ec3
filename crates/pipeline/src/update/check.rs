//! What actions ask for is there: groups, meters, and the actions themselves.

use shunt_classifier::Version;

use crate::{
    action::Action,
    bridges::bridge::Bridge,
    tables::{flow_mod::FlowModError, rule::Instructions, rule_filter::any_action},
};

/// Makes sure that instructions name what the bridge has, and ask for what the switch can do.
pub(crate) fn check_instructions(
    bridge: &Bridge,
    instructions: &Instructions,
    version: Version,
) -> Result<(), FlowModError> {
    if let Some(meter) = instructions.meter
        && bridge.meters.find(meter, version).is_none()
    {
        return Err(FlowModError::NoSuchMeter(meter));
    }
    check_conjunction(instructions)?;
    check_actions(bridge, &[&instructions.apply, &instructions.write], version)
}

/// As [`check_instructions`], of lists of actions, whatever they are lists of.
///
/// Of a meter that packet-ins pass nothing is asked, as in Open vSwitch: without it they pass.
pub(crate) fn check_actions(
    bridge: &Bridge,
    lists: &[&[Action]],
    version: Version,
) -> Result<(), FlowModError> {
    let mut result = Ok(());
    any_action(lists, |action| {
        result = check_action(bridge, action, version);
        result.is_err()
    });
    result
}

/// As [`check_actions`], of one action; what is in it is not looked at.
pub(crate) fn check_action(
    bridge: &Bridge,
    action: &Action,
    version: Version,
) -> Result<(), FlowModError> {
    match action {
        Action::Group(group) if bridge.groups.find(*group, version).is_none() => {
            Err(FlowModError::NoSuchGroup(*group))
        }
        Action::Meter(meter) if bridge.meters.find(*meter, version).is_none() => {
            Err(FlowModError::NoSuchMeter(*meter))
        }
        Action::Ct(_) => Err(FlowModError::NotYet("ct")),
        Action::CtClear => Err(FlowModError::NotYet("ct_clear")),
        Action::Nat(_) => Err(FlowModError::NotYet("nat")),
        Action::Sample(_) => Err(FlowModError::NotYet("sample")),
        _ => Ok(()),
    }
}

/// Beside a `conjunction`, only a `note` may stand.
fn check_conjunction(instructions: &Instructions) -> Result<(), FlowModError> {
    let Instructions { meter, apply, clear, write, metadata, goto } = instructions;
    let is_clause = |action: &Action| matches!(action, Action::Conjunction { .. });
    let is_idle = |action: &Action| is_clause(action) || matches!(action, Action::Note(_));
    let is_alone = meter.is_none() && !clear && write.is_empty();
    let is_alone = is_alone && metadata.is_none() && goto.is_none();
    if any_action(&[apply, write], is_clause) && !(is_alone && apply.iter().all(is_idle)) {
        return Err(FlowModError::MixedConjunction);
    }
    Ok(())
}
