//! Generators of instructions, rules, groups and meters that text can express.

#![expect(clippy::arithmetic_side_effects, reason = "generators choose small numbers")]

mod action;
mod choice;
mod connection;
mod group;
mod learn;

use proptest::{collection::vec, option, prelude::*};
use shunt_flow::text::NoPortNames;

pub use group::{any_group_mod, any_meter_mod};

use super::{
    format_actions, format_group, format_meter, parse_actions, parse_group_mod, parse_meter_mod,
    parse_rule, parse_saved_rule,
};
use crate::{
    action::Action,
    evict::evictor::EntryId,
    groups::group::{GroupCommand, GroupMod},
    id::TableId,
    meters::meter::{MeterCommand, MeterMod},
    tables::{flow_mod::FlowModCommand, rule::Instructions},
};

/// Generates instructions that text can express, in canonical form.
///
/// If two forms of an action are equal, such as `controller` and an output to CONTROLLER, only the
/// simpler form is generated.
pub fn any_instructions() -> impl Strategy<Value = Instructions> {
    let set = vec(action::settable(), 0..4).prop_map(Vec::into_boxed_slice);
    let table = (0..=TableId::MAX.number()).prop_map(TableId::new);
    let meter = option::of(action::meter_id());
    let metadata = option::of(any::<(u64, u64)>());
    let any = (any_actions(), any::<bool>(), set, metadata, option::of(table), meter).prop_map(
        |(apply, clear, write, metadata, goto, meter)| {
            let goto = goto.flatten();
            metered(Instructions { meter, apply, clear, write, metadata, goto })
        },
    );
    let clauses = vec(action::clause(), 1..4)
        .prop_map(|apply| Instructions { apply: apply.into(), ..Instructions::default() });
    prop_oneof![15 => any, 1 => clauses]
}

/// Turns a `meter` action at the start of the list into an instruction.
fn metered(instructions: Instructions) -> Instructions {
    match &*instructions.apply {
        [Action::Meter(meter), rest @ ..] if instructions.meter.is_none() => {
            Instructions { meter: Some(*meter), apply: rest.into(), ..instructions }
        }
        _ => instructions,
    }
}

/// Generates a list of actions.
pub fn any_actions() -> impl Strategy<Value = Box<[Action]>> {
    let leaf = prop_oneof![action::settable(), action::applicable()];
    let action = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![vec(inner, 0..4), vec(action::clause(), 1..3)]
            .prop_map(|actions| Action::Clone(actions.into()))
    });
    vec(action, 0..6).prop_map(Vec::into_boxed_slice)
}

/// Parses arbitrary bytes as a rule, a group, a meter and an entry name.
///
/// Each parser refuses the text, or its printed result parses to the same value. The error of a
/// rule has a position inside the text.
///
/// # Panics
///
/// If a result does not parse back, or if the position of an error is outside the text.
pub fn fuzz_rule_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for command in COMMANDS {
        match parse_rule(command, text, &NoPortNames) {
            Ok(rule) => assert_reads_back(&rule.instructions),
            Err(error) => {
                let place = text.get(error.span.clone());
                assert!(place.is_some() && !error.to_string().is_empty(), "{error:?}");
            }
        }
    }
    match parse_saved_rule(text) {
        Ok(rule) => assert_reads_back(&rule.instructions),
        Err(_) => assert!(parse_rule(FlowModCommand::Add, text, &NoPortNames).is_err(), "{text}"),
    }
    if let Ok(instructions) = parse_actions(text, &NoPortNames) {
        assert_reads_back(&instructions);
    }
    if let Ok(request) = parse_group_mod(GroupCommand::Add, text, &NoPortNames) {
        assert_group_reads_back(&request);
    }
    if let Ok(request) = parse_meter_mod(MeterCommand::Add, text) {
        assert_meter_reads_back(&request);
    }
    if let Ok(entry) = text.parse::<EntryId>() {
        assert_eq!(entry.to_string().parse(), Ok(entry));
    }
}

/// Asserts that printed instructions parse back to the same value.
///
/// # Panics
///
/// If the instructions differ.
pub fn assert_reads_back(instructions: &Instructions) {
    let text = format_actions(instructions, &NoPortNames);
    assert_eq!(parse_actions(&text, &NoPortNames).as_ref(), Ok(instructions), "{text}");
}

/// Asserts that a printed group parses back to the same value.
///
/// # Panics
///
/// If the group differs.
pub fn assert_group_reads_back(request: &GroupMod) {
    let text = format_group(&group::made(request), &NoPortNames);
    assert_eq!(
        parse_group_mod(request.command, &text, &NoPortNames).as_ref(),
        Ok(request),
        "{text}"
    );
}

/// Asserts that a printed meter parses back to the same value.
///
/// # Panics
///
/// If the meter differs.
pub fn assert_meter_reads_back(request: &MeterMod) {
    let text = format_meter(request.meter.unwrap_or_default(), &request.config);
    assert_eq!(parse_meter_mod(request.command, &text).as_ref(), Ok(request), "{text}");
}

/// All commands of a flow-mod.
const COMMANDS: [FlowModCommand; 5] = [
    FlowModCommand::Add,
    FlowModCommand::Modify,
    FlowModCommand::ModifyStrict,
    FlowModCommand::Delete,
    FlowModCommand::DeleteStrict,
];
