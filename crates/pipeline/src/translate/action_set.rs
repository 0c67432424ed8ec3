//! The action set: what is written along the way and executed at the end (OpenFlow 1.3.5, 5.10).

use super::commit::ACTIONS_MAX;
use crate::{Action, TraversalError};

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
    PopVlan,
    PushVlan,
    DecTtl,
    Write,
    SetQueue,
    Resubmit,
    Output,
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

    /// Empties the set: its actions in the order in which they are executed.
    ///
    /// An output wins over a resubmit.
    pub(super) fn take(&mut self) -> Vec<&'a Action> {
        let mut actions = std::mem::take(&mut self.actions);
        actions.sort_by_key(|action| kind(action));
        let has_output = actions.last().and_then(|last| kind(last)) == Some(Kind::Output);
        actions.retain(|action| !(has_output && kind(action) == Some(Kind::Resubmit)));
        actions
    }
}

const fn kind(action: &Action) -> Option<Kind> {
    Some(match action {
        Action::PopVlan => Kind::PopVlan,
        Action::PushVlan { .. } => Kind::PushVlan,
        Action::DecTtl { .. } => Kind::DecTtl,
        Action::SetField { .. } | Action::Load { .. } | Action::Move { .. } => Kind::Write,
        Action::SetQueue(_) => Kind::SetQueue,
        Action::Resubmit { .. } => Kind::Resubmit,
        Action::Output { .. }
        | Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_) => Kind::Output,
        Action::PopQueue | Action::Clone(_) | Action::Note(_) | Action::Exit => return None,
    })
}
