//! The contract of predictors of flows.

use std::{fmt, time::Duration};

use crate::{
    event::FlowEvent,
    forecast::{Confidence, Forecast, ForecastSource},
};

/// Learns from the flows that arrived, and forecasts other flows.
///
/// A predictor has bounded memory, and does bounded work in each call. Equal events give equal
/// forecasts. A wrong forecast costs a switch room and time, and never changes the forwarding of a
/// packet.
pub trait Predictor: fmt::Debug + Send {
    /// Returns the origin of the forecasts of this predictor.
    fn source(&self) -> ForecastSource;

    /// Learns from an event at the time `now`, which never decreases.
    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration);

    /// Adds at most `budget` forecasts that are due at `now`, the most confident ones.
    ///
    /// All other due forecasts are dropped: a forecast that waits for a budget comes too late.
    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>);

    /// Returns the time of the next forecast; `None` means after the next event.
    ///
    /// After a call of [`Self::forecast`] this time is later than `now`.
    fn next_due(&self) -> Option<Duration>;

    /// Returns the greatest confidence of the forecasts that are due at `now`.
    ///
    /// Predictors with more confident forecasts make them first. A predictor without an estimate
    /// returns `None`, and is the last one.
    fn confidence(&self, _now: Duration) -> Option<Confidence> {
        None
    }

    /// Returns the number of items in the memory of the predictor.
    fn len(&self) -> usize;

    /// Returns the maximum of [`Self::len`].
    fn capacity(&self) -> usize;

    /// Returns whether the memory of the predictor is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
