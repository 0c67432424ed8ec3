//! The intervals of this end, and the Poll Sequence that changes them.
//!
//! Each end computes its times from the intervals of both ends. A changed interval is sent
//! immediately, in packets with the flag Poll, until the other end answers with Final. A change
//! that shortens the detection time of either end takes effect only with this answer. Before this
//! answer, the other end may still send at the old interval.
//!
//! Source: RFC 5880, 6.5 and 6.8.3.

use std::time::Duration;

use crate::state::BfdState;

/// The intervals of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IntervalPair {
    /// The interval `bfd.DesiredMinTxInterval` of RFC 5880.
    pub(crate) desired_min_tx: Duration,
    /// The interval `bfd.RequiredMinRxInterval` of RFC 5880.
    pub(crate) required_min_rx: Duration,
}

/// The intervals of this end: as advertised in packets, and as used for timers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PolledIntervals {
    /// Intervals that packets advertise.
    pub(crate) advertised: IntervalPair,
    /// Intervals that determine the times of sending and expiry.
    pub(crate) used: IntervalPair,
    /// True while a Poll sequence runs, which advertises new intervals.
    is_polling: bool,
}

impl PolledIntervals {
    /// Returns whether a Poll Sequence is in progress.
    pub(crate) const fn is_polling(&self) -> bool {
        self.is_polling
    }

    /// Starts to change the intervals to the values for the settings and the state.
    ///
    /// A Poll Sequence in progress is finished first, because its answer would be ambiguous.
    pub(crate) fn follow(&mut self, wanted: IntervalPair, state: BfdState) {
        if !state.is_connected() {
            // No session is established, so the other end does not use the old intervals.
            *self = Self { advertised: wanted, used: wanted, is_polling: false };
            return;
        }
        if self.is_polling || wanted == self.advertised {
            return;
        }
        (self.advertised, self.is_polling) = (wanted, true);
        self.used = if state == BfdState::Up {
            IntervalPair {
                desired_min_tx: self.used.desired_min_tx.min(wanted.desired_min_tx),
                required_min_rx: self.used.required_min_rx.max(wanted.required_min_rx),
            }
        } else {
            wanted
        };
    }

    /// Ends the Poll Sequence after a Final of the other end.
    pub(crate) const fn on_final(&mut self) {
        if self.is_polling {
            (self.used, self.is_polling) = (self.advertised, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a pair of intervals, in microseconds.
    fn pair(desired_min_tx: u64, required_min_rx: u64) -> IntervalPair {
        let ms = Duration::from_millis;
        IntervalPair { desired_min_tx: ms(desired_min_tx), required_min_rx: ms(required_min_rx) }
    }

    #[test]
    fn a_risky_interval_waits_for_the_final_packet() {
        let mut own = PolledIntervals::default();
        own.follow(pair(1000, 300), BfdState::Down);
        assert!(!own.is_polling() && own.used == pair(1000, 300));
        own.follow(pair(100, 300), BfdState::Up);
        assert!(own.is_polling() && own.used == pair(100, 300), "faster sending is used at once");
        own.on_final();
        own.follow(pair(500, 50), BfdState::Up);
        assert!(own.is_polling());
        assert_eq!((own.advertised, own.used), (pair(500, 50), pair(100, 300)));
        own.follow(pair(600, 700), BfdState::Up);
        assert_eq!(own.advertised, pair(500, 50), "one sequence after the other");
        own.on_final();
        assert!(!own.is_polling() && own.used == pair(500, 50));
        own.follow(pair(600, 700), BfdState::Up);
        assert_eq!((own.advertised, own.used), (pair(600, 700), pair(500, 700)));
        own.follow(pair(1000, 700), BfdState::Down);
        assert!(!own.is_polling() && own.used == pair(1000, 700), "the session has ended");
    }
}
