//! The mux machine: whether a member carries frames of the bond.
//!
//! A member sends only while its partner collects, so the partner drops none of these frames. The
//! standard calls this independent control. The alternative, coupled control, sends as soon as the
//! partner is in synchronization, which may be one LACPDU too early. Coupled and independent
//! control interoperate.
//!
//! A member waits two seconds before it is attached, so an unstable link does not carry frames in
//! between. In the standard, members also wait for each other. In this crate they do not, because a
//! link that never stays up would keep all other members detached.
//!
//! When the partner stops using the link, the member is detached immediately, and waits again. In
//! the standard, the member stays attached in this case. With this rule of the standard, each
//! LACPDU of a partner that changes its selection repeatedly would enable or disable the member.
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
    /// The member belongs to no aggregation.
    #[default]
    Detached,
    /// The member is selected, and waits before it is attached.
    Waiting,
    /// The member is attached, but the partner does not use the link yet.
    Attached,
    /// The member receives frames; the partner does not receive frames yet.
    Collecting,
    /// The member receives and sends frames (`DISTRIBUTING`).
    CollectingDistributing,
}

/// The mux machine of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MuxMachine {
    state: MuxState,
    /// The aggregation that the member belongs to, or waits for.
    selected: Option<Selected>,
    /// End of the wait (`wait_while_timer`).
    end: Option<Duration>,
}

impl MuxMachine {
    /// Returns the state of the mux machine, as IEEE 802.1AX names it.
    pub(crate) const fn state(&self) -> MuxState {
        self.state
    }

    /// Returns the time at which the wait ends.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.end
    }

    /// Updates the state after a change of the selection or the partner.
    ///
    /// A repeated call with the same arguments changes nothing.
    pub(crate) fn step(&mut self, selected: Option<Selected>, partner: &LacpInfo, now: Duration) {
        if self.selected != selected {
            *self = Self { selected, ..Self::default() };
        }
        self.state = match (selected, self.state) {
            (None, _) => MuxState::Detached,
            // There is no partner, so the member need not wait for an agreement.
            (Some(Selected::Fallback), _) => MuxState::CollectingDistributing,
            (Some(Selected::Aggregation(_)), MuxState::Detached) => self.wait(now),
            (Some(Selected::Aggregation(_)), MuxState::Waiting) => {
                if self.end.is_some_and(|end| end > now) {
                    return;
                }
                self.end = None;
                state_when_attached(partner)
            }
            (
                Some(Selected::Aggregation(_)),
                MuxState::Attached | MuxState::Collecting | MuxState::CollectingDistributing,
            ) => match state_when_attached(partner) {
                state if state < self.state => self.wait(now),
                state => state,
            },
        };
    }

    /// Starts the wait before the member is attached.
    fn wait(&mut self, now: Duration) -> MuxState {
        self.end = Some(now.saturating_add(AGGREGATE_WAIT_TIME));
        MuxState::Waiting
    }
}

/// Returns the state of an attached member, which depends on its partner.
const fn state_when_attached(partner: &LacpInfo) -> MuxState {
    let is_synchronized = partner.state.contains(LacpState::SYNCHRONIZATION);
    let collects = partner.state.contains(LacpState::COLLECTING);
    match (is_synchronized, collects) {
        (false, _) => MuxState::Attached,
        (true, false) => MuxState::Collecting,
        (true, true) => MuxState::CollectingDistributing,
    }
}

impl MuxState {
    /// Returns whether the member is attached to the aggregation.
    #[must_use]
    pub fn is_attached(self) -> bool {
        self >= Self::Attached
    }

    /// Returns whether the bond receives frames on the member.
    #[must_use]
    pub fn is_collecting(self) -> bool {
        self >= Self::Collecting
    }

    /// Returns whether the bond may send frames on the member.
    #[must_use]
    pub fn is_distributing(self) -> bool {
        self == Self::CollectingDistributing
    }

    /// Returns the LACP state flags that the state sets.
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

    fn partner_with(flags: LacpState) -> LacpInfo {
        LacpInfo { state: flags, ..LacpInfo::default() }
    }

    fn selected_aggregation(key: u16) -> Option<Selected> {
        let system = SystemId::default();
        let aggregation = Aggregation { key, partner: system, partner_key: 1, individual: None };
        Some(Selected::Aggregation(aggregation))
    }

    /// Returns the time after some milliseconds.
    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn mux_states_follow_selection_wait_and_partner() {
        let none = LacpState::default();
        let sync = LacpState::SYNCHRONIZATION;
        let collects = sync.with(LacpState::COLLECTING);
        let mut mux = MuxMachine::default();
        for (ms, selected, flags, expected) in [
            (0, None, collects, MuxState::Detached),
            (0, selected_aggregation(1), none, MuxState::Waiting),
            (1999, selected_aggregation(1), collects, MuxState::Waiting),
            (2000, selected_aggregation(1), none, MuxState::Attached),
            (2001, selected_aggregation(1), LacpState::COLLECTING, MuxState::Attached),
            (2002, selected_aggregation(1), sync, MuxState::Collecting),
            (2003, selected_aggregation(1), collects, MuxState::CollectingDistributing),
            // The partner stops using the link, and uses it again before the wait has ended.
            (2004, selected_aggregation(1), sync, MuxState::Waiting),
            (2005, selected_aggregation(1), collects, MuxState::Waiting),
            (4003, selected_aggregation(1), none, MuxState::Waiting),
            (4004, selected_aggregation(1), collects, MuxState::CollectingDistributing),
            (4005, selected_aggregation(1), none, MuxState::Waiting),
            (6005, selected_aggregation(1), none, MuxState::Attached),
            (6006, selected_aggregation(1), sync, MuxState::Collecting),
            (6007, selected_aggregation(1), none, MuxState::Waiting),
            (6008, selected_aggregation(2), collects, MuxState::Waiting),
            (6010, None, collects, MuxState::Detached),
            (6011, selected_aggregation(2), collects, MuxState::Waiting),
            (8010, selected_aggregation(2), collects, MuxState::Waiting),
            (8011, selected_aggregation(2), collects, MuxState::CollectingDistributing),
            (8012, Some(Selected::Fallback), none, MuxState::CollectingDistributing),
            (8013, selected_aggregation(2), collects, MuxState::Waiting),
        ] {
            for _again in 0..2 {
                mux.step(selected, &partner_with(flags), at(ms));
                assert_eq!(mux.state(), expected, "at {ms} ms");
                assert_eq!(mux.deadline().is_some(), expected == MuxState::Waiting);
            }
        }
    }
}
