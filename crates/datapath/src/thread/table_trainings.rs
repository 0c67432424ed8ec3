//! Requests to train the learned indexes of tables, repeated after a failure.
//!
//! A table needs a training only after a change, so a version is trained once, and again when its
//! removed rules are reclaimed: an index that has them may be too slow to be used. A training that
//! fails is tried again after a pause, without waiting for the next version. Each further failure
//! doubles the pause.

use std::{sync::mpsc::Receiver, time::Duration};

use shunt_pipeline::{IndexedTables, Time, Version};

use crate::{cache::TablesTraining, metrics::TrainingFailure};

/// The trainings that a packet thread requests.
#[derive(Debug)]
pub(super) struct TableTrainings {
    /// The last request that was fulfilled, unless it was to remove indexes.
    done: Option<TrainingRequest>,
    /// The request that the trainer works on, with the channel of its outcome.
    pending: Option<PendingRequest>,
    /// Earliest time of the next check.
    next_check: Time,
    /// Time from the next failure to the next request.
    pause: Duration,
}

/// A request to train the tables that need a learned index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainingRequest {
    pub(super) tables: IndexedTables,
    pub(super) version: Version,
    /// The version of the last complete reclaim.
    pub(super) reclaimed: Version,
}

/// A request that the trainer has not answered.
#[derive(Debug)]
struct PendingRequest {
    request: TrainingRequest,
    outcome: Receiver<Result<(), TrainingFailure>>,
}

/// Least time between two checks of the learned indexes.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Time from the first failure to the next request.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest time from a failure to the next request.
const PAUSE_MAX: Duration = Duration::from_secs(64);

impl Default for TableTrainings {
    fn default() -> Self {
        Self { done: None, pending: None, next_check: Time::ZERO, pause: PAUSE_MIN }
    }
}

impl TableTrainings {
    /// Requests a training by `start` if one is due, or takes its outcome.
    ///
    /// # Errors
    ///
    /// The reason for which the last request failed.
    pub(super) fn run(
        &mut self,
        request: TrainingRequest,
        now: Time,
        start: impl FnOnce(IndexedTables) -> TablesTraining,
    ) -> Result<(), TrainingFailure> {
        let is_needless = self.pending.is_none() && self.is_done(request);
        if is_needless || now < self.next_check {
            return Ok(());
        }
        self.next_check = now.after(CHECK_PERIOD);
        let (request, training) = match self.pending.take() {
            Some(PendingRequest { request, outcome }) => (request, TablesTraining::Sent(outcome)),
            None => (request, start(request.tables)),
        };
        match training.poll() {
            TablesTraining::Busy => Ok(()),
            TablesTraining::Sent(outcome) => {
                self.pending = Some(PendingRequest { request, outcome });
                Ok(())
            }
            TablesTraining::Ended(Ok(())) => {
                self.done = Some(request).filter(|own| !own.tables.is_empty());
                self.pause = PAUSE_MIN;
                Ok(())
            }
            TablesTraining::Ended(Err(failure)) => {
                self.next_check = now.after(self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                Err(failure)
            }
        }
    }

    fn is_done(&self, request: TrainingRequest) -> bool {
        self.done == Some(request) || self.done.is_none() && request.tables.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const TABLES: IndexedTables = IndexedTables::for_decisions(1);
    const FIRST: TrainingRequest =
        TrainingRequest { tables: TABLES, version: Version::new(1), reclaimed: Version::ZERO };

    fn at(milliseconds: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(milliseconds))
    }

    /// Runs a check; returns whether a training was requested, which ends in this way.
    fn requests(
        trainings: &mut TableTrainings,
        milliseconds: u64,
        outcome: Result<(), TrainingFailure>,
    ) -> bool {
        let mut is_requested = false;
        let result = trainings.run(FIRST, at(milliseconds), |_| {
            is_requested = true;
            TablesTraining::Ended(outcome)
        });
        assert_eq!(result, if is_requested { outcome } else { Ok(()) });
        is_requested
    }

    #[test]
    fn a_failed_training_is_tried_again_after_a_pause() {
        let mut trainings = TableTrainings::default();
        let failure = Err(TrainingFailure::Unindexable);
        // The pauses are 1, 2 and 4 seconds.
        for time in [0, 1_000, 3_000, 7_000] {
            assert!(requests(&mut trainings, time, failure), "{time} ms");
            assert!(!requests(&mut trainings, time + 999, failure), "{time} ms");
        }
        assert!(requests(&mut trainings, 15_000, Ok(())));
        assert!(!requests(&mut trainings, 60_000, Ok(())), "the version is trained");
    }

    #[test]
    fn a_reclaim_makes_a_training_due() {
        let mut trainings = TableTrainings::default();
        assert!(requests(&mut trainings, 0, Ok(())));
        let reclaimed = TrainingRequest { reclaimed: FIRST.version, ..FIRST };
        for (milliseconds, is_due) in [(100, true), (200, false)] {
            let mut is_requested = false;
            let start = |_| {
                is_requested = true;
                TablesTraining::Ended(Ok(()))
            };
            assert_eq!(trainings.run(reclaimed, at(milliseconds), start), Ok(()));
            assert_eq!(is_requested, is_due);
        }
    }

    #[test]
    fn the_pauses_between_failures_are_bounded() {
        let mut trainings = TableTrainings::default();
        let failure = Err(TrainingFailure::TrainerLost);
        let day = 24 * 3600;
        let seconds = (0..day).filter(|second| requests(&mut trainings, second * 1000, failure));
        let count = seconds.count() as u64;
        assert!((day / 70..day / 60).contains(&count), "{count} requests in a day");
    }

    /// A trainer that panics drops the channel of the outcome.
    #[test]
    fn the_outcome_of_a_sent_request_is_awaited() {
        let mut trainings = TableTrainings::default();
        let (reply, outcome) = mpsc::sync_channel(1);
        assert_eq!(trainings.run(FIRST, at(0), |_| TablesTraining::Sent(outcome)), Ok(()));
        let next = TrainingRequest { version: Version::new(2), ..FIRST };
        let refused = |_: IndexedTables| -> TablesTraining { panic!("a second request") };
        assert_eq!(trainings.run(next, at(100), refused), Ok(()));
        drop(reply);
        assert_eq!(trainings.run(next, at(200), refused), Err(TrainingFailure::TrainerLost));
        // The next request is for the newest version.
        assert_eq!(trainings.run(next, at(1_200), |_| TablesTraining::Ended(Ok(()))), Ok(()));
        assert_eq!(trainings.done, Some(next));
    }
}
