//! The rule whose actions are run, as far as anything can tell.

use std::sync::Arc;

use crate::{
    action::PacketInReason,
    id::{Cookie, TableId},
    tables::rule::Rule,
};

/// The rule whose actions are run, as packet-ins tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub(super) table: TableId,
    pub(super) cookie: Cookie,
    pub(super) origin: Origin,
    /// The action set is being executed.
    pub(super) in_set: bool,
    /// The actions are those of a bucket.
    pub(super) in_bucket: bool,
}

/// Where actions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// A packet-out.
    PacketOut,
    /// A rule.
    Rule,
    /// The table-miss rule.
    Miss,
}

impl Scope {
    /// The actions of a packet-out.
    pub(crate) const PACKET_OUT: Self = Self {
        table: TableId::FIRST,
        cookie: Cookie::new(u64::MAX),
        origin: Origin::PacketOut,
        in_set: false,
        in_bucket: false,
    };

    /// What was found in a table from here.
    pub(super) fn found(self, table: TableId, rule: Option<&Arc<Rule>>) -> Self {
        let is_miss =
            |rule: &Arc<Rule>| rule.priority.number() == 0 && rule.matching.mask().is_empty();
        Self {
            table,
            cookie: rule.map_or(Cookie::new(u64::MAX), |rule| rule.cookie),
            origin: if rule.is_some_and(is_miss) { Origin::Miss } else { Origin::Rule },
            in_set: self.in_set,
            in_bucket: false,
        }
    }

    /// What a packet-in by an output to the controller gives as its reason.
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
