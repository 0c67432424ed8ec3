//! Lists of actions, and the instructions around them.
//!
//! `output:1,write_metadata:5,goto_table:2` is one list in text and three instructions in an
//! OpenFlow message. Actions that are no instructions become `apply_actions`. The list must name
//! instructions in the order in which they are executed (OpenFlow 1.3.5, 5.9). `meter` is an
//! instruction at the start of the list, and an action elsewhere, as in OpenFlow 1.5.

use shunt_flow::text::PortNames;

use super::{
    RuleTextError, RuleTextProblem,
    action::{ActionListKind, List},
    number::{parse_as, table},
    scope::Scope,
    slice::TextSlice,
};
use crate::{action::Action, id::MeterId, tables::rule::Instructions};

/// Reads the text after `actions=`, in the form that a packet-out has.
///
/// The packet is not known, so no action is refused because the packet may lack a header.
///
/// # Errors
///
/// The error has the problem and its position in `text`.
pub fn parse_actions(text: &str, ports: &dyn PortNames) -> Result<Instructions, RuleTextError> {
    parse_instructions(TextSlice::whole(text), Scope::of_packet_out(ports))
}

/// Reads the text after `actions=` of a rule.
pub(super) fn parse_instructions(
    text: TextSlice<'_>,
    scope: Scope<'_>,
) -> Result<Instructions, RuleTextError> {
    let mut instructions = Instructions::default();
    let mut apply = List::new(ActionListKind::Apply, scope);
    let mut before = None;
    for item in text.items() {
        let item = item?;
        let step = Step::of(item.name.text());
        in_order(before, step, item.name)?;
        before = Some(step);
        let argument = item.argument_or_end();
        if step != Step::Apply {
            apply.add_beside(item.name);
        }
        match step {
            Step::Apply if item.name.text().eq_ignore_ascii_case(step.name()) => {
                apply.add_all(argument)?;
            }
            Step::Apply => apply.add(item)?,
            Step::Clear => {
                item.no_argument(step.name())?;
                instructions.clear = true;
            }
            Step::Write => {
                let mut write = apply.followed_by(ActionListKind::Set);
                write.add_all(argument)?;
                instructions.write = write.finish()?;
            }
            Step::Metadata => instructions.metadata = Some(metadata(argument)?),
            Step::Goto => instructions.goto = Some(table(argument)?),
        }
    }
    let dropped = apply.dropped();
    (instructions.meter, instructions.apply) = split_meter(apply.finish()?);
    match dropped {
        Some(drop) if instructions != Instructions::default() => {
            Err(drop.error(RuleTextProblem::DropNotAlone))
        }
        _ => Ok(instructions),
    }
}

/// Returns the meter at the start of the actions, and the other actions.
fn split_meter(actions: Box<[Action]>) -> (Option<MeterId>, Box<[Action]>) {
    match &*actions {
        [Action::Meter(meter), rest @ ..] => (Some(*meter), rest.into()),
        _ => (None, actions),
    }
}

/// Reads value and mask of `write_metadata`.
fn metadata(argument: TextSlice<'_>) -> Result<(u64, u64), RuleTextError> {
    let part = |slice| parse_as(slice, "metadata", u64::MAX);
    match argument.split_once("/") {
        Some((value, mask)) => Ok((part(value)?, part(mask)?)),
        None => Ok((part(argument)?, u64::MAX)),
    }
}

/// The instructions of a rule, in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Apply,
    Clear,
    Write,
    Metadata,
    Goto,
}

impl Step {
    /// All instructions, in the order of OpenFlow.
    const ALL: [Self; 5] = [Self::Apply, Self::Clear, Self::Write, Self::Metadata, Self::Goto];

    /// Returns the name of the instruction.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply_actions",
            Self::Clear => "clear_actions",
            Self::Write => "write_actions",
            Self::Metadata => "write_metadata",
            Self::Goto => "goto_table",
        }
    }

    /// Returns the instruction with this name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name().eq_ignore_ascii_case(name))
    }

    /// Returns the instruction of an item; an action is part of `apply_actions`.
    fn of(name: &str) -> Self {
        Self::find(name).unwrap_or(Self::Apply)
    }
}

/// Checks that an instruction comes after the instructions before it.
fn in_order(before: Option<Step>, step: Step, at: TextSlice<'_>) -> Result<(), RuleTextError> {
    match before {
        Some(before) if before > step => {
            let (first, second) = (at.text().to_owned(), before.name());
            Err(at.error(RuleTextProblem::Order { first, second }))
        }
        Some(before) if before == step && step != Step::Apply => {
            Err(at.error(RuleTextProblem::Duplicate(step.name())))
        }
        _ => Ok(()),
    }
}
