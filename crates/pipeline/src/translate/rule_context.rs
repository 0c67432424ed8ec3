//! The rule of the running actions, and the part of it that packet-ins and resubmits see.

use std::sync::Arc;

use crate::{
    action::PacketInReason,
    continuations::continuation::NamedRule,
    id::{Cookie, TableId},
    tables::rule::Rule,
};

/// The rule of the running actions.
#[derive(Clone, Copy)]
pub(super) struct RunningRule<'a> {
    /// The rule as packet-ins show it.
    pub(super) context: RuleContext,
    /// The rule itself; after a recirculation only if the frozen actions name it.
    pub(super) rule: Option<&'a Arc<Rule>>,
}

/// The rule of the running actions, as packet-ins show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleContext {
    pub(super) table: TableId,
    pub(super) cookie: Cookie,
    pub(super) origin: ActionOrigin,
    /// True while the action set is executed.
    pub(super) in_set: bool,
    /// True while the actions of a bucket are run.
    pub(super) in_bucket: bool,
}

/// The origin of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ActionOrigin {
    /// A packet-out.
    PacketOut,
    /// A rule.
    Rule,
    /// The table-miss rule.
    Miss,
}

impl<'a> RunningRule<'a> {
    /// No rule: the actions of a packet-out.
    pub(super) const PACKET_OUT: Self = Self { context: RuleContext::PACKET_OUT, rule: None };

    /// Returns the rule that a lookup in a table found.
    pub(super) fn found(self, table: TableId, rule: Option<&'a Arc<Rule>>) -> Self {
        Self { context: self.context.found(table, rule), rule }
    }

    /// Returns the rule by value, if `is_named` by later actions.
    pub(super) fn named(self, is_named: bool) -> Option<NamedRule> {
        self.rule.filter(|_| is_named).cloned().map(NamedRule)
    }

    /// Returns the rule that was frozen.
    pub(super) fn thawed(context: RuleContext, rule: Option<&'a NamedRule>) -> Self {
        Self { context, rule: rule.map(|named| &named.0) }
    }
}

impl RuleContext {
    /// The actions of a packet-out.
    pub(crate) const PACKET_OUT: Self = Self {
        table: TableId::FIRST,
        cookie: Cookie::new(u64::MAX),
        origin: ActionOrigin::PacketOut,
        in_set: false,
        in_bucket: false,
    };

    /// Returns the context after a lookup in a table.
    fn found(self, table: TableId, rule: Option<&Arc<Rule>>) -> Self {
        let is_miss =
            |rule: &Arc<Rule>| rule.priority.number() == 0 && rule.matching.mask().is_empty();
        Self {
            table,
            cookie: rule.map_or(Cookie::new(u64::MAX), |rule| rule.cookie),
            origin: if rule.is_some_and(is_miss) { ActionOrigin::Miss } else { ActionOrigin::Rule },
            in_set: self.in_set,
            in_bucket: false,
        }
    }

    /// Returns the reason of a packet-in by an output to the controller.
    pub(super) const fn packet_in_reason(self) -> PacketInReason {
        if self.in_bucket {
            PacketInReason::Group
        } else if self.in_set {
            PacketInReason::ActionSet
        } else {
            PacketInReason::Action
        }
    }
}
