//! The action set: collected by `write_actions`, executed at the end (OpenFlow 1.3.5, 5.10).

use crate::{
    action::Action, translate::limits::ACTIONS_MAX, traversals::traversal::TraversalError,
};

/// An action set: the last action of each kind, and all writes of fields in order.
///
/// The standard keeps one write per field. Running all writes has the same effect, and a `move`
/// reads the same value.
#[derive(Clone, Debug, Default)]
pub(in crate::translate) struct ActionSet<'a> {
    /// The actions, in the order of writing.
    actions: Vec<&'a Action>,
}

/// The kinds of actions of a set, at most one each, in execution order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SetActionKind {
    CopyTtlIn,
    PopVlan,
    PopMpls,
    PushMpls,
    PushVlan,
    CopyTtlOut,
    DecTtl,
    DecMplsTtl,
    Write,
    SetQueue,
    Resubmit,
    Output,
    Group,
}

impl<'a> ActionSet<'a> {
    /// Merges actions into the set, in order.
    ///
    /// Actions that a set cannot hold are skipped: `write_actions` with such actions is refused
    /// when a rule is added.
    pub(in crate::translate) fn write(
        &mut self,
        actions: &'a [Action],
    ) -> Result<(), TraversalError> {
        for action in actions {
            let Some(own) = kind(action) else { continue };
            if own != SetActionKind::Write {
                self.actions.retain(|other| kind(other) != Some(own));
            }
            self.actions.push(action);
        }
        if self.actions.len() > ACTIONS_MAX {
            return Err(TraversalError::TooManyActions(ACTIONS_MAX));
        }
        Ok(())
    }

    /// Removes all actions of the set.
    pub(in crate::translate) fn clear(&mut self) {
        self.actions.clear();
    }

    /// Returns the actions of the set, in the order of writing.
    pub(in crate::translate) fn actions(&self) -> impl Iterator<Item = &'a Action> {
        self.actions.iter().copied()
    }

    /// Replaces the set by these actions of another set.
    pub(in crate::translate) fn refill(&mut self, actions: &'a [Action]) {
        self.actions = actions.iter().collect();
    }

    /// Empties the set, and returns its actions in the order of execution.
    ///
    /// A group wins over an output, and an output over a resubmit. A set without group, output and
    /// resubmit executes nothing.
    pub(in crate::translate) fn take(&mut self) -> Vec<&'a Action> {
        let mut actions = std::mem::take(&mut self.actions);
        actions.sort_by_key(|action| kind(action));
        let last = actions.last().and_then(|action| kind(action));
        match last.filter(|last| *last >= SetActionKind::Resubmit) {
            Some(last) => actions.retain(|action| {
                kind(action).is_some_and(|own| own < SetActionKind::Resubmit || own == last)
            }),
            None => actions.clear(),
        }
        actions
    }
}

/// Returns the kind of an action in a set; a set has one of each kind.
const fn kind(action: &Action) -> Option<SetActionKind> {
    Some(match action {
        Action::CopyTtlIn => SetActionKind::CopyTtlIn,
        Action::PopVlan => SetActionKind::PopVlan,
        Action::PopMpls { .. } => SetActionKind::PopMpls,
        Action::PushMpls { .. } => SetActionKind::PushMpls,
        Action::PushVlan { .. } => SetActionKind::PushVlan,
        Action::CopyTtlOut => SetActionKind::CopyTtlOut,
        Action::DecTtl { .. } => SetActionKind::DecTtl,
        Action::DecMplsTtl => SetActionKind::DecMplsTtl,
        Action::SetField { .. }
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::SetNwTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::SetMplsTtl(_) => SetActionKind::Write,
        Action::SetQueue(_) => SetActionKind::SetQueue,
        Action::Resubmit { .. } => SetActionKind::Resubmit,
        Action::Output { .. } => SetActionKind::Output,
        Action::Group(_) => SetActionKind::Group,
        Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_)
        | Action::PopQueue { .. }
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit
        | Action::Meter(_)
        | Action::Push(_)
        | Action::Pop(_)
        | Action::Learn(_)
        | Action::Conjunction { .. }
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::FinTimeout { .. }
        | Action::CheckPktLarger { .. }
        | Action::Ct(_)
        | Action::CtClear
        | Action::Nat(_)
        | Action::Sample(_) => return None,
    })
}
