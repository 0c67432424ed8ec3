//! Table lookups, with conjunctions.
//!
//! A lookup that a rule decides is one visit. A satisfied conjunction adds two visits: one for the
//! conjunction, with clauses and no rule; then one for the lookup with its `conj_id`. If that finds
//! no rule, the visits of the decision without the conjunction follow.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, SparseMask};

use super::{
    record::recorder::{
        CONJ_ID, CONJ_ID_BITS, FRAGMENT, ForeignBits, IN_PORT_BITS, LookupInput, PORTS_BITS,
        TRANSPORT,
    },
    translation::Translation,
};
use crate::{
    id::{BridgeId, TableId},
    tables::{
        conjunction::{ConjunctionMatch, Decision},
        rule::Rule,
        table::RuleTable,
    },
    traversals::traversal::{TraversalError, Visit},
};

impl<'a> Translation<'a> {
    /// Looks up in a table, with `port` in place of the ingress port.
    ///
    /// The matched rule becomes the rule of the actions. A fragment is looked up without transport
    /// ports, also the first one (`OFPC_FRAG_NORMAL`).
    pub(super) fn look_up(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let altered = altered(&self.packet.key, port);
        let foreign = foreign(&self.packet.key, port);
        let found = self.bridge.state.table(table);
        let rule = if let Some(with_clauses) = found.filter(|found| found.has_clauses()) {
            let key = altered.as_ref().unwrap_or(&self.packet.key).clone();
            let (bridge, is_own) = (self.bridge.id, altered.is_none());
            let entering = LookupInput { bridge, table, key: &key, foreign, is_own };
            self.look_up_conjunctions(with_clauses, entering)?
        } else {
            let key = altered.as_ref().unwrap_or(&self.packet.key);
            let (bridge, is_own) = (self.bridge.id, altered.is_none());
            let entering = LookupInput { bridge, table, key, foreign, is_own };
            let version = self.tables.version;
            let rule = match self
                .known_visits
                .at(self.packet.recorder.visits_count(), (bridge, table))
            {
                Some((rule, lookup)) => {
                    debug_assert!(is_found(found, key, version, rule));
                    self.packet.recorder.look_up_known(lookup);
                    rule
                }
                None => self.packet.recorder.look_up(|mask| find_rule(found, key, version, mask)),
            };
            self.packet.recorder.visit(entering, rule);
            rule
        };
        self.context = self.context.found(table, rule);
        self.rule = rule;
        Ok(rule)
    }

    /// Passes through a table if a known visit matches a rule that only leads to
    /// another table.
    ///
    /// Returns that table.
    pub(super) fn skip_known_table(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<TableId>, TraversalError> {
        let bridge = self.bridge.id;
        let known = self.known_visits.at(self.packet.recorder.visits_count(), (bridge, table));
        let Some((Some(rule), lookup)) = known else { return Ok(None) };
        let Some(next) = rule.instructions.goto_only() else { return Ok(None) };
        let found = self.bridge.state.table(table);
        if found.is_none_or(RuleTable::has_clauses) || is_altered(&self.packet.key, port) {
            return Ok(None);
        }
        debug_assert!(is_found(found, &self.packet.key, self.tables.version, Some(rule)));
        let (key, foreign) = (&self.packet.key, foreign(&self.packet.key, port));
        let entering = LookupInput { bridge, table, key, foreign, is_own: true };
        self.packet.recorder.pass(entering, lookup, Some(rule));
        self.context = self.context.found(table, Some(rule));
        self.rule = Some(rule);
        self.limits.count_lookup(false)?;
        Ok(Some(next))
    }

    /// Looks up in a table with clauses.
    fn look_up_conjunctions(
        &mut self,
        table: &'a RuleTable,
        entering: LookupInput<'_>,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let mut decisions = table.decisions(entering.key, self.tables.version);
        let mut mask = FlowMask::EMPTY;
        loop {
            let decision = decisions.next_masked(&mut mask);
            consult_fragment_bit(&mut mask);
            let conjunctions = match decision {
                Decision::Rule(rule) => {
                    self.packet.recorder.look_up(|consulted| consulted.clone_from(&mask));
                    self.packet.recorder.visit(entering, rule);
                    return Ok(rule);
                }
                Decision::Conjunctions(conjunctions) => conjunctions,
            };
            for ConjunctionMatch { id, clauses } in conjunctions {
                self.limits.count_conjunction()?;
                self.packet.recorder.look_up(|consulted| consulted.clone_from(&mask));
                self.packet.recorder.visit_conjunction(entering, clauses);
                let mut key = entering.key.clone();
                key.set_field(FieldId::ConjId, u128::from(id));
                let second = LookupInput { key: &key, is_own: false, ..entering };
                let version = self.tables.version;
                let rule = self
                    .packet
                    .recorder
                    .look_up(|mask| find_rule(Some(table), &key, version, mask));
                self.packet.recorder.visit(second, rule);
                if rule.is_some() {
                    return Ok(rule);
                }
                self.packet.recorder.end_visit();
            }
        }
    }
}

/// The known visits of a translation, with the bits that their lookups consulted.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownVisits<'a> {
    /// The visits from the first one on.
    pub(super) visits: &'a [Visit],
    /// The bits that the lookup of each consulted.
    pub(super) lookups: &'a [Option<SparseMask>],
}

impl<'a> KnownVisits<'a> {
    /// Returns the result of the lookup of a visit, and the bits that it consulted.
    ///
    /// `None` if the visit is not known, or not of this table.
    fn at(
        &self,
        visit: usize,
        expected: (BridgeId, TableId),
    ) -> Option<(Option<&'a Arc<Rule>>, &'a SparseMask)> {
        let (visit, lookup) = (self.visits.get(visit)?, self.lookups.get(visit)?);
        let lookup = lookup.as_ref().unwrap_or(&visit.mask);
        ((visit.bridge, visit.table) == expected).then_some((visit.rule.as_ref(), lookup))
    }
}

/// Returns whether a lookup finds this rule.
///
/// It need not consult the same bits: rules of other versions that are added meanwhile may add
/// some.
fn is_found(
    table: Option<&RuleTable>,
    key: &FlowKey,
    version: Version,
    rule: Option<&Arc<Rule>>,
) -> bool {
    let found = find_rule(table, key, version, &mut FlowMask::EMPTY.clone());
    found.map(|found| found.id) == rule.map(|rule| rule.id)
}

/// Returns the lookup key of a packet, if it differs from the packet's own.
///
/// It has `port` in place of the ingress port, no ports of a fragment, and no `conj_id`.
fn altered(key: &FlowKey, port: Option<PortNo>) -> Option<FlowKey> {
    let is_fragment = is_fragment(key);
    if !is_altered(key, port) {
        return None;
    }
    let mut altered = key.clone();
    altered.set_field(FieldId::ConjId, 0);
    if let Some(port) = port {
        altered.set_in_port(port);
    }
    if is_fragment {
        altered.words_mut()[TRANSPORT] &= !PORTS_BITS;
    }
    Some(altered)
}

/// Returns whether the lookup key of a packet differs from its own.
fn is_altered(key: &FlowKey, port: Option<PortNo>) -> bool {
    port.is_some() || is_fragment(key) || key.words()[CONJ_ID] & CONJ_ID_BITS != 0
}

/// Returns the bits that a lookup does not take from the packet.
fn foreign(key: &FlowKey, port: Option<PortNo>) -> ForeignBits {
    ForeignBits {
        conj_id: CONJ_ID_BITS,
        in_port: if port.is_some() { IN_PORT_BITS } else { 0 },
        ports: if is_fragment(key) { PORTS_BITS } else { 0 },
    }
}

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
    mask: &mut FlowMask,
) -> Option<&'a Arc<Rule>> {
    let rule = table.and_then(|table| table.find_rule(key, version, mask));
    consult_fragment_bit(mask);
    rule
}

/// Consults the fragment bit with the ports: a fragment has none.
fn consult_fragment_bit(mask: &mut FlowMask) {
    if mask.words()[TRANSPORT] & PORTS_BITS != 0 {
        mask.words_mut()[FRAGMENT.0] |= FRAGMENT.1;
    }
}
