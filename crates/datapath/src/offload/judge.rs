//! The rule that decides whether an offload device is stale.

use shunt_pipeline::Time;
use tracing::{debug, info, warn};

use super::{OffloadState, StaleReason};

/// The unconfirmed removals for which a version waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnconfirmedWork {
    Nothing,
    /// Removals of stale entries are not confirmed.
    Removals,
    /// Removals have not been confirmed within the limit.
    Late,
}

/// The presence of a device, from which its staleness is decided.
#[derive(Debug)]
pub(super) struct StalenessJudge {
    /// The state of the device at the last check.
    state: OffloadState,
    /// True after the first request of the state, from which on times are measured.
    has_begun: bool,
    /// True while the device does not respond, or its content is unknown.
    is_lost: bool,
    /// True once the device has been present.
    was_there: bool,
    /// True if the device was lost since it last held no stale entry.
    was_lost: bool,
    /// True if a version was acknowledged before the device confirmed the removals.
    is_unconfirmed: bool,
    /// Number of repairs of a lost device.
    repairs: u64,
    /// Number of stale entries in the device.
    stale_count: u64,
}

impl StalenessJudge {
    /// Creates a judge; `is_there` is true if the device exists at the start.
    pub(super) fn new(is_there: bool) -> Self {
        Self {
            state: if is_there { OffloadState::Connected } else { OffloadState::default() },
            has_begun: false,
            is_lost: !is_there,
            was_there: is_there,
            was_lost: false,
            is_unconfirmed: false,
            repairs: 0,
            stale_count: 0,
        }
    }

    /// Records that the device does not respond.
    pub(super) const fn note_lost(&mut self) {
        (self.is_lost, self.was_lost) = (true, true);
    }

    /// Records that the device holds exactly the entries that it confirmed.
    pub(super) const fn note_restored(&mut self) {
        self.repairs += self.was_there as u64;
        (self.is_lost, self.was_there) = (false, true);
    }

    /// Records that a version is acknowledged before the device confirmed its removals.
    pub(super) const fn note_unconfirmed(&mut self) {
        self.is_unconfirmed = true;
    }

    /// Returns whether the device does not respond, or its content is unknown.
    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns how often the device was restored, and how often it became stale.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.repairs, self.stale_count)
    }

    /// Returns the state of the device, given its unconfirmed work.
    ///
    /// A device without ports was removed or replaced on purpose, so its end is not logged as a
    /// warning.
    pub(super) fn state_of(
        &mut self,
        now: Time,
        unconfirmed_work: UnconfirmedWork,
        has_ports: bool,
    ) -> OffloadState {
        let has_unconfirmed = unconfirmed_work != UnconfirmedWork::Nothing;
        let reason = if self.is_lost {
            Some(if self.was_there { StaleReason::Lost } else { StaleReason::NotYet })
        } else if has_unconfirmed && self.is_unconfirmed {
            Some(if self.was_lost { StaleReason::Repairing } else { StaleReason::Unconfirmed })
        } else if unconfirmed_work == UnconfirmedWork::Late {
            Some(StaleReason::Unconfirmed)
        } else {
            None
        };
        if !self.is_lost && !has_unconfirmed {
            (self.is_unconfirmed, self.was_lost) = (false, false);
        }
        if let (false, OffloadState::Stale { since, .. }) = (self.has_begun, &mut self.state) {
            *since = now;
        }
        self.has_begun = true;
        self.state = match (reason, self.state) {
            (None, OffloadState::Connected) => OffloadState::Connected,
            (None, OffloadState::Stale { since, .. }) => {
                info!(stale_for = ?now.since(since), "offload device: synchronised with the tables");
                OffloadState::Connected
            }
            (Some(reason), OffloadState::Connected) => {
                self.stale_count += 1;
                if has_ports {
                    warn!(
                        reason = reason.as_str(),
                        "offload device: the device is stale, so it may forward by evicted entries"
                    );
                } else {
                    debug!(
                        reason = reason.as_str(),
                        "offload device: the device is stale, but has no ports"
                    );
                }
                OffloadState::Stale { since: now, reason }
            }
            (Some(reason), OffloadState::Stale { since, .. }) => {
                OffloadState::Stale { since, reason }
            }
        };
        self.state
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A device that has not confirmed its entries is stale since the first check.
    #[test]
    fn a_device_is_stale_from_the_first_check() {
        let mut judge = StalenessJudge::new(false);
        let [first, later] = [40, 50].map(|age| Time::ZERO.after(Duration::from_secs(age)));
        for now in [first, later] {
            let state = judge.state_of(now, UnconfirmedWork::Nothing, true);
            assert_eq!(state, OffloadState::Stale { since: first, reason: StaleReason::NotYet });
        }
    }
}
