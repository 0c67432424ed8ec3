//! Table lookups, with conjunctions.
//!
//! A lookup that a rule decides is one visit. A satisfied conjunction adds two visits: one for the
//! conjunction, with clauses and no rule; then one for the lookup with its `conj_id`. If the second
//! lookup finds no rule, the visits of the next decision follow.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, SparseMask};

use super::{
    bridge_view::BridgeView,
    limits::LimitCounters,
    record::{
        foreign_bits::{
            CONJ_ID, CONJ_ID_BITS, FRAGMENT, ForeignBits, IN_PORT_BITS, PORTS_BITS, TRANSPORT,
        },
        recorder::{LookupInput, Recorder},
    },
    working_packet::WorkingPacket,
};
use crate::{
    id::{BridgeId, TableId},
    tables::{
        conjunction::{ConjunctionMatch, Decision},
        learned::masked::IndexedFrom,
        rule::Rule,
        table::RuleTable,
    },
    traversals::{
        sub_traversal::NotedTraversal,
        traversal::{TraversalError, Visit},
    },
};

/// Looks up the packet in a table and records the visit.
/// `port` replaces the ingress port.
///
/// Every fragment, also the first fragment, is looked up without transport ports
/// (`OFPC_FRAG_NORMAL`).
pub(super) fn look_up<'a>(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'a>,
    known_visits: KnownVisits<'a>,
    limits: &mut LimitCounters,
    table: TableId,
    port: Option<PortNo>,
) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
    let (own_key, recorder) = packet.key_and_recorder();
    // Two statements, because a tuple of both would copy the changed key at each lookup.
    let changed_lookup_key = changed_lookup_key(own_key, port);
    let foreign = foreign(own_key, port);
    let (key, is_own) =
        (changed_lookup_key.as_ref().unwrap_or(own_key), changed_lookup_key.is_none());
    let entering = LookupInput { bridge: bridge.id(), table, key, foreign, is_own };
    let (found, version) = (bridge.table(table), bridge.version());
    if let Some(with_clauses) = found.filter(|found| found.has_clauses()) {
        return look_up_conjunctions(recorder, limits, with_clauses, version, entering);
    }
    let rule = match known_visits.at(recorder.visits_count(), bridge.id(), table) {
        Some((rule, lookup)) => {
            debug_assert!(is_found(found, key, version, rule));
            recorder.look_up_known(lookup);
            rule
        }
        None if recorder.is_off() => find_unrecorded(found, key, version),
        None => {
            let from = bridge.indexed_from();
            recorder.look_up(|mask| find_rule(found, key, version, from, mask))
        }
    };
    recorder.begin_visit(entering, rule);
    Ok(rule)
}

/// Skips the lookup in a table, if a known visit found a rule that only has a goto.
///
/// Returns the rule and the table of its `goto_table`.
pub(super) fn skip_known_table<'a>(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'a>,
    known_visits: KnownVisits<'a>,
    table: TableId,
    port: Option<PortNo>,
) -> Option<(&'a Arc<Rule>, TableId)> {
    let (key, recorder) = packet.key_and_recorder();
    let (rule, lookup) = known_visits.at(recorder.visits_count(), bridge.id(), table)?;
    let rule = rule?;
    let next = rule.instructions.goto_only()?;
    let found = bridge.table(table);
    if found.is_none_or(RuleTable::has_clauses) || is_altered(key, port) {
        return None;
    }
    debug_assert!(is_found(found, key, bridge.version(), Some(rule)));
    let foreign = foreign(key, port);
    let entering = LookupInput { bridge: bridge.id(), table, key, foreign, is_own: true };
    recorder.pass(entering, lookup, Some(rule));
    Some((rule, next))
}

/// Looks up in a table with clauses, and records the visits.
fn look_up_conjunctions<'a>(
    recorder: &mut Recorder,
    limits: &mut LimitCounters,
    table: &'a RuleTable,
    version: Version,
    entering: LookupInput<'_>,
) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
    let mut decisions = table.decisions(entering.key, version);
    let mut mask = FlowMask::EMPTY;
    loop {
        let decision = decisions.next_masked(&mut mask);
        consult_fragment_bit(&mut mask);
        let conjunctions = match decision {
            Decision::Rule(rule) => {
                recorder.look_up(|consulted| consulted.clone_from(&mask));
                recorder.begin_visit(entering, rule);
                return Ok(rule);
            }
            Decision::Conjunctions(conjunctions) => conjunctions,
        };
        for ConjunctionMatch { id, clauses } in conjunctions {
            limits.count_conjunction()?;
            recorder.look_up(|consulted| consulted.clone_from(&mask));
            recorder.visit_conjunction(entering, clauses);
            let mut key = entering.key.clone();
            key.set_field(FieldId::ConjId, u128::from(id));
            let second = LookupInput { key: &key, is_own: false, ..entering };
            let rule = recorder
                .look_up(|mask| find_rule(Some(table), &key, version, IndexedFrom::NEVER, mask));
            recorder.begin_visit(second, rule);
            if rule.is_some() {
                return Ok(rule);
            }
            recorder.end_visit();
        }
    }
}

/// Visits that are known from an earlier translation, with their consulted bits.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownVisits<'a> {
    /// The visits, from the first visit of this translation on.
    visits: &'a [Visit],
    /// The bits that the lookup of each visit consulted.
    lookups: &'a [Option<SparseMask>],
}

impl<'a> KnownVisits<'a> {
    /// Returns the visits of a noted traversal from `first` on.
    pub(super) fn behind(noted: &'a NotedTraversal, first: usize) -> Self {
        Self {
            visits: noted.traversal.visits.get(first..).unwrap_or_default(),
            lookups: noted.lookups.get(first..).unwrap_or_default(),
        }
    }

    /// Returns the result of the lookup of a visit, and the bits that it consulted.
    ///
    /// `None` if the visit is unknown, or is a visit of another table.
    fn at(
        &self,
        visit: usize,
        bridge: BridgeId,
        table: TableId,
    ) -> Option<(Option<&'a Arc<Rule>>, &'a SparseMask)> {
        let (visit, lookup) = (self.visits.get(visit)?, self.lookups.get(visit)?);
        let lookup = lookup.as_ref().unwrap_or(&visit.mask);
        (visit.bridge == bridge && visit.table == table).then_some((visit.rule.as_ref(), lookup))
    }
}

/// Returns whether a lookup finds this rule.
///
/// The lookup may consult other bits than the known lookup, because rules of later versions were
/// added meanwhile.
fn is_found(
    table: Option<&RuleTable>,
    key: &FlowKey,
    version: Version,
    rule: Option<&Arc<Rule>>,
) -> bool {
    let found = find_rule(table, key, version, IndexedFrom::NEVER, &mut FlowMask::EMPTY.clone());
    found.map(|found| found.id) == rule.map(|rule| rule.id)
}

/// Returns the lookup key of a packet, if it differs from the packet's own.
///
/// The lookup key has `port` as ingress port, no transport ports if the packet is a fragment, and
/// no `conj_id`.
fn changed_lookup_key(key: &FlowKey, port: Option<PortNo>) -> Option<FlowKey> {
    let is_fragment = is_fragment(key);
    if !is_altered(key, port) {
        return None;
    }
    let mut changed_lookup_key = key.clone();
    changed_lookup_key.set_field(FieldId::ConjId, 0);
    if let Some(port) = port {
        changed_lookup_key.set_in_port(port);
    }
    if is_fragment {
        changed_lookup_key.words_mut()[TRANSPORT] &= !PORTS_BITS;
    }
    Some(changed_lookup_key)
}

/// Returns whether the lookup key of a packet differs from the packet's key.
pub(super) fn is_altered(key: &FlowKey, port: Option<PortNo>) -> bool {
    port.is_some() || is_fragment(key) || key.words()[CONJ_ID] & CONJ_ID_BITS != 0
}

/// Returns the bits of the lookup key that are not those of the packet.
fn foreign(key: &FlowKey, port: Option<PortNo>) -> ForeignBits {
    ForeignBits {
        conj_id: CONJ_ID_BITS,
        in_port: if port.is_some() { IN_PORT_BITS } else { 0 },
        ports: if is_fragment(key) { PORTS_BITS } else { 0 },
    }
}

/// Returns whether a packet is a fragment: tables do not see its ports.
pub(super) fn is_fragment(key: &FlowKey) -> bool {
    key.words()[FRAGMENT.0] & FRAGMENT.1 != 0
}

/// Returns the rule that wins among those that are not clauses.
///
/// Adds to `mask` the bits that the lookup depends on.
fn find_rule<'a>(
    table: Option<&'a RuleTable>,
    key: &FlowKey,
    version: Version,
    from: IndexedFrom,
    mask: &mut FlowMask,
) -> Option<&'a Arc<Rule>> {
    let rule = table.and_then(|table| table.find_rule(key, version, from, mask));
    consult_fragment_bit(mask);
    rule
}

/// Returns the rule that wins among those that are not clauses, without a record.
pub(super) fn find_unrecorded<'a>(
    table: Option<&'a RuleTable>,
    key: &FlowKey,
    version: Version,
) -> Option<&'a Arc<Rule>> {
    table.and_then(|table| table.find_unrecorded(key, version))
}

/// Consults the fragment bit together with transport ports, which fragments lack.
fn consult_fragment_bit(mask: &mut FlowMask) {
    if mask.words()[TRANSPORT] & PORTS_BITS != 0 {
        mask.words_mut()[FRAGMENT.0] |= FRAGMENT.1;
    }
}
