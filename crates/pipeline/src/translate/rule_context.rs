//! The rule of the running actions, and the information on it for packet-ins and resubmits.

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
    /// The information on the rule that packet-ins report.
    pub(super) context: RuleContext,
    /// The rule; after a recirculation, `None` unless the remaining actions name it.
    pub(super) rule: Option<&'a Arc<Rule>>,
}

/// The information on the rule of the running actions that packet-ins report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleContext {
    /// The table with the running rule.
    pub(super) table: TableId,
    /// The cookie of the running rule.
    pub(super) cookie: Cookie,
    /// The part of the rule or group that has the actions.
    pub(super) origin: ActionOrigin,
    /// True while the actions of an action set run.
    pub(super) in_set: bool,
    /// True while the actions of a bucket run.
    pub(super) in_bucket: bool,
}

/// The origin of the actions of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ActionOrigin {
    /// The actions belong to a packet-out.
    PacketOut,
    /// The actions belong to a rule.
    Rule,
    /// The actions belong to the table-miss rule.
    Miss,
}

impl<'a> RunningRule<'a> {
    /// The actions of a packet-out, which have no rule.
    pub(super) const PACKET_OUT: Self = Self { context: RuleContext::PACKET_OUT, rule: None };

    /// Returns the rule that a lookup in a table found.
    pub(super) fn found(self, table: TableId, rule: Option<&'a Arc<Rule>>) -> Self {
        Self { context: self.context.found(table, rule), rule }
    }

    /// Returns the rule by value, if later actions name it.
    pub(super) fn named(self, is_named: bool) -> Option<NamedRule> {
        self.rule.filter(|_| is_named).cloned().map(NamedRule)
    }

    /// Returns the rule of a continuation.
    pub(super) fn thawed(context: RuleContext, rule: Option<&'a NamedRule>) -> Self {
        Self { context, rule: rule.map(|named| &named.0) }
    }
}

impl RuleContext {
    /// The context of the actions of a packet-out.
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
