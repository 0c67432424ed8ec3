//! A rate limit for log lines about one peer.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use shunt_pipeline::Time;

/// Number of warnings that are logged per [`WINDOW`].
const WARNINGS_MAX: u32 = 5;
/// Period over which warnings are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Limits the warnings about one peer, over all of its connections.
#[derive(Debug, Default)]
pub struct WarningRate(Mutex<RateWindow>);

#[derive(Debug, Default)]
struct RateWindow {
    began: Time,
    count: u32,
}

impl WarningRate {
    /// Returns the number of suppressed warnings; `None` if the limit is reached.
    pub(crate) fn admit(&self, now: Time) -> Option<u32> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut suppressed = 0;
        if now.since(window.began) >= WINDOW {
            suppressed = window.count.saturating_sub(WARNINGS_MAX);
            *window = RateWindow { began: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        (window.count <= WARNINGS_MAX).then_some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_per_minute_are_limited() {
        let rate = WarningRate::default();
        let mut admitted = 0;
        for _ in 0..1000 {
            admitted += u32::from(rate.admit(Time::ZERO).is_some());
        }
        assert_eq!(admitted, WARNINGS_MAX);
        let later = Time::ZERO.after(WINDOW);
        assert_eq!(rate.admit(later), Some(1000 - WARNINGS_MAX));
        assert_eq!(rate.admit(later), Some(0));
    }
}
