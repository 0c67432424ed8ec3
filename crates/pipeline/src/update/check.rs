//! Checks that the switch supports actions, and that their groups and meters exist.

use shunt_classifier::Version;

use crate::{
    action::Action,
    bridges::bridge::VersionedBridge,
    tables::{flow_mod::FlowModError, rule::Instructions, rule_filter::any_action},
};

/// Checks instructions: groups and meters exist, and the actions are supported.
pub(crate) fn check_instructions(
    bridge: &VersionedBridge,
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

/// Checks lists of actions: groups and meters exist, and the actions are supported.
///
/// As in Open vSwitch, the meter of a `controller` action need not exist: packet-ins then pass.
pub(crate) fn check_actions(
    bridge: &VersionedBridge,
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

/// Checks that the group or meter of an action exists, and that it is supported.
///
/// Actions inside the action are not checked.
pub(crate) fn check_action(
    bridge: &VersionedBridge,
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
        action => action.unsupported().map_or(Ok(()), |reason| Err(FlowModError::NotYet(reason))),
    }
}

/// Checks that only `note` actions accompany a `conjunction`.
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
