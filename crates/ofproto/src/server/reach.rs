//! How it stands with a controller that the switch connects to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use shunt_pipeline::Time;

/// How it stands with a controller that the switch connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// A connection is being made, or has not agreed on a version yet.
    #[default]
    Connecting,
    /// There is a connection.
    Connected,
    /// There is none.
    Waiting {
        /// Why the last attempt or connection came to its end.
        why: String,
        /// When the next attempt is made.
        until: Time,
    },
}

/// What is noted of the attempts to reach one controller.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    reach: Reach,
    /// Attempts that have failed since the last connection, or ever.
    failed: u32,
}

impl Attempts {
    pub(super) fn reach(&self) -> Reach {
        self.lock().reach.clone()
    }

    pub(super) fn connecting(&self) {
        self.lock().reach = Reach::Connecting;
    }

    pub(super) fn connected(&self) {
        *self.lock() = Noted { reach: Reach::Connected, failed: 0 };
    }

    /// An attempt has failed; answers whether it is the first of them, which is worth a word.
    pub(super) fn failed(&self) -> bool {
        let mut noted = self.lock();
        noted.failed = noted.failed.saturating_add(1);
        noted.failed == 1
    }

    pub(super) fn waiting(&self, why: String, until: Time) {
        self.lock().reach = Reach::Waiting { why, until };
    }

    /// Every change is one assignment, so a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_after_each_connection_is_worth_a_word() {
        let attempts = Attempts::default();
        assert_eq!([attempts.failed(), attempts.failed(), attempts.failed()], [true, false, false]);
        attempts.connected();
        assert_eq!([attempts.failed(), attempts.failed()], [true, false]);
    }
}
