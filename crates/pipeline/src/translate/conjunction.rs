//! Lookups, and the conjunctions that they meet.
//!
//! A lookup that a rule decides is one visit. Where a conjunction is met there are more of them, in
//! order: a visit for the conjunction, which has clauses and no rule; one for the lookup with its
//! `conj_id`; and if that finds nothing, the same again for what is decided without it.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, layout::word};

use super::{
    context::{RESUBMITS_MAX, Translation},
    recorder::{CONJ_ID_BITS, Entering, Foreign, IN_PORT_BITS, PORTS_BITS},
};
use crate::{
    Rule, TableId, TraversalError,
    bridge::Bridge,
    conjunction::{Decision, Met},
    table::Table,
};

/// The bit of `nw_frag` that fragments have.
const ANY_FRAGMENT: u128 = 1;

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
        let mut foreign = Foreign { conj_id: CONJ_ID_BITS, ..Foreign::default() };
        let mut key = self.key.clone();
        key.set_field(FieldId::ConjId, 0);
        if let Some(port) = port {
            key.set_in_port(port);
            foreign.in_port = IN_PORT_BITS;
        }
        if key.field(FieldId::NwFrag) & ANY_FRAGMENT != 0 {
            key.words_mut()[usize::from(word::TRANSPORT)] &= !PORTS_BITS;
            foreign.ports = PORTS_BITS;
        }
        let here: &'a Bridge = self.here.bridge;
        let entering = Entering { bridge: self.here.id, table, key, foreign };
        let rule = match here.table(table).filter(|table| table.has_clauses()) {
            Some(table) => self.look_up_conjunctions(table, &entering)?,
            None => {
                let (rule, mask) = find_rule(here.table(table), &entering.key, self.version);
                self.recorder.visit(entering, mask, rule);
                rule
            }
        };
        self.scope = self.scope.found(table, rule);
        self.rule = rule;
        Ok(rule)
    }

    /// As above, in a table some of whose rules are clauses.
    fn look_up_conjunctions(
        &mut self,
        table: &'a Table,
        entering: &Entering,
    ) -> Result<Option<&'a Arc<Rule>>, TraversalError> {
        let mut decisions = table.decisions(&entering.key, self.version);
        let mut mask = FlowMask::EMPTY;
        loop {
            let decision = decisions.next_masked(&mut mask);
            look_at_fragments(&mut mask);
            let conjunctions = match decision {
                Decision::Rule(rule) => {
                    self.recorder.visit(entering.clone(), mask, rule);
                    return Ok(rule);
                }
                Decision::Conjunctions(conjunctions) => conjunctions,
            };
            for Met { id, clauses } in conjunctions {
                self.spend_conjunction()?;
                self.recorder.meet(entering.clone(), mask.clone(), clauses);
                let mut second = entering.clone();
                second.key.set_field(FieldId::ConjId, u128::from(id));
                let (rule, mask) = find_rule(Some(table), &second.key, self.version);
                self.recorder.visit(second, mask, rule);
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

/// The rule that wins among those that are no clauses, and the bits that this depended on.
fn find_rule<'a>(
    table: Option<&'a Table>,
    key: &FlowKey,
    version: Version,
) -> (Option<&'a Arc<Rule>>, FlowMask) {
    let mut mask = FlowMask::EMPTY;
    let rule = table.and_then(|table| table.find_rule(key, version, &mut mask));
    look_at_fragments(&mut mask);
    (rule, mask)
}

/// Whether a packet has ports to look at depends on whether it is a fragment.
fn look_at_fragments(mask: &mut FlowMask) {
    if mask.words()[usize::from(word::TRANSPORT)] & PORTS_BITS != 0 {
        mask.add_bits(FieldId::NwFrag, ANY_FRAGMENT);
    }
}
