//! Changes of rules, as flow monitors see them.

use std::sync::Arc;

use shunt_pipeline::{BridgeId, Change, Delta, RemovedReason, Rule, RuleChange, Version};

use crate::message::FlowUpdateEvent;

/// A change of one rule.
#[derive(Clone, Debug)]
pub(crate) struct MonitoredChange {
    /// The version of the tables that made the change.
    pub(crate) version: Version,
    pub(crate) event: FlowUpdateEvent,
    /// The rule after the change; the last revision of a removed rule.
    pub(crate) rule: Arc<Rule>,
    /// The rule that the change replaced or modified.
    pub(crate) previous: Option<Arc<Rule>>,
    /// True for the net effect of all changes of the rule during a pause.
    pub(crate) is_net: bool,
}

impl MonitoredChange {
    /// Returns the changes of the rules of a bridge, in order.
    ///
    /// An addition that replaces a rule is one change. A modification to the same instructions and
    /// cookie is none.
    pub(super) fn all_of(bridge: BridgeId, change: &Change) -> Vec<Self> {
        let version = change.version;
        let (mut changes, mut replaced) = (Vec::new(), None);
        for delta in &change.deltas {
            let Delta::Rule(delta) = delta else { continue };
            let rule = &delta.rule;
            if rule.bridge != bridge {
                continue;
            }
            let (event, previous) = match &delta.change {
                // The addition of the other rule follows.
                RuleChange::Removed(RemovedReason::Replaced) => {
                    replaced = Some(Arc::clone(rule));
                    continue;
                }
                RuleChange::Added => (FlowUpdateEvent::Added, replaced.take()),
                RuleChange::Removed(reason) => (FlowUpdateEvent::Deleted(*reason), None),
                RuleChange::Modified(old) if is_same(old, rule) => continue,
                RuleChange::Modified(old) => (FlowUpdateEvent::Modified, Some(Arc::clone(old))),
            };
            let rule = Arc::clone(rule);
            changes.push(Self { version, event, rule, previous, is_net: false });
        }
        changes
    }
}

/// Returns whether a modification has changed nothing that an update shows.
fn is_same(old: &Rule, new: &Rule) -> bool {
    old.cookie == new.cookie && old.instructions == new.instructions
}
