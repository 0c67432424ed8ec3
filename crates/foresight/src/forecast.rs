//! Forecasts: flows that are about to arrive.

use std::{fmt, time::Duration};

use shunt_flow::{SparseKey, SparseMask};

/// A flow that is about to arrive.
///
/// Times are durations since a start that the caller chooses.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The key that the first packet of the flow will have when it arrives.
    pub key: SparseKey,
    /// The bits of `key` that are known; `None`: all of them.
    ///
    /// A switch may use the forecast only if its decision depends only on known bits.
    pub known: Option<SparseMask>,
    /// The estimate of the predictor for the probability that the flow arrives in time.
    pub confidence: Confidence,
    /// The time at which the forecast was made.
    pub made: Duration,
    /// The time after which the forecast is useless.
    pub valid_until: Duration,
    /// The origin of the forecast.
    pub source: ForecastSource,
}

impl Forecast {
    /// Returns whether the forecast is still useful at the time `now`.
    #[must_use]
    pub fn is_valid(&self, now: Duration) -> bool {
        now <= self.valid_until
    }
}

/// A probability in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u8);

impl Confidence {
    /// The confidence of a certain forecast.
    pub const MAX: Self = Self(100);

    /// Returns the confidence of `percent`, at most 100.
    #[must_use]
    pub const fn of_percent(percent: u8) -> Self {
        Self(if percent > 100 { 100 } else { percent })
    }

    /// Returns the confidence in percent.
    #[must_use]
    pub const fn percent(self) -> u8 {
        self.0
    }
}

/// The origin of a forecast: a predictor, an operator or an orchestrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ForecastSource {
    /// The forecast is the reverse direction of a flow.
    Reply,
    /// The forecast is the same flow to another back end of its service.
    Siblings,
    /// The forecast is a flow that followed similar flows before.
    Successor,
    /// The forecast is a flow that returns at equal intervals.
    Periodic,
    /// The forecast is from a recorded trace.
    Oracle,
    /// An operator preloaded the flow.
    Preload,
    /// An orchestrator announced the flow.
    Announced,
}

impl ForecastSource {
    /// All origins of forecasts.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Reply,
        Self::Siblings,
        Self::Successor,
        Self::Periodic,
        Self::Oracle,
        Self::Preload,
        Self::Announced,
    ];

    /// Number of origins of forecasts.
    pub const COUNT: usize = 7;

    /// Returns whether the origin is a predictor, not an operator or an orchestrator.
    ///
    /// An announced flow is expected for the time that the announcement gives.
    #[must_use]
    pub const fn is_predictor(self) -> bool {
        !matches!(self, Self::Preload | Self::Announced)
    }

    /// Returns the name of the origin in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Siblings => "siblings",
            Self::Successor => "successor",
            Self::Periodic => "periodic",
            Self::Oracle => "oracle",
            Self::Preload => "preload",
            Self::Announced => "announced",
        }
    }
}

impl fmt::Display for ForecastSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
