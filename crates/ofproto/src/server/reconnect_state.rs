//! The state of the connection to a configured controller.

use std::sync::{Mutex, MutexGuard, PoisonError};

use shunt_pipeline::Time;

/// The state of the connection to a configured controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReconnectState {
    /// The TCP connection or the version negotiation is in progress.
    #[default]
    Connecting,
    /// The connection to the controller is established.
    Connected,
    /// The controller is not connected; the next attempt is scheduled.
    Waiting {
        /// The reason why the last attempt or connection ended.
        reason: String,
        /// Time of the next attempt.
        until: Time,
    },
}

/// Records the attempts to reach one controller.
#[derive(Debug, Default)]
pub(super) struct ReconnectAttempts(Mutex<AttemptState>);

/// The state of the connection attempts to one controller.
#[derive(Debug, Default)]
struct AttemptState {
    reconnect_state: ReconnectState,
    /// Number of failed attempts since the last connection.
    failed: u32,
}

impl ReconnectAttempts {
    /// Returns the state of the attempts, for the status.
    pub(super) fn reconnect_state(&self) -> ReconnectState {
        self.lock().reconnect_state.clone()
    }

    /// Records that an attempt to connect has begun.
    pub(super) fn note_connecting(&self) {
        self.lock().reconnect_state = ReconnectState::Connecting;
    }

    /// Records that the controller is connected.
    pub(super) fn note_connected(&self) {
        *self.lock() = AttemptState { reconnect_state: ReconnectState::Connected, failed: 0 };
    }

    /// Records a failed attempt; returns whether it is the first one.
    pub(super) fn note_failed(&self) -> bool {
        let mut state = self.lock();
        state.failed = state.failed.saturating_add(1);
        state.failed == 1
    }

    /// Records why the connection ended, and when the next attempt begins.
    pub(super) fn note_waiting(&self, reason: String, until: Time) {
        self.lock().reconnect_state = ReconnectState::Waiting { reason, until };
    }

    /// Locks the state, also after a panic, which leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, AttemptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_after_each_connection_is_logged() {
        let attempts = ReconnectAttempts::default();
        assert_eq!(
            [attempts.note_failed(), attempts.note_failed(), attempts.note_failed()],
            [true, false, false]
        );
        attempts.note_connected();
        assert_eq!([attempts.note_failed(), attempts.note_failed()], [true, false]);
    }
}
