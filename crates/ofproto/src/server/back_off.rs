//! How long to wait before trying again.

use std::time::Duration;

/// Doubles from attempt to attempt.
#[derive(Debug)]
pub(super) struct BackOff {
    next: Duration,
}

impl BackOff {
    /// The first wait.
    const MIN: Duration = Duration::from_secs(1);
    /// The longest one (`max_backoff`).
    const MAX: Duration = Duration::from_secs(8);

    pub(super) const fn new() -> Self {
        Self { next: Self::MIN }
    }

    /// The time to wait now.
    pub(super) fn advance(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(Self::MAX);
        now
    }

    /// An attempt went well.
    pub(super) const fn reset(&mut self) {
        self.next = Self::MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_start_anew_after_success() {
        let mut back_off = BackOff::new();
        let seconds: Vec<_> = (0..6).map(|_| back_off.advance().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 8, 8]);
        back_off.reset();
        assert_eq!(back_off.advance().as_secs(), 1);
    }
}
