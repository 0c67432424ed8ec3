//! Whether a target is stale.

use shunt_pipeline::Time;
use tracing::{info, warn};

use super::{OffloadState, StaleReason};

/// What a target owes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Debt {
    Nothing,
    /// Removals of what the version made stale.
    Removals,
    /// Removals, and longer than is waited for.
    Late,
}

/// What is known of a target's being there, and of what it owes.
#[derive(Debug)]
pub(super) struct Judge {
    state: OffloadState,
    /// It was asked how the target is: since then time goes by.
    has_begun: bool,
    /// It does not answer, or what it holds is unknown.
    is_lost: bool,
    /// It was there some time.
    was_there: bool,
    /// It was lost since it held nothing stale.
    was_lost: bool,
    /// A version was answered though it held what that made stale.
    is_behind: bool,
    repairs: u64,
    stale_count: u64,
}

impl Judge {
    pub(super) fn new(is_there: bool) -> Self {
        Self {
            state: if is_there { OffloadState::Connected } else { OffloadState::default() },
            has_begun: false,
            is_lost: !is_there,
            was_there: is_there,
            was_lost: false,
            is_behind: false,
            repairs: 0,
            stale_count: 0,
        }
    }

    /// The target does not answer.
    pub(super) const fn lose(&mut self) {
        (self.is_lost, self.was_lost) = (true, true);
    }

    /// The target holds just what it confirmed.
    pub(super) const fn restore(&mut self) {
        self.repairs += self.was_there as u64;
        (self.is_lost, self.was_there) = (false, true);
    }

    /// A version is answered though the target holds what it made stale.
    pub(super) const fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// How often it was restored, and how often it became stale.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.repairs, self.stale_count)
    }

    /// Says how the target is, by what it owes.
    pub(super) fn judge(&mut self, now: Time, debt: Debt) -> OffloadState {
        let owes = debt != Debt::Nothing;
        let why = if self.is_lost {
            Some(if self.was_there { StaleReason::Lost } else { StaleReason::NotYet })
        } else if owes && self.is_behind {
            Some(if self.was_lost { StaleReason::Repairing } else { StaleReason::Unconfirmed })
        } else if debt == Debt::Late {
            Some(StaleReason::Unconfirmed)
        } else {
            None
        };
        if !self.is_lost && !owes {
            (self.is_behind, self.was_lost) = (false, false);
        }
        if let (false, OffloadState::Stale { since, .. }) = (self.has_begun, &mut self.state) {
            *since = now;
        }
        self.has_begun = true;
        self.state = match (why, self.state) {
            (None, OffloadState::Connected) => OffloadState::Connected,
            (None, OffloadState::Stale { since, .. }) => {
                info!(stale_for = ?now.since(since), "the target holds what the tables say");
                OffloadState::Connected
            }
            (Some(why), OffloadState::Connected) => {
                self.stale_count += 1;
                warn!(why = why.as_str(), "the target is stale");
                OffloadState::Stale { since: now, why }
            }
            (Some(why), OffloadState::Stale { since, .. }) => OffloadState::Stale { since, why },
        };
        self.state
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_target_is_not_there_yet_since_somebody_asks_and_not_since_the_switch_began() {
        let mut judge = Judge::new(false);
        let [first, later] = [40, 50].map(|age| Time::ZERO.after(Duration::from_secs(age)));
        for now in [first, later] {
            let state = judge.judge(now, Debt::Nothing);
            assert_eq!(state, OffloadState::Stale { since: first, why: StaleReason::NotYet });
        }
    }
}
