//! What connections need of the switch behind them.
//!
//! A connection never reaches for tables, ports or threads itself: it asks its [`Host`]. Calls are
//! made on the control thread and return at once; the things that take time (that every packet
//! thread has adopted a version, or has handed in its counts) are futures, which the server awaits
//! while the connection stands still, so that its replies keep the order of its requests.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use shunt_flow::{PortNo, extract::VlanLimit};
use shunt_pipeline::{
    Action, FlowModError, Group, GroupId, Meter, MeterId, Modification, PortConfig, RejectedMod,
    Rule, RuleFilter, Time, Version,
};

use crate::{
    ErrorCode,
    message::{
        Description, Features, PacketIn, PacketOut, PortDescription, PortStatistics,
        TableStatistics,
    },
};

/// One step of a bundle.
#[derive(Clone, Debug)]
pub enum HostStep {
    /// [`Host::modify`].
    Modify(Modification),
    /// [`Host::set_port_config`].
    Port(PortNo, PortConfig),
    /// [`Host::packet_out`].
    Packet(PacketOut),
}

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

    /// Does what a bundle asks for, in order, all of it or none, as one version: what a packet meets
    /// is what stands before it in the bundle. Takes one step after another, and none after one that
    /// cannot be made.
    ///
    /// # Errors
    ///
    /// The first step that cannot be made; then none was.
    fn commit(&self, steps: impl IntoIterator<Item = HostStep>) -> Result<Version, RejectedMod>;

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

    /// Lets a packet go on that has paused at a controller, as the controller sends it back.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ResumeStale`] when it did not pause here, or too long ago.
    fn resume(&self, packet: PacketIn) -> Result<(), ErrorCode>;

    /// Waits until every thread and target works by `version` or a later one.
    fn adopted(&self, version: Version) -> impl Future<Output = ()> + Send;

    /// Waits until every thread has handed in what it counted before this call.
    fn pull_counts(&self) -> impl Future<Output = ()> + Send;
}
