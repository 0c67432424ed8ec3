//! The net effect of the rule changes that a paused queue does not report.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use shunt_flow::Match;
use shunt_pipeline::{Priority, Rule, TableId};

use super::MonitoredChange;
use crate::message::FlowUpdateEvent;

/// The net changes since the pause, at most one for each rule.
///
/// `previous` of a net change is the rule as it was at the pause; `None` if there was none.
#[derive(Debug, Default)]
pub(super) struct CoalescedChanges(HashMap<RuleIdentity, MonitoredChange>);

/// The fields by which a peer identifies a rule.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RuleIdentity {
    table: TableId,
    priority: Priority,
    matching: Match,
}

impl CoalescedChanges {
    /// Adds a change; returns the removal of a rule that existed at the pause.
    pub(super) fn add(&mut self, change: &MonitoredChange) -> Option<MonitoredChange> {
        let identity = RuleIdentity::of(&change.rule);
        if let FlowUpdateEvent::Deleted(_) = change.event {
            return match self.0.remove(&identity) {
                Some(MonitoredChange { previous: None, .. }) => None,
                Some(net) => Some(MonitoredChange { previous: net.previous, ..change.clone() }),
                None => Some(change.clone()),
            };
        }
        match self.0.entry(identity) {
            Entry::Vacant(entry) => {
                entry.insert(change.clone());
            }
            Entry::Occupied(mut entry) => {
                let net = entry.get_mut();
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
        let mut changes: Vec<_> = self.0.into_values().collect();
        changes.sort_by_key(|change| change.rule.id);
        changes
    }
}

impl RuleIdentity {
    fn of(rule: &Rule) -> Self {
        Self { table: rule.table, priority: rule.priority, matching: rule.matching.clone() }
    }
}
