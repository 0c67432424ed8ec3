//! The clock that measures how long translations take.

use std::{fmt, time::Duration};

use shunt_pipeline::Time;

/// Measures durations by the clock of the caller.
///
/// A packet thread knows the time of its iteration only, and a translation takes less.
#[derive(Default)]
pub struct Stopwatch(Option<Box<dyn Fn() -> Time + Send>>);

impl Stopwatch {
    /// Creates a stopwatch that reads `clock`.
    #[must_use]
    pub fn new(clock: impl Fn() -> Time + Send + 'static) -> Self {
        Self(Some(Box::new(clock)))
    }

    /// Returns the present time, if there is a clock.
    pub(crate) fn read(&self) -> Option<Time> {
        self.0.as_ref().map(|clock| clock())
    }

    /// Returns the present time; without a clock always the same.
    pub(crate) fn now(&self) -> Time {
        self.read().unwrap_or(Time::ZERO)
    }

    /// Returns the time since `start`.
    pub(crate) fn since(&self, start: Time) -> Duration {
        self.now().since(start)
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stopwatch").field(&self.0.is_some()).finish()
    }
}
