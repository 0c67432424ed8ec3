//! The rule that pauses a predictor that does not pay.
//!
//! A forecast that becomes an entry costs one translation. A hit saves one, for which a packet would have
//! waited. A forecast that is late, covered or refused costs a part of a translation. The governor sums
//! costs and hits over a window of [`GovernorConfig::window`] forecasts. If fewer hits than
//! [`GovernorConfig::hits_per_cent_min`] per hundred translations were saved, it pauses the predictor.
//!
//! After the pause the predictor may make [`GovernorConfig::trial`] forecasts. If these pay, it runs
//! again. Otherwise the next pause is twice as long.

use std::time::Duration;

use crate::outcome::OutcomeCounts;

/// Settings of a [`Governor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GovernorConfig {
    /// Cost of the forecasts of a window, in translations.
    pub window: u64,
    /// Minimum number of hits per hundred translations.
    pub hits_per_cent_min: u64,
    /// The first pause.
    pub pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// Number of forecasts of a trial.
    pub trial: u64,
    /// Time until a trial ends, also without outcomes.
    pub trial_time: Duration,
}

impl Default for GovernorConfig {
    fn default() -> Self {
        Self {
            window: 64,
            hits_per_cent_min: 50,
            pause: Duration::from_secs(10),
            pause_max: Duration::from_secs(600),
            trial: 64,
            trial_time: Duration::from_secs(20),
        }
    }
}

/// The state of a predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GovernorState {
    /// It forecasts.
    On,
    /// It is paused: it did not pay.
    Paused {
        /// Time at which the next trial starts.
        until: Duration,
    },
    /// It makes a few forecasts, which are judged.
    Trial {
        /// Time at which the trial started.
        since: Duration,
        /// Number of forecasts left.
        left: u64,
    },
}

/// Pauses a predictor that does not pay.
#[derive(Clone, Debug)]
pub struct Governor {
    config: GovernorConfig,
    state: GovernorState,
    /// The counts at the start of the window.
    start: OutcomeCounts,
    /// The newest counts.
    counts: OutcomeCounts,
    /// The next pause.
    pause: Duration,
    pauses: u64,
}

/// Late, covered and refused forecasts per translation of the same cost.
const LOOKUPS_PER_TRANSLATION: u64 = 4;

impl Governor {
    /// Creates a governor of a predictor that is on.
    #[must_use]
    pub fn new(config: GovernorConfig) -> Self {
        Self {
            config,
            state: GovernorState::On,
            start: OutcomeCounts::default(),
            counts: OutcomeCounts::default(),
            pause: config.pause,
            pauses: 0,
        }
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> GovernorState {
        self.state
    }

    /// Returns the number of pauses so far.
    #[must_use]
    pub const fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Returns the newest counts.
    #[must_use]
    pub const fn counts(&self) -> &OutcomeCounts {
        &self.counts
    }

    /// Returns the number of forecasts that are allowed, at most `budget`.
    #[must_use]
    pub fn allowance(&self, budget: usize) -> usize {
        match self.state {
            GovernorState::On => budget,
            GovernorState::Paused { .. } => 0,
            GovernorState::Trial { left, .. } => {
                // A larger number than a `usize` is no limit: the budget is one.
                usize::try_from(left).unwrap_or(usize::MAX).min(budget)
            }
        }
    }

    /// Counts forecasts that the predictor made.
    pub const fn spend(&mut self, forecasts: u64) {
        if let GovernorState::Trial { left, .. } = &mut self.state {
            *left = left.saturating_sub(forecasts);
        }
    }

    /// Takes the counts so far, and judges the predictor if the window is full.
    pub fn update(&mut self, counts: &OutcomeCounts, now: Duration) {
        self.counts = *counts;
        let cost = cost_of(counts).saturating_sub(cost_of(&self.start));
        let hits = counts.hits.saturating_sub(self.start.hits);
        let pays = hits * 100 >= cost * self.config.hits_per_cent_min && hits > 0;
        match self.state {
            GovernorState::On if cost >= self.config.window => {
                self.start = *counts;
                if !pays {
                    self.suspend(now);
                }
            }
            GovernorState::On => {}
            GovernorState::Paused { until } if until <= now => {
                self.start = *counts;
                self.state = GovernorState::Trial { since: now, left: self.config.trial };
            }
            GovernorState::Paused { .. } => {}
            GovernorState::Trial { since, .. } => {
                let is_over = now.saturating_sub(since) >= self.config.trial_time;
                if cost >= self.config.trial / 2 || is_over {
                    self.start = *counts;
                    if pays {
                        (self.state, self.pause) = (GovernorState::On, self.config.pause);
                    } else {
                        self.suspend(now);
                    }
                }
            }
        }
    }

    fn suspend(&mut self, now: Duration) {
        self.state = GovernorState::Paused { until: now + self.pause };
        self.pause = (self.pause * 2).min(self.config.pause_max);
        self.pauses += 1;
    }
}

/// Returns the cost of settled forecasts, in translations.
fn cost_of(counts: &OutcomeCounts) -> u64 {
    let lookups = counts.late + counts.covered + counts.refused_total();
    counts.settled() + lookups / LOOKUPS_PER_TRANSLATION
}
