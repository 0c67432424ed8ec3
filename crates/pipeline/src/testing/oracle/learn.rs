//! `learn` and `fin_timeout` in the oracle, bit by bit.

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo, text::NoPortNames};

use super::walker::Walker;
use crate::{
    action::{Action, LearnAction, LearnSource, LearnTarget, Subfield},
    bridges::{mac_table::MacObservation, multicast::MulticastObservation},
    id::{BridgeId, RuleId},
    learn::learning::Learning,
    tables::{
        flow_mod::{FlowMod, FlowModCommand, TableSelector},
        rule::Rule,
    },
    text::parse_rule,
    traversals::traversal::Refresh,
};

/// The expected content of a learn request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LearnEffect {
    /// The packet learns a rule.
    Rule(Box<RuleToLearn>),
    /// The location of a MAC address.
    Mac(MacObservation),
    /// The content of a message of IGMP or MLD.
    ///
    /// No translation requests such a change: the control thread reads the message.
    Multicast(MulticastObservation),
}

/// The expected rule of a learn request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleToLearn {
    pub(in crate::testing) bridge: BridgeId,
    /// The id and the revision of the learning rule.
    pub(in crate::testing) learner: Option<(RuleId, u32)>,
    pub(in crate::testing) request: FlowMod,
    /// Maximum number of learned rules; 0 means no limit.
    pub(in crate::testing) limit: u32,
}

/// A rule or an address with a lifetime that a packet prolongs or shortens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The hard timeout of a rule restarts.
    Rule(RuleId),
    /// The timeouts of a rule are lowered to these seconds.
    Lowered(RuleId, u16, u16),
    /// A MAC address of a VLAN was seen.
    Mac(BridgeId, u16, [u8; 6]),
}

impl Refreshed {
    /// Returns the expected form of a refresh of a traversal.
    pub(in crate::testing) fn of(refresh: &Refresh) -> Self {
        match refresh {
            Refresh::Mac(entry) => Self::Mac(entry.bridge, entry.vlan, entry.mac),
            Refresh::Rule(rule) => Self::Rule(rule.id),
            Refresh::FinTimeout { rule, idle, hard } => Self::Lowered(rule.id, *idle, *hard),
        }
    }
}

impl LearnEffect {
    /// Returns the expected form of a learn request of a traversal.
    pub(in crate::testing) fn of(learning: &Learning) -> Self {
        match learning {
            Learning::Rule(rule) => Self::Rule(Box::new(RuleToLearn {
                bridge: rule.bridge,
                learner: rule.learner.as_ref().map(|learner| (learner.id, learner.revision)),
                request: rule.request.clone(),
                limit: rule.limit,
            })),
            Learning::Mac(observation) => Self::Mac(*observation),
            Learning::Multicast(observation) => Self::Multicast(*observation),
        }
    }
}

impl RuleToLearn {
    /// Returns whether `rule` has the match, table and priority of the learned rule.
    pub(in crate::testing) fn replaces(&self, rule: &Rule) -> bool {
        TableSelector::One(rule.table) == self.request.table
            && rule.priority == self.request.priority
            && rule.matching == self.request.matching
    }

    /// Returns whether `rule` already equals the result of learning.
    pub(in crate::testing) fn changes_nothing(&self, rule: &Rule) -> bool {
        let cookie = self.request.cookie;
        *rule.instructions == self.request.instructions
            && (cookie.number() == u64::MAX || cookie == rule.cookie)
    }

    /// Returns whether there are as many learned rules as the limit allows.
    pub(in crate::testing) fn is_over(&self, rules: &[std::sync::Arc<Rule>]) -> bool {
        let is_counted = |rule: &&std::sync::Arc<Rule>| {
            TableSelector::One(rule.table) == self.request.table
                && rule.cookie == self.request.cookie
        };
        self.limit != 0 && rules.iter().filter(is_counted).count() >= self.limit as usize
    }
}

impl Walker<'_> {
    /// Executes a `learn` action.
    #[inline(never)]
    pub(super) fn learn(&mut self, action: &LearnAction) {
        let request = self.learned_rule(action);
        let learner = self.rule.as_ref().map(|rule| (rule.id, rule.revision));
        let learned = RuleToLearn { bridge: self.id(), learner, request, limit: action.limit };
        let rules = &self.model.bridges[&self.id()].rules;
        let old = rules.iter().find(|rule| learned.replaces(rule));
        let place = |learned: &RuleToLearn| {
            (learned.bridge, learned.request.table, learned.request.priority)
        };
        let is_other = |other: &LearnEffect| match other {
            LearnEffect::Rule(other) => {
                place(other) == place(&learned)
                    && other.request.matching == learned.request.matching
                    && **other != learned
            }
            LearnEffect::Mac(_) | LearnEffect::Multicast(_) => false,
        };
        let is_overtaken = self.passes.has_learned(is_other);
        let known = old.filter(|rule| !is_overtaken && learned.changes_nothing(rule));
        let known = known.map(|rule| rule.id);
        let is_learned = known.is_some() || !learned.is_over(rules);
        match known {
            Some(id) => self.passes.refresh(Refreshed::Rule(id)),
            None if is_learned => self.passes.add_learned(LearnEffect::Rule(Box::new(learned))),
            None => {}
        }
        if let Some(result) = action.result {
            self.set(result.field, u128::from(is_learned) << result.offset, result.bits());
        }
    }

    /// Records that a TCP FIN or RST lowers the timeouts of the rule, in seconds.
    pub(super) fn fin_timeout(&mut self, idle: u16, hard: u16) {
        let Some(rule) = self.rule.as_ref().map(|rule| rule.id) else { return };
        let flags = self.packet.key.field(FieldId::TcpFlags);
        if self.packet.has(FieldId::TcpFlags) && (flags & 1 != 0 || flags & 4 != 0) {
            self.passes.refresh(Refreshed::Lowered(rule, idle, hard));
        }
    }

    /// Returns the rule that a `learn` makes of the packet (`ovs-actions(7)`).
    #[expect(clippy::expect_used, reason = "generated loads have 64 bits at most")]
    fn learned_rule(&self, action: &LearnAction) -> FlowMod {
        let mut learned = head(action);
        let (mut key, mut mask, mut actions) = (FlowKey::ZERO, FlowMask::EMPTY, Vec::new());
        if action.fin_idle_timeout != 0 || action.fin_hard_timeout != 0 {
            actions.push(Action::FinTimeout {
                idle: action.fin_idle_timeout,
                hard: action.fin_hard_timeout,
            });
        }
        for spec in &action.specs {
            let value = match spec.source {
                LearnSource::Value(value) => value,
                LearnSource::Field(source) => self.read(source),
            };
            let target = match spec.target {
                LearnTarget::Match(target) => target,
                LearnTarget::Load(target) => {
                    let value = u64::try_from(value).expect("generated loads have 64 bits at most");
                    actions.push(Action::Load { target, value });
                    continue;
                }
                LearnTarget::Output => {
                    actions.extend(output(value));
                    continue;
                }
            };
            for (field, bit, is_set) in wanted_bits(target, value) {
                let place = 1 << bit;
                key.set_field_masked(field, if is_set { place } else { 0 }, place);
                mask.add_bits(field, place);
            }
        }
        learned.matching = Match::new(&key, &mask);
        learned.instructions.apply = actions.into();
        learned
    }
}

/// Returns the flow-mod of a learned rule, without match and actions.
#[expect(clippy::expect_used, reason = "the text is that of a rule")]
fn head(action: &LearnAction) -> FlowMod {
    let text = format!(
        "table={},priority={},cookie={:#x},idle_timeout={},hard_timeout={}{},actions=drop",
        action.table,
        action.priority.number(),
        action.cookie.number(),
        action.idle_timeout,
        action.hard_timeout,
        if action.send_flow_removed { ",send_flow_rem" } else { "" },
    );
    parse_rule(FlowModCommand::Add, &text, &NoPortNames).expect("a rule without a match")
}

/// Returns the bits that a packet must have to match a value.
/// Each bit has its field, its number, and its value.
fn wanted_bits(target: Subfield, value: u128) -> Vec<(FieldId, u8, bool)> {
    let bits = |field, offset: u8, width: u8, value: u128| -> Vec<_> {
        (0..width).map(|bit| (field, offset + bit, value >> bit & 1 == 1)).collect()
    };
    match (target.field, target.width) {
        // A `learn` has a port number of 16 bits; a flow key has 32 bits.
        (FieldId::InPort, 16) => {
            let reserved = if value >= 0xff00 { 0xffff_0000 } else { 0 };
            bits(FieldId::InPort, 0, 32, value | reserved)
        }
        // A match on a VLAN id also requires a tag.
        (FieldId::DlVlan, 12) => {
            [bits(FieldId::DlVlan, 0, 12, value), vec![(FieldId::VlanTci, 12, true)]].concat()
        }
        (field, width) => bits(field, target.offset, width, value),
    }
}

/// Returns an output to a 16-bit port number, if the port can be an output.
fn output(value: u128) -> Option<Action> {
    let reserved = [
        (0xfff8, PortNo::IN_PORT),
        (0xfffb, PortNo::FLOOD),
        (0xfffc, PortNo::ALL),
        (0xfffe, PortNo::LOCAL),
    ];
    let known = reserved.into_iter().find(|(number, _)| *number == value).map(|(_, port)| port);
    let physical = u32::try_from(value).ok().filter(|number| *number < 0xff00).map(PortNo::new);
    known.or(physical).map(|port| Action::Output { port, max_len: 0 })
}
