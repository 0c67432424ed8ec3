//! Lookups, and the conjunctions that they meet.
//!
//! A lookup that a rule decides is one visit. Where a conjunction is met there are more of them, in
//! order: a visit for the conjunction, which has clauses and no rule; one for the lookup with its
//! `conj_id`; and if that finds nothing, the same again for what is decided without it.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, SparseMask};

use super::{
    context::{Known, RESUBMITS_MAX, Translation},
    recorder::{
        CONJ_ID, CONJ_ID_BITS, Entering, FRAGMENT, Foreign, IN_PORT_BITS, PORTS_BITS, TRANSPORT,
    },
};
use crate::{
    bridges::bridge::Bridge,
    id::{BridgeId, TableId},
    tables::{
        conjunction::{Decision, Met},
        rule::Rule,
        table::Table,
    },
    traversals::traversal::TraversalError,
};

impl<'a> Translation<'a> {
    /// Looks up in a table, as if the packet had come in by `port`; from now on actions are those
    /// of what was found.
    ///
    /// A fragment has no transport ports to look up, the first one neither (`OFPC_FRAG_NORMAL`).
    pub(super) fn look_up(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let altered = altered(&self.key, port);
        let foreign = foreign(&self.key, port);
        let here: &'a Bridge = self.here.bridge;
        let found = here.table(table);
        let rule = if let Some(with_clauses) = found.filter(|found| found.has_clauses()) {
            let key = altered.as_ref().unwrap_or(&self.key).clone();
            let (bridge, is_own) = (self.here.id, altered.is_none());
            let entering = Entering { bridge, table, key: &key, foreign, is_own };
            self.look_up_conjunctions(with_clauses, entering)?
        } else {
            let key = altered.as_ref().unwrap_or(&self.key);
            let (bridge, is_own) = (self.here.id, altered.is_none());
            let entering = Entering { bridge, table, key, foreign, is_own };
            let version = self.version;
            let rule = match self.known.at(self.recorder.visits_count(), (bridge, table)) {
                Some((rule, lookup)) => {
                    debug_assert!(is_found(found, key, version, rule));
                    self.recorder.look_up_known(lookup);
                    rule
                }
                None => self.recorder.look_up(|mask| find_rule(found, key, version, mask)),
            };
            self.recorder.visit(entering, rule);
            rule
        };
        self.scope = self.scope.found(table, rule);
        self.rule = rule;
        Ok(rule)
    }

    /// Goes through a table where it is known that the packet finds a rule that only leads to another
    /// table, which is answered.
    pub(super) fn pass_known(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<TableId>, TraversalError> {
        let bridge = self.here.id;
        let known = self.known.at(self.recorder.visits_count(), (bridge, table));
        let Some((Some(rule), lookup)) = known else { return Ok(None) };
        let Some(next) = rule.instructions.leads_only() else { return Ok(None) };
        let found = self.here.bridge.table(table);
        if found.is_none_or(Table::has_clauses) || is_altered(&self.key, port) {
            return Ok(None);
        }
        debug_assert!(is_found(found, &self.key, self.version, Some(rule)));
        let (key, foreign) = (&self.key, foreign(&self.key, port));
        let entering = Entering { bridge, table, key, foreign, is_own: true };
        self.recorder.pass(entering, lookup, Some(rule));
        self.scope = self.scope.found(table, Some(rule));
        self.rule = Some(rule);
        self.spend_lookup(false)?;
        Ok(Some(next))
    }

    /// As above, in a table some of whose rules are clauses.
    fn look_up_conjunctions(
        &mut self,
        table: &'a Table,
        entering: Entering<'_>,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let mut decisions = table.decisions(entering.key, self.version);
        let mut mask = FlowMask::EMPTY;
        loop {
            let decision = decisions.next_masked(&mut mask);
            look_at_fragments(&mut mask);
            let conjunctions = match decision {
                Decision::Rule(rule) => {
                    self.recorder.look_up(|consulted| consulted.clone_from(&mask));
                    self.recorder.visit(entering, rule);
                    return Ok(rule);
                }
                Decision::Conjunctions(conjunctions) => conjunctions,
            };
            for Met { id, clauses } in conjunctions {
                self.spend_conjunction()?;
                self.recorder.look_up(|consulted| consulted.clone_from(&mask));
                self.recorder.meet(entering, clauses);
                let mut key = entering.key.clone();
                key.set_field(FieldId::ConjId, u128::from(id));
                let second = Entering { key: &key, is_own: false, ..entering };
                let version = self.version;
                let rule =
                    self.recorder.look_up(|mask| find_rule(Some(table), &key, version, mask));
                self.recorder.visit(second, rule);
                if rule.is_some() {
                    return Ok(rule);
                }
                self.recorder.end_visit();
            }
        }
    }

    /// Makes sure that one more lookup is within the bounds.
    const fn spend_conjunction(&mut self) -> Result<(), TraversalError> {
        if self.spent.resubmits >= RESUBMITS_MAX {
            return Err(TraversalError::TooManyResubmits(RESUBMITS_MAX));
        }
        self.spent.resubmits += 1;
        Ok(())
    }
}

impl<'a> Known<'a> {
    /// What the lookup of a visit finds, and what that depends on, if it is made here.
    fn at(
        &self,
        visit: usize,
        place: (BridgeId, TableId),
    ) -> Option<(Option<&'a Arc<Rule>>, &'a SparseMask)> {
        let (visit, lookup) = (self.visits.get(visit)?, self.lookups.get(visit)?);
        let lookup = lookup.as_ref().unwrap_or(&visit.mask);
        ((visit.bridge, visit.table) == place).then_some((visit.rule.as_ref(), lookup))
    }
}

/// Whether a lookup finds this rule. It need not depend on the same bits: rules of other versions, which
/// come meanwhile, may cost some.
fn is_found(
    table: Option<&Table>,
    key: &FlowKey,
    version: Version,
    rule: Option<&Arc<Rule>>,
) -> bool {
    let found = find_rule(table, key, version, &mut FlowMask::EMPTY.clone());
    found.map(|found| found.id) == rule.map(|rule| rule.id)
}

/// The key that a packet is looked up with, if it is not its own: with `port` in place of the port
/// that it came in by, without the ports of a fragment, and without a `conj_id`.
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

/// Whether a packet is looked up with another key than its own.
fn is_altered(key: &FlowKey, port: Option<PortNo>) -> bool {
    port.is_some() || is_fragment(key) || key.words()[CONJ_ID] & CONJ_ID_BITS != 0
}

/// The bits that a lookup does not take from the packet.
fn foreign(key: &FlowKey, port: Option<PortNo>) -> Foreign {
    Foreign {
        conj_id: CONJ_ID_BITS,
        in_port: if port.is_some() { IN_PORT_BITS } else { 0 },
        ports: if is_fragment(key) { PORTS_BITS } else { 0 },
    }
}

pub(super) fn is_fragment(key: &FlowKey) -> bool {
    key.words()[FRAGMENT.0] & FRAGMENT.1 != 0
}

/// The rule that wins among those that are no clauses; adds to `mask` the bits that this depended
/// on.
fn find_rule<'a>(
    table: Option<&'a Table>,
    key: &FlowKey,
    version: Version,
    mask: &mut FlowMask,
) -> Option<&'a Arc<Rule>> {
    let rule = table.and_then(|table| table.find_rule(key, version, mask));
    look_at_fragments(mask);
    rule
}

/// Whether a packet has ports to look at depends on whether it is a fragment.
fn look_at_fragments(mask: &mut FlowMask) {
    if mask.words()[TRANSPORT] & PORTS_BITS != 0 {
        mask.words_mut()[FRAGMENT.0] |= FRAGMENT.1;
    }
}
