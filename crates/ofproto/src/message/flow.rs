//! Flow statistics and flow-removed messages.

use std::{sync::Arc, time::Duration};

use shunt_flow::Match;
use shunt_pipeline::{
    Cookie, FlowFlags, Instructions, Priority, RemovedReason, Rule, RuleTotals, TableId, Time,
};

/// Statistics of an installed rule (`ofp_flow_stats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatistics {
    /// The table of the rule.
    pub table: TableId,
    /// Time since the rule was added.
    pub duration: Duration,
    /// Priority of the rule.
    pub priority: Priority,
    /// Time without a hit after which the rule expires; zero disables it.
    pub idle_timeout: Duration,
    /// Time after which the rule expires; zero disables it.
    pub hard_timeout: Duration,
    /// Flags of the flow-mod that added the rule.
    pub flags: FlowFlags,
    /// Cookie of the rule.
    pub cookie: Cookie,
    /// Number of packets that hit the rule.
    pub packets: u64,
    /// Number of bytes of the packets that hit the rule.
    pub bytes: u64,
    /// The match of the rule.
    pub matching: Match,
    /// The instructions of the rule.
    pub instructions: Arc<Instructions>,
}

impl FlowStatistics {
    /// Returns the statistics of `rule` at time `now`.
    #[must_use]
    pub fn of(rule: &Rule, now: Time) -> Self {
        let totals = rule.stats.totals();
        Self {
            table: rule.table,
            duration: now.since(rule.created),
            priority: rule.priority,
            idle_timeout: rule.idle_timeout_now(),
            hard_timeout: rule.hard_timeout_now(),
            flags: rule.flags,
            cookie: rule.cookie,
            packets: totals.packets,
            bytes: totals.bytes,
            matching: rule.matching.clone(),
            instructions: Arc::clone(&rule.instructions),
        }
    }
}

/// A removed rule (`ofp_flow_removed`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// The table of the rule.
    pub table: TableId,
    /// The reason of the removal.
    ///
    /// The reason is never [`RemovedReason::Replaced`], because a replaced rule causes no message.
    pub reason: RemovedReason,
    /// Time between adding and removing the rule.
    pub duration: Duration,
    /// Priority of the rule.
    pub priority: Priority,
    /// Time without a hit after which the rule expires; zero disables it.
    pub idle_timeout: Duration,
    /// Time after which the rule expires; zero disables it.
    pub hard_timeout: Duration,
    /// Cookie of the rule.
    pub cookie: Cookie,
    /// Number of packets that hit the rule.
    pub packets: u64,
    /// Number of bytes of the packets that hit the rule.
    pub bytes: u64,
    /// The match of the rule.
    pub matching: Match,
}

impl FlowRemoved {
    /// Describes `rule`, which was removed at time `now` with the counters `totals`.
    #[must_use]
    pub fn of(rule: &Rule, reason: RemovedReason, totals: RuleTotals, now: Time) -> Self {
        Self {
            table: rule.table,
            reason,
            duration: now.since(rule.created),
            priority: rule.priority,
            idle_timeout: rule.idle_timeout_now(),
            hard_timeout: rule.hard_timeout_now(),
            cookie: rule.cookie,
            packets: totals.packets,
            bytes: totals.bytes,
            matching: rule.matching.clone(),
        }
    }
}
