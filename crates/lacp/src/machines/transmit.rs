//! The transmit machine: sends at most three LACPDUs per second, and always the newest information.
//!
//! Source: IEEE 802.1AX, LACP, transmit machine.

use std::time::Duration;

use crate::{timing::FAST_PERIODIC_TIME, wire::info::LacpInfo};

/// The transmit machine of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransmitMachine {
    /// True if an LACPDU must be sent (`NTT`).
    is_needed: bool,
    /// Information about this end in the last sent LACPDU.
    last: Option<LacpInfo>,
    limit: RateLimit<LACPDUS_PER_SECOND>,
}

/// A limit of `COUNT` events per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit<const COUNT: usize> {
    /// Times of the last events in the limit, the oldest first.
    times: [Option<Duration>; COUNT],
}

impl TransmitMachine {
    /// Records that an LACPDU must be sent.
    pub(crate) const fn need(&mut self) {
        self.is_needed = true;
    }

    /// Forgets the last sent LACPDU, because no partner has received it.
    pub(crate) const fn reset(&mut self) {
        (self.is_needed, self.last) = (false, None);
    }

    /// Returns the time at which an LACPDU with `actor` must be sent.
    pub(crate) fn deadline(&self, actor: &LacpInfo) -> Option<Duration> {
        let is_news = self.last.as_ref() != Some(actor);
        (self.is_needed || is_news).then(|| self.limit.free_at())
    }

    /// Returns whether an LACPDU with `actor` must be sent now, and counts it as sent.
    pub(crate) fn take_due(&mut self, actor: &LacpInfo, now: Duration) -> bool {
        let is_due = self.deadline(actor).is_some_and(|due| due <= now);
        if is_due {
            (self.is_needed, self.last) = (false, Some(*actor));
            self.limit.count(now);
        }
        is_due
    }
}

impl<const COUNT: usize> RateLimit<COUNT> {
    /// Returns the earliest time at which another event is allowed.
    pub(crate) fn free_at(&self) -> Duration {
        let oldest = self.times.first().copied().flatten();
        oldest.map_or(Duration::ZERO, |time| time.saturating_add(FAST_PERIODIC_TIME))
    }

    /// Counts an event, which uses a part of the limit.
    pub(crate) fn count(&mut self, now: Duration) {
        self.times.rotate_left(1);
        if let Some(newest) = self.times.last_mut() {
            *newest = Some(now);
        }
    }
}

impl<const COUNT: usize> Default for RateLimit<COUNT> {
    fn default() -> Self {
        Self { times: [None; COUNT] }
    }
}

/// Maximum number of LACPDUs that a member sends in a second.
const LACPDUS_PER_SECOND: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time after some milliseconds.
    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn no_second_has_more_than_three_lacpdus() {
        let mut machine = TransmitMachine::default();
        let mut sent = Vec::new();
        for time in (0..5000).step_by(10).map(ms) {
            machine.need();
            if machine.take_due(&LacpInfo::default(), time) {
                sent.push(time);
            }
        }
        assert_eq!(sent[..4], [ms(0), ms(10), ms(20), ms(1000)]);
        assert_eq!(sent.len(), 15);
        for window in sent.windows(4) {
            assert!(window[3] - window[0] >= FAST_PERIODIC_TIME, "{window:?}");
        }
    }

    #[test]
    fn changes_and_requests_are_sent_once() {
        let mut machine = TransmitMachine::default();
        let actor = LacpInfo::default();
        let news = LacpInfo { key: 2, ..actor };
        assert!(machine.take_due(&actor, ms(0)) && !machine.take_due(&actor, ms(1)));
        assert_eq!(machine.deadline(&actor), None);
        machine.need();
        assert!(machine.take_due(&actor, ms(2)) && !machine.take_due(&actor, ms(3)));
        assert!(machine.take_due(&news, ms(4)) && !machine.take_due(&news, ms(5)));
        machine.reset();
        assert_eq!(machine.deadline(&news), Some(ms(1000)), "the limit stays");
        assert!(!machine.take_due(&news, ms(999)) && machine.take_due(&news, ms(1000)));
    }
}
