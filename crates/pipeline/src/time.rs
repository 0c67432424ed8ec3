//! Points in time, as the caller's clock shows them.

use std::time::Duration;

/// Nanoseconds since the start of the daemon's clock.
///
/// Callers pass the time: this crate reads no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the daemon's clock.
    pub const ZERO: Self = Self(0);

    /// Returns the time `nanoseconds` after the start of the clock.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the start of the clock.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Returns the duration from `earlier` to this time; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time `duration` after this time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        // Times saturate after 584 years, so `Duration::MAX` never passes.
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}
