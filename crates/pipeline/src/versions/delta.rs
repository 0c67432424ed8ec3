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
    /// The change.
    pub change: RuleChange,
}

/// The change of a rule.
#[derive(Clone, Debug)]
pub enum RuleChange {
    /// The rule was added.
    Added,
    /// The rule was removed.
    Removed(RemovedReason),
    /// The instructions or the cookie changed; this is the revision before.
    Modified(Arc<Rule>),
}

/// The reason why a rule was removed (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedReason {
    /// No packet hit the rule within its idle timeout.
    IdleTimeout,
    /// The hard timeout of the rule has passed.
    HardTimeout,
    /// A controller deleted it.
    Delete,
    /// A group that the rule named was deleted.
    GroupDelete,
    /// A meter that the rule named was deleted (OpenFlow 1.4).
    MeterDelete,
    /// The table was full, and the rule was evicted for a new one (OpenFlow 1.4).
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
    /// The presence of a port of a bridge that drops received or sent packets.
    PortFilters(BridgeId),
    /// The settings of a bridge itself.
    Bridge(BridgeId),
    /// A group, or its absence.
    Group(BridgeId, GroupId),
    /// A meter, or its absence.
    Meter(BridgeId, MeterId),
    /// The port of a MAC address of a VLAN, or its absence.
    Mac(BridgeId, u16, [u8; 6]),
    /// The ports that want a multicast group of a VLAN, or their absence.
    MulticastGroup(BridgeId, u16, IpAddr),
    /// The ports of a VLAN with multicast routers, or their absence.
    MulticastRouters(BridgeId, u16),
    /// The hidden state that the tables of a bridge can read: names of continuations
    /// contain it.
    Live(BridgeId),
    /// The rule that a `learn` adds, or its absence; or a number of learned rules.
    ///
    /// The rule has this table, match and priority. The number of rules of a table
    /// with this cookie, if a `learn` limits it. Both are named by a hash.
    Learned(BridgeId, TableId, u64),
}
