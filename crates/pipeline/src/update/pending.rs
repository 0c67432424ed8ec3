//! Changes the rules that a request selects, a bounded number at a time.
//!
//! A request may remove or change any number of rules. So it only notes how to select these rules
//! ([`RuleSelection`]). The pipeline selects them in steps under the shared lock of the tables, and
//! changes some of them under each exclusive lock ([`UpdateBatch::change_some`]). The next request
//! of the batch begins when no change is left.

use std::{collections::VecDeque, sync::Arc};

use super::batch::{Revision, UpdateBatch, check_goto, to_addition};
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
    /// The selected rules that were not changed yet.
    selections: VecDeque<RuleSelection>,
    /// The rule to add, once its selection of rules is done.
    ///
    /// The selection comes from [`RuleSelection::EvictFor`], or from a modify command of OpenFlow
    /// 1.0 that selects no rule.
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
    /// Order the rules of a full table for their eviction, and then add a rule.
    EvictFor(Box<FlowMod>),
    /// Remove the rules that refer to a group, or to any group, and then these groups.
    DeleteGroups(Option<GroupId>),
    /// Remove the rules that refer to a meter, or to any meter, and then these meters.
    DeleteMeters(Option<MeterId>),
}

/// A pending new revision of a rule.
struct RevisionRequest {
    /// The rule to replace.
    old: Arc<Rule>,
    /// The instructions of the new revision.
    instructions: Arc<Instructions>,
    /// The new cookie; `None` keeps the cookie of the rule.
    cookie: Option<Cookie>,
    /// True if the counters start at zero.
    resets_counts: bool,
}

/// A group or meter that a request removes.
pub(crate) enum EndedObject {
    Group(BridgeId, GroupId),
    Meter(BridgeId, MeterId),
}

/// A pending change of a rule, group or meter.
enum PendingChange {
    Remove(Arc<Rule>, RemovedReason),
    Revise(RevisionRequest),
    End(EndedObject),
}

impl UpdateBatch {
    /// Notes the selection of the rules that a request changes.
    pub(crate) fn note(&mut self, selection: RuleSelection) {
        self.pending.selections.push_back(selection);
    }

    /// Queues the removal of rules.
    pub(crate) fn queue_removals(&mut self, rules: Vec<(Arc<Rule>, RemovedReason)>) {
        let removals = rules.into_iter().map(|(rule, reason)| PendingChange::Remove(rule, reason));
        self.pending.changes.extend(removals);
    }

    /// Returns whether rules must be selected before the next change.
    pub(crate) fn must_select(&self) -> bool {
        !self.pending.selections.is_empty()
    }

    /// Takes the next selection of rules.
    pub(crate) fn take_selection(&mut self) -> Option<RuleSelection> {
        self.pending.selections.pop_front()
    }

    /// Queues the new instructions of the rules that a modify command has selected.
    ///
    /// `check` is the result of the check of the instructions. An error leaves all rules unchanged.
    pub(crate) fn queue_modification(
        &mut self,
        request: &FlowMod,
        instructions: &Arc<Instructions>,
        chosen: Vec<Arc<Rule>>,
        check: Result<(), FlowModError>,
    ) -> Result<(), FlowModError> {
        if chosen.is_empty() && request.flags.modify_or_add {
            self.pending.addition = Some(Box::new(to_addition(request)));
            return Ok(());
        }
        self.queue_revisions(request, instructions, chosen, check)
    }

    /// Queues the removal of groups or meters, after the rules that refer to them.
    ///
    /// Controllers get `reason` for these rules.
    pub(crate) fn queue_object_removals(
        &mut self,
        rules: Vec<Arc<Rule>>,
        reason: RemovedReason,
        objects: impl Iterator<Item = EndedObject>,
    ) {
        self.queue_all(rules, reason);
        self.pending.changes.extend(objects.map(PendingChange::End));
    }

    /// Queues the addition of a rule, for which rules are evicted.
    pub(crate) fn queue_addition(&mut self, request: Box<FlowMod>) {
        self.pending.addition = Some(request);
    }

    /// Adds the rule that waits for its selection, if there is one.
    ///
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

    /// Queues new instructions of rules.
    ///
    /// `check` is the result of the check of the instructions. An error leaves all rules unchanged.
    pub(super) fn queue_revisions(
        &mut self,
        request: &FlowMod,
        instructions: &Arc<Instructions>,
        chosen: Vec<Arc<Rule>>,
        check: Result<(), FlowModError>,
    ) -> Result<(), FlowModError> {
        chosen.iter().try_for_each(|rule| check_goto(request, rule.table))?;
        check?;
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
    /// Returns whether no change is left. If a removed rule has `delete_learned`, its learned rules
    /// must be selected, and their removals are pending changes too.
    pub(crate) fn change_some(&mut self, bridge: &mut VersionedBridge, left: &mut usize) -> bool {
        loop {
            if self.pending.changes.is_empty() {
                self.note_orphans(bridge);
                return !self.must_select();
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

    /// Applies one change that is pending.
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
            PendingChange::End(EndedObject::Group(id, group)) => {
                bridge.groups.end(group, self.version);
                self.push(Delta::Changed(Object::Group(id, group)));
            }
            PendingChange::End(EndedObject::Meter(id, meter)) => {
                bridge.meters.end(meter, self.version);
                self.push(Delta::Changed(Object::Meter(id, meter)));
            }
        }
    }

    /// Notes the removal of rules learned by removed rules with `delete_learned`.
    ///
    /// Learned rules may have learned further rules. Each rule is removed once, so the recursion
    /// ends.
    pub(crate) fn note_orphans(&mut self, bridge: &mut VersionedBridge) {
        for (table, cookie) in bridge.take_orphans() {
            let table = TableSelector::One(table);
            let filter = RuleFilter { table, cookie, cookie_mask: u64::MAX, ..RuleFilter::all() };
            self.note(RuleSelection::Delete(filter));
        }
    }

    /// Drops the pending changes and selections.
    pub(crate) fn drop_pending(&mut self) {
        self.pending = PendingRuleChanges::default();
    }

    /// Queues the removal of rules for one reason.
    pub(crate) fn queue_all(&mut self, rules: Vec<Arc<Rule>>, reason: RemovedReason) {
        let removals = rules.into_iter().map(|rule| PendingChange::Remove(rule, reason));
        self.pending.changes.extend(removals);
    }
}
