//! How it stands with a controller that the switch connects to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use shunt_pipeline::Time;

/// How it stands with a controller that the switch connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReconnectState {
    /// A connection is being made, or has not agreed on a version yet.
    #[default]
    Connecting,
    /// There is a connection.
    Connected,
    /// There is none.
    Waiting {
        /// Why the last attempt or connection came to its end.
        reason: String,
        /// When the next attempt is made.
        until: Time,
    },
}

/// What is noted of the attempts to reach one controller.
#[derive(Debug, Default)]
pub(super) struct ReconnectAttempts(Mutex<AttemptState>);

#[derive(Debug, Default)]
struct AttemptState {
    reconnect_state: ReconnectState,
    /// Attempts that have failed since the last connection, or ever.
    failed: u32,
}

impl ReconnectAttempts {
    pub(super) fn reconnect_state(&self) -> ReconnectState {
        self.lock().reconnect_state.clone()
    }

    pub(super) fn connecting(&self) {
        self.lock().reconnect_state = ReconnectState::Connecting;
    }

    pub(super) fn connected(&self) {
        *self.lock() = AttemptState { reconnect_state: ReconnectState::Connected, failed: 0 };
    }

    /// An attempt has failed; answers whether it is the first of them, which is worth a word.
    pub(super) fn failed(&self) -> bool {
        let mut state = self.lock();
        state.failed = state.failed.saturating_add(1);
        state.failed == 1
    }

    pub(super) fn waiting(&self, reason: String, until: Time) {
        self.lock().reconnect_state = ReconnectState::Waiting { reason, until };
    }

    /// Every change is one assignment, so a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, AttemptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_after_each_connection_is_worth_a_word() {
        let attempts = ReconnectAttempts::default();
        assert_eq!([attempts.failed(), attempts.failed(), attempts.failed()], [true, false, false]);
        attempts.connected();
        assert_eq!([attempts.failed(), attempts.failed()], [true, false]);
    }
}
