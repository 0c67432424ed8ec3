//! The OpenFlow view of one bridge, implemented on the control plane.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_datapath::{Command, NO_INGRESS, command::Injection};
use shunt_flow::{
    FlowKey, PortNo,
    extract::{VlanLimit, extract},
};
use shunt_ofproto::{
    ChangeOrigin, ErrorCode, Host, HostStep, MonitorQueue, PausedPackets,
    message::{
        Features, LinkFeatures, PacketIn, PacketOut, PortDescription, PortStatistics,
        QueueDescription, QueueStatistics, ReportedPortCounters, SwitchDescription, TableFeatures,
        TableStatistics,
    },
};
use shunt_pipeline::{
    Action, BridgeId, BridgeSettings, BundleStep, FlowModError, Group, GroupId, Meter, MeterId,
    Modification, Pipeline, PortConfig, PortInfo, PortKind, RejectedMod, Rule, RuleFilter,
    RuleListing, TableId, Time, Traversal, Version,
};
use shunt_tls::TlsIdentity;
use tracing::warn;

use crate::{
    config::Config, listening_sockets::ListeningSockets, openflow::queues, ports::bridges::Bridges,
    status::bridge::BridgePortStatus, threads::data_plane::DataPlane,
};

/// A bridge as its OpenFlow connections see it.
#[derive(Clone)]
pub(crate) struct BridgeHost {
    pub(crate) plane: Arc<DataPlane>,
    pub(crate) bridges: Arc<Bridges>,
    /// Settings of the switch in force.
    pub(crate) config: Arc<Mutex<Config>>,
    pub(crate) bridge: BridgeId,
    /// The packets that controllers have paused.
    pub(crate) paused: Arc<PausedPackets>,
    /// Key and certificates for TLS connections.
    pub(crate) tls: TlsIdentity,
    /// The listening sockets of the daemon.
    pub(crate) listening: Arc<ListeningSockets>,
}

/// `OFPPF_10GB_FD` and `OFPPF_COPPER`,
/// as virtual devices of the kernel report them.
const VIRTUAL_LINK: u32 = 1 << 6 | 1 << 11;

/// Speed of a virtual link in kilobits per second.
const VIRTUAL_LINK_KBPS: u32 = 10_000_000;

impl BridgeHost {
    /// Returns the ports of the newest version.
    fn ports_now(&self) -> Arc<[Arc<PortInfo>]> {
        self.plane.pipeline().ports(self.bridge).unwrap_or_else(|| Arc::new([]))
    }

    /// Returns the description of a port that controllers get.
    pub(crate) fn describe(port: &PortInfo) -> PortDescription {
        let virtual_link = LinkFeatures {
            current: VIRTUAL_LINK,
            speed_kbps: VIRTUAL_LINK_KBPS,
            ..LinkFeatures::default()
        };
        let has_link = port.kind.datapath().is_some();
        PortDescription::of(port, if has_link { virtual_link } else { LinkFeatures::default() })
    }

    /// Returns the datapath port of the ingress port of a packet-out.
    fn ingress(&self, number: PortNo) -> shunt_pipeline::DatapathPort {
        let ports = self.ports_now();
        let port = ports.iter().find(|port| port.number == number);
        match port.map(|port| port.kind) {
            Some(PortKind::Datapath(datapath)) => datapath,
            Some(PortKind::Patch { .. } | PortKind::Unbound) | None => NO_INGRESS,
        }
    }
}

impl BridgeHost {
    /// Returns the flow key of a packet-out.
    fn key(&self, packet: &PacketOut) -> FlowKey {
        let mut key = FlowKey::ZERO;
        extract(&packet.data, self.plane.vlan_limit(), &mut key);
        key.set_bridge(u64::from(self.bridge.number()));
        key.set_in_port(packet.in_port);
        key
    }

    /// Passes a packet-out with its traversal to a packet thread.
    fn inject(&self, packet: PacketOut, traversal: Traversal) {
        if !traversal.learnings.is_empty() {
            let learn = |pipeline: &Pipeline| {
                Ok::<_, Infallible>(pipeline.learn(&traversal.learnings, self.now()))
            };
            let Ok(_) = self.plane.publisher().change(learn);
        }
        let injection = Injection {
            frame: packet.data,
            ingress: self.ingress(packet.in_port),
            traversal: Arc::new(traversal),
        };
        // All packet-outs use the same thread, which keeps their order. Packet-outs are lost if the
        // queue of this thread is full, or if no thread is left.
        let plane = &self.plane;
        let first = plane.living().first().copied().unwrap_or_default();
        let refused = plane.try_send(first, Command::Inject(Box::new(injection)));
        if refused.is_err() {
            warn!(
                "bridge {}: a packet-out is dropped, because the queue of its packet thread is \
                 full",
                self.bridge.number()
            );
        }
    }
}

impl Host for BridgeHost {
    fn now(&self) -> Time {
        self.plane.now()
    }

    fn features(&self) -> Features {
        let bridges = self.bridges.lock();
        let bridge = bridges.by_id(self.bridge);
        Features::of_bridge(bridge.map_or(0, |bridge| bridge.datapath_id))
    }

    fn description(&self) -> SwitchDescription {
        let bridges = self.bridges.lock();
        let bridge = bridges.by_id(self.bridge);
        SwitchDescription {
            manufacturer: "The Shunt authors".to_owned(),
            hardware: "Shunt".to_owned(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            serial: "None".to_owned(),
            datapath: bridge.map_or_else(String::new, |bridge| bridge.settings.name.clone()),
        }
    }

    fn ports(&self) -> Vec<PortDescription> {
        self.ports_now().iter().map(|port| Self::describe(port)).collect()
    }

    fn port_statistics(&self) -> Vec<PortStatistics> {
        let statuses =
            BridgePortStatus::of_bridge(&self.bridges.lock_counted(), self.bridge, self.now());
        let counters = |status: &BridgePortStatus| ReportedPortCounters {
            rx_packets: status.rx_packets,
            tx_packets: status.tx_packets,
            rx_bytes: status.rx_bytes,
            tx_bytes: status.tx_bytes,
            rx_dropped: status.rx_dropped,
            tx_dropped: status.tx_dropped,
            rx_errors: 0,
            tx_errors: 0,
            ..ReportedPortCounters::default()
        };
        let statistics = |(status, age): &(BridgePortStatus, Duration)| PortStatistics {
            port: PortNo::new(status.number),
            counters: counters(status),
            duration: *age,
        };
        statuses.iter().map(statistics).collect()
    }

    fn queues(&self) -> Vec<QueueDescription> {
        queues::descriptions(&self.bridges.lock(), self.bridge)
    }

    fn queue_statistics(&self) -> Vec<QueueStatistics> {
        queues::statistics(&self.bridges.lock(), self.bridge, self.now())
    }

    fn table_statistics(&self) -> Vec<TableStatistics> {
        let tables = self.plane.pipeline().table_stats(self.bridge);
        let statistics = |table: &shunt_pipeline::TableTotals| TableStatistics {
            table: table.table,
            // The counter of OpenFlow has 32 bits; larger numbers are reported as its maximum.
            active: u32::try_from(table.rules_count).unwrap_or(u32::MAX),
            lookups: table.lookups,
            matches: table.matches,
        };
        tables.iter().map(statistics).collect()
    }

    fn table_features(&self) -> Vec<TableFeatures> {
        let settings = self.plane.pipeline().settings(self.bridge).unwrap_or_default();
        let names = {
            let bridges = self.bridges.lock();
            bridges.by_id(self.bridge).map(|bridge| bridge.settings.table_names())
        };
        // The names were checked before.
        let mut names = names.and_then(Result::ok).unwrap_or_default();
        let tables = (0..=TableId::MAX.number()).filter_map(TableId::new);
        let features = tables.map(|table| TableFeatures {
            table,
            name: names.remove(&table).unwrap_or_default(),
            entries_max: u32::try_from(settings.rules_max(table)).unwrap_or(u32::MAX),
        });
        features.collect()
    }

    fn rules(&self, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        self.plane.pipeline().rules(self.bridge, filter)
    }

    fn list_rules(&self, filter: &RuleFilter) -> RuleListing {
        self.plane.pipeline().list_rules(self.bridge, filter)
    }

    fn version(&self) -> Version {
        self.plane.pipeline().version()
    }

    fn monitor(&self, queue: &Arc<MonitorQueue>) {
        self.plane.publisher().monitor(self.bridge, queue);
    }

    fn groups(&self) -> Vec<Arc<Group>> {
        self.plane.pipeline().groups(self.bridge)
    }

    fn meters(&self) -> Vec<Arc<Meter>> {
        self.plane.pipeline().meters(self.bridge)
    }

    fn group_users(&self) -> BTreeMap<GroupId, u32> {
        self.plane.pipeline().group_users(self.bridge)
    }

    fn meter_users(&self) -> BTreeMap<MeterId, u32> {
        self.plane.pipeline().meter_users(self.bridge)
    }

    fn modify(
        &self,
        mods: Vec<Modification>,
        origin: &ChangeOrigin,
    ) -> Result<Version, RejectedMod> {
        let now = self.now();
        let modify = |pipeline: &Pipeline| {
            pipeline.modify(self.bridge, mods, now).inspect(|change| origin.claim(change))
        };
        let version = self.plane.publisher().change(modify)?;
        self.bridges.reclaim_if_many(self.plane.version());
        Ok(version)
    }

    fn check_actions(&self, actions: &[Action]) -> Result<(), FlowModError> {
        self.plane.pipeline().check_actions(self.bridge, actions)
    }

    fn vlan_limit(&self) -> VlanLimit {
        self.plane.vlan_limit()
    }

    fn set_port_config(&self, port: PortNo, config: PortConfig) -> Version {
        self.bridges.set_port_config(self.bridge, port, config);
        self.bridges.publish_ports();
        self.bridges.changed().add(self.bridge, port);
        self.plane.pipeline().version()
    }

    fn set_sends_misses(&self, sends_misses: bool) {
        let set = |pipeline: &Pipeline| {
            let settings = pipeline.settings(self.bridge).unwrap_or_default();
            pipeline.set_settings(self.bridge, BridgeSettings { sends_misses, ..settings })
        };
        // If this fails, the bridge and its packets no longer exist.
        let _ = self.plane.publisher().change(set);
    }

    fn set_fails_open(&self, fails_open: bool) {
        let set = |pipeline: &Pipeline| {
            let settings = pipeline.settings(self.bridge).unwrap_or_default();
            pipeline.set_settings(self.bridge, BridgeSettings { fails_open, ..settings })
        };
        // If this fails, the bridge and its packets no longer exist.
        let _ = self.plane.publisher().change(set);
    }

    fn commit(
        &self,
        steps: impl IntoIterator<Item = HostStep>,
        origin: &ChangeOrigin,
    ) -> Result<Version, RejectedMod> {
        let now = self.now();
        let (mut packets, mut traversals) = (Vec::new(), Vec::new());
        let version = self.bridges.change_ports(self.bridge, |pipeline, configs| {
            let bundle = steps.into_iter().map(|step| match step {
                HostStep::Modify(modification) => BundleStep::Modify(modification),
                HostStep::Port(port, config) => {
                    configs.push((port, config));
                    BundleStep::Port(port, config)
                }
                HostStep::Packet(packet) => {
                    let (key, actions) = (Box::new(self.key(&packet)), packet.actions.clone());
                    packets.push(packet);
                    BundleStep::Packet { key, actions }
                }
            });
            let (change, translated) = pipeline.commit(self.bridge, bundle, now)?;
            origin.claim(&change);
            traversals = translated;
            Ok::<_, RejectedMod>(change)
        })?;
        for (packet, traversal) in packets.into_iter().zip(traversals) {
            self.inject(packet, traversal);
        }
        Ok(version)
    }

    fn packet_out(&self, packet: PacketOut) {
        let pipeline = self.plane.pipeline();
        let traversal =
            pipeline.translate_actions_at_newest_version(&self.key(&packet), &packet.actions);
        self.inject(packet, traversal);
    }

    fn resume(&self, packet: PacketIn) -> Result<(), ErrorCode> {
        let PacketIn { metadata, continuation, data, .. } = packet;
        let paused = self.paused.find(&continuation).ok_or(ErrorCode::ResumeStale)?;
        let (in_port, actions) = (metadata.key().in_port(), Vec::new());
        let packet = PacketOut { in_port, actions, data };
        let pipeline = self.plane.pipeline();
        let traversal = pipeline.resume_paused(&self.key(&packet), &paused, &metadata);
        self.inject(packet, traversal);
        Ok(())
    }

    async fn adopted(&self, version: Version) {
        if self.config.lock().eviction.asynchronous {
            return;
        }
        self.plane.adopted(version).await;
    }

    async fn pull_counts(&self) {
        self.plane.pull().await;
    }
}
