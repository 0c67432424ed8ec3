//! Flow-mods: how requests of controllers change the rules of a bridge (OpenFlow 1.3.5, 6.4).
//!
//! A [`Batch`] collects the requests of one version. Each takes effect in the tables at once, in a
//! version that nobody sees yet, so that later requests of the batch see what earlier ones did.
//! When one is refused, the batch undoes what it did, newest first: nothing was visible.
//!
//! Where the standard leaves room, Shunt does as Open vSwitch does:
//! * `check_overlap` does not look at the rule that the new one replaces;
//! * a request to modify changes no cookie;
//! * a modified rule's hard timeout begins anew.

use std::sync::Arc;

use shunt_classifier::Version;

use crate::{
    BridgeId, Delta, FlowMod, FlowModCommand, FlowModError, RemovedReason, Rule, RuleChange,
    RuleDelta, RuleFilter, RuleId, RuleStats, TableId, TableSelector, Time, bridge::Bridge,
    table::Table,
};

/// Changes to rules that become one version.
pub(crate) struct Batch {
    version: Version,
    now: Time,
    next_rule: RuleId,
    deltas: Vec<Delta>,
    resets: Vec<Arc<RuleStats>>,
}

impl Batch {
    /// A batch whose changes `version` is the first to see; its first new rule is `next_rule`.
    pub(crate) const fn new(version: Version, now: Time, next_rule: RuleId) -> Self {
        Self { version, now, next_rule, deltas: Vec::new(), resets: Vec::new() }
    }

    /// Does what one request asks for. When it fails, it has done nothing.
    pub(crate) fn apply(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        match request.command {
            FlowModCommand::Add => self.add(id, bridge, request),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => self.modify(bridge, request),
            FlowModCommand::Delete => {
                let filter = RuleFilter::to_delete(request);
                self.remove_all(bridge, &filter, RemovedReason::Delete);
                Ok(())
            }
            FlowModCommand::DeleteStrict => {
                let filter = RuleFilter::to_delete(request);
                for rule in find_strict(bridge, request, &filter, self.version) {
                    self.remove(bridge, rule, RemovedReason::Delete);
                }
                Ok(())
            }
        }
    }

    /// Removes every rule that the filter lets through.
    pub(crate) fn remove_all(
        &mut self,
        bridge: &mut Bridge,
        filter: &RuleFilter,
        reason: RemovedReason,
    ) {
        for rule in bridge.rules(filter, self.version) {
            self.remove(bridge, rule, reason);
        }
    }

    /// Removes one rule.
    pub(crate) fn remove(&mut self, bridge: &mut Bridge, rule: Arc<Rule>, reason: RemovedReason) {
        bridge.remove(&rule, self.version);
        self.push(rule, RuleChange::Removed(reason));
    }

    /// Undoes everything: the tables of `bridge` are, for all versions, as they were.
    ///
    /// Answers with the number of the next new rule: no number is given twice.
    pub(crate) fn roll_back(self, bridge: &mut Bridge) -> RuleId {
        for delta in self.deltas.into_iter().rev() {
            let Delta::Rule(RuleDelta { rule, change }) = delta else { continue };
            match change {
                RuleChange::Added => bridge.remove(&rule, self.version),
                RuleChange::Removed(_) => bridge.insert(rule, self.version),
                RuleChange::Modified(old) => {
                    bridge.remove(&rule, self.version);
                    bridge.insert(old, self.version);
                }
            }
        }
        self.next_rule
    }

    /// The batch succeeded: answers with what changed, and with the number of the next new rule.
    pub(crate) fn finish(self) -> (Vec<Delta>, RuleId) {
        self.resets.iter().for_each(|stats| stats.reset());
        (self.deltas, self.next_rule)
    }

    fn add(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        let TableSelector::One(table) = request.table else { return Err(FlowModError::TableAll) };
        check_goto(request, table)?;
        let held = bridge.table(table);
        let old = held
            .and_then(|held| held.find_exact(&request.matching, request.priority, self.version))
            .cloned();
        if old.is_none() {
            let overlaps =
                |held: &Table| held.overlaps(&request.matching, request.priority, self.version);
            if request.flags.check_overlap && held.is_some_and(overlaps) {
                return Err(FlowModError::Overlap(request.priority));
            }
            let rules_count = held.map_or(0, Table::rules_count);
            let rules_max =
                bridge.settings(self.version).map_or(usize::MAX, |own| own.rules_max(table));
            if rules_count >= rules_max {
                return Err(FlowModError::TableFull(rules_max));
            }
        }
        let kept = old.as_ref().filter(|_| !request.flags.reset_counts);
        let stats = kept.map_or_else(Arc::default, |old| Arc::clone(&old.stats));
        if let Some(old) = old {
            self.remove(bridge, old, RemovedReason::Replaced);
        }
        let rule = Arc::new(self.new_rule(id, table, request, stats));
        bridge.insert(Arc::clone(&rule), self.version);
        self.push(rule, RuleChange::Added);
        Ok(())
    }

    fn new_rule(
        &mut self,
        bridge: BridgeId,
        table: TableId,
        request: &FlowMod,
        stats: Arc<RuleStats>,
    ) -> Rule {
        let id = self.next_rule;
        self.next_rule = RuleId::new(id.number() + 1);
        Rule {
            id,
            revision: 0,
            bridge,
            table,
            matching: request.matching.clone(),
            priority: request.priority,
            cookie: request.cookie,
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            importance: request.importance,
            flags: request.flags,
            instructions: Arc::new(request.instructions.clone()),
            modified: self.now,
            created: self.now,
            stats,
        }
    }

    fn modify(&mut self, bridge: &mut Bridge, request: &FlowMod) -> Result<(), FlowModError> {
        if let TableSelector::One(table) = request.table {
            check_goto(request, table)?;
        }
        let filter = RuleFilter::to_modify(request);
        let chosen = if request.command == FlowModCommand::ModifyStrict {
            find_strict(bridge, request, &filter, self.version)
        } else {
            bridge.rules(&filter, self.version)
        };
        chosen.iter().try_for_each(|rule| check_goto(request, rule.table))?;
        let instructions = Arc::new(request.instructions.clone());
        for old in chosen {
            let rule = Arc::new(Rule {
                id: old.id,
                revision: old.revision.wrapping_add(1),
                bridge: old.bridge,
                table: old.table,
                matching: old.matching.clone(),
                priority: old.priority,
                cookie: old.cookie,
                idle_timeout: old.idle_timeout,
                hard_timeout: old.hard_timeout,
                importance: old.importance,
                flags: old.flags,
                instructions: Arc::clone(&instructions),
                modified: self.now,
                created: old.created,
                stats: Arc::clone(&old.stats),
            });
            if request.flags.reset_counts {
                self.resets.push(Arc::clone(&rule.stats));
            }
            bridge.remove(&old, self.version);
            bridge.insert(Arc::clone(&rule), self.version);
            self.push(rule, RuleChange::Modified(old));
        }
        Ok(())
    }

    fn push(&mut self, rule: Arc<Rule>, change: RuleChange) {
        self.deltas.push(Delta::Rule(RuleDelta { rule, change }));
    }
}

/// Makes sure that the instructions of a request lead up from `table`.
fn check_goto(request: &FlowMod, table: TableId) -> Result<(), FlowModError> {
    match request.instructions.goto {
        Some(target) if target <= table => Err(FlowModError::GotoNotUp { table, target }),
        _ => Ok(()),
    }
}

/// The rules with exactly the match and priority of a request; one at most in each table.
fn find_strict(
    bridge: &Bridge,
    request: &FlowMod,
    filter: &RuleFilter,
    version: Version,
) -> Vec<Arc<Rule>> {
    bridge
        .tables()
        .filter_map(|(_, table)| table.find_exact(&request.matching, request.priority, version))
        .filter(|rule| filter.admits_strictly(rule))
        .cloned()
        .collect()
}
