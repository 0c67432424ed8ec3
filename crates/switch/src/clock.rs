//! The daemon's clock: where [`Time`] begins.

use std::time::Instant;

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
}
