//! The clock that measures the time of translations.

use std::{fmt, time::Duration};

use shunt_pipeline::Time;

/// Measures durations by the clock of the caller.
///
/// A packet thread knows only the time at which its iteration began.
#[derive(Default)]
pub struct Stopwatch(Option<Box<dyn Fn() -> Time + Send>>);

impl Stopwatch {
    /// Creates a stopwatch that reads `clock`.
    #[must_use]
    pub fn new(clock: impl Fn() -> Time + Send + 'static) -> Self {
        Self(Some(Box::new(clock)))
    }

    /// Returns the current time, if there is a clock.
    pub(crate) fn read(&self) -> Option<Time> {
        self.0.as_ref().map(|clock| clock())
    }

    /// Returns the current time; without a clock, always the same time.
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
