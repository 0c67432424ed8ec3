//! The reason why the switch does not follow its database, which `/readyz` shows.

use std::sync::{Arc, Mutex, PoisonError};

/// The reason why the switch does not follow its database; shared by all clones.
///
/// Without a reason, the switch follows its database.
#[derive(Clone, Debug, Default)]
pub(crate) struct DatabaseProblem(Arc<Mutex<Option<String>>>);

impl DatabaseProblem {
    /// Returns the reason, with the name of the database.
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the reason; `None` means that the switch follows its database.
    pub(super) fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}
