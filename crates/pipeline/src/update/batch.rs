//! Update batches: requests of controllers that become one version (OpenFlow 1.3.5, 6.4).
//!
//! An [`UpdateBatch`] applies the requests of one version: flow-mods, group-mods and meter-mods.
//! Each request takes effect in the tables at once, in a version that is not published yet. So
//! later requests of the batch see the effect of earlier ones. If a request is refused, the batch
//! undoes its changes, newest first. The module [`pending`](super::pending) makes the changes of a
//! request that may select many rules.
//!
//! Where the standard leaves a choice, Shunt does as Open vSwitch does:
//!
//! * `check_overlap` ignores the rule that the new rule replaces;
//! * a modify command changes no cookie, except in OpenFlow 1.0;
//! * the hard timeout of a modified rule restarts;
//! * only rules with a timeout are evicted from a full table.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::Match;

use super::{
    check::check_instructions,
    modification::{Modification, ModificationError},
    pending::{PendingRuleChanges, RuleSelection},
};
use crate::{
    bridges::{bridge::VersionedBridge, settings::OverflowPolicy},
    groups::group::GroupCheck,
    id::{BridgeId, Cookie, RuleId, TableId},
    tables::{
        evictable::Evictable,
        flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector},
        rule::{FlowFlags, Instructions, Rule, RuleStats, SharedTimers},
        rule_filter::RuleFilter,
        table::RuleTable,
    },
    time::Time,
    versions::delta::{Delta, Object, RemovedReason, RuleChange, RuleDelta},
};

/// Changes of rules, groups and meters that become one version.
pub(crate) struct UpdateBatch {
    /// The version that the batch makes.
    pub(crate) version: Version,
    /// The time of the changes.
    pub(crate) now: Time,
    /// The check of groups that insertions of buckets make; `None` accepts all.
    pub(crate) group_check: Option<GroupCheck>,
    /// The id of the next new rule.
    next_rule: RuleId,
    /// The changes so far, for the eviction engine.
    deltas: Vec<Delta>,
    /// The rules that the last request has not changed yet.
    pub(super) pending: PendingRuleChanges,
    /// True if the last request has compared its match with many rules.
    has_scanned: bool,
    /// Number of visited learned entries since the last [`Self::take_visits`].
    visits: usize,
}

impl UpdateBatch {
    /// Creates a batch that becomes `version`; its first new rule is `next_rule`.
    pub(crate) fn new(version: Version, now: Time, next_rule: RuleId) -> Self {
        let pending = PendingRuleChanges::default();
        Self {
            version,
            now,
            group_check: None,
            next_rule,
            deltas: Vec::new(),
            pending,
            has_scanned: false,
            visits: 0,
        }
    }

    /// Applies the part of a request that needs no scan of the tables.
    ///
    /// A request that fails changes nothing. The selection of rules ([`Self::take_selection`]),
    /// [`Self::add_missing`] and [`Self::change_some`] do the rest.
    pub(crate) fn modify(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        request: Modification,
    ) -> Result<(), ModificationError> {
        match request {
            Modification::Flow(request) => self.apply(id, bridge, &request)?,
            Modification::Group(request) => self.change_group(id, bridge, request)?,
            Modification::Meter(request) => self.change_meter(id, bridge, request)?,
        }
        Ok(())
    }

    /// Applies the part of a flow-mod that needs no scan of the tables.
    pub(crate) fn apply(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        match request.command {
            FlowModCommand::Add => self.add(id, bridge, request),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.modify_rules(id, bridge, request)
            }
            FlowModCommand::Delete => {
                self.note(RuleSelection::Delete(RuleFilter::to_delete(request)));
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

    /// Removes one rule of a table.
    pub(crate) fn remove(
        &mut self,
        bridge: &mut VersionedBridge,
        rule: Arc<Rule>,
        reason: RemovedReason,
    ) {
        bridge.remove(&rule, self.version);
        self.push_rule(bridge, rule, RuleChange::Removed(reason));
    }

    /// Returns the version of the batch.
    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    /// Returns the time of the batch.
    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    /// Returns whether a request has scanned rules since the last call.
    ///
    /// The lock of the tables is then released before the next request.
    pub(crate) const fn take_scanned(&mut self) -> bool {
        std::mem::replace(&mut self.has_scanned, false)
    }

    /// Counts learned entries that a search for evictions of a full table visited.
    pub(crate) const fn add_visits(&mut self, visits: usize) {
        self.visits += visits;
    }

    /// Returns the number of learned entries that were visited since the last call.
    ///
    /// The lock of the tables is released after some visits.
    pub(crate) const fn take_visits(&mut self) -> usize {
        std::mem::replace(&mut self.visits, 0)
    }

    /// Adds a delta to the batch.
    pub(crate) fn push(&mut self, delta: Delta) {
        self.deltas.push(delta);
    }

    /// Undoes at most `changes_max` of the newest changes.
    ///
    /// Returns whether no change is left. Rules, groups, meters, ports and liveness of `bridge` are
    /// then as before the batch.
    pub(crate) fn undo_some(&mut self, bridge: &mut VersionedBridge, changes_max: usize) -> bool {
        for _ in 0..changes_max {
            match self.deltas.pop() {
                Some(delta) => self.undo(bridge, delta),
                None => {
                    bridge.liveness.undo(self.version);
                    drop(bridge.take_orphans());
                    return true;
                }
            }
        }
        false
    }

    /// Undoes a delta of the batch.
    fn undo(&self, bridge: &mut VersionedBridge, delta: Delta) {
        match delta {
            Delta::Rule(delta) => undo_rule(bridge, delta, self.version),
            Delta::Changed(Object::Group(_, group)) => bridge.groups.undo(group, self.version),
            Delta::Changed(Object::Meter(_, meter)) => bridge.meters.undo(meter, self.version),
            Delta::Changed(Object::Ports(_)) => bridge.undo_ports(self.version),
            // `undo_some` restores `Live` as a whole at its end, and no request changes the other
            // objects.
            Delta::Changed(
                Object::Live(_)
                | Object::Bridge(_)
                | Object::Port(..)
                | Object::PortFilters(_)
                | Object::Mac(..)
                | Object::MulticastGroup(..)
                | Object::MulticastRouters(..)
                | Object::Learned(..),
            ) => {}
        }
    }

    /// Returns the deltas, and the number of the next new rule.
    ///
    /// No number is used twice.
    pub(crate) fn finish(self) -> (Vec<Delta>, RuleId) {
        (self.deltas, self.next_rule)
    }

    /// Adds the rule of a flow-mod, in place of an equal one.
    pub(crate) fn add(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        let TableSelector::One(table) = request.table else { return Err(FlowModError::TableAll) };
        check_goto(request, table)?;
        check_instructions(bridge, &request.instructions, self.version)?;
        let existing = bridge.table(table);
        let old = existing
            .and_then(|existing| {
                existing.find_exact(&request.matching, request.priority, self.version)
            })
            .cloned();
        if old.is_none() {
            let overlaps = |existing: &RuleTable| {
                existing.overlaps(&request.matching, request.priority, self.version)
            };
            if request.flags.check_overlap {
                self.has_scanned = true;
                if existing.is_some_and(overlaps) {
                    return Err(FlowModError::Overlap(request.priority));
                }
            }
            if !self.make_room(bridge, table)? {
                self.note(RuleSelection::EvictFor(Box::new(request.clone())));
                return Ok(());
            }
        }
        let kept = old.as_ref().filter(|_| !request.flags.reset_counts);
        let stats = kept.map_or_else(Arc::default, |old| Arc::clone(&old.stats));
        if let Some(old) = old {
            self.remove(bridge, old, RemovedReason::Replaced);
        }
        let matching = bridge.interner.matching(&request.matching);
        let instructions = bridge.interner.instructions(&request.instructions);
        let parts = NewRuleParts { matching, instructions, stats };
        let rule = Arc::new(self.new_rule(id, table, request, parts));
        bridge.insert(Arc::clone(&rule), self.version);
        self.push_rule(bridge, rule, RuleChange::Added);
        Ok(())
    }

    /// Makes room for one more rule in a table.
    ///
    /// If the table is full and the bridge evicts rules, evicts rules of the table.
    ///
    /// Returns false if more rules must be evicted, or if the rules are not in the order of
    /// eviction yet. The pipeline then orders them, and the request is repeated.
    fn make_room(
        &mut self,
        bridge: &mut VersionedBridge,
        table: TableId,
    ) -> Result<bool, FlowModError> {
        let Some(settings) = bridge.settings(self.version) else { return Ok(true) };
        let (rules_max, overflow) = (settings.rules_max(table), settings.overflow(table));
        let rules_count = bridge.table(table).map_or(0, RuleTable::rules_count);
        let surplus = (rules_count + 1).saturating_sub(rules_max);
        if surplus == 0 {
            return Ok(true);
        }
        if overflow != OverflowPolicy::Evict || rules_max == 0 {
            return Err(FlowModError::TableFull(rules_max));
        }
        let Some(evictable) = bridge.evictable(table) else { return Ok(false) };
        if evictable.len() < surplus {
            return Err(FlowModError::TableFull(rules_max));
        }
        for _ in 0..surplus.min(EVICTIONS_PER_STEP) {
            if let Some(rule) = bridge.evictable(table).and_then(Evictable::first) {
                self.remove(bridge, rule, RemovedReason::Eviction);
            }
        }
        Ok(surplus <= EVICTIONS_PER_STEP)
    }

    /// Returns the rule that a request adds.
    fn new_rule(
        &mut self,
        bridge: BridgeId,
        table: TableId,
        request: &FlowMod,
        parts: NewRuleParts,
    ) -> Rule {
        let NewRuleParts { matching, instructions, stats } = parts;
        let id = self.next_rule;
        self.next_rule = RuleId::new(id.number() + 1);
        Rule {
            id,
            revision: 0,
            bridge,
            table,
            matching,
            priority: request.priority,
            cookie: request.cookie,
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            importance: request.importance,
            flags: request.flags,
            instructions,
            modified: self.now,
            created: self.now,
            stats,
            timers: SharedTimers::default(),
        }
    }

    /// Modifies the selected rules; some requests then add a missing rule.
    fn modify_rules(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        if let TableSelector::One(table) = request.table {
            check_goto(request, table)?;
        }
        let instructions = bridge.interner.instructions(&request.instructions);
        if request.command == FlowModCommand::ModifyStrict {
            let filter = RuleFilter::to_modify(request);
            let chosen = find_strict(bridge, request, &filter, self.version);
            if chosen.is_empty() && request.flags.modify_or_add {
                return self.add(id, bridge, &to_addition(request));
            }
            let check = check_instructions(bridge, &request.instructions, self.version);
            return self.queue_revisions(request, &instructions, chosen, check);
        }
        self.note(RuleSelection::Modify { request: Box::new(request.clone()), instructions });
        Ok(())
    }

    /// Replaces a rule by a new revision.
    pub(crate) fn revise(
        &mut self,
        bridge: &mut VersionedBridge,
        old: Arc<Rule>,
        revision: Revision<'_>,
    ) {
        let Revision { cookie, instructions, stats } = revision;
        let rule = Arc::new(Rule {
            id: old.id,
            revision: old.revision.wrapping_add(1),
            bridge: old.bridge,
            table: old.table,
            matching: old.matching.clone(),
            priority: old.priority,
            cookie,
            idle_timeout: old.idle_timeout,
            hard_timeout: old.hard_timeout,
            importance: old.importance,
            flags: old.flags,
            instructions: Arc::clone(instructions),
            modified: self.now,
            created: old.created,
            stats,
            timers: old.timers.share(),
        });
        bridge.remove(&old, self.version);
        bridge.insert(Arc::clone(&rule), self.version);
        self.push_rule(bridge, rule, RuleChange::Modified(old));
    }

    /// Adds a delta of `Object::Live` if the live bits have grown.
    pub(crate) fn push_live(&mut self, id: BridgeId, bridge: &mut VersionedBridge) {
        if bridge.liveness.take_unpublished_growth() {
            self.push(Delta::Changed(Object::Live(id)));
        }
    }

    /// Adds a rule to the bridge, and records the change.
    fn push_rule(&mut self, bridge: &mut VersionedBridge, rule: Arc<Rule>, change: RuleChange) {
        self.push_live(rule.bridge, bridge);
        let objects = bridge.learn_index().objects(&rule);
        if let RuleChange::Modified(old) = &change {
            let others = bridge.learn_index().objects(old);
            let others = others.into_iter().filter(|other| !objects.contains(other));
            self.deltas.extend(others.map(Delta::Changed));
        }
        self.deltas.extend(objects.into_iter().map(Delta::Changed));
        self.push(Delta::Rule(RuleDelta { rule, change }));
    }
}

/// Maximum number of rules that are evicted for a rule under one lock.
///
/// More than one is evicted only after the limit of the table was lowered.
const EVICTIONS_PER_STEP: usize = 64;

/// The fields of a new rule that other rules may share.
struct NewRuleParts {
    /// The match, shared with equal matches.
    matching: Match,
    /// The instructions, shared with equal instructions.
    instructions: Arc<Instructions>,
    /// The counters, which a new revision may inherit.
    stats: Arc<RuleStats>,
}

/// The fields of a new revision that differ from the previous revision.
pub(crate) struct Revision<'a> {
    pub(crate) cookie: Cookie,
    pub(crate) instructions: &'a Arc<Instructions>,
    pub(crate) stats: Arc<RuleStats>,
}

/// Undoes the change of a rule in `version`.
fn undo_rule(bridge: &mut VersionedBridge, delta: RuleDelta, version: Version) {
    let RuleDelta { rule, change } = delta;
    match change {
        RuleChange::Added => bridge.remove(&rule, version),
        RuleChange::Removed(_) => bridge.insert(rule, version),
        RuleChange::Modified(old) => {
            bridge.remove(&rule, version);
            bridge.insert(old, version);
        }
    }
}

/// Returns the add command for a modify command of OpenFlow 1.0.
///
/// A modify command of OpenFlow 1.0 that selects no rule adds one; for all tables, to table 0.
pub(super) fn to_addition(request: &FlowMod) -> FlowMod {
    let table = match request.table {
        TableSelector::One(table) => table,
        TableSelector::All => TableId::FIRST,
    };
    FlowMod {
        command: FlowModCommand::Add,
        table: TableSelector::One(table),
        flags: FlowFlags { modify_or_add: false, ..request.flags },
        ..request.clone()
    }
}

/// Checks that `goto_table` of a request leads to a table above `table`.
pub(super) fn check_goto(request: &FlowMod, table: TableId) -> Result<(), FlowModError> {
    match request.instructions.goto {
        Some(target) if target <= table => Err(FlowModError::GotoNotUp { table, target }),
        _ => Ok(()),
    }
}

/// Returns the rules with exactly the match and priority of a request, at most one
/// in each table.
fn find_strict(
    bridge: &VersionedBridge,
    request: &FlowMod,
    filter: &RuleFilter,
    version: Version,
) -> Vec<Arc<Rule>> {
    bridge
        .tables()
        .filter_map(|(_, table)| table.find_exact(&request.matching, request.priority, version))
        .filter(|rule| filter.admits(rule))
        .cloned()
        .collect()
}
