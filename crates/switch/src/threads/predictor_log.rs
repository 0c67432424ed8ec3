//! Log lines about predictors that are paused and tried again.
//!
//! A packet thread does not log. A packet thread publishes the states of its predictors, and the
//! foresight thread compares these states with the previous states.

use std::time::Duration;

use shunt_foresight::{ForecastSource, GovernorState, OutcomeCounts, PredictorStatus};
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
}

/// A predictor that was paused, or that is tried again after a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PredictorChange {
    Paused { pause: Duration, outcomes: Box<OutcomeCounts> },
    Resumed,
}

impl PredictorLog {
    /// Logs the state changes of a packet thread's predictors since the last call.
    pub(super) fn update(&mut self, thread: usize, now: Duration, status: &[PredictorStatus]) {
        for own in status {
            let source = own.source;
            match self.change(thread, now, own) {
                Some(PredictorChange::Paused { pause, outcomes }) => info!(
                    forecasts = outcomes.received,
                    hits = outcomes.hits,
                    wrong = outcomes.wrong,
                    evicted = outcomes.evicted,
                    translations = outcomes.translations,
                    spent_us = outcomes.spent.as_micros(),
                    "packet thread {thread}: predictor {source} is paused: its forecasts cost more than they save; tried again in {:.0} s",
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
            self.known.push(KnownPredictor { thread, source, is_paused: false, pauses: 0, before });
            return self.change(thread, now, status);
        };
        // A short trial may have begun and ended between two calls.
        let was_paused = known.is_paused && known.pauses == status.pauses;
        known.pauses = status.pauses;
        match status.state {
            GovernorState::Paused { until } if !was_paused => {
                let (pause, outcomes) =
                    (until.saturating_sub(now), Box::new(counts.since(&known.before)));
                (known.is_paused, known.before) = (true, counts);
                Some(PredictorChange::Paused { pause, outcomes })
            }
            GovernorState::On | GovernorState::Trial if known.is_paused => {
                (known.is_paused, known.before) = (false, counts);
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
        let status = |state, hits| PredictorStatus {
            source: ForecastSource::Reply,
            state,
            pauses: 0,
            forecasts: 0,
            items: 0,
            spent: Duration::ZERO,
            counts: OutcomeCounts { hits, ..OutcomeCounts::default() },
        };
        let paused = GovernorState::Paused { until: SECOND * 20 };
        assert_eq!(log.change(0, SECOND, &status(GovernorState::Trial, 1)), None);
        let change = log.change(0, SECOND * 10, &status(paused, 3));
        let outcomes = Box::new(OutcomeCounts { hits: 3, ..OutcomeCounts::default() });
        assert_eq!(change, Some(PredictorChange::Paused { pause: SECOND * 10, outcomes }));
        assert_eq!(
            log.change(0, SECOND * 11, &status(paused, 3)),
            None,
            "the pause is logged once"
        );
        // Each packet thread has its own predictors.
        assert!(log.change(1, SECOND * 11, &status(paused, 3)).is_some());
        let change = log.change(0, SECOND * 20, &status(GovernorState::Trial, 3));
        assert_eq!(change, Some(PredictorChange::Resumed));
        let Some(PredictorChange::Paused { outcomes, .. }) =
            log.change(0, SECOND * 30, &status(paused, 4))
        else {
            panic!("the predictor is paused again")
        };
        assert_eq!(outcomes.hits, 1, "only those of the second trial");
    }
}
