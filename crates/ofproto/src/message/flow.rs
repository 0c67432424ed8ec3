//! What is told of rules.

use std::{sync::Arc, time::Duration};

use shunt_flow::Match;
use shunt_pipeline::{
    Cookie, FlowFlags, Instructions, Priority, RemovedReason, Rule, RuleTotals, TableId, Time,
};

/// What is told of a rule that is in force (`ofp_flow_stats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatistics {
    /// Where it stands.
    pub table: TableId,
    /// How long it has been there.
    pub duration: Duration,
    /// Its priority.
    pub priority: Priority,
    /// Time without a hit after which it goes; zero: never.
    pub idle_timeout: Duration,
    /// Time after which it goes; zero: never.
    pub hard_timeout: Duration,
    /// What its controller asked for.
    pub flags: FlowFlags,
    /// Its controller's label.
    pub cookie: Cookie,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it matches.
    pub matching: Match,
    /// What happens to a packet that matches.
    pub instructions: Arc<Instructions>,
}

impl FlowStatistics {
    /// What there is to tell of `rule` at `now`.
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

/// What is told of a rule that is gone (`ofp_flow_removed`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// Where it stood.
    pub table: TableId,
    /// Why it is gone; never [`RemovedReason::Replaced`], of which nobody is told.
    pub reason: RemovedReason,
    /// How long it was there.
    pub duration: Duration,
    /// Its priority.
    pub priority: Priority,
    /// Time without a hit after which it went; zero: never.
    pub idle_timeout: Duration,
    /// Time after which it went; zero: never.
    pub hard_timeout: Duration,
    /// Its controller's label.
    pub cookie: Cookie,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it matched.
    pub matching: Match,
}

impl FlowRemoved {
    /// What there is to tell of `rule`, gone at `now` after these totals.
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
