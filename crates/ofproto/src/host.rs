//! What connections need of the switch behind them.
//!
//! A connection never reaches for tables, ports or threads itself: it asks its [`Host`]. Calls are
//! made on the control thread and return at once; the things that take time (that every packet
//! thread has adopted a version, or has handed in its counts, or that the switch has caught up with
//! what it has to tell) are futures, which the server
//! awaits while the connection stands still, so that its replies keep the order of its requests.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use shunt_flow::{PortNo, extract::VlanLimit};
use shunt_pipeline::{
    Action, FlowModError, Group, GroupId, Meter, MeterId, Modification, PortConfig, RejectedMod,
    Rule, RuleFilter, Time, Version,
};

use crate::message::{
    Description, Features, PacketOut, PortDescription, PortStatistics, TableStatistics,
};

/// One bridge, as its controllers see it.
pub trait Host: Send + Sync + 'static {
    /// The clock of the daemon.
    fn now(&self) -> Time;

    /// What the bridge can do.
    fn features(&self) -> Features;

    /// Who made the switch.
    fn description(&self) -> Description;

    /// The ports, LOCAL included.
    fn ports(&self) -> Vec<PortDescription>;

    /// Counters of the ports, as of the last [`Self::pull_counts`].
    fn port_statistics(&self) -> Vec<PortStatistics>;

    /// Counters of the tables, as of the last [`Self::pull_counts`].
    fn table_statistics(&self) -> Vec<TableStatistics>;

    /// The rules that `filter` chooses.
    fn rules(&self, filter: &RuleFilter) -> Vec<Arc<Rule>>;

    /// The groups, by number; their counters as of the last [`Self::pull_counts`].
    fn groups(&self) -> Vec<Arc<Group>>;

    /// The meters, by number.
    fn meters(&self) -> Vec<Arc<Meter>>;

    /// How many rules name each group; those that none names are left out.
    fn group_users(&self) -> BTreeMap<GroupId, u32>;

    /// How many rules pass each meter; as [`Self::group_users`].
    fn meter_users(&self) -> BTreeMap<MeterId, u32>;

    /// Changes rules, groups and meters, in order, all of them or none, as one version.
    ///
    /// # Errors
    ///
    /// The first change that cannot be made; then none was.
    fn modify(&self, mods: Vec<Modification>) -> Result<Version, RejectedMod>;

    /// Whether the groups and meters that actions of a packet-out name exist, and the switch can
    /// do what they ask for.
    ///
    /// # Errors
    ///
    /// The first action of which that is not so.
    fn check_actions(&self, actions: &[Action]) -> Result<(), FlowModError>;

    /// How many tags of a packet are parsed.
    fn vlan_limit(&self) -> VlanLimit;

    /// Sets what controllers can set of a port that exists.
    fn set_port_config(&self, port: PortNo, config: PortConfig) -> Version;

    /// Sends a packet of a controller on its way.
    fn packet_out(&self, packet: PacketOut);

    /// Waits until every thread and target works by `version` or a later one.
    fn adopted(&self, version: Version) -> impl Future<Output = ()> + Send;

    /// Waits until every thread has handed in what it counted before this call.
    fn pull_counts(&self) -> impl Future<Output = ()> + Send;

    /// Whether controllers have still so much to hear of earlier changes that none should be added.
    fn is_behind(&self) -> bool {
        false
    }

    /// Waits until [`Self::is_behind`] is over.
    fn caught_up(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}
