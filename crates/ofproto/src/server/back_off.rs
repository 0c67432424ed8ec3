//! Exponential back-off between connection attempts.

use std::time::Duration;

/// A delay that doubles with each attempt.
#[derive(Debug)]
pub(super) struct BackOff {
    next: Duration,
}

impl BackOff {
    /// The first delay.
    const MIN: Duration = Duration::from_secs(1);
    /// The longest delay (`max_backoff`).
    const MAX: Duration = Duration::from_secs(8);

    pub(super) const fn new() -> Self {
        Self { next: Self::MIN }
    }

    /// Returns the current delay and doubles the next one.
    pub(super) fn advance(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(Self::MAX);
        now
    }

    /// Resets the delay after a successful attempt.
    pub(super) const fn reset(&mut self) {
        self.next = Self::MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_and_reset() {
        let mut back_off = BackOff::new();
        let seconds: Vec<_> = (0..6).map(|_| back_off.advance().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 8, 8]);
        back_off.reset();
        assert_eq!(back_off.advance().as_secs(), 1);
    }
}
