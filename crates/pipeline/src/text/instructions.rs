//! Lists of actions, and the instructions around them.
//!
//! `output:1,write_metadata:5,goto_table:2` is one list to people and three instructions on the
//! wire: what is not an instruction of its own is part of `apply_actions`. The list must name
//! instructions in the order in which they are executed (OpenFlow 1.3.5, 5.9).

use shunt_flow::text::PortNames;

use super::{
    RuleTextError, RuleTextProblem, action, argument,
    names::find_later,
    piece::{Item, Piece},
    scope::Scope,
};
use crate::{Action, Instructions};

/// How deep `clone` may stand within `clone`.
pub(super) const CLONE_DEPTH_MAX: usize = 32;

/// Reads what stands behind `actions=`, as a packet-out has it.
///
/// Nothing is known of the packet, so no action is refused because the packet may lack a header.
///
/// # Errors
///
/// What is wrong, and where in `text`.
pub fn parse_actions(text: &str, ports: &dyn PortNames) -> Result<Instructions, RuleTextError> {
    parse_instructions(Piece::whole(text), Scope::of_packet_out(ports))
}

/// Reads what stands behind `actions=` of a rule.
pub(super) fn parse_instructions(
    text: Piece<'_>,
    scope: Scope<'_>,
) -> Result<Instructions, RuleTextError> {
    let mut instructions = Instructions::default();
    let mut apply = List::new(Place::Apply, scope);
    let mut before = None;
    for item in text.items() {
        let item = item?;
        let step = Step::of(item.name.text());
        in_order(before, step, item.name)?;
        before = Some(step);
        let argument = item.argument_or_end();
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
                let mut write = List::new(Place::Set, apply.scope.clone());
                write.add_all(argument)?;
                instructions.write = write.finish()?;
            }
            Step::Metadata => instructions.metadata = Some(argument::metadata(argument)?),
            Step::Goto => instructions.goto = Some(argument::table(argument)?),
        }
    }
    let dropped = apply.dropped;
    instructions.apply = apply.finish()?;
    match dropped {
        Some(drop) if instructions != Instructions::default() => {
            Err(drop.error(RuleTextProblem::DropNotAlone))
        }
        _ => Ok(instructions),
    }
}

/// The instructions, in the order in which they are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Apply,
    Clear,
    Write,
    Metadata,
    Goto,
}

impl Step {
    const ALL: [Self; 5] = [Self::Apply, Self::Clear, Self::Write, Self::Metadata, Self::Goto];

    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply_actions",
            Self::Clear => "clear_actions",
            Self::Write => "write_actions",
            Self::Metadata => "write_metadata",
            Self::Goto => "goto_table",
        }
    }

    /// The instruction of this name.
    fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name().eq_ignore_ascii_case(name))
    }

    /// The instruction that an item is, or is part of.
    fn of(name: &str) -> Self {
        Self::find(name).unwrap_or(Self::Apply)
    }
}

fn in_order(before: Option<Step>, step: Step, at: Piece<'_>) -> Result<(), RuleTextError> {
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

/// Where a list of actions stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    Apply,
    Set,
    Clone { depth: usize },
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply_actions",
            Self::Set => "write_actions",
            Self::Clone { .. } => "clone",
        }
    }

    const fn depth(self) -> usize {
        match self {
            Self::Apply | Self::Set => 0,
            Self::Clone { depth } => depth,
        }
    }
}

/// Actions read so far.
struct List<'a> {
    place: Place,
    scope: Scope<'a>,
    actions: Vec<Action>,
    dropped: Option<Piece<'a>>,
}

impl<'a> List<'a> {
    const fn new(place: Place, scope: Scope<'a>) -> Self {
        Self { place, scope, actions: Vec::new(), dropped: None }
    }

    fn add_all(&mut self, text: Piece<'a>) -> Result<(), RuleTextError> {
        text.items().try_for_each(|item| self.add(item?))
    }

    fn add(&mut self, item: Item<'a>) -> Result<(), RuleTextError> {
        let name = item.name.text().to_ascii_lowercase();
        if let Some(step) = Step::find(&name) {
            let (instruction, outer) = (step.name(), self.place.name());
            return Err(item.name.error(RuleTextProblem::Nested { instruction, outer }));
        }
        if let Some(later) = find_later(&name) {
            return Err(item.name.error(RuleTextProblem::NotYet(later)));
        }
        match name.as_str() {
            "drop" => {
                item.no_argument("drop")?;
                self.dropped = Some(item.name);
                Ok(())
            }
            "clone" => {
                let inner = self.cloned(item)?;
                self.push(Action::Clone(inner), item.name)
            }
            name => {
                let actions = action::parse(name, item, &self.scope)?;
                actions.into_iter().try_for_each(|action| self.push(action, item.name))
            }
        }
    }

    /// The actions inside a `clone`.
    fn cloned(&self, item: Item<'a>) -> Result<Box<[Action]>, RuleTextError> {
        let depth = self.place.depth() + 1;
        if depth > CLONE_DEPTH_MAX {
            return Err(item.name.error(RuleTextProblem::TooDeep { max: CLONE_DEPTH_MAX }));
        }
        let mut inner = List::new(Place::Clone { depth }, self.scope.clone());
        inner.add_all(item.argument_or_end())?;
        inner.finish()
    }

    fn push(&mut self, action: Action, at: Piece<'a>) -> Result<(), RuleTextError> {
        if matches!(self.place, Place::Set) && !fits_action_set(&action) {
            let name = at.text().to_owned();
            return Err(at.error(RuleTextProblem::NotInActionSet { name }));
        }
        // What a packet is when its action set runs, nobody knows here.
        let unknowable = matches!(action, Action::PopVlan | Action::DecTtl { .. });
        if !(matches!(self.place, Place::Set) && unknowable) {
            self.scope.admit(&action, at)?;
        }
        self.actions.push(action);
        Ok(())
    }

    fn finish(self) -> Result<Box<[Action]>, RuleTextError> {
        match self.dropped {
            Some(drop) if !self.actions.is_empty() => {
                Err(drop.error(RuleTextProblem::DropNotAlone))
            }
            _ => Ok(self.actions.into()),
        }
    }
}

/// Whether an action set can hold the action: those of OpenFlow, and what Open vSwitch adds.
const fn fits_action_set(action: &Action) -> bool {
    match action {
        Action::Output { .. }
        | Action::SetField { .. }
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::DecTtl { .. }
        | Action::Resubmit { .. }
        | Action::SetQueue(_) => true,
        Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_)
        | Action::PopQueue
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit => false,
    }
}
