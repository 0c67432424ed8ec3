//! Compares the state of a bond with a model that runs in steps of one millisecond.

use std::{collections::BTreeMap, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_pipeline::Time;

use super::bonds::{BondState, MemberLink};
use crate::config::BondOptions;

/// The members of the bond.
const MEMBERS: [&str; 3] = ["p1", "p2", "p3"];

/// A step of a test.
#[derive(Clone, Copy, Debug)]
enum BondOp {
    /// The link of a port changes; `None`: the port closes.
    Link(&'static str, Option<bool>),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// The options of the bond change.
    Options { primary: Option<&'static str>, updelay_ms: u32, downdelay_ms: u32 },
    /// An operator enables or disables a member, if this is allowed.
    Enable(&'static str, bool),
    /// An operator makes a member active.
    Activate(&'static str),
}

/// A member of a bond as the model expects it.
#[derive(Debug)]
struct ModelMember {
    link_up: bool,
    is_enabled: bool,
    /// Milliseconds until the member follows its link.
    waits: Option<u32>,
}

/// A bond as `ovs-vswitchd.conf.db(5)` describes it.
#[derive(Debug, Default)]
struct BondModel {
    members: BTreeMap<&'static str, ModelMember>,
    active: Option<&'static str>,
}

impl BondModel {
    /// Updates the members after a change of the links.
    fn follow(&mut self, links: &BTreeMap<&'static str, bool>, options: &BondOptions) {
        self.members.retain(|name, _| links.contains_key(name));
        for (name, link_up) in links {
            let own = self.members.entry(*name).or_insert_with(|| ModelMember {
                link_up: *link_up,
                is_enabled: *link_up,
                waits: None,
            });
            if own.link_up != *link_up {
                own.link_up = *link_up;
                let delay = if *link_up { options.updelay_ms } else { options.downdelay_ms };
                own.waits = Some(delay).filter(|_| own.is_enabled != *link_up);
            }
        }
        self.settle(options);
    }

    /// Advances the time by one millisecond.
    fn tick(&mut self, options: &BondOptions) {
        let waiting = self.members.values_mut().filter_map(|own| own.waits.as_mut());
        waiting.for_each(|left| *left = left.saturating_sub(1));
        self.settle(options);
    }

    /// Applies delays that are over, and chooses the active member.
    fn settle(&mut self, options: &BondOptions) {
        for own in self.members.values_mut().filter(|own| own.waits == Some(0)) {
            (own.is_enabled, own.waits) = (own.link_up, None);
        }
        if self.members.values().all(|own| !own.is_enabled) {
            let soonest = MEMBERS.iter().filter_map(|name| {
                let own = self.members.get(name).filter(|own| own.link_up)?;
                Some((own.waits?, name))
            });
            // No member is enabled, so the shortest delay is skipped.
            if let Some((_, name)) = soonest.min_by_key(|(left, _)| *left)
                && let Some(own) = self.members.get_mut(name)
            {
                (own.is_enabled, own.waits) = (true, None);
            }
        }
        let is_enabled = |name: &&str| self.members.get(*name).is_some_and(|own| own.is_enabled);
        let primary = MEMBERS.iter().copied().find(|name| *name == options.primary);
        let all = MEMBERS.iter().copied();
        self.active = primary.into_iter().chain(self.active).chain(all).find(is_enabled);
    }
}

/// Generates events of a bond.
fn ops() -> impl Strategy<Value = Vec<BondOp>> {
    let member = || select(&MEMBERS[..]);
    let delay = || prop_oneof![Just(0_u32), 1..20_u32];
    vec(
        prop_oneof![
            4 => (member(), option::weighted(0.8, any::<bool>()))
                .prop_map(|(name, link)| BondOp::Link(name, link)),
            4 => (0..30_u64).prop_map(BondOp::Pass),
            1 => (option::of(member()), delay(), delay()).prop_map(
                |(primary, updelay_ms, downdelay_ms)| BondOp::Options { primary, updelay_ms, downdelay_ms },
            ),
            1 => (member(), any::<bool>()).prop_map(|(name, enable)| BondOp::Enable(name, enable)),
            1 => member().prop_map(BondOp::Activate),
        ],
        1..40,
    )
}

/// A bond, and the expected state of its members.
struct BondAndModel {
    options: BondOptions,
    links: BTreeMap<&'static str, bool>,
    now_ms: u64,
    state: BondState,
    model: BondModel,
}

impl BondAndModel {
    /// Updates the bond at a time.
    fn update(&mut self, at_ms: u64) {
        let (links, now) = (&self.links, Time::ZERO.after(Duration::from_millis(at_ms)));
        let link = |name: &str| Some(MemberLink { is_up: *links.get(name)?, has_bfd: false });
        self.state.update(&self.options, link, now);
    }

    /// Applies an event to the bond.
    fn apply(&mut self, op: BondOp) {
        match op {
            BondOp::Link(name, Some(link_up)) => _ = self.links.insert(name, link_up),
            BondOp::Link(name, None) => _ = self.links.remove(name),
            BondOp::Pass(ms) => {
                let end = self.now_ms + ms;
                // Updates the bond at the end of each delay, like the bond task of the switch.
                while let Some(due) = self.state.due().map(|due| due.nanoseconds() / 1_000_000)
                    && due <= end
                {
                    self.update(due);
                }
                (0..ms).for_each(|_| self.model.tick(&self.options));
                self.now_ms = end;
            }
            BondOp::Options { primary, updelay_ms, downdelay_ms } => {
                let primary = primary.unwrap_or_default().to_owned();
                let before = std::mem::take(&mut self.options);
                self.options = BondOptions { primary, updelay_ms, downdelay_ms, ..before };
            }
            // The switch refuses to enable a member without a link.
            BondOp::Enable(name, enable) if !enable || self.links.get(name) == Some(&true) => {
                self.state.set_enabled(name, enable);
                if let Some(own) = self.model.members.get_mut(name) {
                    (own.is_enabled, own.waits) = (enable, None);
                }
            }
            BondOp::Enable(..) => {}
            BondOp::Activate(name) => {
                self.state.set_active(name);
                if self.model.members.get(name).is_some_and(|own| own.is_enabled) {
                    self.model.active = Some(name);
                }
            }
        }
        self.update(self.now_ms);
        self.model.follow(&self.links, &self.options);
    }
}

proptest! {
    /// The enabled members and the active member are the same as in the model.
    #[test]
    fn a_bond_equals_its_model(ops in ops()) {
        let options = BondOptions {
            name: "b".to_owned(),
            members: MEMBERS.map(str::to_owned).into(),
            ..BondOptions::default()
        };
        let (state, model) = (BondState::default(), BondModel::default());
        let mut both = BondAndModel { options, links: BTreeMap::new(), now_ms: 0, state, model };
        for op in ops {
            let text = format!("{op:?}");
            both.apply(op);
            let BondAndModel { state, model, .. } = &both;
            for name in MEMBERS {
                let own = state.member(name).map(|own| (own.may_enable, own.is_enabled));
                let expected = model.members.get(name).map(|own| (own.link_up, own.is_enabled));
                prop_assert_eq!(own, expected, "{} after {}", name, text);
                let waits = state.member(name).is_some_and(|own| own.due.is_some());
                prop_assert!(!waits || own.is_some_and(|(link, enabled)| link != enabled));
            }
            prop_assert_eq!(state.active(), model.active, "after {}", text);
            prop_assert!(state.active().is_none_or(|name| state.is_enabled(name)));
        }
    }
}
