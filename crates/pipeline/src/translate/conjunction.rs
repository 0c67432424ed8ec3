//! Lookups, and the conjunctions that they meet.
//!
//! A lookup that a rule decides is one visit. Where a conjunction is met there are more of them, in
//! order: a visit for the conjunction, which has clauses and no rule; one for the lookup with its
//! `conj_id`; and if that finds nothing, the same again for what is decided without it.

use std::sync::Arc;

use shunt_classifier::Priority;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, layout::word};

use super::{
    context::{RESUBMITS_MAX, Translation},
    recorder::{CONJ_ID_BITS, Entering, Foreign, IN_PORT_BITS, PORTS_BITS},
};
use crate::{
    Rule, TableId, TraversalError,
    bridge::Bridge,
    conjunction::{Decision, Met},
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
        let bridge = self.here.id;
        let entering = |key| Entering { bridge, table, key, foreign };
        let mut below = None;
        let rule = 'decided: loop {
            let (decision, mask) = self.decide(table, &key, below);
            let (priority, conjunctions) = match decision {
                Decision::Rule(rule) => {
                    self.recorder.visit(entering(key), mask, rule);
                    break rule;
                }
                Decision::Conjunctions(priority, conjunctions) => (priority, conjunctions),
            };
            for Met { id, clauses } in conjunctions {
                self.spend_conjunction()?;
                self.recorder.meet(entering(key.clone()), mask.clone(), clauses);
                let mut second = key.clone();
                second.set_field(FieldId::ConjId, u128::from(id));
                let (rule, mask) = self.find_rule(table, &second);
                self.recorder.visit(entering(second), mask, rule);
                if rule.is_some() {
                    break 'decided rule;
                }
                self.recorder.end_visit();
            }
            below = Some(priority);
        };
        self.scope = self.scope.found(table, rule);
        self.rule = rule;
        Ok(rule)
    }

    /// What decides in a table, below a priority, and the bits that this depended on.
    fn decide(
        &self,
        table: TableId,
        key: &FlowKey,
        below: Option<Priority>,
    ) -> (Decision<'a>, FlowMask) {
        let bridge: &'a Bridge = self.here.bridge;
        let mut mask = FlowMask::EMPTY;
        let decision = bridge.table(table).map_or(Decision::Rule(None), |table| {
            table.decide(key, self.version, &mut mask, below)
        });
        look_at_fragments(&mut mask);
        (decision, mask)
    }

    /// The rule that wins among those that are no clauses, and the bits that this depended on.
    fn find_rule(&self, table: TableId, key: &FlowKey) -> (Option<&'a Arc<Rule>>, FlowMask) {
        let bridge: &'a Bridge = self.here.bridge;
        let mut mask = FlowMask::EMPTY;
        let table = bridge.table(table);
        let rule = table.and_then(|table| table.find_rule(key, self.version, &mut mask));
        look_at_fragments(&mut mask);
        (rule, mask)
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

/// Whether a packet has ports to look at depends on whether it is a fragment.
fn look_at_fragments(mask: &mut FlowMask) {
    if mask.words()[usize::from(word::TRANSPORT)] & PORTS_BITS != 0 {
        mask.add_bits(FieldId::NwFrag, ANY_FRAGMENT);
    }
}
