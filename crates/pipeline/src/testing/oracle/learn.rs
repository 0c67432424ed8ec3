//! `learn` and `fin_timeout`, bit by bit.

use std::time::Duration;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use super::walker::Walker;
use crate::{
    Action, BridgeId, FlowFlags, FlowMod, FlowModCommand, Instructions, LearnAction, LearnSource,
    LearnTarget, Learning, MacSighting, Refresh, Rule, RuleId, Subfield, TableSelector,
};

/// What a packet teaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taught {
    /// A rule.
    Rule(Box<TaughtRule>),
    /// Where a MAC address is.
    Mac(MacSighting),
}

/// A rule that a packet makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaughtRule {
    pub(in crate::testing) bridge: BridgeId,
    /// The rule that learns, and its revision.
    pub(in crate::testing) teacher: Option<(RuleId, u32)>,
    pub(in crate::testing) request: FlowMod,
    pub(in crate::testing) limit: u32,
}

/// What a packet prolongs or shortens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The hard timeout of a rule begins anew.
    Rule(RuleId),
    /// The timeouts of a rule are lowered to these seconds.
    Lowered(RuleId, u16, u16),
    /// A MAC address of a VLAN was seen.
    Mac(BridgeId, u16, [u8; 6]),
}

impl Refreshed {
    /// What a traversal says that it refreshes.
    pub(in crate::testing) fn of(refresh: &Refresh) -> Self {
        match refresh {
            Refresh::Mac(entry) => Self::Mac(entry.bridge, entry.vlan, entry.mac),
            Refresh::Rule(rule) => Self::Rule(rule.id),
            Refresh::FinTimeout { rule, idle, hard } => Self::Lowered(rule.id, *idle, *hard),
        }
    }
}

impl Taught {
    /// What a traversal says that it teaches.
    pub(in crate::testing) fn of(learning: &Learning) -> Self {
        match learning {
            Learning::Rule(rule) => Self::Rule(Box::new(TaughtRule {
                bridge: rule.bridge,
                teacher: rule.teacher.as_ref().map(|teacher| (teacher.id, teacher.revision)),
                request: rule.request.clone(),
                limit: rule.limit,
            })),
            Learning::Mac(sighting) => Self::Mac(*sighting),
        }
    }
}

impl TaughtRule {
    /// Whether a rule stands in the place of this one.
    pub(in crate::testing) fn is_place_of(&self, rule: &Rule) -> bool {
        TableSelector::One(rule.table) == self.request.table
            && rule.priority == self.request.priority
            && rule.matching == self.request.matching
    }

    /// Whether a rule in its place is already what it would become.
    pub(in crate::testing) fn is_nothing_new(&self, rule: &Rule) -> bool {
        let cookie = self.request.cookie;
        *rule.instructions == self.request.instructions
            && (cookie.number() == u64::MAX || cookie == rule.cookie)
    }

    /// Whether there are as many rules as its limit allows.
    pub(in crate::testing) fn is_over(&self, rules: &[std::sync::Arc<Rule>]) -> bool {
        let is_counted = |rule: &&std::sync::Arc<Rule>| {
            TableSelector::One(rule.table) == self.request.table
                && rule.cookie == self.request.cookie
        };
        self.limit != 0 && rules.iter().filter(is_counted).count() >= self.limit as usize
    }
}

impl Walker<'_> {
    pub(super) fn learn(&mut self, action: &LearnAction) {
        let request = self.learned_rule(action);
        let teacher = self.rule.as_ref().map(|rule| (rule.id, rule.revision));
        let taught = TaughtRule { bridge: self.id(), teacher, request, limit: action.limit };
        let rules = &self.world.bridges[&self.id()].rules;
        let old = rules.iter().find(|rule| taught.is_place_of(rule));
        let known = old.filter(|rule| taught.is_nothing_new(rule)).map(|rule| rule.id);
        let is_learned = known.is_some() || !taught.is_over(rules);
        match known {
            Some(id) => self.refresh(Refreshed::Rule(id)),
            None if is_learned => self.teach(Taught::Rule(Box::new(taught))),
            None => {}
        }
        if let Some(result) = action.result {
            self.set(result.field, u128::from(is_learned) << result.offset, result.bits());
        }
    }

    pub(super) fn fin_timeout(&mut self, idle: u16, hard: u16) {
        let Some(rule) = self.rule.as_ref().map(|rule| rule.id) else { return };
        let flags = self.packet.key.field(FieldId::TcpFlags);
        if self.packet.has(FieldId::TcpFlags) && (flags & 1 != 0 || flags & 4 != 0) {
            self.refresh(Refreshed::Lowered(rule, idle, hard));
        }
    }

    pub(super) fn teach(&mut self, taught: Taught) {
        if !self.taught.contains(&taught) {
            self.taught.push(taught);
        }
    }

    pub(super) fn refresh(&mut self, refreshed: Refreshed) {
        if !self.refreshed.contains(&refreshed) {
            self.refreshed.push(refreshed);
        }
    }

    fn learned_rule(&self, action: &LearnAction) -> FlowMod {
        let (mut key, mut mask, mut apply) = (FlowKey::ZERO, FlowMask::EMPTY, Vec::new());
        if (action.fin_idle_timeout, action.fin_hard_timeout) != (0, 0) {
            let (idle, hard) = (action.fin_idle_timeout, action.fin_hard_timeout);
            apply.push(Action::FinTimeout { idle, hard });
        }
        for spec in &action.specs {
            let value = match spec.source {
                LearnSource::Field(source) => self.read(source),
                LearnSource::Value(value) => value,
            };
            match spec.target {
                LearnTarget::Match(Subfield { field: FieldId::InPort, .. }) => {
                    let port = u32::try_from(value).unwrap_or_default();
                    key.set_in_port(PortNo::widened(port));
                    mask.add_bits(FieldId::InPort, 0xffff_ffff);
                }
                LearnTarget::Match(target) => {
                    for bit in 0..target.width {
                        let place = 1_u128 << (target.offset + bit);
                        let is_set = value >> bit & 1 == 1;
                        key.set_field_masked(target.field, if is_set { place } else { 0 }, place);
                        mask.add_bits(target.field, place);
                    }
                    if target == Subfield::whole(FieldId::DlVlan) {
                        key.set_field_masked(FieldId::VlanTci, 0x1000, 0x1000);
                        mask.add_bits(FieldId::VlanTci, 0x1000);
                    }
                }
                LearnTarget::Load(target) => {
                    let value = u64::try_from(value).unwrap_or_default();
                    apply.push(Action::Load { target, value });
                }
                LearnTarget::Output if value < 0xff00 => {
                    let port = PortNo::new(u32::try_from(value).unwrap_or_default());
                    apply.push(Action::Output { port, max_len: 0 });
                }
                LearnTarget::Output => match value {
                    0xfff8 => apply.push(Action::Output { port: PortNo::IN_PORT, max_len: 0 }),
                    0xfffb => apply.push(Action::Output { port: PortNo::FLOOD, max_len: 0 }),
                    0xfffc => apply.push(Action::Output { port: PortNo::ALL, max_len: 0 }),
                    0xfffe => apply.push(Action::Output { port: PortNo::LOCAL, max_len: 0 }),
                    _ => {}
                },
            }
        }
        FlowMod {
            command: FlowModCommand::Add,
            table: TableSelector::One(action.table),
            matching: Match::new(&key, &mask),
            priority: action.priority,
            cookie: action.cookie,
            cookie_mask: 0,
            idle_timeout: Duration::from_secs(action.idle_timeout.into()),
            hard_timeout: Duration::from_secs(action.hard_timeout.into()),
            importance: 0,
            flags: FlowFlags {
                send_flow_removed: action.send_flow_removed,
                ..FlowFlags::default()
            },
            out_port: PortNo::ANY,
            out_group: 0xffff_ffff,
            instructions: Instructions { apply: apply.into(), ..Instructions::default() },
        }
    }
}
