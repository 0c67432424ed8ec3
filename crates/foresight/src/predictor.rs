//! The contract of predictors.

use std::{fmt, time::Duration};

use crate::{
    event::FlowEvent,
    forecast::{Forecast, ForecastSource},
};

/// Learns from flows, and forecasts others.
///
/// A predictor has bounded memory, and does bounded work in each call. Equal events give equal
/// forecasts. A wrong forecast costs a switch room and time, and never changes a decision.
pub trait Predictor: fmt::Debug + Send {
    /// Returns the origin of its forecasts.
    fn source(&self) -> ForecastSource;

    /// Learns from an event at `now`. Time never goes back.
    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration);

    /// Adds at most `budget` forecasts that are due at `now`.
    ///
    /// Drops all others that are due: a forecast that waits for a budget comes too late.
    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>);

    /// Returns the time of the next forecast; `None`: not before the next event.
    ///
    /// After [`Self::forecast`] it is later than `now`.
    fn next_due(&self) -> Option<Duration>;

    /// Returns the number of items in memory.
    fn len(&self) -> usize;

    /// Returns the maximum of [`Self::len`].
    fn capacity(&self) -> usize;

    /// Returns whether nothing is in memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
