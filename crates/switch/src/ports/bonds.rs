//! The state of a bond: its enabled members, and its active member.
//!
//! The rules are the same as in Open vSwitch. A member is enabled while its link is up;
//! `updelay_ms` and `downdelay_ms` delay a change. The active member is the primary member if that
//! is enabled. Otherwise the active member stays as long as it is enabled, and is then replaced by
//! the first enabled member. While ports are added after a restart, the member that was active
//! before the restart is preferred. If no member is enabled, a member that waits for `updelay_ms`
//! is enabled immediately. In the modes `balance-slb` and `balance-tcp` all enabled members send,
//! each the packets of its buckets (`bond_buckets.rs`).
//!
//! With LACP, a partner must also use a member before the member is enabled (`lacp.rs`), and
//! `updelay_ms` does not apply. A bond without a partner has no enabled member, or works as
//! `active-backup` with `lacp_fallback_ab`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{BondBalance, LacpAdmission, Time};

use super::{
    bond_buckets::BondBucketTable,
    bond_events::{BondEvent, MemberCause},
    lacp::{LacpActor, MemberPort, TakenLacpKeys},
};
use crate::config::BondOptions;

/// Which members of a bond are enabled, and which one is active.
#[derive(Debug, Default)]
pub(crate) struct BondState {
    /// The state of each member, by name.
    members: BTreeMap<String, MemberState>,
    /// The name of the active member; `None` without an enabled member.
    active: Option<String>,
    /// The active member before a restart;
    /// cleared once it is active or all ports are added.
    last_active: Option<String>,
    /// The active member that was last reported by an event.
    reported: Option<String>,
    /// The buckets, if the bond balances.
    buckets: Option<BondBucketTable>,
    /// The assignment of buckets to members, for the tables.
    balance: Option<Arc<BondBalance>>,
    /// The LACP actor, if the bond uses LACP.
    lacp: Option<LacpActor>,
}

/// The link of a member of a bond, with its BFD session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberLink {
    /// True if the link is up, and BFD lets the port be used.
    pub(crate) is_up: bool,
    /// True if a BFD session runs on the member.
    pub(crate) has_bfd: bool,
}

/// The state of a member of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberState {
    /// True if link and BFD are up and, with LACP, the partner uses the link.
    pub(crate) may_enable: bool,
    /// True if the member may be active.
    pub(crate) is_enabled: bool,
    /// Time at which the member is enabled or disabled, unless `may_enable` changes.
    pub(crate) due: Option<Time>,
}

impl BondState {
    /// Creates the state of a bond after a restart.
    ///
    /// `last_active` was the active member before the restart.
    pub(crate) fn after_restart(last_active: Option<String>) -> Self {
        Self { last_active, ..Self::default() }
    }

    /// Forgets the member that was active before a restart.
    pub(crate) fn forget_last_active(&mut self) {
        self.last_active = None;
    }

    /// Returns the active member of the bond.
    pub(crate) fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }

    /// Returns the state of a member.
    pub(crate) fn member(&self, name: &str) -> Option<MemberState> {
        self.members.get(name).copied()
    }

    /// Returns the time of the next delayed change, or of the next rebalancing.
    pub(crate) fn due(&self) -> Option<Time> {
        let delayed = self.members.values().filter_map(|member| member.due);
        delayed.chain(self.rebalance_at()).min()
    }

    /// Returns the time of the next rebalancing.
    pub(crate) fn rebalance_at(&self) -> Option<Time> {
        self.buckets.as_ref().and_then(BondBucketTable::rebalance_at)
    }

    /// Returns the buckets, if the bond balances.
    pub(crate) const fn buckets(&self) -> Option<&BondBucketTable> {
        self.buckets.as_ref()
    }

    /// Returns the assignment of buckets for the tables, if the bond balances.
    pub(crate) fn balance(&self) -> Option<Arc<BondBalance>> {
        self.balance.clone()
    }

    /// Updates the assignment of buckets, with the port numbers of the members.
    pub(crate) fn number_buckets(
        &mut self,
        options: &BondOptions,
        numbers: &BTreeMap<&str, PortNo>,
    ) {
        let Some(hash) = options.mode.hash() else { return };
        let basis = options.hash_basis;
        let balance = |own: &BondBucketTable| Arc::new(own.balance(hash, basis, numbers));
        let balance = self.buckets.as_ref().map(balance);
        // An equal assignment keeps the same `Arc`, so that port lists are compared quickly.
        if self.balance != balance {
            self.balance = balance;
        }
    }

    /// Updates the members after a change of options, links or BFD sessions.
    ///
    /// `link` returns `None` for a port that does not exist, or cannot be a member.
    pub(crate) fn update(
        &mut self,
        options: &BondOptions,
        link: impl Fn(&str) -> Option<MemberLink>,
        now: Time,
    ) -> Vec<BondEvent> {
        let mut events = Vec::new();
        let lacp = &self.lacp;
        let is_usable = |name: &String| options.members.contains(name) && link(name).is_some();
        self.members.retain(|name, _| is_usable(name));
        for name in &options.members {
            let Some(MemberLink { is_up, has_bfd }) = link(name) else { continue };
            let may_enable = is_up && lacp.as_ref().is_none_or(|own| own.distributes(name));
            match self.members.get_mut(name) {
                Some(member) => {
                    let cause = MemberCause::of(options, has_bfd);
                    events.extend(member.follow(name, may_enable, cause, options, now));
                }
                None => {
                    let member = MemberState { may_enable, is_enabled: may_enable, due: None };
                    self.members.insert(name.clone(), member);
                }
            }
        }
        self.choose(options, &mut events);
        self.update_buckets(options, now, &mut events);
        events
    }

    /// Assigns buckets to enabled members, and balances their loads.
    fn update_buckets(&mut self, options: &BondOptions, now: Time, events: &mut Vec<BondEvent>) {
        let has_partner = self.lacp.as_ref().is_none_or(LacpActor::is_negotiated);
        if options.mode.hash().is_none() || !has_partner {
            (self.buckets, self.balance) = (None, None);
            return;
        }
        let is_enabled = |name: &&String| self.is_enabled(name);
        let enabled: Vec<_> =
            options.members.iter().filter(is_enabled).map(String::as_str).collect();
        let buckets = self.buckets.get_or_insert_with(|| BondBucketTable::new(&options.name));
        let moved = buckets.assign(&enabled);
        events.extend((moved > 0).then_some(BondEvent::Moved(moved)));
        let interval = Duration::from_millis(options.rebalance_interval_ms.into());
        let moved = buckets.run(&enabled, interval, now);
        events.extend((moved > 0).then_some(BondEvent::Rebalanced(moved)));
    }

    /// Updates the members of the LACP actor; must be called before [`Self::update`].
    ///
    /// `bridge` is the MAC address of the bridge, and `taken` has the LACP keys of its other bonds.
    /// Returns the change of its key, if any.
    pub(crate) fn follow_lacp(
        &mut self,
        options: &BondOptions,
        bridge: [u8; 6],
        taken: &TakenLacpKeys,
        port: impl Fn(&str) -> Option<MemberPort>,
        now: Time,
    ) -> Option<BondEvent> {
        let Some(mode) = options.lacp.mode() else {
            self.lacp = None;
            return None;
        };
        let actor = self.lacp.get_or_insert_with(|| LacpActor::new(options, mode, bridge));
        actor.follow(options, mode, bridge, taken, port, now)
    }

    /// Returns the LACP actor, if the bond uses LACP.
    pub(crate) const fn lacp(&self) -> Option<&LacpActor> {
        self.lacp.as_ref()
    }

    /// Returns the LACP actor, to pass it frames and the time.
    pub(crate) const fn lacp_mut(&mut self) -> Option<&mut LacpActor> {
        self.lacp.as_mut()
    }

    /// Returns which packets a member may receive according to LACP.
    pub(crate) fn lacp_admission(&self, name: &str) -> LacpAdmission {
        let admission = |own: &LacpActor| own.admission(name, self.is_enabled(name));
        self.lacp.as_ref().map_or(LacpAdmission::Off, admission)
    }

    /// Assigns a bucket to an enabled member, if the bond balances.
    pub(crate) fn migrate(&mut self, bucket: u8, member: &str) {
        if let Some(own) = &mut self.buckets {
            own.migrate(bucket, member);
        }
    }

    /// Activates an enabled member, unless the primary member is enabled.
    pub(crate) fn set_active(&mut self, name: &str) {
        if self.is_enabled(name) {
            (self.active, self.last_active) = (Some(name.to_owned()), None);
        }
    }

    /// Enables or disables a member until its link changes.
    pub(crate) fn set_enabled(&mut self, name: &str, is_enabled: bool) {
        if let Some(member) = self.members.get_mut(name) {
            (member.is_enabled, member.due) = (is_enabled, None);
        }
    }

    /// Returns whether a member is enabled.
    pub(crate) fn is_enabled(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|member| member.is_enabled)
    }

    /// Returns the enabled member that should be active.
    ///
    /// The order is: the primary member, the member that was active before, the configured order.
    fn first_enabled(&self, options: &BondOptions) -> Option<String> {
        let preferred = [Some(&options.primary), self.last_active.as_ref(), self.active.as_ref()];
        let mut candidates = preferred.into_iter().flatten().chain(&options.members);
        candidates.find(|name| self.is_enabled(name)).cloned()
    }

    /// Chooses the active member of the bond.
    fn choose(&mut self, options: &BondOptions, events: &mut Vec<BondEvent>) {
        self.active = self.first_enabled(options);
        if self.active == self.last_active {
            self.last_active = None;
        }
        if self.active.is_none() {
            let waiting = options.members.iter().filter_map(|name| {
                let member = self.members.get(name).filter(|member| member.may_enable)?;
                Some((member.due?, name))
            });
            self.active = waiting.min_by_key(|(due, _)| *due).map(|(_, name)| name.clone());
            if let Some(name) = self.active.clone() {
                self.set_enabled(&name, true);
                events.push(BondEvent::Enabled(name));
            }
        }
        if self.active != self.reported {
            self.reported.clone_from(&self.active);
            let active = self.active.clone();
            events.push(active.map_or(BondEvent::WithoutMember, BondEvent::Active));
        }
    }
}

impl MemberState {
    /// Follows a change of `may_enable`:
    /// enables or disables the member, or starts a delay.
    fn follow(
        &mut self,
        name: &str,
        may_enable: bool,
        cause: MemberCause,
        options: &BondOptions,
        now: Time,
    ) -> Option<BondEvent> {
        let is_changed = self.may_enable != may_enable;
        self.may_enable = may_enable;
        let member = name.to_owned();
        if may_enable == self.is_enabled && is_changed {
            if self.due.take().is_some() {
                return Some(BondEvent::Kept { member, is_up: may_enable, cause });
            }
        } else if is_changed {
            let delay = options.delay(may_enable);
            self.due = Some(now.after(delay));
            if !delay.is_zero() {
                return Some(BondEvent::Delayed { member, is_up: may_enable, delay, cause });
            }
        }
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        (self.is_enabled, self.due) = (may_enable, None);
        let event = if may_enable { BondEvent::Enabled } else { BondEvent::Disabled };
        Some(event(member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BondLacp, BondMode};

    /// A bond of p1 and p2 with their links, for tests that proceed step by step.
    struct Steps {
        options: BondOptions,
        state: BondState,
        links: BTreeMap<&'static str, bool>,
        has_bfd: bool,
    }

    impl Steps {
        fn new(options: BondOptions) -> Self {
            let members = vec!["p1".to_owned(), "p2".to_owned()];
            let options = BondOptions { name: "b".into(), members, ..options };
            let links = BTreeMap::from([("p1", true), ("p2", true)]);
            let mut steps = Self { options, state: BondState::default(), links, has_bfd: false };
            assert_eq!(steps.at(0), "active member is now p1");
            steps
        }

        /// Updates the bond at a time in milliseconds; returns the events as text.
        fn at(&mut self, ms: u64) -> String {
            let links = &self.links;
            let now = Time::ZERO.after(Duration::from_millis(ms));
            let port = |name: &str| {
                let number = PortNo::new(if name == "p1" { 1 } else { 2 });
                Some(MemberPort { number, mac: [2; 6], link_up: links.get(name).copied()? })
            };
            let bridge = [2, 0, 0, 0, 0, 9];
            self.state.follow_lacp(&self.options, bridge, &TakenLacpKeys::default(), port, now);
            let has_bfd = self.has_bfd;
            let link = |name: &str| Some(MemberLink { is_up: *links.get(name)?, has_bfd });
            let events = self.state.update(&self.options, link, now);
            events.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }

        /// Sets the link of a member up or down.
        fn link(&mut self, name: &'static str, is_up: bool) -> &mut Self {
            self.links.insert(name, is_up);
            self
        }
    }

    #[test]
    fn lost_link_moves_active_member_at_once() {
        let mut bond = Steps::new(BondOptions::default());
        assert_eq!(bond.link("p1", false).at(1), "member p1 disabled; active member is now p2");
        assert_eq!(bond.link("p1", true).at(2), "member p1 enabled");
        assert_eq!(bond.state.active(), Some("p2"), "the active member stays");
        assert_eq!(bond.link("p2", false).at(3), "member p2 disabled; active member is now p1");
        let last = "member p1 disabled; no active member, all members are disabled";
        assert_eq!(bond.link("p1", false).at(4), last);
        assert_eq!(bond.link("p2", true).at(5), "member p2 enabled; active member is now p2");
    }

    #[test]
    fn message_of_delay_names_bfd_session() {
        let mut bond = Steps::new(BondOptions { downdelay_ms: 10, ..BondOptions::default() });
        bond.has_bfd = true;
        let waits = "member p1 will be disabled if its link or BFD stays down for 10 ms";
        assert_eq!(bond.link("p1", false).at(1), waits);
    }

    #[test]
    fn a_member_follows_its_link_after_a_delay() {
        let delays = BondOptions { updelay_ms: 100, downdelay_ms: 10, ..BondOptions::default() };
        let mut bond = Steps::new(delays);
        let waits = "member p1 will be disabled if its link stays down for 10 ms";
        assert_eq!(bond.link("p1", false).at(1), waits);
        let back = "member p1 stays enabled: its link came back up within the delay";
        assert_eq!(bond.link("p1", true).at(5), back);
        assert_eq!((bond.at(50), bond.state.due()), (String::new(), None));
        assert_eq!(bond.link("p1", false).at(60), waits);
        assert_eq!(bond.at(69), "");
        assert_eq!(bond.state.due(), Some(Time::ZERO.after(Duration::from_millis(70))));
        assert_eq!(bond.at(70), "member p1 disabled; active member is now p2");
        let waits = "member p1 will be enabled if its link stays up for 100 ms";
        assert_eq!(bond.link("p1", true).at(80), waits);
        bond.link("p2", false).at(90);
        let skips = "member p2 disabled; member p1 enabled; active member is now p1";
        assert_eq!(bond.at(100), skips, "no member is left, so the delay is skipped");
    }

    #[test]
    fn the_primary_member_is_active_while_enabled() {
        let mut bond = Steps::new(BondOptions::default());
        bond.options.primary = "p2".into();
        assert_eq!(bond.at(1), "active member is now p2");
        bond.link("p2", false).at(2);
        assert_eq!(bond.link("p2", true).at(3), "member p2 enabled; active member is now p2");
        bond.state.set_active("p1");
        assert_eq!((bond.at(4).as_str(), bond.state.active()), ("", Some("p2")));
    }

    #[test]
    fn link_change_ends_operator_choice() {
        let mut bond = Steps::new(BondOptions::default());
        bond.state.set_active("p2");
        assert_eq!(bond.at(1), "active member is now p2");
        bond.state.set_active("p3");
        assert_eq!(bond.at(1), "", "p3 is no member");
        bond.state.set_enabled("p2", false);
        assert_eq!(bond.at(2), "active member is now p1");
        bond.state.set_active("p2");
        assert_eq!(bond.at(2), "", "p2 is disabled");
        bond.link("p2", false).at(3);
        assert_eq!(bond.link("p2", true).at(4), "member p2 enabled");
    }

    #[test]
    fn a_restart_keeps_the_active_member() {
        let after_restart = |links: &[(&'static str, bool)]| {
            let mut bond = Steps::new(BondOptions::default());
            bond.state = BondState::after_restart(Some("p2".to_owned()));
            bond.links = links.iter().copied().collect();
            bond
        };
        let mut bond = after_restart(&[("p1", true)]);
        assert_eq!(bond.at(1), "active member is now p1", "p2 is not open yet");
        assert_eq!(bond.link("p2", true).at(2), "active member is now p2");
        bond.link("p2", false).at(3);
        bond.link("p2", true).at(4);
        assert_eq!(bond.state.active(), Some("p1"), "only once");
        let mut bond = after_restart(&[("p1", true), ("p2", false)]);
        bond.at(1);
        bond.state.forget_last_active();
        assert_eq!(bond.link("p2", true).at(2), "member p2 enabled", "the restart is over");
        let mut bond = after_restart(&[("p1", true), ("p2", true)]);
        bond.options.primary = "p1".into();
        assert_eq!(bond.at(1), "active member is now p1");
    }

    #[test]
    fn buckets_move_when_their_member_is_disabled() {
        let mode = BondMode::BalanceSlb;
        let mut bond = Steps::new(BondOptions { mode, ..BondOptions::default() });
        let of = |bond: &Steps, member| {
            bond.state.buckets().map(|own| own.of_member(member).count()).unwrap_or_default()
        };
        assert_eq!((of(&bond, "p1"), of(&bond, "p2")), (128, 128));
        let moved = "member p1 disabled; active member is now p2; 128 of 256 buckets moved to other members";
        assert_eq!(bond.link("p1", false).at(1), moved);
        assert_eq!((of(&bond, "p1"), of(&bond, "p2")), (0, 256));
        assert_eq!(bond.link("p1", true).at(2), "member p1 enabled");
        assert_eq!((of(&bond, "p1"), of(&bond, "p2")), (128, 128), "the buckets have sent nothing");
        bond.state.migrate(7, "p1");
        assert_eq!((of(&bond, "p1"), of(&bond, "p2")), (129, 127));
        assert_eq!(bond.state.due(), Some(Time::ZERO.after(Duration::from_secs(10))));
        bond.options.mode = BondMode::ActiveBackup;
        bond.at(3);
        assert!(bond.state.buckets().is_none());
    }

    #[test]
    fn lacp_without_partner_only_enables_fallback() {
        let mut bond = Steps::new(BondOptions { downdelay_ms: 100, ..BondOptions::default() });
        bond.options.lacp = BondLacp::Active;
        let waits = "member p1 will be disabled if its link or LACP stays down for 100 ms";
        assert!(bond.at(1).starts_with(waits));
        let lost = "member p1 disabled; member p2 disabled; \
                    no active member, all members are disabled";
        assert_eq!(bond.at(101), lost);
        assert_eq!(bond.state.lacp_admission("p1"), LacpAdmission::None);
        assert_eq!(bond.at(10_000), "");
        bond.options.lacp_fallback_ab = true;
        bond.options.updelay_ms = 1000;
        let found = "member p1 enabled; member p2 enabled; active member is now p1";
        assert_eq!(bond.at(10_001), found, "the delay does not apply");
        assert_eq!(bond.state.lacp_admission("p2"), LacpAdmission::Fallback);
        bond.options.mode = BondMode::BalanceTcp;
        bond.at(10_002);
        assert!(bond.state.buckets().is_none(), "buckets need a partner");
        (bond.options.lacp, bond.options.mode) = (BondLacp::Off, BondMode::BalanceSlb);
        assert_eq!(bond.at(10_003), "");
        assert!(bond.state.buckets().is_some() && bond.state.lacp().is_none());
    }

    #[test]
    fn a_removed_port_is_no_member() {
        let mut bond = Steps::new(BondOptions { downdelay_ms: 1000, ..BondOptions::default() });
        bond.links.remove("p1");
        assert_eq!(bond.at(1), "active member is now p2", "without the delay");
        bond.options.members = vec!["p3".to_owned(), "p1".to_owned()];
        assert_eq!(bond.at(2), "no active member, all members are disabled");
        assert_eq!(bond.link("p1", true).at(3), "active member is now p1");
    }
}
