//! Forecasts: flows that are about to arrive.

use std::{fmt, time::Duration};

use shunt_flow::{SparseKey, SparseMask};

/// A flow that is about to arrive.
///
/// Times count from a start that the caller chooses.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The key of the first packet as it will arrive.
    pub key: SparseKey,
    /// The bits of `key` that are known; `None`: all of them.
    ///
    /// A switch may use the forecast only if its decision depends on no other bit.
    pub known: Option<SparseMask>,
    /// The probability that the flow arrives in time, as the predictor estimates it.
    pub confidence: Confidence,
    /// Time at which the forecast was made.
    pub made: Duration,
    /// Time after which the forecast is of no use.
    pub valid_until: Duration,
    /// The origin of the forecast.
    pub source: ForecastSource,
}

impl Forecast {
    /// Returns whether the forecast is of use at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Duration) -> bool {
        now <= self.valid_until
    }
}

/// A probability in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confidence(u8);

impl Confidence {
    /// Certainty.
    pub const MAX: Self = Self(100);

    /// Returns the confidence of `percent`, at most 100.
    #[must_use]
    pub const fn of_percent(percent: u8) -> Self {
        Self(if percent > 100 { 100 } else { percent })
    }

    /// Returns the percentage.
    #[must_use]
    pub const fn percent(self) -> u8 {
        self.0
    }
}

/// The origin of a forecast: a predictor, or a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ForecastSource {
    /// The reverse direction of a flow.
    Reply,
    /// The same flow to another back end of its service.
    Siblings,
    /// A flow that followed similar flows before.
    Successor,
    /// A flow that returns at intervals.
    Periodic,
    /// A recorded trace.
    Oracle,
    /// An operator who preloads flows.
    Preload,
    /// An orchestrator that announces flows.
    Announced,
}

impl ForecastSource {
    /// All origins.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Reply,
        Self::Siblings,
        Self::Successor,
        Self::Periodic,
        Self::Oracle,
        Self::Preload,
        Self::Announced,
    ];

    /// Number of origins.
    pub const COUNT: usize = 7;

    /// Returns whether the origin is a predictor, and no announcement.
    ///
    /// An announced flow stays predicted for as long as the announcement says.
    #[must_use]
    pub const fn is_predictor(self) -> bool {
        !matches!(self, Self::Preload | Self::Announced)
    }

    /// Returns the name, as in the configuration.
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
