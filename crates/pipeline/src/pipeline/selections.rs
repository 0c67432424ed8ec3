//! The selection of the rules that a request changes, in steps under the shared lock.
//!
//! The caller holds the lock of control, so no rule changes or is reclaimed between two steps.

use std::{collections::BTreeSet, sync::Arc};

use super::Pipeline;
use crate::{
    bridges::bridge::in_order,
    id::BridgeId,
    tables::{
        evictable::Evictable,
        flow_mod::{FlowModError, TableSelector},
        rule::Rule,
        rule_filter::RuleFilter,
    },
    update::{
        batch::UpdateBatch,
        check::check_instructions,
        pending::{EndedObject, RuleSelection},
    },
    versions::delta::RemovedReason,
};

impl Pipeline {
    /// Selects the rules of the last request of a batch, and queues their changes.
    ///
    /// An error leaves all rules unchanged.
    pub(super) fn select(&self, batch: &mut UpdateBatch, id: BridgeId) -> Result<(), FlowModError> {
        while let Some(selection) = batch.take_selection() {
            self.select_rules(batch, id, selection)?;
        }
        Ok(())
    }

    /// Selects the rules that a request changes, and queues their changes.
    fn select_rules(
        &self,
        batch: &mut UpdateBatch,
        id: BridgeId,
        selection: RuleSelection,
    ) -> Result<(), FlowModError> {
        let version = batch.version();
        match selection {
            RuleSelection::Delete(filter) => {
                batch.queue_all(self.rules_at(id, &filter, version), RemovedReason::Delete);
            }
            RuleSelection::Modify { request, instructions } => {
                let chosen = self.rules_at(id, &RuleFilter::to_modify(&request), version);
                let check = self.bridges.read().get(&id).map_or(Ok(()), |bridge| {
                    check_instructions(bridge, &request.instructions, version)
                });
                batch.queue_modification(&request, &instructions, chosen, check)?;
            }
            RuleSelection::EvictFor(request) => {
                self.order_for_eviction(batch, id, request.table);
                batch.queue_addition(request);
            }
            RuleSelection::DeleteGroups(group) => {
                let groups: BTreeSet<_> = match group {
                    Some(group) => BTreeSet::from([group]),
                    None => self.groups_at(id, version).iter().map(|own| own.id).collect(),
                };
                if groups.is_empty() {
                    return Ok(());
                }
                let names_one = |rule: &Rule| !rule.instructions.groups().is_disjoint(&groups);
                let rules = self.rules_with(batch, id, names_one);
                let ended = groups.into_iter().map(|group| EndedObject::Group(id, group));
                batch.queue_object_removals(rules, RemovedReason::GroupDelete, ended);
            }
            RuleSelection::DeleteMeters(meter) => {
                let meters: BTreeSet<_> = match meter {
                    Some(meter) => BTreeSet::from([meter]),
                    None => self.meters_at(id, version).iter().map(|own| own.id).collect(),
                };
                if meters.is_empty() {
                    return Ok(());
                }
                let passes_one = |rule: &Rule| !rule.instructions.meters().is_disjoint(&meters);
                let rules = self.rules_with(batch, id, passes_one);
                let ended = meters.into_iter().map(|meter| EndedObject::Meter(id, meter));
                batch.queue_object_removals(rules, RemovedReason::MeterDelete, ended);
            }
        }
        Ok(())
    }

    /// Orders the rules of a table for their eviction, unless they are in order.
    fn order_for_eviction(&self, batch: &UpdateBatch, id: BridgeId, tables: TableSelector) {
        let TableSelector::One(table) = tables else { return };
        if self.hold(id, |bridge| bridge.evictable(table).is_some()) == Some(true) {
            return;
        }
        let filter = RuleFilter { table: tables, ..RuleFilter::all() };
        let evictable = Evictable::of(self.rules_at(id, &filter, batch.version()).iter());
        self.hold(id, |bridge| bridge.set_evictable(table, evictable));
    }

    /// Returns the rules for which `is` is true, by table and then by age.
    fn rules_with(
        &self,
        batch: &UpdateBatch,
        id: BridgeId,
        is: impl Fn(&Rule) -> bool,
    ) -> Vec<Arc<Rule>> {
        let mut rules = Vec::new();
        self.scan(id, &RuleFilter::all(), batch.version(), |rule| {
            if is(rule) {
                rules.push(Arc::clone(rule));
            }
        });
        in_order(rules)
    }
}
