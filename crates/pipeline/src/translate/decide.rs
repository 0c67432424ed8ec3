//! Decisions about packets without a record: see `decisions::packet_decider`.

use std::sync::Arc;

use shunt_flow::FlowKey;

use super::{
    actions::protocols::may_be_of_protocol,
    agenda::AgendaStep,
    bridge_view::{BridgeView, TablesAtVersion},
    lookup::{find_unrecorded, is_altered},
    translated_packet::HitRecorder,
    translation::Translation,
};
use crate::{
    action::Action,
    bridges::port::PortKind,
    continuations::continuation::Continuation,
    decisions::{hit_counts::HitCounts, packet_decider::PacketDecision},
    id::{BridgeId, QueueId, TableId},
    tables::{
        learned::learned_rules::LOOKUP_MAX,
        rule::{Instructions, Rule},
        table::RuleTable,
    },
    traversals::{
        datapath_action::DatapathAction,
        drop_cause::DropCause,
        traversal::{Refresh, TraversalError},
    },
};

/// Buffers of a translation, which the next translation reuses.
#[derive(Default)]
pub(crate) struct TranslationBuffers {
    /// The memory of the agenda.
    pub(super) steps: Vec<AgendaStep<'static>>,
    /// The memory of the refresh requests.
    pub(super) refreshes: Vec<Refresh>,
}

/// Decides the packets of a burst, which have just arrived.
pub(crate) fn burst(
    tables: TablesAtVersion<'_>,
    keys: &[FlowKey],
    hits: &mut HitCounts,
    buffers: &mut TranslationBuffers,
    decisions: &mut [PacketDecision],
) {
    for (keys, decisions) in keys.chunks(LOOKUP_MAX).zip(decisions.chunks_mut(LOOKUP_MAX)) {
        batch(tables, keys, hits, buffers, decisions);
    }
}

/// Decides at most [`LOOKUP_MAX`] packets.
fn batch(
    tables: TablesAtVersion<'_>,
    keys: &[FlowKey],
    hits: &mut HitCounts,
    buffers: &mut TranslationBuffers,
    decisions: &mut [PacketDecision],
) {
    // The packets of a burst have one ingress port.
    let number = keys.first().map_or(0, FlowKey::bridge);
    let view = find_bridge(tables, number)
        .filter(|view| view.ports().has_plain_ingress() && !view.fails_open());
    let first = view.and_then(|view| view.table(TableId::FIRST));
    let mut rules = [None; LOOKUP_MAX];
    if let Some(learned) = first.and_then(RuleTable::learned) {
        learned.find_burst(keys, tables.version, &mut rules);
    } else {
        for (rule, key) in rules.iter_mut().zip(keys) {
            *rule = find_unrecorded(first, key, tables.version);
        }
    }
    let has_protocols = view.is_some_and(|view| view.protocols().any());
    let view = view.filter(|_| !first.is_some_and(RuleTable::has_clauses));
    // Separate from the next loop, so that the cache misses of all packets overlap.
    let mut visits = [0; LOOKUP_MAX];
    if let Some(view) = view {
        for (visit, rule) in visits.iter_mut().zip(&rules).take(keys.len()) {
            *visit = hits.of_lookup(view.id(), TableId::FIRST, *rule);
        }
    }
    for (((key, decision), rule), visit) in keys.iter().zip(decisions).zip(rules).zip(visits) {
        decision.clear();
        decision.hits.push(visit);
        let mut recorder = HitRecorder { counts: hits, slots: &mut decision.hits };
        let plain = view
            .filter(|_| key.bridge() == number && !is_altered(key, None))
            .filter(|_| !(has_protocols && may_be_of_protocol(key)))
            .and_then(|view| run_plain(view, key, rule, &mut recorder, &mut decision.actions));
        match plain {
            Some(drop_cause) => decision.drop_cause = drop_cause,
            None => packet(tables, key, None, hits, buffers, decision),
        }
    }
}

/// Decides a packet by a translation with a recorder that is off.
pub(crate) fn packet(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
    hits: &mut HitCounts,
    buffers: &mut TranslationBuffers,
    decision: &mut PacketDecision,
) {
    decision.clear();
    let Some(bridge) = find_bridge(tables, key.bridge()) else {
        decision.error = Some(TraversalError::NoSuchPort);
        return;
    };
    let recorder = HitRecorder { counts: hits, slots: &mut decision.hits };
    let actions = std::mem::take(&mut decision.actions);
    let (result, decided) =
        Translation::run_unrecorded(tables, key, bridge, start, recorder, buffers, actions);
    decision.actions = decided.actions;
    for hit in &decided.group_hits {
        decision.hits.push(hits.of_group(hit));
    }
    for hit in &decided.output_hits {
        decision.hits.push(hits.of_output(hit));
    }
    let (learnings, mut refreshes) = decided.learn_requests.finish();
    match result {
        Ok(()) => {
            decision.learnings = learnings;
            let refreshed = refreshes.drain(..).map(|refresh| hits.of_refresh(&refresh));
            decision.hits.extend(refreshed);
        }
        Err(error) => {
            // A packet that is dropped for an error has no actions and learn requests.
            decision.actions.clear();
            refreshes.clear();
            decision.error = Some(error);
        }
    }
    buffers.refreshes = refreshes;
    decision.drop_cause = decided.recorder.drop_cause();
    decided.recorder.discard();
}

/// Returns the bridge with a number.
fn find_bridge(tables: TablesAtVersion<'_>, number: u64) -> Option<BridgeView<'_>> {
    let id = u16::try_from(number).ok().map(BridgeId::new)?;
    BridgeView::find_unrecorded(tables, id)
}

/// Decides a packet, if its rules only output to datapath ports or go to tables.
///
/// `rule` is the result of the first table, and its hit is recorded. Returns the drop cause, which
/// counts if there is no output. Returns `None` if the packet needs a translation, which discards
/// the actions and the hits.
fn run_plain<'a>(
    bridge: BridgeView<'a>,
    key: &FlowKey,
    mut rule: Option<&'a Arc<Rule>>,
    hits: &mut HitRecorder<'_>,
    actions: &mut Vec<DatapathAction>,
) -> Option<DropCause> {
    loop {
        let Some(found) = rule else {
            return (!bridge.sends_misses()).then_some(DropCause::NoMatchingRule);
        };
        // A later table has a higher number, so the loop ends.
        let Some(next) = run_plain_rule(bridge, found, actions)? else {
            return Some(DropCause::RuleWithoutOutput);
        };
        let next_table = bridge.table(next);
        if next_table.is_some_and(RuleTable::has_clauses) {
            return None;
        }
        rule = find_unrecorded(next_table, key, bridge.version());
        hits.record_lookup(bridge.id(), next, rule);
    }
}

/// Runs a rule that only outputs to datapath ports.
///
/// Returns the table of its `goto_table`, or `None` if the rule has other instructions or actions.
fn run_plain_rule(
    bridge: BridgeView<'_>,
    rule: &Rule,
    actions: &mut Vec<DatapathAction>,
) -> Option<Option<TableId>> {
    let Instructions { meter, apply, clear: _, write, metadata, goto } = &*rule.instructions;
    if meter.is_some() || !write.is_empty() || metadata.is_some() || apply.len() > PLAIN_MAX {
        return None;
    }
    for action in apply {
        let Action::Output { port, .. } = action else { return None };
        if !port.is_physical() {
            return None;
        }
        let port = bridge.ports().find(*port).filter(|port| port.may_send())?;
        let PortKind::Datapath(port) = port.kind else { return None };
        actions.push(DatapathAction::Output {
            port,
            queue: QueueId::DEFAULT,
            unless_ingress: true,
            max_len: None,
        });
    }
    Some(*goto)
}

/// The most actions of a rule that runs without a translation.
///
/// The number is far below the limit for one packet, `ACTIONS_MAX`.
const PLAIN_MAX: usize = 64;
