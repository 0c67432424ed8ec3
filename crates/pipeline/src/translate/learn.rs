//! `learn`: a rule made of the packet (`nx_action_learn`); and what a packet teaches at all.
//!
//! The rule is made of fields of the packet, which are consulted. Whether the version has just
//! this rule already is a read of [`Object::Learned`](crate::Object::Learned): then the packet
//! refreshes it, as will every hit of its entry; else the packet teaches it, and makes no entry.
//! So a packet never sees the rule that it teaches.

use std::time::Duration;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use super::context::Translation;
use crate::{
    action::{Action, LearnAction, LearnSource, LearnSpec, LearnTarget, Subfield},
    learn::learning::{LearnedRule, Learning},
    tables::{
        flow_mod::{FlowMod, FlowModCommand, TableSelector},
        rule::{FlowFlags, Instructions},
        rule_filter::RuleFilter,
    },
    traversals::traversal::{Refresh, TraversalError},
};

/// How much one packet may teach, and refresh.
pub(super) const LEARNINGS_MAX: usize = 1024;

/// The highest number of a port in 16 bits, and one more (`OFPP_MAX` of OpenFlow 1.0).
const PHYSICAL_MAX: u16 = 0xff00;

impl Translation<'_> {
    /// `learn`.
    pub(super) fn learn(&mut self, action: &LearnAction) -> Result<(), TraversalError> {
        let learned = LearnedRule {
            bridge: self.here.id,
            teacher: self.rule.cloned(),
            request: self.rule_to_learn(action),
            limit: action.limit,
        };
        let bridge = self.here.bridge;
        let request = &learned.request;
        let (matching, priority) = (&request.matching, request.priority);
        let taught = bridge.taught();
        self.recorder.read(taught.rule(self.here.id, action.table, matching, priority));
        let found = bridge
            .table(action.table)
            .and_then(|table| table.find_exact(matching, priority, self.version));
        // What was taught before stands in the place of what was found.
        let is_overtaken = self.learnings.iter().any(|other| learned.replaces(other));
        let known = found.filter(|found| !is_overtaken && learned.is_known_as(found));
        let is_learned = if let Some(known) = known {
            self.refresh(Refresh::Rule(known.clone()))?;
            true
        } else {
            if action.limit > 0 {
                let counted = taught.cookie(self.here.id, action.table, action.cookie);
                self.recorder.read(counted);
            }
            let is_free = learned.is_below_limit(bridge, self.version);
            if is_free {
                self.teach(Learning::Rule(Box::new(learned)))?;
            }
            is_free
        };
        if let Some(result) = action.result {
            let value = u128::from(is_learned) << result.offset;
            self.set_field(result.field, value, result.bits());
        }
        Ok(())
    }

    /// The packet teaches something: its traversal is not cached.
    ///
    /// The translation has read the object whose state made this a learning.
    pub(super) fn teach(&mut self, learning: Learning) -> Result<(), TraversalError> {
        if !self.learnings.contains(&learning) {
            self.learnings.push(learning);
        }
        bounded(self.learnings.len())
    }

    /// What the packet would teach is known, or there is something else that a packet prolongs:
    /// hits refresh it.
    pub(super) fn refresh(&mut self, refresh: Refresh) -> Result<(), TraversalError> {
        if !self.refreshes.contains(&refresh) {
            self.refreshes.push(refresh);
        }
        bounded(self.refreshes.len())
    }

    fn rule_to_learn(&mut self, action: &LearnAction) -> FlowMod {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        let mut apply = Vec::new();
        if action.fin_idle_timeout > 0 || action.fin_hard_timeout > 0 {
            let (idle, hard) = (action.fin_idle_timeout, action.fin_hard_timeout);
            apply.push(Action::FinTimeout { idle, hard });
        }
        for spec in &action.specs {
            let value = self.value_to_learn(spec);
            match spec.target {
                LearnTarget::Match(target) => add_match(&mut key, &mut mask, target, value),
                LearnTarget::Load(target) => apply.extend(loads(target, value)),
                LearnTarget::Output => apply.extend(output(value)),
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
            out_group: RuleFilter::GROUP_ANY,
            instructions: Instructions { apply: apply.into(), ..Instructions::default() },
        }
    }

    fn value_to_learn(&mut self, spec: &LearnSpec) -> u128 {
        match spec.source {
            LearnSource::Field(source) => self.read_bits(source),
            LearnSource::Value(value) => value,
        }
    }
}

/// Adds bits of a field to a match.
fn add_match(key: &mut FlowKey, mask: &mut FlowMask, target: Subfield, value: u128) {
    let is_whole = target == Subfield::whole(target.field);
    match target.field {
        // A port of 16 bits.
        FieldId::InPort if target.offset == 0 && target.width == 16 => {
            key.set_in_port(widened(value));
            mask.add_field(FieldId::InPort);
        }
        field => {
            key.set_field_masked(field, value << target.offset, target.bits());
            mask.add_bits(field, target.bits());
        }
    }
    let names_a_tag = [FieldId::DlVlan, FieldId::DlVlanPcp, FieldId::VlanPcp];
    if is_whole && names_a_tag.contains(&target.field) {
        key.set_field_masked(FieldId::VlanTci, TAG_PRESENT, TAG_PRESENT);
        mask.add_bits(FieldId::VlanTci, TAG_PRESENT);
    }
}

/// The bit of `vlan_tci` that every tag has.
const TAG_PRESENT: u128 = 0x1000;
/// The most bits that a `load` writes.
const LOAD_WIDTH: u8 = 64;

/// Writes of a value, the lowest bits first: a `load` carries 64 bits.
fn loads(target: Subfield, value: u128) -> impl Iterator<Item = Action> {
    let parts = (0..target.width).step_by(usize::from(LOAD_WIDTH));
    parts.map(move |begin| {
        let width = (target.width - begin).min(LOAD_WIDTH);
        let target = Subfield { offset: target.offset + begin, width, ..target };
        let bits = u128::from(u64::MAX >> (LOAD_WIDTH - width));
        let value = u64::try_from(value >> begin & bits).unwrap_or_default();
        Action::Load { target, value }
    })
}

/// An output to a port of 16 bits: a physical one, the ingress port, the bridge's own, or a flood.
/// To others a learned rule sends nothing, as in Open vSwitch.
fn output(value: u128) -> Option<Action> {
    let number = u16::try_from(value).ok()?;
    let port = PortNo::widened(number.into());
    let is_allowed = number < PHYSICAL_MAX
        || [PortNo::IN_PORT, PortNo::FLOOD, PortNo::ALL, PortNo::LOCAL].contains(&port);
    is_allowed.then_some(Action::Output { port, max_len: 0 })
}

fn widened(port: u128) -> PortNo {
    PortNo::widened(u32::try_from(port).unwrap_or(u32::MAX))
}

const fn bounded(count: usize) -> Result<(), TraversalError> {
    if count > LEARNINGS_MAX {
        Err(TraversalError::TooManyLearnedRules(LEARNINGS_MAX))
    } else {
        Ok(())
    }
}
