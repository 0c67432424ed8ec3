//! The governor: pauses a predictor that costs more translations than it saves.
//!
//! A forecast that becomes a cache entry costs one translation. A hit of this entry saves one
//! translation, for which a packet would have waited. A predictor spends a token for each forecast,
//! and earns [`GovernorConfig::tokens_per_hit`] tokens for each hit. With two tokens per hit, its
//! tokens run out unless it saves at least one miss per two translations. A forecast that is late,
//! covered or refused costs a quarter of a token. A new flow that the predictor observes costs a
//! sixteenth of a token.
//!
//! A hit only saves a miss if the flow would have missed without the forecast. The switch withholds
//! some forecasts, and [`crate::comparison`] derives the worth of a hit from their outcomes. A hit
//! earns tokens by its worth. A withheld forecast costs nothing, because the switch chose to
//! withhold it.
//!
//! The governor also compares times, if the switch measures them. The time that a predictor saves
//! is the number of saved misses times the time of the slow path for a miss. A predictor is paused
//! if it takes more than [`GovernorConfig::tokens_per_hit`] times as long, with its translations, in
//! [`TIME_WINDOWS`] successive windows of [`TIME_WINDOW`].
//!
//! A predictor starts in a trial with few tokens. A predictor that has earned more tokens than it
//! spent becomes `on`. A predictor is paused when its tokens have run out and none of its pending
//! forecasts can earn more. After the pause a new trial starts. Each pause after a failed trial is
//! twice as long as the one before.
//!
//! New flows cost no tokens in a trial, because a predictor must learn before it can make
//! forecasts. A trial without success fails after [`GovernorConfig::trial_flows`] new flows, or
//! after [`GovernorConfig::trial_time`]. The number of flows does not count while more than half of
//! the settled forecasts were hit. The time counts only if there were some new flows: the flows of
//! a quiet host can be predicted only after some minutes.
//!
//! A forecast earns its tokens when its flow arrives, so a predictor with few tokens and late flows
//! grows slowly. Within [`GovernorConfig::trial_time`] of the start of a trial, the governor lets a
//! predictor *grow* that has spent all tokens, if more than half of its forecasts were hit. Hits
//! settle earlier than wrong forecasts, so a forecast without an outcome counts as wrong by its
//! age. The older it is, compared with the mean lead of the hits, the less probable is a hit. New
//! flows cost a growing predictor nothing, and a hit earns twice as many tokens. The slow start of
//! TCP has the same purpose.

use std::time::Duration;

use crate::{
    comparison::{Comparison, MISS_WORTH},
    outcome::OutcomeCounts,
};

/// Settings of a [`Governor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GovernorConfig {
    /// Number of tokens at the start of a trial.
    pub trial: u64,
    /// Number of new flows within which a trial must succeed.
    pub trial_flows: u64,
    /// Time within which a trial must succeed, from its first new flow on.
    ///
    /// A trial with fewer new flows than `trial_flows_min` takes longer.
    pub trial_time: Duration,
    /// Number of new flows that a trial has in any case.
    pub trial_flows_min: u64,
    /// Number of tokens that a predictor earns per hit.
    pub tokens_per_hit: u64,
    /// Maximum number of tokens of a predictor.
    /// So this is also the maximum number of useless forecasts after the traffic changes.
    pub tokens_max: u64,
    /// Time to wait for outcomes of forecasts after the tokens have run out.
    pub outcome_time: Duration,
    /// The length of the first pause.
    pub pause: Duration,
    /// The length of the longest pause.
    pub pause_max: Duration,
}

impl Default for GovernorConfig {
    fn default() -> Self {
        Self {
            trial: 64,
            trial_flows: 16_384,
            trial_time: Duration::from_secs(10),
            trial_flows_min: 64,
            tokens_per_hit: 2,
            tokens_max: 16_384,
            outcome_time: Duration::from_secs(6),
            pause: Duration::from_secs(10),
            pause_max: Duration::from_secs(600),
        }
    }
}

/// The state of a predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GovernorState {
    /// The predictor saves enough misses for its translations.
    On,
    /// The predictor is paused, because it saved too few misses.
    Paused {
        /// The time at which the next trial starts.
        until: Duration,
    },
    /// The predictor makes a few forecasts, by which it is judged.
    Trial,
}

/// The reason for which a predictor is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// Too few of its forecasts were hit.
    FewHits,
    /// Its forecasts were hit, but too few of the withheld flows missed.
    FewSavedMisses,
    /// The predictor took more time of the slow path than it saved.
    SlowPathTime,
}

impl PauseReason {
    /// Returns the reason as a clause of a log line.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Self::FewHits => "too few of its forecasts were hit",
            Self::FewSavedMisses => "its flows would seldom miss without forecasts",
            Self::SlowPathTime => "it takes more slow-path time than it saves",
        }
    }
}

/// Pauses a predictor that costs more translations than it saves.
#[derive(Clone, Debug)]
pub struct Governor {
    /// The settings of the governor.
    config: GovernorConfig,
    /// The state of the predictor: on, paused or on trial.
    state: GovernorState,
    /// The remaining tokens, in sixteenths of a token.
    parts: u64,
    /// Number of new flows in the current trial.
    trial_flows: u64,
    /// The time of the first new flow in the current trial.
    trial_since: Option<Duration>,
    /// True if new flows cost nothing and hits earn more tokens.
    is_growing: bool,
    /// The outcomes at the start of the trial.
    trial_counts: OutcomeCounts,
    /// The forecasts that were installed in the trial.
    installed: InstallHistory,
    /// The time at which the tokens ran out.
    out_since: Option<Duration>,
    /// The outcomes that the last update had.
    counts: OutcomeCounts,
    /// The length of the next pause.
    pause: Duration,
    /// Number of pauses so far.
    pauses: u64,
    /// The reason of the last pause.
    pause_reason: Option<PauseReason>,
    /// The outcomes of installed and withheld forecasts.
    comparison: Comparison,
    /// The times that were measured until now.
    times: SlowPathTimes,
    /// The window in which times are compared.
    window: TimeWindow,
}

/// The times of the slow path that a switch measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowPathTimes {
    /// The time that the predictor itself took since the start.
    pub predictor: Duration,
    /// The mean time for a miss; `None` if it was not measured.
    pub per_miss: Option<Duration>,
}

/// A window in which the times that a predictor takes and saves are compared.
#[derive(Clone, Copy, Debug, Default)]
struct TimeWindow {
    /// The start of the window.
    start: Duration,
    /// The outcomes at the start.
    counts: OutcomeCounts,
    /// The time that the predictor itself took until the start.
    predictor: Duration,
    /// Number of windows before this one in which the predictor took too much time.
    too_slow: u32,
}

/// Least length of a window in which times are compared.
const TIME_WINDOW: Duration = Duration::from_secs(1);

/// Least number of installed and of settled forecasts in such a window.
const TIME_FORECASTS_MIN: u64 = 256;

/// Number of successive windows with too much time that pause a predictor.
///
/// The time of a thread that was descheduled distorts one window.
const TIME_WINDOWS: u32 = 2;

/// Number of parts of a token. A new flow costs one part.
const PARTS: u64 = 16;

/// Number of parts of a token that a late, covered or refused forecast costs.
const LOOKUP_PARTS: u64 = 4;

/// The factor by which hits earn more tokens while a predictor grows.
const GROWTH: u64 = 2;

/// Time within which packet threads receive all forecasts that were made.
const DELIVERY_TIME: Duration = Duration::from_secs(1);

/// The number of installed forecasts at some times of a trial.
#[derive(Clone, Debug)]
struct InstallHistory(Vec<InstalledForecasts>);

/// The number of forecasts that were installed until a time.
#[derive(Clone, Copy, Debug)]
struct InstalledForecasts {
    /// The time up to which forecasts are counted.
    time: Duration,
    /// Number of forecasts that were installed.
    count: u64,
}

/// Number of mean leads after which a forecast without an outcome is wrong.
///
/// While a predictor grows, the hits so far are mostly those with a short lead. With exponential
/// leads and the growth of a predictor with half hits, three of their mean leads are one and a half
/// of the real ones. Then as many forecasts count as wrong as will be wrong.
const LEADS: u32 = 3;

/// Maximum number of records in the history of a trial.
const RECORDS_MAX: u32 = 256;

impl InstallHistory {
    /// Creates an empty history with room for all records.
    fn new() -> Self {
        // Both ends of a trial have a record.
        Self(Vec::with_capacity(RECORDS_MAX as usize + 1))
    }

    /// Records the number of installed forecasts, at most once in `step`.
    fn record(&mut self, count: u64, time: Duration, step: Duration) {
        if self.0.last().is_none_or(|last| time.saturating_sub(last.time) >= step) {
            self.0.push(InstalledForecasts { time, count });
        }
    }

    /// Returns how many of the forecasts of a trial can be judged.
    ///
    /// `before` forecasts were installed before the trial, and `count` until now. A forecast counts
    /// by its age as a share of `age_max`. Forecasts before the first record have its age.
    fn judged(&self, before: u64, count: u64, now: Duration, age_max: Duration) -> u64 {
        let age_max = age_max.as_nanos().max(1);
        let start = self.0.first().map(|first| InstalledForecasts { count: before, ..*first });
        let records = start.iter().chain(&self.0);
        let counts = self.0.iter().map(|own| own.count).chain([count]);
        let parts = records.zip(counts).map(|(own, next)| {
            let age = now.saturating_sub(own.time).as_nanos().min(age_max);
            u128::from(next.saturating_sub(own.count)) * age
        });
        u64::try_from(parts.sum::<u128>() / age_max).unwrap_or(u64::MAX)
    }
}

impl Governor {
    /// Creates a governor of a predictor in its first trial.
    #[must_use]
    pub fn new(config: GovernorConfig) -> Self {
        Self {
            config,
            state: GovernorState::Trial,
            parts: config.trial * PARTS,
            trial_flows: 0,
            trial_since: None,
            is_growing: false,
            trial_counts: OutcomeCounts::default(),
            installed: InstallHistory::new(),
            out_since: None,
            counts: OutcomeCounts::default(),
            pause: config.pause,
            pauses: 0,
            pause_reason: None,
            comparison: Comparison::default(),
            times: SlowPathTimes::default(),
            window: TimeWindow::default(),
        }
    }

    /// Returns the state of the predictor.
    #[must_use]
    pub const fn state(&self) -> GovernorState {
        self.state
    }

    /// Returns the number of pauses of the predictor so far.
    #[must_use]
    pub const fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Returns the reason of the last pause; `None` before the first one.
    #[must_use]
    pub const fn pause_reason(&self) -> Option<PauseReason> {
        self.pause_reason
    }

    /// Sets the times that were measured until now, for the next update.
    pub const fn set_times(&mut self, times: SlowPathTimes) {
        self.times = times;
    }

    /// Returns the outcomes that the last update had.
    #[must_use]
    pub const fn counts(&self) -> &OutcomeCounts {
        &self.counts
    }

    /// Returns the number of forecasts that the tokens allow, at most `budget`.
    #[must_use]
    pub fn allowance(&self, budget: usize) -> usize {
        match self.state {
            GovernorState::Paused { .. } => 0,
            GovernorState::On | GovernorState::Trial => {
                // If the number exceeds a `usize`, only the budget is the limit.
                usize::try_from(self.parts / PARTS).unwrap_or(usize::MAX).min(budget)
            }
        }
    }

    /// Subtracts the tokens for forecasts that the predictor made.
    pub const fn spend(&mut self, forecasts: u64) {
        self.parts = self.parts.saturating_sub(forecasts * PARTS);
    }

    /// Counts a new flow that the predictor observed.
    pub const fn see_flow(&mut self) {
        match self.state {
            GovernorState::On if self.is_growing => {}
            GovernorState::On => self.parts = self.parts.saturating_sub(1),
            GovernorState::Trial => self.trial_flows += 1,
            GovernorState::Paused { .. } => {}
        }
    }

    /// Adds earned tokens by the outcomes since the start, and updates the state.
    pub fn update(&mut self, counts: &OutcomeCounts, now: Duration) {
        let is_trial_time = self
            .trial_since
            .is_some_and(|since| now.saturating_sub(since) < self.config.trial_time);
        if is_trial_time {
            self.installed.record(counts.installed, now, self.config.trial_time / RECORDS_MAX);
        }
        self.is_growing = is_trial_time && self.parts < PARTS && self.grows(counts, now);
        self.comparison.add(&self.counts, counts);
        let earned = self.earned(counts);
        self.counts = *counts;
        if let GovernorState::Paused { until } = self.state {
            if until <= now {
                self.start_trial(now);
            }
            return;
        }
        self.parts = (self.parts + earned).min(self.config.tokens_max * PARTS);
        if self.parts > self.config.trial * PARTS {
            (self.state, self.pause) = (GovernorState::On, self.config.pause);
        }
        if self.state == GovernorState::Trial && self.is_trial_over(now) {
            return self.start_pause(now, self.reason_of_hits());
        }
        if self.takes_too_long(now) {
            return self.start_pause(now, PauseReason::SlowPathTime);
        }
        if self.parts >= PARTS {
            self.out_since = None;
            return;
        }
        let out_for = now.saturating_sub(*self.out_since.get_or_insert(now));
        let is_settled = out_for >= DELIVERY_TIME && pending(counts) == 0;
        if is_settled || out_for >= self.config.outcome_time {
            self.start_pause(now, self.reason_of_hits());
        }
    }

    /// Returns the reason to pause a predictor that earns too few tokens.
    const fn reason_of_hits(&self) -> PauseReason {
        if self.comparison.hits_suffice(self.config.tokens_per_hit) {
            PauseReason::FewSavedMisses
        } else {
            PauseReason::FewHits
        }
    }

    /// Returns whether the predictor took too much time in [`TIME_WINDOWS`] windows.
    ///
    /// The forecasts that settle in a window are not those that are installed in it. So the saved
    /// time of a settled forecast is compared with the time that an installed one takes.
    fn takes_too_long(&mut self, now: Duration) -> bool {
        let Some(per_miss) = self.times.per_miss else { return false };
        let own = self.counts.since(&self.window.counts);
        let count = own.installed.min(own.settled());
        if now.saturating_sub(self.window.start) < TIME_WINDOW || count < TIME_FORECASTS_MIN {
            return false;
        }
        let spent = own.spent + self.times.predictor.saturating_sub(self.window.predictor);
        let worth = own.hits * self.comparison.hit_worth() * self.config.tokens_per_hit;
        let saved = per_miss.as_nanos() * u128::from(worth) * u128::from(own.installed);
        let settled = u128::from(own.settled() * MISS_WORTH);
        let is_too_slow = saved < spent.as_nanos() * settled;
        let too_slow = if is_too_slow { self.window.too_slow + 1 } else { 0 };
        self.start_window(now, too_slow);
        too_slow >= TIME_WINDOWS
    }

    /// Starts a window in which times are compared.
    const fn start_window(&mut self, now: Duration, too_slow: u32) {
        let (counts, predictor) = (self.counts, self.times.predictor);
        self.window = TimeWindow { start: now, counts, predictor, too_slow };
    }

    /// Returns whether a trial has failed.
    fn is_trial_over(&mut self, now: Duration) -> bool {
        if self.trial_flows == 0 {
            return false;
        }
        let since = *self.trial_since.get_or_insert(now);
        let is_late = now.saturating_sub(since) >= self.config.trial_time;
        self.trial_flows >= self.config.trial_flows && !self.is_worthwhile(&self.counts)
            || is_late && self.trial_flows >= self.config.trial_flows_min
    }

    /// Returns whether over half of the trial's settled forecasts saved a miss.
    fn is_worthwhile(&self, counts: &OutcomeCounts) -> bool {
        let hits = counts.hits.saturating_sub(self.trial_counts.hits);
        let settled = counts.settled().saturating_sub(self.trial_counts.settled());
        hits > 0 && hits * 2 * self.comparison.hit_worth() > settled * MISS_WORTH
    }

    /// Returns whether more than half of the forecasts of the trial saved a miss.
    ///
    /// A wrong forecast settles later than a hit. So a forecast without an outcome counts as wrong
    /// by its age: in part, and as a whole from [`LEADS`] mean leads on.
    fn grows(&self, counts: &OutcomeCounts, now: Duration) -> bool {
        let trial = counts.since(&self.trial_counts);
        let Some(lead) = trial.mean_lead() else { return false };
        let before = self.trial_counts.installed;
        let judged = self.installed.judged(before, counts.installed, now, lead * LEADS);
        let judged = judged.saturating_sub(trial.device_covered).max(trial.settled());
        trial.hits * 2 * self.comparison.hit_worth() > judged * MISS_WORTH
    }

    /// Starts a trial of the predictor.
    ///
    /// Earlier outcomes of withheld forecasts count less: the traffic may have changed.
    fn start_trial(&mut self, now: Duration) {
        self.comparison.age();
        self.start_window(now, 0);
        self.state = GovernorState::Trial;
        (self.parts, self.out_since) = (self.config.trial * PARTS, None);
        (self.trial_flows, self.trial_since) = (0, None);
        self.trial_counts = self.counts;
        self.installed.0.clear();
    }

    /// Pauses the predictor, each time twice as long up to a limit.
    fn start_pause(&mut self, now: Duration, reason: PauseReason) {
        self.pause_reason = Some(reason);
        self.state = GovernorState::Paused { until: now + self.pause };
        self.pause = (self.pause * 2).min(self.config.pause_max);
        self.pauses += 1;
    }

    /// Returns the tokens, in parts, that the outcomes since the last update give.
    fn earned(&self, counts: &OutcomeCounts) -> u64 {
        let hits = counts.hits.saturating_sub(self.counts.hits);
        let lookups = lookups(counts).saturating_sub(lookups(&self.counts));
        let growth = if self.is_growing { GROWTH } else { 1 };
        let withheld = counts.withheld.saturating_sub(self.counts.withheld);
        let saved = hits * self.config.tokens_per_hit * growth * PARTS;
        let worth = u128::from(saved) * u128::from(self.comparison.hit_worth());
        // A worth is at most one miss, so the quotient is at most `saved`.
        let earned = u64::try_from(worth / u128::from(MISS_WORTH)).unwrap_or(saved);
        earned + lookups * (PARTS - LOOKUP_PARTS) + withheld * PARTS
    }
}

/// Returns the number of forecasts that cost a lookup, but no translation.
fn lookups(counts: &OutcomeCounts) -> u64 {
    counts.late + counts.covered + counts.refused_total()
}

/// Returns the number of forecasts without an outcome yet.
fn pending(counts: &OutcomeCounts) -> u64 {
    let ended = counts.settled() + counts.device_covered + counts.withheld + lookups(counts);
    counts.received.saturating_sub(ended)
}
