//! The periodic machine: the time of the next LACPDU if no information changes.
//!
//! Source: IEEE 802.1AX, LACP, periodic transmission machine.

use std::time::Duration;

use crate::{
    timing::{FAST_PERIODIC_TIME, SLOW_PERIODIC_TIME},
    wire::info::LacpState,
};

/// The periodic transmission machine of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeriodicMachine {
    /// The time between two LACPDUs.
    period: Option<Duration>,
    /// The time of the next LACPDU.
    due: Option<Duration>,
}

impl PeriodicMachine {
    /// Returns whether periodic LACPDUs are sent.
    pub(crate) const fn is_sending(&self) -> bool {
        self.period.is_some()
    }

    /// Returns the time at which the next LACPDU is due.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.due
    }

    /// Returns whether an LACPDU is due;
    /// `period` is the period that the partner requests.
    ///
    /// A repeated call at the same time returns false.
    pub(crate) fn step(&mut self, period: Option<Duration>, now: Duration) -> bool {
        let is_faster = period < self.period && period.is_some();
        let is_due = is_faster || self.due.is_some_and(|due| due <= now);
        if is_due || period != self.period {
            self.due = period.map(|period| now.saturating_add(period));
        }
        self.period = period;
        is_due && period.is_some()
    }
}

/// Returns the time between two LACPDUs; `None` if both ends are passive.
pub(crate) const fn period(actor: LacpState, partner: LacpState) -> Option<Duration> {
    let is_active = actor.contains(LacpState::ACTIVITY) || partner.contains(LacpState::ACTIVITY);
    match (is_active, partner.contains(LacpState::TIMEOUT)) {
        (false, _) => None,
        (true, true) => Some(FAST_PERIODIC_TIME),
        (true, false) => Some(SLOW_PERIODIC_TIME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_end_sends_at_the_partner_rate() {
        let passive = LacpState::default();
        let active = LacpState::ACTIVITY;
        for (actor, partner, expected) in [
            (passive, passive, None),
            (passive, LacpState::TIMEOUT, None),
            (active, passive, Some(30)),
            (passive, active, Some(30)),
            (LacpState::TIMEOUT, active, Some(30)),
            (active, LacpState::TIMEOUT, Some(1)),
            (passive, active.with(LacpState::TIMEOUT), Some(1)),
        ] {
            assert_eq!(period(actor, partner), expected.map(Duration::from_secs));
        }
    }

    #[test]
    fn a_lacpdu_is_due_once_in_each_period() {
        let second = Some(FAST_PERIODIC_TIME);
        let slow = Some(SLOW_PERIODIC_TIME);
        let mut machine = PeriodicMachine::default();
        for (at, period, is_due, next) in [
            (0, None, false, None),
            (5, slow, false, Some(35)),
            (34, slow, false, Some(35)),
            (35, slow, true, Some(65)),
            (35, slow, false, Some(65)),
            (40, second, true, Some(41)),
            (40, second, false, Some(41)),
            (43, second, true, Some(44)),
            (43, slow, false, Some(73)),
            (80, None, false, None),
        ] {
            let was_due = machine.step(period, Duration::from_secs(at));
            assert_eq!((was_due, machine.deadline()), (is_due, next.map(Duration::from_secs)));
            assert_eq!(machine.is_sending(), period.is_some());
        }
    }
}
