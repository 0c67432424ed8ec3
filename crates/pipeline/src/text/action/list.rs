//! Lists of actions, and the rules for their combination.

use super::{
    super::{
        RuleTextError, RuleTextProblem,
        instructions::Step,
        names::find_later,
        scope::Scope,
        slice::{Item, TextSlice},
    },
    named,
};
use crate::action::{Action, CLONE_DEPTH_MAX};

/// The context of a list of actions.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum ActionListKind {
    /// The actions of `apply_actions`.
    Apply,
    /// The actions of `write_actions`, which become an action set.
    Set,
    /// The actions of a bucket, which run as an action set.
    ///
    /// As in Open vSwitch, a bucket may contain actions that a set cannot hold, which have no
    /// effect.
    Bucket,
    /// The actions inside a `clone`.
    Clone {
        /// Number of `clone` actions around the list.
        depth: usize,
    },
}

impl ActionListKind {
    /// Returns the name of the list, for error messages.
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply_actions",
            Self::Set => "write_actions",
            Self::Bucket => "bucket",
            Self::Clone { .. } => "clone",
        }
    }

    /// Returns the number of `clone` actions around the list.
    const fn depth(self) -> usize {
        match self {
            Self::Apply | Self::Set | Self::Bucket => 0,
            Self::Clone { depth } => depth,
        }
    }

    /// Returns whether the list is an action set.
    const fn is_set(self) -> bool {
        matches!(self, Self::Set | Self::Bucket)
    }
}

/// A list of actions while it is parsed.
pub(in super::super) struct List<'a> {
    /// The place of the list, such as an action set.
    kind: ActionListKind,
    /// The names of ports, and the known headers.
    scope: Scope<'a>,
    actions: Vec<Action>,
    /// The text of a `drop` action, if the list has one.
    dropped: Option<TextSlice<'a>>,
    /// True if the list has a `conjunction` action.
    has_clause: bool,
    /// The first item that is illegal in a list with `conjunction`.
    beside_clauses: Option<TextSlice<'a>>,
}

impl<'a> List<'a> {
    /// Returns an empty list.
    pub(in super::super) const fn new(kind: ActionListKind, scope: Scope<'a>) -> Self {
        Self {
            kind,
            scope,
            actions: Vec::new(),
            dropped: None,
            has_clause: false,
            beside_clauses: None,
        }
    }

    /// Returns an empty list; its packets have the headers from the end of this list.
    pub(in super::super) fn followed_by(&self, kind: ActionListKind) -> Self {
        Self::new(kind, self.scope.clone())
    }

    /// Returns the `drop` in the list, if there is one.
    pub(in super::super) const fn dropped(&self) -> Option<TextSlice<'a>> {
        self.dropped
    }

    /// Reads the actions of a list.
    pub(in super::super) fn add_all(&mut self, text: TextSlice<'a>) -> Result<(), RuleTextError> {
        text.items().try_for_each(|item| self.add(item?))
    }

    /// Reads one action into the list.
    pub(in super::super) fn add(&mut self, item: Item<'a>) -> Result<(), RuleTextError> {
        let name = item.name.text().to_ascii_lowercase();
        if let Some(step) = Step::find(&name) {
            let (instruction, outer) = (step.name(), self.kind.name());
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
                let inner = self.parse_clone(item)?;
                self.push(Action::Clone(inner), item.name)
            }
            name => {
                let actions = named::parse(name, item, &self.scope)?;
                actions.into_iter().try_for_each(|action| self.push(action, item.name))
            }
        }
    }

    /// Records that the rule also has an instruction other than the list.
    pub(in super::super) fn add_beside(&mut self, instruction: TextSlice<'a>) {
        self.beside_clauses.get_or_insert(instruction);
    }

    /// Reads the actions inside a `clone`.
    fn parse_clone(&self, item: Item<'a>) -> Result<Box<[Action]>, RuleTextError> {
        let depth = self.kind.depth().saturating_add(1);
        if depth > CLONE_DEPTH_MAX {
            return Err(item.name.error(RuleTextProblem::TooDeep { max: CLONE_DEPTH_MAX }));
        }
        let mut inner = self.followed_by(ActionListKind::Clone { depth });
        inner.add_all(item.argument_or_end())?;
        inner.finish()
    }

    /// Appends an action, or refuses it if its list may not have it.
    fn push(&mut self, action: Action, at: TextSlice<'a>) -> Result<(), RuleTextError> {
        if matches!(self.kind, ActionListKind::Set) && !action.is_settable() {
            let name = at.text().to_owned();
            return Err(at.error(RuleTextProblem::NotInActionSet { name }));
        }
        if self.kind.is_set() {
            self.scope.admit_to_set(&action, at)?;
        } else {
            self.scope.admit(&action, at)?;
        }
        match action {
            Action::Conjunction { .. } => self.has_clause = true,
            Action::Note(_) => {}
            _ => {
                self.beside_clauses.get_or_insert(at);
            }
        }
        self.actions.push(action);
        Ok(())
    }

    /// Returns the actions of the list, or an error if they cannot be combined.
    pub(in super::super) fn finish(self) -> Result<Box<[Action]>, RuleTextError> {
        if let Some(drop) = self.dropped.filter(|_| !self.actions.is_empty()) {
            return Err(drop.error(RuleTextProblem::DropNotAlone));
        }
        match self.beside_clauses {
            Some(other) if self.has_clause => {
                let name = other.text().to_owned();
                Err(other.error(RuleTextProblem::BesideConjunction { name }))
            }
            _ => Ok(self.actions.into()),
        }
    }
}
