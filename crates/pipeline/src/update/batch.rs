//! Flow-mods: how requests of controllers change the rules of a bridge (OpenFlow 1.3.5, 6.4).
//!
//! A [`Batch`] collects the requests of one version, those for groups and meters too. Each takes effect in the tables at once, in a
//! version that nobody sees yet, so that later requests of the batch see what earlier ones did.
//! When one is refused, the batch undoes what it did, newest first: nothing was visible.
//!
//! Where the standard leaves room, Shunt does as Open vSwitch does:
//! * `check_overlap` does not look at the rule that the new one replaces;
//! * a request to modify changes no cookie;
//! * a modified rule's hard timeout begins anew;
//! * only rules with a timeout are evicted from a full table.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::Match;

use super::{
    check::check_instructions,
    modification::{Modification, ModificationError},
};
use crate::{
    bridges::{bridge::Bridge, settings::Overflow},
    id::{BridgeId, Cookie, RuleId, TableId},
    tables::{
        flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector},
        rule::{Instructions, Rule, RuleStats, SharedTimers},
        rule_filter::RuleFilter,
        table::Table,
    },
    time::Time,
    versions::delta::{Delta, Object, RemovedReason, RuleChange, RuleDelta},
};

/// Changes to rules, groups and meters that become one version.
pub(crate) struct Batch {
    pub(crate) version: Version,
    pub(crate) now: Time,
    next_rule: RuleId,
    deltas: Vec<Delta>,
}

impl Batch {
    /// A batch whose changes `version` is the first to see; its first new rule is `next_rule`.
    pub(crate) const fn new(version: Version, now: Time, next_rule: RuleId) -> Self {
        Self { version, now, next_rule, deltas: Vec::new() }
    }

    /// Does what one request asks for. When it fails, it has done nothing.
    pub(crate) fn modify(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        request: Modification,
    ) -> Result<(), ModificationError> {
        match request {
            Modification::Flow(request) => self.apply(id, bridge, &request)?,
            Modification::Group(request) => self.change_group(id, bridge, request)?,
            Modification::Meter(request) => self.change_meter(id, bridge, request)?,
        }
        // Rules that go with their group or meter may have learned some.
        self.remove_orphans(bridge);
        Ok(())
    }

    /// Does what one flow-mod asks for. When it fails, it has done nothing.
    pub(crate) fn apply(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        self.obey(id, bridge, request)?;
        self.remove_orphans(bridge);
        Ok(())
    }

    fn obey(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        match request.command {
            FlowModCommand::Add => self.add(id, bridge, request),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.modify_rules(bridge, request)
            }
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
        self.push_rule(bridge, rule, RuleChange::Removed(reason));
    }

    /// Removes what was learned by rules that are gone and said so (`delete_learned`).
    pub(crate) fn remove_orphans(&mut self, bridge: &mut Bridge) {
        // What goes may own something itself; each is removed once, so this ends.
        loop {
            let orphans = bridge.take_orphans();
            if orphans.is_empty() {
                return;
            }
            for (table, cookie) in orphans {
                let table = TableSelector::One(table);
                let filter =
                    RuleFilter { table, cookie, cookie_mask: u64::MAX, ..RuleFilter::all() };
                self.remove_all(bridge, &filter, RemovedReason::Delete);
            }
        }
    }

    /// The version that is the first to see the batch.
    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    /// When the batch is applied.
    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    /// Notes what was changed.
    pub(crate) fn push(&mut self, delta: Delta) {
        self.deltas.push(delta);
    }

    /// Undoes everything: the rules, groups, meters and ports of `bridge`, and what is live there, are,
    /// for all versions, as they were.
    ///
    /// Answers with the number of the next new rule: no number is given twice.
    pub(crate) fn roll_back(self, bridge: &mut Bridge) -> RuleId {
        for delta in self.deltas.into_iter().rev() {
            match delta {
                Delta::Rule(delta) => undo_rule(bridge, delta, self.version),
                Delta::Changed(Object::Group(_, group)) => bridge.groups.undo(group, self.version),
                Delta::Changed(Object::Meter(_, meter)) => bridge.meters.undo(meter, self.version),
                Delta::Changed(Object::Ports(_)) => bridge.undo_ports(self.version),
                // What is live is undone as a whole; the others no request changes.
                Delta::Changed(
                    Object::Live(_)
                    | Object::Bridge(_)
                    | Object::Port(..)
                    | Object::PortFilters(_)
                    | Object::Mac(..)
                    | Object::Learned(..),
                ) => {}
            }
        }
        bridge.liveness.undo(self.version);
        drop(bridge.take_orphans());
        self.next_rule
    }

    /// The batch succeeded: answers with what changed, and with the number of the next new rule.
    pub(crate) fn finish(self) -> (Vec<Delta>, RuleId) {
        (self.deltas, self.next_rule)
    }

    pub(crate) fn add(
        &mut self,
        id: BridgeId,
        bridge: &mut Bridge,
        request: &FlowMod,
    ) -> Result<(), FlowModError> {
        let TableSelector::One(table) = request.table else { return Err(FlowModError::TableAll) };
        check_goto(request, table)?;
        check_instructions(bridge, &request.instructions, self.version)?;
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
            self.make_room(bridge, table)?;
        }
        let kept = old.as_ref().filter(|_| !request.flags.reset_counts);
        let stats = kept.map_or_else(Arc::default, |old| Arc::clone(&old.stats));
        if let Some(old) = old {
            self.remove(bridge, old, RemovedReason::Replaced);
        }
        let matching = bridge.shared.matching(&request.matching);
        let instructions = bridge.shared.instructions(&request.instructions);
        let parts = Parts { matching, instructions, stats };
        let rule = Arc::new(self.new_rule(id, table, request, parts));
        bridge.insert(Arc::clone(&rule), self.version);
        self.push_rule(bridge, rule, RuleChange::Added);
        Ok(())
    }

    /// Makes sure that a table can take one more rule: if it is full and its bridge says so, by
    /// evicting others.
    fn make_room(&mut self, bridge: &mut Bridge, table: TableId) -> Result<(), FlowModError> {
        let Some(settings) = bridge.settings(self.version) else { return Ok(()) };
        let (rules_max, overflow) = (settings.rules_max(table), settings.overflow);
        let rules_count = bridge.table(table).map_or(0, Table::rules_count);
        let surplus = (rules_count + 1).saturating_sub(rules_max);
        if surplus == 0 {
            return Ok(());
        }
        let evicts = overflow == Overflow::Evict && rules_max > 0;
        if !evicts || bridge.evictable(table, self.version).len() < surplus {
            return Err(FlowModError::TableFull(rules_max));
        }
        for _ in 0..surplus {
            if let Some(rule) = bridge.evictable(table, self.version).first() {
                self.remove(bridge, rule, RemovedReason::Eviction);
            }
        }
        Ok(())
    }

    fn new_rule(
        &mut self,
        bridge: BridgeId,
        table: TableId,
        request: &FlowMod,
        parts: Parts,
    ) -> Rule {
        let Parts { matching, instructions, stats } = parts;
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

    fn modify_rules(&mut self, bridge: &mut Bridge, request: &FlowMod) -> Result<(), FlowModError> {
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
        check_instructions(bridge, &request.instructions, self.version)?;
        let instructions = bridge.shared.instructions(&request.instructions);
        for old in chosen {
            let stats = if request.flags.reset_counts {
                Arc::new(old.stats.renewed())
            } else {
                Arc::clone(&old.stats)
            };
            let cookie = old.cookie;
            self.revise(bridge, old, Revision { cookie, instructions: &instructions, stats });
        }
        Ok(())
    }

    /// Puts a new revision in the place of a rule.
    pub(crate) fn revise(&mut self, bridge: &mut Bridge, old: Arc<Rule>, revision: Revision<'_>) {
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

    /// Notes that more hidden state can be read than before, if that is so.
    pub(crate) fn push_live(&mut self, id: BridgeId, bridge: &mut Bridge) {
        if bridge.liveness.take_untold() {
            self.push(Delta::Changed(Object::Live(id)));
        }
    }

    fn push_rule(&mut self, bridge: &mut Bridge, rule: Arc<Rule>, change: RuleChange) {
        self.push_live(rule.bridge, bridge);
        let objects = bridge.taught().objects(&rule);
        if let RuleChange::Modified(old) = &change {
            let others = bridge.taught().objects(old);
            let others = others.into_iter().filter(|other| !objects.contains(other));
            self.deltas.extend(others.map(Delta::Changed));
        }
        self.deltas.extend(objects.into_iter().map(Delta::Changed));
        self.push(Delta::Rule(RuleDelta { rule, change }));
    }
}

/// What a new rule may share with others.
struct Parts {
    matching: Match,
    instructions: Arc<Instructions>,
    stats: Arc<RuleStats>,
}

/// What a new revision of a rule does not take from the one before.
pub(crate) struct Revision<'a> {
    pub(crate) cookie: Cookie,
    pub(crate) instructions: &'a Arc<Instructions>,
    pub(crate) stats: Arc<RuleStats>,
}

/// Undoes what happened to a rule in `version`.
fn undo_rule(bridge: &mut Bridge, delta: RuleDelta, version: Version) {
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
        .filter(|rule| filter.admits(rule))
        .cloned()
        .collect()
}
