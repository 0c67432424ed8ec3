//! What connections need of the switch behind them.
//!
//! A connection never reaches for tables, ports or threads itself: it asks its [`Host`]. Calls are
//! made on the control thread and return at once; the two things that take time (that every packet
//! thread has adopted a version, and has handed in its counts) are futures, which the server
//! awaits while the connection stands still, so that its replies keep the order of its requests.

use std::{future::Future, sync::Arc};

use shunt_flow::PortNo;
use shunt_pipeline::{FlowMod, PortConfig, RejectedMod, Rule, RuleFilter, Time, Version};

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

    /// Changes rules, all of them or none, as one version.
    ///
    /// # Errors
    ///
    /// The first change that cannot be made; then none was.
    fn apply(&self, mods: &[FlowMod]) -> Result<Version, RejectedMod>;

    /// Sets what controllers can set of a port that exists.
    fn set_port_config(&self, port: PortNo, config: PortConfig) -> Version;

    /// Sends a packet of a controller on its way.
    fn packet_out(&self, packet: PacketOut);

    /// Waits until every thread and target works by `version` or a later one.
    fn adopted(&self, version: Version) -> impl Future<Output = ()> + Send;

    /// Waits until every thread has handed in what it counted before this call.
    fn pull_counts(&self) -> impl Future<Output = ()> + Send;
}
