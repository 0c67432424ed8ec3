//! Exponential back-off between connection attempts.

use std::time::Duration;

/// A reconnect delay, which doubles until a connection stays open for as long.
///
/// A connection that was open for at least the last delay resets the delay, as in Open vSwitch. A
/// peer that completes the handshake and closes at once is retried as rarely as an absent peer.
#[derive(Debug)]
pub(super) struct BackOff {
    /// The delay before the last attempt.
    last: Duration,
}

impl BackOff {
    /// The delay after the first failed attempt.
    const MIN: Duration = Duration::from_secs(1);
    /// The longest delay between two attempts (`max_backoff`).
    const MAX: Duration = Duration::from_secs(8);

    /// Returns a back-off before the first attempt.
    pub(super) const fn new() -> Self {
        Self { last: Duration::ZERO }
    }

    /// Returns the delay after a connection that was open for `open_for`.
    pub(super) fn advance(&mut self, open_for: Duration) -> Duration {
        let is_over = open_for >= self.last;
        self.last = if is_over { Self::MIN } else { (self.last * 2).min(Self::MAX) };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_connection_resets_the_delay() {
        let mut back_off = BackOff::new();
        let mut after = |open_for| back_off.advance(Duration::from_millis(open_for)).as_secs();
        let delays: Vec<_> = (0..6).map(|_| after(0)).collect();
        assert_eq!(delays, [1, 2, 4, 8, 8, 8]);
        assert_eq!(
            [after(7999), after(8000), after(999), after(500), after(4000)],
            [8, 1, 2, 4, 1]
        );
    }
}
