//! Flow monitors: notifications of rule changes (`NXST_FLOW_MONITOR`; ONF EXT-187).

use std::{sync::Arc, time::Duration};

use shunt_flow::{Match, PortNo};
use shunt_pipeline::{
    Cookie, Instructions, Priority, RemovedReason, Rule, RuleFilter, TableId, TableSelector,
};

use super::Xid;

/// The id of a flow monitor, chosen by its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowMonitorId(pub u32);

/// The updates that a flow monitor requests (`nx_flow_monitor_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMonitorFlags {
    /// List the selected rules in the reply (`NXFMF_INITIAL`).
    pub initial: bool,
    /// Report added rules (`NXFMF_ADD`).
    pub add: bool,
    /// Report removed rules (`NXFMF_DELETE`).
    pub delete: bool,
    /// Report rules with other instructions or another cookie (`NXFMF_MODIFY`).
    pub modify: bool,
    /// Include the actions of rules (`NXFMF_ACTIONS`).
    pub actions: bool,
    /// Report the changes of the own connection in full (`NXFMF_OWN`).
    pub own: bool,
}

/// A request for a flow monitor (`nx_flow_monitor_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMonitorRequest {
    /// The id, which no other monitor of the connection may have.
    pub id: FlowMonitorId,
    /// The kinds of updates that the monitor requests.
    pub flags: FlowMonitorFlags,
    /// Monitor rules of this table.
    pub table: TableSelector,
    /// Monitor rules with this match or a narrower one.
    pub matching: Match,
    /// Monitor rules with an output to this port; [`PortNo::ANY`]: all rules.
    pub out_port: PortNo,
}

/// One entry of a flow monitor reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowUpdate {
    /// A rule, with the change of it (`nx_flow_update_full`).
    Full(FullFlowUpdate),
    /// The own request with this transaction id changed rules (`NXFME_ABBREV`).
    Abbreviated(Xid),
}

/// A changed rule (`nx_flow_update_full`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullFlowUpdate {
    /// The change of the rule.
    pub event: FlowUpdateEvent,
    /// The table of the rule.
    pub table: TableId,
    /// Priority of the rule.
    pub priority: Priority,
    /// Time without a hit after which the rule expires; zero disables it.
    pub idle_timeout: Duration,
    /// Time after which the rule expires; zero disables it.
    pub hard_timeout: Duration,
    /// Cookie of the rule.
    pub cookie: Cookie,
    /// The match of the rule.
    pub matching: Match,
    /// The instructions of the rule; empty if no monitor requests them.
    pub instructions: Arc<Instructions>,
}

/// The change of a monitored rule (`nx_flow_update_event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowUpdateEvent {
    /// The rule was added, or existed when the monitor began (`NXFME_ADDED`).
    Added,
    /// The rule was removed (`NXFME_DELETED`).
    Deleted(RemovedReason),
    /// The instructions or the cookie changed (`NXFME_MODIFIED`).
    Modified,
}

impl FlowMonitorRequest {
    /// Returns the filter that selects the monitored rules.
    #[must_use]
    pub fn filter(&self) -> RuleFilter {
        RuleFilter {
            table: self.table,
            matching: self.matching.clone(),
            out_port: self.out_port,
            ..RuleFilter::all()
        }
    }
}

impl FullFlowUpdate {
    /// Describes a change of `rule`, with its instructions.
    #[must_use]
    pub fn of(rule: &Rule, event: FlowUpdateEvent) -> Self {
        Self {
            event,
            table: rule.table,
            priority: rule.priority,
            idle_timeout: rule.idle_timeout_now(),
            hard_timeout: rule.hard_timeout_now(),
            cookie: rule.cookie,
            matching: rule.matching.clone(),
            instructions: Arc::clone(&rule.instructions),
        }
    }

    /// Returns the update without instructions.
    #[must_use]
    pub fn without_instructions(self) -> Self {
        Self { instructions: Arc::default(), ..self }
    }
}
