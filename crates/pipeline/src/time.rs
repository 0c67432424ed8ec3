//! Moments, as the caller's clock tells them.

use std::time::Duration;

/// Nanoseconds since the daemon's clock began. Passed in; nothing here reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);

    /// The moment `nanoseconds` after the beginning.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the beginning.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `duration` after this one.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}
