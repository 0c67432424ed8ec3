//! The context of the running actions: their rule, as packet-ins and resubmits see it.

use std::sync::Arc;

use crate::{
    action::PacketInReason,
    id::{Cookie, TableId},
    tables::rule::Rule,
};

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

impl RuleContext {
    /// The actions of a packet-out.
    pub(crate) const PACKET_OUT: Self = Self {
        table: TableId::FIRST,
        cookie: Cookie::new(u64::MAX),
        origin: ActionOrigin::PacketOut,
        in_set: false,
        in_bucket: false,
    };

    /// Returns the context behind a lookup in a table.
    pub(super) fn found(self, table: TableId, rule: Option<&Arc<Rule>>) -> Self {
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
