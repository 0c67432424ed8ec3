//! Changes the rules that a request selects, a bounded number at a time.
//!
//! A request may remove or change any number of rules. So it only notes how to select these rules
//! ([`RuleSelection`]). The pipeline selects them under the shared lock of the tables
//! ([`UpdateBatch::select`]), and changes some of them under each exclusive lock
//! ([`UpdateBatch::change_some`]). The next request of the batch begins when no change is left.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    batch::{Revision, UpdateBatch, check_goto, to_addition},
    check::check_instructions,
};
use crate::{
    bridges::bridge::VersionedBridge,
    id::{BridgeId, Cookie, GroupId, MeterId},
    tables::{
        flow_mod::{FlowMod, FlowModError, TableSelector},
        rule::{Instructions, Rule},
        rule_filter::RuleFilter,
    },
    versions::delta::{Delta, Object, RemovedReason},
};

/// The pending changes of the last request of a batch.
#[derive(Default)]
pub(super) struct PendingRuleChanges {
    selection: Option<RuleSelection>,
    /// The rule to add because a modify command of OpenFlow 1.0 selects none.
    addition: Option<Box<FlowMod>>,
    /// The changes in the order in which the batch makes them.
    changes: VecDeque<PendingChange>,
}

/// The selection of the rules that a request changes, with the kind of change.
pub(crate) enum RuleSelection {
    /// Remove the rules that a filter selects.
    Delete(RuleFilter),
    /// Replace the instructions of rules.
    Modify {
        /// The modify command, which is not strict.
        request: Box<FlowMod>,
        /// The new instructions, shared with equal instructions of other rules.
        instructions: Arc<Instructions>,
    },
    /// Remove the rules that refer to any of these groups, and then the groups.
    DeleteGroups(BridgeId, BTreeSet<GroupId>),
    /// Remove the rules that refer to any of these meters, and then the meters.
    DeleteMeters(BridgeId, BTreeSet<MeterId>),
}

/// A pending new revision of a rule.
struct RevisionRequest {
    old: Arc<Rule>,
    instructions: Arc<Instructions>,
    /// The new cookie; `None` keeps the cookie of the rule.
    cookie: Option<Cookie>,
    resets_counts: bool,
}

/// A pending change of a rule, group or meter.
enum PendingChange {
    Remove(Arc<Rule>, RemovedReason),
    Revise(RevisionRequest),
    EndGroup(BridgeId, GroupId),
    EndMeter(BridgeId, MeterId),
}

impl UpdateBatch {
    /// Notes the selection of the rules that a request changes.
    pub(crate) fn note(&mut self, selection: RuleSelection) {
        self.pending.selection = Some(selection);
    }

    /// Queues the removal of rules.
    pub(crate) fn queue_removals(&mut self, rules: Vec<(Arc<Rule>, RemovedReason)>) {
        let removals = rules.into_iter().map(|(rule, reason)| PendingChange::Remove(rule, reason));
        self.pending.changes.extend(removals);
    }

    /// Returns whether [`Self::select`] must come before the next change.
    pub(crate) const fn must_select(&self) -> bool {
        self.pending.selection.is_some()
    }

    /// Selects the rules of the last request, and queues their changes.
    /// An error leaves all rules unchanged.
    pub(crate) fn select(&mut self, bridge: &VersionedBridge) -> Result<(), FlowModError> {
        let Some(selection) = self.pending.selection.take() else { return Ok(()) };
        match selection {
            RuleSelection::Delete(filter) => {
                self.queue_all(bridge.rules(&filter, self.version), RemovedReason::Delete);
            }
            RuleSelection::Modify { request, instructions } => {
                let chosen = bridge.rules(&RuleFilter::to_modify(&request), self.version);
                if chosen.is_empty() && request.flags.modify_or_add {
                    self.pending.addition = Some(Box::new(to_addition(&request)));
                } else {
                    self.queue_revisions(bridge, &request, &instructions, chosen)?;
                }
            }
            RuleSelection::DeleteGroups(_, groups) if groups.is_empty() => {}
            RuleSelection::DeleteMeters(_, meters) if meters.is_empty() => {}
            RuleSelection::DeleteGroups(id, groups) => {
                let names_one = |rule: &Rule| !rule.instructions.groups().is_disjoint(&groups);
                let rules = bridge.rules_with(self.version, names_one);
                self.queue_all(rules, RemovedReason::GroupDelete);
                let ends = groups.into_iter().map(|group| PendingChange::EndGroup(id, group));
                self.pending.changes.extend(ends);
            }
            RuleSelection::DeleteMeters(id, meters) => {
                let passes_one = |rule: &Rule| !rule.instructions.meters().is_disjoint(&meters);
                let rules = bridge.rules_with(self.version, passes_one);
                self.queue_all(rules, RemovedReason::MeterDelete);
                let ends = meters.into_iter().map(|meter| PendingChange::EndMeter(id, meter));
                self.pending.changes.extend(ends);
            }
        }
        Ok(())
    }

    /// Adds the rule of a modify command of OpenFlow 1.0 that selects none.
    /// An error leaves all rules unchanged.
    pub(crate) fn add_missing(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
    ) -> Result<(), FlowModError> {
        match self.pending.addition.take() {
            Some(request) => self.add(id, bridge, &request),
            None => Ok(()),
        }
    }

    /// Checks and queues new instructions of rules.
    /// An error leaves all rules unchanged.
    pub(super) fn queue_revisions(
        &mut self,
        bridge: &VersionedBridge,
        request: &FlowMod,
        instructions: &Arc<Instructions>,
        chosen: Vec<Arc<Rule>>,
    ) -> Result<(), FlowModError> {
        chosen.iter().try_for_each(|rule| check_goto(request, rule.table))?;
        check_instructions(bridge, &request.instructions, self.version)?;
        let resets_counts = request.flags.reset_counts;
        let cookie = request.flags.modify_or_add.then_some(request.cookie);
        let revision = |old| {
            let instructions = Arc::clone(instructions);
            PendingChange::Revise(RevisionRequest { old, instructions, cookie, resets_counts })
        };
        self.pending.changes.extend(chosen.into_iter().map(revision));
        Ok(())
    }

    /// Makes at most `left` pending changes, and reduces `left` by their number.
    ///
    /// Returns whether no change is left. If a removed rule has `delete_learned`, the removals of
    /// its learned rules are pending changes too.
    pub(crate) fn change_some(&mut self, bridge: &mut VersionedBridge, left: &mut usize) -> bool {
        loop {
            if self.pending.changes.is_empty() && !self.queue_orphans(bridge) {
                return true;
            }
            if *left == 0 {
                return false;
            }
            if let Some(change) = self.pending.changes.pop_front() {
                *left -= 1;
                self.change_one(bridge, change);
            }
        }
    }

    /// Makes all pending changes.
    pub(crate) fn change_rest(&mut self, bridge: &mut VersionedBridge) {
        let mut left = usize::MAX;
        while !self.change_some(bridge, &mut left) {}
    }

    fn change_one(&mut self, bridge: &mut VersionedBridge, change: PendingChange) {
        match change {
            PendingChange::Remove(rule, reason) => self.remove(bridge, rule, reason),
            PendingChange::Revise(revision) => {
                let RevisionRequest { old, instructions, cookie, resets_counts } = revision;
                let stats = if resets_counts {
                    Arc::new(old.stats.renewed())
                } else {
                    Arc::clone(&old.stats)
                };
                let (cookie, instructions) = (cookie.unwrap_or(old.cookie), &instructions);
                self.revise(bridge, old, Revision { cookie, instructions, stats });
            }
            PendingChange::EndGroup(id, group) => {
                bridge.groups.end(group, self.version);
                self.push(Delta::Changed(Object::Group(id, group)));
            }
            PendingChange::EndMeter(id, meter) => {
                bridge.meters.end(meter, self.version);
                self.push(Delta::Changed(Object::Meter(id, meter)));
            }
        }
    }

    /// Queues the removal of rules learned by removed rules with `delete_learned`.
    ///
    /// Returns whether any such rule was removed. Learned rules may have learned further rules.
    /// Each rule is removed once, so the recursion ends.
    fn queue_orphans(&mut self, bridge: &mut VersionedBridge) -> bool {
        let orphans = bridge.take_orphans();
        for (table, cookie) in &orphans {
            let table = TableSelector::One(*table);
            let filter =
                RuleFilter { table, cookie: *cookie, cookie_mask: u64::MAX, ..RuleFilter::all() };
            self.queue_all(bridge.rules(&filter, self.version), RemovedReason::Delete);
        }
        !orphans.is_empty()
    }

    fn queue_all(&mut self, rules: Vec<Arc<Rule>>, reason: RemovedReason) {
        let removals = rules.into_iter().map(|rule| PendingChange::Remove(rule, reason));
        self.pending.changes.extend(removals);
    }
}
