//! `learn`: a rule made of fields of the packet (`nx_action_learn`).
//!
//! The translation consults all fields of which the rule is made. The search for an existing rule
//! with the same match is a read of [`Object::Learned`](crate::Object::Learned). If an equal rule
//! exists, the packet refreshes the rule, as does every hit of its cache entry. Otherwise the
//! packet makes a learn request, and gets no cache entry. So a packet never matches the rule that
//! it learns.

use std::{sync::Arc, time::Duration};

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use crate::{
    action::{Action, LearnAction, LearnSource, LearnSpec, LearnTarget, Subfield},
    learn::learning::{LearnedRule, Learning},
    tables::{
        flow_mod::{FlowMod, FlowModCommand, TableSelector},
        rule::{FlowFlags, Instructions, Rule},
        rule_filter::RuleFilter,
    },
    translate::{
        bridge_view::BridgeView, learn_requests::LearnRequests, working_packet::WorkingPacket,
    },
    traversals::traversal::{Refresh, TraversalError},
};

/// The first number above physical ports of 16 bits (`OFPP_MAX` of OpenFlow 1.0).
const PHYSICAL_MAX: u16 = 0xff00;

/// `learn`: requests the rule for the packet, or refreshes an equal existing rule.
///
/// `learner` is the rule of the action; `None` for a packet-out.
pub(in crate::translate) fn learn(
    packet: &mut WorkingPacket,
    requests: &mut LearnRequests,
    bridge: BridgeView<'_>,
    learner: Option<&Arc<Rule>>,
    action: &LearnAction,
) -> Result<(), TraversalError> {
    let learned = LearnedRule {
        bridge: bridge.id(),
        learner: learner.cloned(),
        request: rule_to_learn(packet, action),
        limit: action.limit,
    };
    let request = &learned.request;
    let (matching, priority) = (&request.matching, request.priority);
    let index = bridge.all_versions().learn_index();
    packet.recorder.read(index.rule(bridge.id(), action.table, matching, priority));
    let table = bridge.table(action.table);
    let found = table.and_then(|table| table.find_exact(matching, priority, bridge.version()));
    // A rule that the packet has requested before replaces the existing rule in the table.
    let is_replaced = requests.is_replaced_by(&learned);
    let known = found.filter(|found| !is_replaced && learned.matches_rule(found));
    let is_learned = if let Some(known) = known {
        requests.refresh(Refresh::Rule(known.clone()))?;
        true
    } else {
        if action.limit > 0 {
            let counted = index.cookie(bridge.id(), action.table, action.cookie);
            packet.recorder.read(counted);
        }
        let is_below_limit = learned.is_below_limit(bridge.all_versions(), bridge.version());
        if is_below_limit {
            requests.learn(Learning::Rule(Box::new(learned)))?;
        }
        is_below_limit
    };
    if let Some(result) = action.result {
        let value = u128::from(is_learned) << result.offset;
        packet.set_field(result.field, value, result.bits());
    }
    Ok(())
}

/// Returns the flow-mod that a `learn` action requests for a packet.
fn rule_to_learn(packet: &mut WorkingPacket, action: &LearnAction) -> FlowMod {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    let mut apply = Vec::new();
    if action.fin_idle_timeout > 0 || action.fin_hard_timeout > 0 {
        let (idle, hard) = (action.fin_idle_timeout, action.fin_hard_timeout);
        apply.push(Action::FinTimeout { idle, hard });
    }
    for spec in &action.specs {
        let value = value_to_learn(packet, spec);
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
        flags: FlowFlags { send_flow_removed: action.send_flow_removed, ..FlowFlags::default() },
        out_port: PortNo::ANY,
        out_group: RuleFilter::GROUP_ANY,
        instructions: Instructions { apply: apply.into(), ..Instructions::default() },
    }
}

/// Returns the value that a spec takes from a packet.
fn value_to_learn(packet: &mut WorkingPacket, spec: &LearnSpec) -> u128 {
    match spec.source {
        LearnSource::Field(source) => packet.read_bits(source),
        LearnSource::Value(value) => value,
    }
}

/// Adds bits of a field to a match.
fn add_match(key: &mut FlowKey, mask: &mut FlowMask, target: Subfield, value: u128) {
    let is_whole = target == Subfield::whole(target.field);
    match target.field {
        // The port number has 16 bits (OpenFlow 1.0).
        FieldId::InPort if target.offset == 0 && target.width == 16 => {
            key.set_in_port(widen_port(value));
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

/// Returns `load` actions of at most 64 bits each that write a value.
/// The first action writes the lowest bits.
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

/// Returns an output to a 16-bit port: physical, IN_PORT, LOCAL, or a flood.
///
/// As in Open vSwitch, a learned rule has no outputs to other ports.
fn output(value: u128) -> Option<Action> {
    let number = u16::try_from(value).ok()?;
    let port = PortNo::widened(number.into());
    let is_allowed = number < PHYSICAL_MAX
        || [PortNo::IN_PORT, PortNo::FLOOD, PortNo::ALL, PortNo::LOCAL].contains(&port);
    is_allowed.then_some(Action::Output { port, max_len: 0 })
}

/// Returns the port with a learned number.
fn widen_port(port: u128) -> PortNo {
    // A number beyond 32 bits is no port, and 2^32 - 1 is `ANY`, which no packet has.
    PortNo::widened(u32::try_from(port).unwrap_or(u32::MAX))
}
