//! The net effect of the rule changes that a paused queue does not report.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use shunt_flow::Match;
use shunt_pipeline::{Priority, Rule, TableId, Version};

use super::MonitoredChange;
use crate::message::FlowUpdateEvent;

/// The net changes since the pause, at most one for each rule.
#[derive(Debug, Default)]
pub(super) struct CoalescedChanges(HashMap<RuleIdentity, NetChange>);

/// The net effect of all changes of one rule since the pause.
#[derive(Debug)]
struct NetChange {
    /// `previous` is the rule as it was at the pause; `None` if there was none.
    change: MonitoredChange,
    /// The version of the first change.
    first: Version,
}

/// The fields by which a peer identifies a rule.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RuleIdentity {
    table: TableId,
    priority: Priority,
    matching: Match,
}

impl CoalescedChanges {
    /// Adds a change; returns the removal of a rule that the peer knows.
    ///
    /// The peer knows the rules that existed at the pause, and those of the version `listed`.
    pub(super) fn add(
        &mut self,
        change: &MonitoredChange,
        listed: Version,
    ) -> Option<MonitoredChange> {
        let identity = RuleIdentity::of(&change.rule);
        if let FlowUpdateEvent::Deleted(_) = change.event {
            return match self.0.remove(&identity) {
                Some(net) if net.change.previous.is_none() && net.first > listed => None,
                Some(net) => {
                    Some(MonitoredChange { previous: net.change.previous, ..change.clone() })
                }
                None => Some(change.clone()),
            };
        }
        match self.0.entry(identity) {
            Entry::Vacant(entry) => {
                entry.insert(NetChange { change: change.clone(), first: change.version });
            }
            Entry::Occupied(mut entry) => {
                let net = &mut entry.get_mut().change;
                net.version = change.version;
                net.rule = Arc::clone(&change.rule);
                if change.event == FlowUpdateEvent::Added {
                    net.event = FlowUpdateEvent::Added;
                }
            }
        }
        None
    }

    /// Returns the net changes, by the age of the rules.
    pub(super) fn into_changes(self) -> Vec<MonitoredChange> {
        let as_net = |net: NetChange| MonitoredChange { is_net: true, ..net.change };
        let mut changes: Vec<_> = self.0.into_values().map(as_net).collect();
        changes.sort_by_key(|change| change.rule.id);
        changes
    }
}

impl RuleIdentity {
    /// Returns the identity of a rule.
    fn of(rule: &Rule) -> Self {
        Self { table: rule.table, priority: rule.priority, matching: rule.matching.clone() }
    }
}
