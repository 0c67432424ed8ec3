//! Log lines about predictors that are paused and tried again.
//!
//! A packet thread does not log. A packet thread publishes the states of its predictors, and the
//! foresight thread compares these states with the previous states.

use std::time::Duration;

use shunt_foresight::{ForecastSource, GovernorState, OutcomeCounts, PauseReason, PredictorStatus};
use tracing::info;

/// The states of the predictors of all packet threads.
#[derive(Debug, Default)]
pub(super) struct PredictorLog {
    /// The predictors of all packet threads.
    known: Vec<KnownPredictor>,
}

/// A predictor as it was last logged.
#[derive(Debug)]
struct KnownPredictor {
    /// The number of the packet thread.
    thread: usize,
    /// The kind of the predictor.
    source: ForecastSource,
    /// True while the predictor pauses.
    is_paused: bool,
    /// Number of pauses so far.
    pauses: u64,
    /// Outcome counts of the predictor when its trial began.
    before: OutcomeCounts,
    /// Time that the predictor took until its trial began.
    spent_before: Duration,
}

/// A predictor that was paused, or that is tried again after a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PredictorChange {
    /// The predictor is paused.
    Paused {
        /// The rest of the pause.
        pause: Duration,
        /// Time that the predictor itself took since its trial began.
        predictor: Duration,
        /// The outcomes since the trial began.
        outcomes: Box<OutcomeCounts>,
    },
    /// The predictor is tried again.
    Resumed,
}

impl PredictorLog {
    /// Logs the state changes of a packet thread's predictors since the last call.
    pub(super) fn update(&mut self, thread: usize, now: Duration, status: &[PredictorStatus]) {
        for own in status {
            let source = own.source;
            match self.change(thread, now, own) {
                Some(PredictorChange::Paused { pause, predictor, outcomes }) => info!(
                    forecasts = outcomes.received,
                    installed = outcomes.installed,
                    hits = outcomes.hits,
                    wrong = outcomes.wrong,
                    evicted = outcomes.evicted,
                    withheld = outcomes.withheld,
                    arrived = outcomes.arrived,
                    saved_misses = outcomes.saved_misses(),
                    saved_us = outcomes.saved(own.per_miss).unwrap_or_default().as_micros(),
                    translations = outcomes.translations,
                    spent_us = outcomes.spent.as_micros(),
                    predictor_us = predictor.as_micros(),
                    "packet thread {thread}: predictor {source} is paused: {}; tried again in {:.0} s",
                    own.pause_reason.unwrap_or(PauseReason::FewHits).clause(),
                    pause.as_secs_f64().ceil()
                ),
                Some(PredictorChange::Resumed) => {
                    info!("packet thread {thread}: predictor {source} is tried again");
                }
                None => {}
            }
        }
    }

    /// Returns the change of a predictor since the last call.
    fn change(
        &mut self,
        thread: usize,
        now: Duration,
        status: &PredictorStatus,
    ) -> Option<PredictorChange> {
        let (source, counts) = (status.source, status.counts);
        let is_known = |own: &&mut KnownPredictor| (own.thread, own.source) == (thread, source);
        let Some(known) = self.known.iter_mut().find(is_known) else {
            let before = OutcomeCounts::default();
            let (pauses, spent_before) = (0, Duration::ZERO);
            let new =
                KnownPredictor { thread, source, is_paused: false, pauses, before, spent_before };
            self.known.push(new);
            return self.change(thread, now, status);
        };
        // A short trial may have begun and ended between two calls.
        let was_paused = known.is_paused && known.pauses == status.pauses;
        known.pauses = status.pauses;
        match status.state {
            GovernorState::Paused { until } if !was_paused => {
                let (pause, outcomes) =
                    (until.saturating_sub(now), Box::new(counts.since(&known.before)));
                let predictor = status.spent.saturating_sub(known.spent_before);
                (known.is_paused, known.before) = (true, counts);
                known.spent_before = status.spent;
                Some(PredictorChange::Paused { pause, predictor, outcomes })
            }
            GovernorState::On | GovernorState::Trial if known.is_paused => {
                (known.is_paused, known.before) = (false, counts);
                known.spent_before = status.spent;
                Some(PredictorChange::Resumed)
            }
            GovernorState::Paused { .. } | GovernorState::On | GovernorState::Trial => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_the_outcomes_of_its_trial() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut log = PredictorLog::default();
        let status = |state, hits: u64| PredictorStatus {
            source: ForecastSource::Reply,
            state,
            pauses: 0,
            pause_reason: None,
            per_miss: None,
            forecasts: 0,
            items: 0,
            spent: SECOND * u32::try_from(hits).unwrap(),
            counts: OutcomeCounts { hits, ..OutcomeCounts::default() },
        };
        let paused = GovernorState::Paused { until: SECOND * 20 };
        assert_eq!(log.change(0, SECOND, &status(GovernorState::Trial, 1)), None);
        let change = log.change(0, SECOND * 10, &status(paused, 3));
        let outcomes = Box::new(OutcomeCounts { hits: 3, ..OutcomeCounts::default() });
        assert_eq!(
            change,
            Some(PredictorChange::Paused { pause: SECOND * 10, predictor: SECOND * 3, outcomes })
        );
        assert_eq!(
            log.change(0, SECOND * 11, &status(paused, 3)),
            None,
            "the pause is logged once"
        );
        // Each packet thread has its own predictors.
        assert!(log.change(1, SECOND * 11, &status(paused, 3)).is_some());
        let change = log.change(0, SECOND * 20, &status(GovernorState::Trial, 3));
        assert_eq!(change, Some(PredictorChange::Resumed));
        let Some(PredictorChange::Paused { outcomes, predictor, .. }) =
            log.change(0, SECOND * 30, &status(paused, 4))
        else {
            panic!("the predictor is paused again")
        };
        assert_eq!((outcomes.hits, predictor), (1, SECOND), "only those of the second trial");
    }
}
