//! Deltas: what a version changed.

use std::sync::Arc;

use shunt_flow::PortNo;

use crate::{
    id::{BridgeId, GroupId, MeterId, TableId},
    tables::rule::Rule,
};

/// One thing that a version changed.
#[derive(Clone, Debug)]
pub enum Delta {
    /// A rule was added, removed or changed.
    Rule(RuleDelta),
    /// An object that is not a rule changed.
    Changed(Object),
}

/// A rule added, removed or changed.
#[derive(Clone, Debug)]
pub struct RuleDelta {
    /// The rule: as it is now, or as it was if it is gone.
    pub rule: Arc<Rule>,
    /// What happened to it.
    pub change: RuleChange,
}

/// What happened to a rule.
#[derive(Clone, Debug)]
pub enum RuleChange {
    /// It is new.
    Added,
    /// It is gone.
    Removed(RemovedReason),
    /// Its instructions or its cookie changed; this is what it was.
    Modified(Arc<Rule>),
}

/// Why a rule is gone (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedReason {
    /// No hit within its idle timeout.
    IdleTimeout,
    /// Its hard timeout passed.
    HardTimeout,
    /// A controller deleted it.
    Delete,
    /// A group that it named was deleted.
    GroupDelete,
    /// A meter that it named was deleted (OpenFlow 1.4).
    MeterDelete,
    /// Its table was full, and it was worth less than a new rule (OpenFlow 1.4).
    Eviction,
    /// An ADD replaced it; nobody is told.
    Replaced,
}

/// Something besides rules that a translation consults, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// All ports of a bridge: which there are, their settings, their links.
    Ports(BridgeId),
    /// A port of a bridge, or its absence.
    Port(BridgeId, PortNo),
    /// Whether some port of a bridge drops what it receives, or what goes out of it.
    PortFilters(BridgeId),
    /// The settings of a bridge itself.
    Bridge(BridgeId),
    /// A group, or its absence.
    Group(BridgeId, GroupId),
    /// A meter, or its absence.
    Meter(BridgeId, MeterId),
    /// Where a MAC address of a VLAN was seen last, or that it was not.
    Mac(BridgeId, u16, [u8; 6]),
    /// Which hidden state the tables of a bridge can read: what names of cuts hold.
    Live(BridgeId),
    /// The rule of a table with a match and a priority, which a `learn` adds, or its absence; or the
    /// number of rules of a table with a cookie, where a `learn` has a limit. Named by a hash.
    Learned(BridgeId, TableId, u64),
}
