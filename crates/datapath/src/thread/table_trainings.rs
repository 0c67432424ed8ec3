//! Requests to train the learned indexes of tables, repeated after a failure.
//!
//! A table needs a training only after a change, so a version is trained once. A version is trained
//! again when its removed rules are reclaimed: an index that has them may be too slow to be used. A
//! table that fails is trained again after a pause of this table, without waiting for the next
//! version. Other tables are trained with each version meanwhile. If a request fails as a whole,
//! because there is no trainer, each further failure doubles the pause until the next request.

use std::time::Duration;

use shunt_pipeline::{IndexedTables, Time, TrainingReport, Version};

use crate::{
    cache::{TablesReply, TablesTraining},
    metrics::TrainingFailure,
};

/// The trainings that a packet thread requests.
#[derive(Debug)]
pub(super) struct TableTrainings {
    /// The last request that was fulfilled, unless it was to remove indexes.
    done: Option<TrainingRequest>,
    /// The request that the trainer works on.
    pending: Option<TrainingRequest>,
    /// The slot for the outcome of the pending request.
    reply: TablesReply,
    /// The last request, if some of its tables failed.
    failed: Option<FailedRequest>,
    /// Earliest time of the next check.
    next_check: Time,
    /// Time from the next request that fails as a whole to the one after it.
    pause: Duration,
}

/// A request to train the tables that need a learned index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainingRequest {
    /// The tables that need a learned index.
    pub(super) tables: IndexedTables,
    /// The version of the rules.
    pub(super) version: Version,
    /// The version of the last complete reclaim.
    pub(super) reclaimed: Version,
}

/// A request with tables that failed, and are due again later.
#[derive(Debug)]
struct FailedRequest {
    /// The request with the failed tables.
    request: TrainingRequest,
    /// Time at which the request is sent again.
    retry_at: Time,
}

/// Minimum time between two checks of the learned indexes.
const INDEX_CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Time from the first request that fails as a whole to the next request.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest time from a request that fails as a whole to the next request.
const PAUSE_MAX: Duration = Duration::from_secs(64);

impl Default for TableTrainings {
    fn default() -> Self {
        let reply = TablesReply::default();
        let (done, pending, failed) = (None, None, None);
        Self { done, pending, reply, failed, next_check: Time::ZERO, pause: PAUSE_MIN }
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
        start: impl FnOnce(IndexedTables, &TablesReply) -> TablesTraining,
    ) -> Result<(), TrainingFailure> {
        let is_needless = self.is_done(request) || self.is_delayed(request, now);
        if self.pending.is_none() && is_needless || now < self.next_check {
            return Ok(());
        }
        self.next_check = now.after(INDEX_CHECK_PERIOD);
        let (request, training) = match self.pending.take() {
            Some(request) => (request, TablesTraining::poll(&self.reply)),
            None => (request, start(request.tables, &self.reply)),
        };
        match training {
            TablesTraining::Busy => Ok(()),
            TablesTraining::Sent => {
                self.pending = Some(request);
                Ok(())
            }
            TablesTraining::Ended(Ok(report)) => {
                self.pause = PAUSE_MIN;
                self.failed = report.retry_at.map(|retry_at| FailedRequest { request, retry_at });
                let is_done = self.failed.is_none() && !request.tables.is_empty();
                self.done = is_done.then_some(request);
                failure_of(report).map_or(Ok(()), Err)
            }
            TablesTraining::Ended(Err(failure)) => {
                self.next_check = now.after(self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                Err(failure)
            }
        }
    }

    /// Returns whether the tables of a request are trained.
    fn is_done(&self, request: TrainingRequest) -> bool {
        let has_none = self.done.is_none() && self.failed.is_none();
        self.done == Some(request) || has_none && request.tables.is_empty()
    }

    /// Returns whether only tables need a training that failed and are not due again.
    fn is_delayed(&self, request: TrainingRequest, now: Time) -> bool {
        self.failed.as_ref().is_some_and(|own| own.request == request && now < own.retry_at)
    }
}

/// Returns the cause of the trainings that failed, if any did.
const fn failure_of(report: TrainingReport) -> Option<TrainingFailure> {
    if report.panicked > 0 {
        Some(TrainingFailure::Panicked)
    } else if report.unindexable > 0 {
        Some(TrainingFailure::Unindexable)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tables with a rule, for packets that have no cache.
    const TABLES: IndexedTables = IndexedTables::for_decisions(1);
    /// The first request for a training.
    const FIRST: TrainingRequest =
        TrainingRequest { tables: TABLES, version: Version::new(1), reclaimed: Version::ZERO };

    /// Returns the time after some milliseconds.
    fn at(milliseconds: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(milliseconds))
    }

    /// The report of a training without failures.
    const COMPLETE: TrainingReport = TrainingReport { unindexable: 0, panicked: 0, retry_at: None };

    /// Returns the report about a table that has failed before.
    fn delayed(retry_milliseconds: u64) -> TrainingReport {
        TrainingReport { retry_at: Some(at(retry_milliseconds)), ..COMPLETE }
    }

    /// Runs a check; returns whether it requested a training (result `outcome`).
    fn requests_for(
        request: TrainingRequest,
        trainings: &mut TableTrainings,
        milliseconds: u64,
        outcome: Result<TrainingReport, TrainingFailure>,
    ) -> bool {
        let mut is_requested = false;
        let result = trainings.run(request, at(milliseconds), |_, _| {
            is_requested = true;
            TablesTraining::Ended(outcome)
        });
        let failure = outcome.map_or_else(Some, failure_of).filter(|_| is_requested);
        assert_eq!(result.err(), failure);
        is_requested
    }

    fn requests_after(
        trainings: &mut TableTrainings,
        milliseconds: u64,
        outcome: Result<TrainingReport, TrainingFailure>,
    ) -> bool {
        requests_for(FIRST, trainings, milliseconds, outcome)
    }

    #[test]
    fn failed_training_is_tried_again_after_pause() {
        let mut trainings = TableTrainings::default();
        for (time, retry) in [(0, 1_000), (1_000, 3_000), (3_000, 7_000)] {
            let failure = Ok(TrainingReport { unindexable: 1, ..delayed(retry) });
            assert!(requests_after(&mut trainings, time, failure), "{time} ms");
            assert!(!requests_after(&mut trainings, retry - 1, failure), "{time} ms");
        }
        assert!(requests_after(&mut trainings, 7_000, Ok(COMPLETE)));
        assert!(!requests_after(&mut trainings, 60_000, Ok(COMPLETE)), "the version is trained");
    }

    #[test]
    fn failed_tables_have_a_cause() {
        let unindexable = TrainingReport { unindexable: 1, ..COMPLETE };
        let both = TrainingReport { panicked: 1, ..unindexable };
        let causes = [COMPLETE, delayed(1), unindexable, both].map(failure_of);
        let [unindexable, panicked] = [TrainingFailure::Unindexable, TrainingFailure::Panicked];
        assert_eq!(causes, [None, None, Some(unindexable), Some(panicked)]);
    }

    #[test]
    fn a_failed_table_delays_no_version() {
        let mut trainings = TableTrainings::default();
        let failure = TrainingReport { panicked: 1, ..delayed(64_000) };
        assert!(requests_after(&mut trainings, 0, Ok(failure)));
        let next = TrainingRequest { version: Version::new(2), ..FIRST };
        for (time, is_due) in [(20, true), (63_999, false), (64_000, true)] {
            let report = Ok(delayed(time.max(64_000)));
            assert_eq!(requests_for(next, &mut trainings, time, report), is_due, "{time} ms");
        }
    }

    /// Other tables of the request have an index.
    #[test]
    fn indexes_are_removed_after_a_failure() {
        let mut trainings = TableTrainings::default();
        assert!(requests_after(&mut trainings, 0, Ok(delayed(64_000))));
        let none = TrainingRequest { tables: IndexedTables::NONE, ..FIRST };
        assert!(requests_for(none, &mut trainings, 20, Ok(COMPLETE)));
        assert!(!requests_for(none, &mut trainings, 40, Ok(COMPLETE)));
    }

    #[test]
    fn a_reclaim_makes_a_training_due() {
        let mut trainings = TableTrainings::default();
        assert!(requests_after(&mut trainings, 0, Ok(COMPLETE)));
        let reclaimed = TrainingRequest { reclaimed: FIRST.version, ..FIRST };
        for (milliseconds, is_due) in [(100, true), (200, false)] {
            let mut is_requested = false;
            let start = |_: IndexedTables, _: &TablesReply| {
                is_requested = true;
                TablesTraining::Ended(Ok(COMPLETE))
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
        let seconds =
            (0..day).filter(|second| requests_after(&mut trainings, second * 1000, failure));
        let count = seconds.count() as u64;
        assert!((day / 70..day / 60).contains(&count), "{count} requests in a day");
    }

    /// A trainer that panics drops the sender of the outcome.
    #[test]
    fn the_outcome_of_a_sent_request_is_awaited() {
        let mut trainings = TableTrainings::default();
        let mut sender = None;
        let sent = trainings.run(FIRST, at(0), |_, reply| {
            sender = Some(reply.begin());
            TablesTraining::Sent
        });
        assert_eq!(sent, Ok(()));
        let next = TrainingRequest { version: Version::new(2), ..FIRST };
        let refused =
            |_: IndexedTables, _: &TablesReply| -> TablesTraining { panic!("a second request") };
        assert_eq!(trainings.run(next, at(100), refused), Ok(()));
        drop(sender);
        assert_eq!(trainings.run(next, at(200), refused), Err(TrainingFailure::TrainerLost));
        // The next request is for the newest version.
        let ended = trainings.run(next, at(1_200), |_, _| TablesTraining::Ended(Ok(COMPLETE)));
        assert_eq!(ended, Ok(()));
        assert_eq!(trainings.done, Some(next));
    }
}
