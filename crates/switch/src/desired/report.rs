//! The result of applying a desired state, for each object.

use super::{change::StateChange, difference::StartField, object::ObjectId, state::DesiredState};

/// The result of applying a desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// The changes, in the order in which they were tried.
    pub objects: Vec<ObjectReport>,
    /// The number of changes of ports and their options, at the end of the call.
    ///
    /// If [`PresentState::ports_revision`](crate::PresentState::ports_revision) is larger later,
    /// another caller has changed ports.
    pub ports_revision: u64,
    /// The changes that are not in force.
    pub(crate) refused: Vec<StateChange>,
    /// The changed fields that take effect when the switch or the bridge starts again.
    pub(crate) at_restart: Vec<StartField>,
}

/// A change of an object, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectReport {
    /// The object that the change concerns.
    pub object: ObjectId,
    /// The change, such as `port eth1: added to br0`.
    ///
    /// Of a refused change, the text is `port eth1: not added to br0`.
    pub change: String,
    /// The result of the change.
    pub outcome: ObjectOutcome,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOutcome {
    /// The object was added, and is in force.
    Added,
    /// The port was added, and is down for this reason; opening it is retried.
    AddedDown(String),
    /// The object was removed from the switch.
    Removed,
    /// The new options of the object are in force.
    Changed,
    /// The object was not added, for this reason.
    NotAdded(String),
    /// The object was not removed, for this reason.
    NotRemoved(String),
    /// The object has its old options, for this reason.
    NotChanged(String),
    /// The change takes effect when the switch starts again.
    AtRestart,
}

impl ObjectOutcome {
    /// Returns the reason if the change was refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::NotAdded(reason) | Self::NotRemoved(reason) | Self::NotChanged(reason) => {
                Some(reason)
            }
            Self::Added | Self::AddedDown(_) | Self::Removed | Self::Changed | Self::AtRestart => {
                None
            }
        }
    }
}

impl ApplyReport {
    /// Adds the bridges that were refused because an earlier bridge has their name.
    pub(super) fn refuse_repeated(&mut self, names: Vec<String>) {
        self.objects.extend(names.into_iter().map(|name| {
            let reason = format!(
                "the state has another bridge {name}: each bridge needs a different name, rename \
                 one of them"
            );
            ObjectReport {
                change: format!("bridge {name}: not added"),
                object: ObjectId::Bridge(name),
                outcome: ObjectOutcome::NotAdded(reason),
            }
        }));
    }

    /// Adds the changed fields that take effect at the next start.
    pub(super) fn add_at_restart(&mut self, fields: Vec<StartField>) {
        self.objects.extend(fields.iter().map(|field| ObjectReport {
            object: field.object(),
            change: field.to_string(),
            outcome: ObjectOutcome::AtRestart,
        }));
        self.at_restart = fields;
    }

    /// Returns whether there was nothing to change.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the refused changes, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (&ObjectReport, &str)> {
        self.objects.iter().filter_map(|report| Some((report, report.outcome.refusal()?)))
    }

    /// Returns the state `desired` without the changes that were refused.
    ///
    /// `present` and `desired` are the states that were compared. Applying `desired` to the result
    /// retries the refused changes, and only these.
    #[must_use]
    pub fn without_refused(&self, present: &DesiredState, desired: &DesiredState) -> DesiredState {
        let unique = desired.without_repeated().map(|(unique, _)| unique);
        let mut result = unique.unwrap_or_else(|| desired.clone());
        for change in &self.refused {
            change.undo(present, &mut result);
        }
        result
    }

    /// Returns the state `desired` without the changes that are not in force.
    ///
    /// These changes were refused, or wait for the next start.
    #[must_use]
    pub fn in_force(&self, present: &DesiredState, desired: &DesiredState) -> DesiredState {
        let mut result = self.without_refused(present, desired);
        for field in &self.at_restart {
            field.undo(present, &mut result);
        }
        result
    }
}
