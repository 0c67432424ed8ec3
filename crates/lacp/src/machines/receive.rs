//! The receive machine: the information about the partner, and its expiry.
//!
//! The state `INITIALIZE` of the standard is the creation of the machine. `LACP_DISABLED` does not
//! occur, because a bond without LACP has no aggregator. Source: IEEE 802.1AX, LACP, receive
//! machine.

use std::{fmt, time::Duration};

use crate::{
    timing::{LONG_TIMEOUT_TIME, SHORT_TIMEOUT_TIME},
    wire::{
        info::{LacpInfo, LacpState},
        lacpdu::Lacpdu,
    },
};

/// The state of the receive machine of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveState {
    /// The link is down (`PORT_DISABLED`).
    #[default]
    PortDisabled,
    /// The link has come up, or the partner has stopped sending.
    ///
    /// The partner has three seconds to send an LACPDU.
    Expired,
    /// The partner has not sent in time: default values replace its information.
    Defaulted,
    /// The last LACPDU of the partner is recent enough.
    Current,
}

/// The receive machine of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveMachine {
    state: ReceiveState,
    partner: LacpInfo,
    /// True if `partner` is from an LACPDU, false if it has default values.
    is_recorded: bool,
    /// Time at which the state ends, unless an LACPDU arrives (`current_while_timer`).
    end: Option<Duration>,
}

/// An expiry of the information about a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The information expired, and the partner has three more seconds.
    Expired,
    /// The information was replaced by default values.
    Defaulted,
}

impl ReceiveMachine {
    /// Returns the state of the receive machine, as IEEE 802.1AX names it.
    pub(crate) const fn state(&self) -> ReceiveState {
        self.state
    }

    /// Returns the information about the partner (`Partner_Oper`).
    pub(crate) const fn partner(&self) -> &LacpInfo {
        &self.partner
    }

    /// Returns whether the link is up, and `partner` is from an LACPDU.
    pub(crate) const fn has_partner(&self) -> bool {
        self.is_recorded && !matches!(self.state, ReceiveState::PortDisabled)
    }

    /// Returns the time at which the information expires next.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.end
    }

    /// Updates the state after a change of the link.
    pub(crate) fn link(&mut self, is_up: bool, now: Duration) {
        match (is_up, self.state) {
            (true, ReceiveState::PortDisabled) => self.expire(now),
            (false, _) => {
                self.state = ReceiveState::PortDisabled;
                self.partner.state = self.partner.state.without(LacpState::USE);
                self.end = None;
            }
            (true, _) => {}
        }
    }

    /// Records an LACPDU that arrived on a link that is up (`recordPDU`).
    ///
    /// Returns whether an LACPDU must be sent, because the partner has not received `actor`
    /// (`update_NTT`).
    pub(crate) fn record(&mut self, pdu: &Lacpdu, actor: &LacpInfo, now: Duration) -> bool {
        let knows_actor = pdu.partner.agrees(actor, LacpState::AGGREGATION);
        // Only a partner that would detect the end of this link may use it.
        let sends = pdu.actor.state.contains(LacpState::ACTIVITY)
            || (actor.state.contains(LacpState::ACTIVITY)
                && pdu.partner.state.contains(LacpState::ACTIVITY));
        self.partner = pdu.actor;
        // The standard trusts an individual link even if the partner does not name this end. This
        // trust is wrong on a link that loses all frames in one direction.
        if !(knows_actor && sends) {
            self.partner.state = self.partner.state.without(LacpState::USE);
        }
        (self.state, self.is_recorded) = (ReceiveState::Current, true);
        let is_fast = actor.state.contains(LacpState::TIMEOUT);
        let timeout = if is_fast { SHORT_TIMEOUT_TIME } else { LONG_TIMEOUT_TIME };
        self.end = Some(now.saturating_add(timeout));
        !pdu.partner.agrees(actor, MIRRORED)
    }

    /// Handles expiry at the time `now`.
    ///
    /// A late call is treated as one expiry: the partner has three seconds from `now` on.
    pub(crate) fn step(&mut self, now: Duration) -> Option<Expiry> {
        if self.end.is_none_or(|end| end > now) {
            return None;
        }
        if self.state == ReceiveState::Current {
            self.expire(now);
            return Some(Expiry::Expired);
        }
        *self = Self { state: ReceiveState::Defaulted, ..Self::default() };
        Some(Expiry::Defaulted)
    }

    /// Waits for an LACPDU of a silent partner for a short time.
    fn expire(&mut self, now: Duration) {
        self.state = ReceiveState::Expired;
        // The flag makes this end send each second, so that the partner can answer in time.
        self.partner.state = self.partner.state.without(LacpState::USE).with(LacpState::TIMEOUT);
        self.end = Some(now.saturating_add(SHORT_TIMEOUT_TIME));
    }
}

impl fmt::Display for ReceiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PortDisabled => "port_disabled",
            Self::Expired => "expired",
            Self::Defaulted => "defaulted",
            Self::Current => "current",
        })
    }
}

/// The flags of this end that the partner must repeat.
///
/// The standard does not require `Collecting` here. If `Collecting` is not compared, a lost LACPDU
/// can keep a partner that waits for this flag from sending, for up to 30 seconds.
const MIRRORED: LacpState = LacpState::ACTIVITY
    .with(LacpState::TIMEOUT)
    .with(LacpState::AGGREGATION)
    .with(LacpState::SYNCHRONIZATION)
    .with(LacpState::COLLECTING);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemId;

    /// A flag that this end does not set in the test.
    const USED: LacpState = LacpState::COLLECTING;

    /// The state of this end in received LACPDUs.
    const ACTOR_FLAGS: LacpState = LacpState::ACTIVITY.with(LacpState::AGGREGATION);

    fn info_of_end(number: u16, state: LacpState) -> LacpInfo {
        let system = SystemId { priority: 1, mac: [number.to_be_bytes()[1]; 6] };
        LacpInfo { system, key: number, port_priority: 9, port: number, state }
    }

    /// Returns the time after some seconds.
    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn synchronized_lacpdu() -> Lacpdu {
        let state = ACTOR_FLAGS.with(LacpState::SYNCHRONIZATION);
        Lacpdu {
            actor: info_of_end(2, state),
            partner: info_of_end(1, ACTOR_FLAGS),
            collector_max_delay: 0,
        }
    }

    #[test]
    fn timeouts_follow_the_table_of_the_standard() {
        use ReceiveState::{Current, Defaulted, Expired};
        for (flags, current) in [(ACTOR_FLAGS, 90), (ACTOR_FLAGS.with(LacpState::TIMEOUT), 3)] {
            let mut machine = ReceiveMachine::default();
            machine.link(true, seconds(10));
            machine.record(&synchronized_lacpdu(), &info_of_end(1, flags), seconds(10));
            for (at, expiry, state) in [
                (10, None, Current),
                (10 + current - 1, None, Current),
                (10 + current, Some(Expiry::Expired), Expired),
                (10 + current + 2, None, Expired),
                (10 + current + 3, Some(Expiry::Defaulted), Defaulted),
                (10_000, None, Defaulted),
            ] {
                assert_eq!((machine.step(seconds(at)), machine.state()), (expiry, state), "{at} s");
                assert_eq!(machine.has_partner(), state != Defaulted);
            }
            assert_eq!(machine.partner(), &LacpInfo::default());
        }
    }

    #[test]
    fn the_partner_has_three_seconds_after_link_up() {
        let mut machine = ReceiveMachine::default();
        machine.link(true, seconds(1));
        assert_eq!((machine.state(), machine.has_partner()), (ReceiveState::Expired, false));
        assert_eq!(machine.deadline(), Some(seconds(4)));
        assert!(machine.partner().state.contains(LacpState::TIMEOUT));
        machine.link(true, seconds(3));
        assert_eq!(machine.deadline(), Some(seconds(4)), "the link was up before");
        machine.link(false, seconds(3));
        assert_eq!((machine.state(), machine.deadline()), (ReceiveState::PortDisabled, None));
    }

    #[test]
    fn synchronization_needs_a_partner_that_knows_this_end() {
        let actor = info_of_end(1, ACTOR_FLAGS);
        let check = |change: fn(&mut Lacpdu)| {
            let mut machine = ReceiveMachine::default();
            machine.link(true, seconds(0));
            let mut pdu = synchronized_lacpdu();
            change(&mut pdu);
            let needs_pdu = machine.record(&pdu, &actor, seconds(1));
            (machine.partner().state.contains(LacpState::SYNCHRONIZATION), needs_pdu)
        };
        assert_eq!(check(|_| ()), (true, false));
        assert_eq!(check(|pdu| pdu.partner.port = 7), (false, true));
        assert_eq!(check(|pdu| pdu.partner.key = 7), (false, true));
        assert_eq!(check(|pdu| pdu.partner.port_priority = 7), (false, true));
        assert_eq!(check(|pdu| pdu.partner.system.mac = [7; 6]), (false, true));
        assert_eq!(check(|pdu| pdu.partner.system.priority = 7), (false, true));
        let individual = |pdu: &mut Lacpdu| pdu.partner.state = LacpState::ACTIVITY;
        assert_eq!(check(individual), (false, true));
        let fast = |pdu: &mut Lacpdu| pdu.partner.state = ACTOR_FLAGS.with(LacpState::TIMEOUT);
        assert_eq!(check(fast), (true, true));
        assert_eq!(check(|pdu| pdu.partner.state = pdu.partner.state.with(USED)), (true, true));
        let passive =
            |pdu: &mut Lacpdu| pdu.actor.state = pdu.actor.state.without(LacpState::ACTIVITY);
        assert_eq!(check(passive), (true, false), "a passive partner answers this active end");
        let both = |pdu: &mut Lacpdu| {
            pdu.actor.state = pdu.actor.state.without(LacpState::ACTIVITY);
            pdu.partner.state = LacpState::AGGREGATION;
        };
        assert_eq!(check(both), (false, true), "the partner does not know that this end is active");
        let detached = |pdu: &mut Lacpdu| pdu.actor.state = ACTOR_FLAGS;
        assert_eq!(check(detached), (false, false));
    }
}
