//! The clock of the daemon, which starts at [`Time::ZERO`].

use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use shunt_p4runtime::server::ClockReading;
use shunt_pipeline::Time;

/// A monotonic clock that starts when it is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DaemonClock {
    /// The start of the clock.
    epoch: Instant,
}

impl DaemonClock {
    /// Starts the clock at zero.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now() }
    }

    /// Returns the instant of [`Time::ZERO`].
    pub(crate) const fn epoch(self) -> Instant {
        self.epoch
    }

    /// Returns the time since the start.
    pub(crate) fn now(self) -> Time {
        Time::ZERO.after(self.epoch.elapsed())
    }

    /// Returns the Unix time of [`Time::ZERO`].
    ///
    /// The result uses the present time of the system clock, which may be set while the daemon
    /// runs.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub(crate) fn unix_time_at_zero(self) -> Duration {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        day.saturating_sub(self.epoch.elapsed())
    }

    /// Returns the monotonic time and the time of day for an embedded NIC.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub(crate) fn of_nic() -> ClockReading {
        /// The time of the first call.
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ClockReading { steady: START.elapsed(), day }
    }
}
