//! The mux machine: the use of a member for the frames of the bond.
//!
//! A member sends only while its partner collects, so a partner never receives a frame that it drops.
//! The standard calls this independent control. Its other form, coupled control, sends as soon as the
//! partner is in synchronization, which may be one LACPDU too early. Both work with each other.
//!
//! A member waits two seconds before it is attached, so that a link that comes and goes does not carry
//! frames in between. In the standard, members wait for each other too. Here they do not: a link that
//! never stays up would keep all others from being attached.
//!
//! When the partner leaves the link, the member is detached at once, and waits again. In the standard it
//! stays attached, and each LACPDU of a partner that cannot decide would enable and disable it.
//! Source: IEEE 802.1AX, LACP, mux machine.

use std::{fmt, time::Duration};

use crate::{
    selection::Selected,
    timing::AGGREGATE_WAIT_TIME,
    wire::info::{LacpInfo, LacpState},
};

/// The state of the mux machine of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MuxState {
    /// The member is in no aggregation.
    #[default]
    Detached,
    /// The member is selected, and waits before it is attached.
    Waiting,
    /// The member is in the aggregation, and the partner does not use the link yet.
    Attached,
    /// The member receives frames. The partner does not receive any yet.
    Collecting,
    /// The member receives and sends frames (`DISTRIBUTING`).
    CollectingDistributing,
}

/// The mux machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MuxMachine {
    state: MuxState,
    /// The aggregation that the member is in, or waits for.
    selected: Option<Selected>,
    /// End of the wait (`wait_while_timer`).
    end: Option<Duration>,
}

impl MuxMachine {
    pub(crate) const fn state(&self) -> MuxState {
        self.state
    }

    /// Returns the time when the wait ends.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.end
    }

    /// Follows the selection and the partner. A second call changes nothing.
    pub(crate) fn step(&mut self, selected: Option<Selected>, partner: &LacpInfo, now: Duration) {
        if self.selected != selected {
            *self = Self { selected, ..Self::default() };
        }
        self.state = match (selected, self.state) {
            (None, _) => MuxState::Detached,
            // No partner will agree, so there is nothing to wait for.
            (Some(Selected::Fallback), _) => MuxState::CollectingDistributing,
            (Some(Selected::Aggregation(_)), MuxState::Detached) => self.wait(now),
            (Some(Selected::Aggregation(_)), MuxState::Waiting) => {
                if self.end.is_some_and(|end| end > now) {
                    return;
                }
                self.end = None;
                used(partner)
            }
            (
                Some(Selected::Aggregation(_)),
                MuxState::Attached | MuxState::Collecting | MuxState::CollectingDistributing,
            ) => match used(partner) {
                state if state < self.state => self.wait(now),
                state => state,
            },
        };
    }

    /// Begins the wait before the member is attached.
    fn wait(&mut self, now: Duration) -> MuxState {
        self.end = Some(now.saturating_add(AGGREGATE_WAIT_TIME));
        MuxState::Waiting
    }
}

/// Returns the state of an attached member.
const fn used(partner: &LacpInfo) -> MuxState {
    let is_synchronized = partner.state.contains(LacpState::SYNCHRONIZATION);
    let collects = partner.state.contains(LacpState::COLLECTING);
    match (is_synchronized, collects) {
        (false, _) => MuxState::Attached,
        (true, false) => MuxState::Collecting,
        (true, true) => MuxState::CollectingDistributing,
    }
}

impl MuxState {
    /// Returns whether the member is in the aggregation.
    #[must_use]
    pub fn is_attached(self) -> bool {
        self >= Self::Attached
    }

    /// Returns whether the bond receives frames by the member.
    #[must_use]
    pub fn is_collecting(self) -> bool {
        self >= Self::Collecting
    }

    /// Returns whether the bond may send frames by the member.
    #[must_use]
    pub fn is_distributing(self) -> bool {
        self == Self::CollectingDistributing
    }

    /// Returns the flags of the state.
    pub(crate) fn flags(self) -> LacpState {
        LacpState::default()
            .with_if(LacpState::SYNCHRONIZATION, self.is_attached())
            .with_if(LacpState::COLLECTING, self.is_collecting())
            .with_if(LacpState::DISTRIBUTING, self.is_distributing())
    }
}

impl fmt::Display for MuxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detached => "detached",
            Self::Waiting => "waiting",
            Self::Attached => "attached",
            Self::Collecting => "collecting",
            Self::CollectingDistributing => "collecting_distributing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SystemId, selection::Aggregation};

    fn partner(flags: LacpState) -> LacpInfo {
        LacpInfo { state: flags, ..LacpInfo::default() }
    }

    fn aggregation(key: u16) -> Option<Selected> {
        let system = SystemId::default();
        let aggregation = Aggregation { key, partner: system, partner_key: 1, individual: None };
        Some(Selected::Aggregation(aggregation))
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn states_follow_selection_wait_and_partner() {
        let none = LacpState::default();
        let sync = LacpState::SYNCHRONIZATION;
        let collects = sync.with(LacpState::COLLECTING);
        let mut mux = MuxMachine::default();
        for (ms, selected, flags, expected) in [
            (0, None, collects, MuxState::Detached),
            (0, aggregation(1), none, MuxState::Waiting),
            (1999, aggregation(1), collects, MuxState::Waiting),
            (2000, aggregation(1), none, MuxState::Attached),
            (2001, aggregation(1), LacpState::COLLECTING, MuxState::Attached),
            (2002, aggregation(1), sync, MuxState::Collecting),
            (2003, aggregation(1), collects, MuxState::CollectingDistributing),
            // The partner leaves the link, and returns too soon.
            (2004, aggregation(1), sync, MuxState::Waiting),
            (2005, aggregation(1), collects, MuxState::Waiting),
            (4003, aggregation(1), none, MuxState::Waiting),
            (4004, aggregation(1), collects, MuxState::CollectingDistributing),
            (4005, aggregation(1), none, MuxState::Waiting),
            (6005, aggregation(1), none, MuxState::Attached),
            (6006, aggregation(1), sync, MuxState::Collecting),
            (6007, aggregation(1), none, MuxState::Waiting),
            (6008, aggregation(2), collects, MuxState::Waiting),
            (6010, None, collects, MuxState::Detached),
            (6011, aggregation(2), collects, MuxState::Waiting),
            (8010, aggregation(2), collects, MuxState::Waiting),
            (8011, aggregation(2), collects, MuxState::CollectingDistributing),
            (8012, Some(Selected::Fallback), none, MuxState::CollectingDistributing),
            (8013, aggregation(2), collects, MuxState::Waiting),
        ] {
            for _again in 0..2 {
                mux.step(selected, &partner(flags), at(ms));
                assert_eq!(mux.state(), expected, "at {ms} ms");
                assert_eq!(mux.deadline().is_some(), expected == MuxState::Waiting);
            }
        }
    }
}
