//! The interface between connections and the switch.
//!
//! A connection does not access tables, ports or threads. The connection calls its [`Host`], on the
//! task that serves the connection.
//!
//! No call waits for packet threads. Calls that change the switch ([`Host::modify`],
//! [`Host::commit`], [`Host::set_port_config`]) take the lock of the control plane. A call that
//! changes the switch blocks the calling thread while another change holds the lock, and while the
//! queue of published changes is full.
//!
//! The two operations that wait for packet threads are futures: [`Host::adopted`] and
//! [`Host::pull_counts`]. While the server awaits one of them, it handles no further request of
//! that connection, so replies keep the order of the requests.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use shunt_flow::{PortNo, extract::VlanLimit};
use shunt_pipeline::{
    Action, FlowModError, Group, GroupId, Meter, MeterId, Modification, PortConfig, RejectedMod,
    Rule, RuleFilter, RuleListing, Time, Version,
};

use crate::{
    ChangeOrigin, ErrorCode, MonitorQueue,
    message::{
        Features, PacketIn, PacketOut, PortDescription, PortStatistics, QueueDescription,
        QueueStatistics, SwitchDescription, TableFeatures, TableStatistics,
    },
};

/// One step of a bundle.
#[derive(Clone, Debug)]
pub enum HostStep {
    /// A change of a rule, group or meter, as by [`Host::modify`].
    Modify(Modification),
    /// New settings of a port, as by [`Host::set_port_config`].
    Port(PortNo, PortConfig),
    /// A packet-out, as by [`Host::packet_out`].
    Packet(PacketOut),
}

/// One bridge, as its controllers see it.
pub trait Host: Send + Sync + 'static {
    /// Returns the time of the daemon's clock.
    fn now(&self) -> Time;

    /// Returns the features of the bridge (`ofp_switch_features`).
    fn features(&self) -> Features;

    /// Returns the manufacturer, hardware and software of the switch (`ofp_desc`).
    fn description(&self) -> SwitchDescription;

    /// Returns all ports, including LOCAL.
    fn ports(&self) -> Vec<PortDescription>;

    /// Returns port counters as of the last [`Self::pull_counts`].
    fn port_statistics(&self) -> Vec<PortStatistics>;

    /// Returns the egress queues of all ports, by port and queue.
    fn queues(&self) -> Vec<QueueDescription>;

    /// Returns the counters of all egress queues, in the order of [`Self::queues`].
    fn queue_statistics(&self) -> Vec<QueueStatistics>;

    /// Returns table counters as of the last [`Self::pull_counts`].
    fn table_statistics(&self) -> Vec<TableStatistics>;

    /// Returns the names and the limits of all tables, in order.
    fn table_features(&self) -> Vec<TableFeatures>;

    /// Returns the rules that `filter` selects.
    fn rules(&self, filter: &RuleFilter) -> Vec<Arc<Rule>>;

    /// Returns the rules that `filter` selects, and the version of the tables.
    fn list_rules(&self, filter: &RuleFilter) -> RuleListing;

    /// Returns the newest version of the tables.
    fn version(&self) -> Version;

    /// Records all later changes of the rules of the bridge in `queue`.
    ///
    /// A change is recorded before the call returns that makes it. The recording ends when the
    /// caller drops the queue.
    fn monitor(&self, queue: &Arc<MonitorQueue>);

    /// Returns the groups by number; counters are as of the last [`Self::pull_counts`].
    fn groups(&self) -> Vec<Arc<Group>>;

    /// Returns the meters of the bridge, by number.
    fn meters(&self) -> Vec<Arc<Meter>>;

    /// Returns the number of rules per group; omits unreferenced groups.
    fn group_users(&self) -> BTreeMap<GroupId, u32>;

    /// Returns the number of rules per meter; omits unused meters.
    fn meter_users(&self) -> BTreeMap<MeterId, u32>;

    /// Changes rules, groups and meters in order, as one version: all of them or none.
    ///
    /// The host calls [`ChangeOrigin::claim`] for the change.
    ///
    /// # Errors
    ///
    /// The first change that is invalid. If the result is an error, nothing has changed.
    fn modify(
        &self,
        mods: Vec<Modification>,
        origin: &ChangeOrigin,
    ) -> Result<Version, RejectedMod>;

    /// Executes the steps of a bundle in order, as one version: all of them or none.
    ///
    /// A packet-out is translated by the tables as changed by earlier steps. The host takes steps
    /// one by one, and takes none after an invalid step. The host calls [`ChangeOrigin::claim`] for
    /// the change.
    ///
    /// # Errors
    ///
    /// The first step that is invalid. In that case nothing has changed.
    fn commit(
        &self,
        steps: impl IntoIterator<Item = HostStep>,
        origin: &ChangeOrigin,
    ) -> Result<Version, RejectedMod>;

    /// Checks the actions of a packet-out.
    ///
    /// The groups and meters of the actions must exist, and the switch must support each action.
    ///
    /// # Errors
    ///
    /// The first action that fails the check.
    fn check_actions(&self, actions: &[Action]) -> Result<(), FlowModError>;

    /// Returns the number of VLAN tags that are parsed per packet.
    fn vlan_limit(&self) -> VlanLimit;

    /// Sets the settings of an existing port that controllers may change.
    fn set_port_config(&self, port: PortNo, config: PortConfig) -> Version;

    /// Sets whether packets that no rule matches are sent to controllers.
    ///
    /// The rules belong to the first table.
    ///
    /// Controllers of OpenFlow 1.0 want such packets ([`PacketInReason::NoMatch`](shunt_pipeline::PacketInReason::NoMatch)).
    fn set_sends_misses(&self, sends_misses: bool);

    /// Sets whether NORMAL forwards every packet, in place of the tables.
    ///
    /// The rules stay as they are, and controllers do not see the setting.
    fn set_fails_open(&self, fails_open: bool);

    /// Sends a controller's packet-out.
    fn packet_out(&self, packet: PacketOut);

    /// Resumes a packet that paused at a controller, as the controller returned it.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ResumeStale`] if the packet did not pause at this bridge, or paused too long
    /// ago.
    fn resume(&self, packet: PacketIn) -> Result<(), ErrorCode>;

    /// Waits until all packet threads and offload devices use `version` or later.
    fn adopted(&self, version: Version) -> impl Future<Output = ()> + Send;

    /// Waits until every packet thread has reported what it counted before this call.
    fn pull_counts(&self) -> impl Future<Output = ()> + Send;
}
