//! Deltas: the changes of a version.

use std::{net::IpAddr, sync::Arc};

use shunt_flow::PortNo;

use crate::{
    id::{BridgeId, GroupId, MeterId, TableId},
    tables::rule::Rule,
};

/// One change of a version.
#[derive(Clone, Debug)]
pub enum Delta {
    /// A rule was added, removed or changed.
    Rule(RuleDelta),
    /// An object that is not a rule changed.
    Changed(Object),
}

/// A rule that was added, removed or changed.
#[derive(Clone, Debug)]
pub struct RuleDelta {
    /// The rule after the change; the last revision of a removed rule.
    pub rule: Arc<Rule>,
    /// The kind of change of the rule.
    pub change: RuleChange,
}

/// The kind of change of a rule between two versions.
#[derive(Clone, Debug)]
pub enum RuleChange {
    /// The rule was added.
    Added,
    /// The rule was removed.
    Removed(RemovedReason),
    /// The instructions or the cookie changed; the value is the previous revision.
    Modified(Arc<Rule>),
}

/// The reason why a rule was removed (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedReason {
    /// No packet hit the rule within its idle timeout.
    IdleTimeout,
    /// The hard timeout of the rule has passed.
    HardTimeout,
    /// A controller deleted the rule.
    Delete,
    /// A group that the rule named was deleted.
    GroupDelete,
    /// A meter that the rule named was deleted (OpenFlow 1.4).
    MeterDelete,
    /// The table was full, and the rule was evicted for a new rule (OpenFlow 1.4).
    Eviction,
    /// An ADD replaced the rule; controllers are not notified.
    Replaced,
}

/// An object other than a rule that a translation can consult.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The ports of a bridge: their list, settings and link states.
    Ports(BridgeId),
    /// A port of a bridge, or its absence.
    Port(BridgeId, PortNo),
    /// The presence of a port of the bridge that drops received or sent packets.
    PortFilters(BridgeId),
    /// The settings of a bridge, with its mirrors and the protocols of its ports.
    Bridge(BridgeId),
    /// A group, or its absence.
    Group(BridgeId, GroupId),
    /// A meter, or its absence.
    Meter(BridgeId, MeterId),
    /// The port of a MAC address of a VLAN, or its absence.
    Mac(BridgeId, u16, [u8; 6]),
    /// The ports that want a multicast group of a VLAN, or their absence.
    MulticastGroup(BridgeId, u16, IpAddr),
    /// The router ports of a VLAN, or their absence.
    MulticastRouters(BridgeId, u16),
    /// The live bits of a bridge: the hidden state that its tables can read.
    Live(BridgeId),
    /// A learned rule or its absence, or the number of rules of a cookie.
    ///
    /// The hash names the table, match and priority of the rule. Or it names a table and a cookie,
    /// if a `learn` limits the number of their rules.
    Learned(BridgeId, TableId, u64),
}
