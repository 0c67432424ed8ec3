//! The daemon's clock: where [`Time`] begins.

use std::{
    sync::LazyLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use shunt_p4runtime::server::Now;
use shunt_pipeline::Time;

/// A clock that starts when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now() }
    }

    /// The moment that is [`Time::ZERO`].
    pub(crate) const fn epoch(self) -> Instant {
        self.epoch
    }

    pub(crate) fn now(self) -> Time {
        Time::ZERO.after(self.epoch.elapsed())
    }

    /// The time of an embedded NIC: by itself, and of the day.
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    pub(crate) fn of_nic() -> Now {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady: START.elapsed(), day }
    }
}
