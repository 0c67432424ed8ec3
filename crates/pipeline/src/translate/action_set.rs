//! The action set: what is written along the way and executed at the end (OpenFlow 1.3.5, 5.10).

use super::commit::ACTIONS_MAX;
use crate::{action::Action, traversals::traversal::TraversalError};

/// At most one action of each kind, the last written; all writes of fields, in order.
///
/// The standard keeps one write per field. To run them all comes to the same, and leaves a `move`
/// the value that it would have read.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionSet<'a> {
    actions: Vec<&'a Action>,
}

/// What two actions have in common that cannot both be in a set; in the order of execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
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
    /// Actions that cannot be in a set are refused where rules come in, and left out here.
    pub(super) fn write(&mut self, actions: &'a [Action]) -> Result<(), TraversalError> {
        for action in actions {
            let Some(own) = kind(action) else { continue };
            if own != Kind::Write {
                self.actions.retain(|other| kind(other) != Some(own));
            }
            self.actions.push(action);
        }
        if self.actions.len() > ACTIONS_MAX {
            return Err(TraversalError::TooManyActions(ACTIONS_MAX));
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.actions.clear();
    }

    /// What is in the set, in the order of writing.
    pub(super) fn actions(&self) -> impl Iterator<Item = &'a Action> {
        self.actions.iter().copied()
    }

    /// Makes it the set of these actions, which came out of one.
    pub(super) fn refill(&mut self, actions: &'a [Action]) {
        self.actions = actions.iter().collect();
    }

    /// Empties the set: its actions in the order in which they are executed.
    ///
    /// A group wins over an output, and an output over a resubmit. Without any of them nothing is
    /// executed.
    pub(super) fn take(&mut self) -> Vec<&'a Action> {
        let mut actions = std::mem::take(&mut self.actions);
        actions.sort_by_key(|action| kind(action));
        let last = actions.last().and_then(|action| kind(action));
        match last.filter(|last| *last >= Kind::Resubmit) {
            Some(last) => actions.retain(|action| {
                kind(action).is_some_and(|own| own < Kind::Resubmit || own == last)
            }),
            None => actions.clear(),
        }
        actions
    }
}

const fn kind(action: &Action) -> Option<Kind> {
    Some(match action {
        Action::CopyTtlIn => Kind::CopyTtlIn,
        Action::PopVlan => Kind::PopVlan,
        Action::PopMpls { .. } => Kind::PopMpls,
        Action::PushMpls { .. } => Kind::PushMpls,
        Action::PushVlan { .. } => Kind::PushVlan,
        Action::CopyTtlOut => Kind::CopyTtlOut,
        Action::DecTtl { .. } => Kind::DecTtl,
        Action::DecMplsTtl => Kind::DecMplsTtl,
        Action::SetField { .. }
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::SetNwTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::SetMplsTtl(_) => Kind::Write,
        Action::SetQueue(_) => Kind::SetQueue,
        Action::Resubmit { .. } => Kind::Resubmit,
        Action::Output { .. } => Kind::Output,
        Action::Group(_) => Kind::Group,
        Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_)
        | Action::PopQueue
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
