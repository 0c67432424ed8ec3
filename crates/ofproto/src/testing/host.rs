//! A bridge with tables and ports, but without a datapath.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use shunt_flow::{
    FlowKey, PortNo,
    extract::{VlanLimit, extract},
};
use shunt_pipeline::{
    Action, BridgeId, BridgeSettings, BundleStep, Change, DatapathAction, Delta, FlowModError,
    Group, GroupId, Meter, MeterId, Modification, Pipeline, PortConfig, PortInfo, PuntedPacket,
    QueueId, RejectedMod, RemovedReason, Rule, RuleChange, RuleFilter, RuleListing, TableId, Time,
    Traversal, Version,
};
use tokio::sync::watch;

use crate::{
    ChangeOrigin, ErrorCode, Host, HostStep, MonitorQueue, MonitorQueues, PausedPackets,
    connection::{ControllerEvent, is_listable},
    message::{
        self, Features, FlowRemoved, LinkFeatures, PacketOut, PortDescription, PortStatistics,
        PortStatus, PortStatusReason, QueueDescription, QueueStatistics, ReportedPortCounters,
        SwitchDescription, TableFeatures, TableStatistics,
    },
};

/// The id of the bridge of a [`MemoryHost`].
const BRIDGE: BridgeId = BridgeId::new(1);

/// The port with queues 0 and 7.
const QUEUES_PORT: PortNo = PortNo::new(1);

/// A [`Host`] without a datapath.
///
/// The bridge has a [`Pipeline`], the ports `p1`, `p2` and LOCAL, and two queues on `p1`.
pub struct MemoryHost {
    pipeline: Pipeline,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
    /// True if versions are adopted as soon as they are created.
    prompt: AtomicBool,
    adopted: watch::Sender<Version>,
    events: Mutex<VecDeque<ControllerEvent>>,
    paused: PausedPackets,
    monitors: MonitorQueues,
    /// Number of calls of [`Host::list_rules`].
    listings: AtomicUsize,
    packets: Mutex<Vec<PacketOut>>,
    outcomes: Mutex<Vec<Arc<[DatapathAction]>>>,
}

impl MemoryHost {
    /// Creates a bridge that uses `clock`.
    #[must_use]
    pub fn new(clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        let pipeline = Pipeline::new(0).with_group_check(is_listable);
        let settings = BridgeSettings { name: "br0".to_owned(), ..BridgeSettings::default() };
        pipeline.add_bridge(BRIDGE, settings);
        let ports = [(1, "p1"), (2, "p2"), (PortNo::LOCAL.number(), "br0")].map(port).to_vec();
        let added = pipeline.set_ports(BRIDGE, ports);
        debug_assert!(added.is_ok(), "the bridge was added just now");
        let (adopted, _) = watch::channel(pipeline.version());
        Self {
            pipeline,
            clock: Box::new(clock),
            prompt: AtomicBool::new(true),
            adopted,
            events: Mutex::default(),
            paused: PausedPackets::default(),
            monitors: MonitorQueues::default(),
            listings: AtomicUsize::default(),
            packets: Mutex::default(),
            outcomes: Mutex::default(),
        }
    }

    /// Holds later versions until [`Self::adopt`] marks them as adopted.
    pub fn hold_versions(&self) {
        self.prompt.store(false, Ordering::Relaxed);
    }

    /// Marks the newest version as adopted by all threads.
    pub fn adopt(&self) {
        self.adopted.send_replace(self.pipeline.version());
    }

    /// Returns whether packets that no rule matches are sent to controllers.
    #[must_use]
    pub fn sends_misses(&self) -> bool {
        self.pipeline.settings(BRIDGE).is_some_and(|settings| settings.sends_misses)
    }

    /// Returns whether NORMAL forwards every packet, in place of the tables.
    #[must_use]
    pub fn fails_open(&self) -> bool {
        self.pipeline.settings(BRIDGE).is_some_and(|settings| settings.fails_open)
    }

    /// Returns whether all threads use `version` or a later one.
    #[must_use]
    pub fn has_adopted(&self, version: Version) -> bool {
        *self.adopted.borrow() >= version
    }

    /// Returns the events since the last call.
    pub fn take_events(&self) -> Vec<ControllerEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Returns the packet-outs since the last call.
    pub fn take_packets(&self) -> Vec<PacketOut> {
        std::mem::take(&mut *self.packets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the datapath actions of sent packets since the last call.
    pub fn take_outcomes(&self) -> Vec<Arc<[DatapathAction]>> {
        std::mem::take(&mut *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of lists of rules for flow monitors so far.
    #[must_use]
    pub fn listings_count(&self) -> usize {
        self.listings.load(Ordering::Relaxed)
    }

    /// Returns the pipeline of the bridge.
    #[must_use]
    pub const fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Removes the rules with an expired timeout.
    pub fn expire(&self) {
        self.publish(&self.pipeline.expire(self.now()));
    }

    /// Changes the settings of the bridge.
    pub fn set_settings(&self, settings: BridgeSettings) {
        if let Ok(change) = self.pipeline.set_settings(BRIDGE, settings) {
            self.publish(&change);
        }
    }

    /// Sends an event to the controllers.
    fn report(&self, event: ControllerEvent) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
    }

    /// Passes a change to the flow monitors.
    fn publish(&self, change: &Change) -> Version {
        self.monitors.record(change);
        if self.prompt.load(Ordering::Relaxed) {
            self.adopt();
        }
        for delta in &change.deltas {
            let Delta::Rule(delta) = delta else { continue };
            let RuleChange::Removed(reason) = delta.change else { continue };
            if delta.rule.flags.send_flow_removed && reason != RemovedReason::Replaced {
                let totals = delta.rule.stats.totals();
                let removed = FlowRemoved::of(&delta.rule, reason, totals, self.now());
                self.report(ControllerEvent::FlowRemoved(Arc::new(removed)));
            }
        }
        change.version
    }

    /// Records the result of a translated packet.
    fn send(&self, packet: PacketOut, traversal: &Traversal) {
        self.pipeline.credit(traversal, 1, packet.data.len() as u64, self.now());
        for action in traversal.actions.iter() {
            if let DatapathAction::Punt(punt) = action {
                let token = punt.continuation.as_ref().map(|own| self.paused.hold(own));
                let packet = PuntedPacket { punt: Arc::clone(punt), frame: packet.data.clone() };
                self.report(ControllerEvent::PacketIn(Arc::new(packet), token));
            }
        }
        let outcome = Arc::clone(&traversal.actions);
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).push(packet);
    }

    /// Returns a copy of all ports of the bridge.
    fn port_infos(&self) -> Vec<PortInfo> {
        let ports = self.pipeline.ports(BRIDGE);
        ports.iter().flat_map(|ports| ports.iter()).map(|port| (**port).clone()).collect()
    }
}

impl Host for MemoryHost {
    fn now(&self) -> Time {
        (self.clock)()
    }

    fn features(&self) -> Features {
        Features::of_bridge(0x0000_aa55_aa55_0000)
    }

    fn description(&self) -> SwitchDescription {
        SwitchDescription {
            manufacturer: "The Shunt authors".to_owned(),
            hardware: "memory".to_owned(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            serial: "none".to_owned(),
            datapath: "br0".to_owned(),
        }
    }

    fn ports(&self) -> Vec<PortDescription> {
        let link = LinkFeatures::default();
        self.port_infos().iter().map(|port| PortDescription::of(port, link)).collect()
    }

    fn port_statistics(&self) -> Vec<PortStatistics> {
        let duration = Duration::from_secs(1);
        let counters = ReportedPortCounters::default();
        let statistics = |port: &PortInfo| PortStatistics { port: port.number, counters, duration };
        self.port_infos().iter().map(statistics).collect()
    }

    fn queues(&self) -> Vec<QueueDescription> {
        let queue = |(queue, min_rate)| QueueDescription {
            port: QUEUES_PORT,
            queue: QueueId::new(queue),
            min_rate,
            max_rate: Some(1000),
        };
        [(0, None), (7, Some(250))].map(queue).into()
    }

    fn queue_statistics(&self) -> Vec<QueueStatistics> {
        let statistics = |own: QueueDescription| QueueStatistics {
            port: own.port,
            queue: own.queue,
            tx_bytes: 1500,
            tx_packets: 15,
            tx_errors: 1,
            duration: Duration::from_secs(1),
        };
        self.queues().into_iter().map(statistics).collect()
    }

    fn table_statistics(&self) -> Vec<TableStatistics> {
        let tables = self.pipeline.table_stats(BRIDGE);
        let statistics = tables.iter().map(|totals| TableStatistics {
            table: totals.table,
            active: u32::try_from(totals.rules_count).unwrap_or(u32::MAX),
            lookups: totals.lookups,
            matches: totals.matches,
        });
        statistics.collect()
    }

    fn table_features(&self) -> Vec<TableFeatures> {
        let tables = (0..=TableId::MAX.number()).filter_map(TableId::new);
        let features = |table| TableFeatures { table, name: String::new(), entries_max: u32::MAX };
        tables.map(features).collect()
    }

    fn rules(&self, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        self.pipeline.rules(BRIDGE, filter)
    }

    fn list_rules(&self, filter: &RuleFilter) -> RuleListing {
        self.listings.fetch_add(1, Ordering::Relaxed);
        self.pipeline.list_rules(BRIDGE, filter)
    }

    fn version(&self) -> Version {
        self.pipeline.version()
    }

    fn monitor(&self, queue: &Arc<MonitorQueue>) {
        self.monitors.add(BRIDGE, queue);
    }

    fn groups(&self) -> Vec<Arc<Group>> {
        self.pipeline.groups(BRIDGE)
    }

    fn meters(&self) -> Vec<Arc<Meter>> {
        self.pipeline.meters(BRIDGE)
    }

    fn group_users(&self) -> BTreeMap<GroupId, u32> {
        self.pipeline.group_users(BRIDGE)
    }

    fn meter_users(&self) -> BTreeMap<MeterId, u32> {
        self.pipeline.meter_users(BRIDGE)
    }

    fn modify(
        &self,
        mods: Vec<Modification>,
        origin: &ChangeOrigin,
    ) -> Result<Version, RejectedMod> {
        let change = self.pipeline.modify(BRIDGE, mods, self.now())?;
        origin.claim(&change);
        Ok(self.publish(&change))
    }

    fn check_actions(&self, actions: &[Action]) -> Result<(), FlowModError> {
        self.pipeline.check_actions(BRIDGE, actions)
    }

    fn vlan_limit(&self) -> VlanLimit {
        VlanLimit::default()
    }

    fn set_port_config(&self, port: PortNo, config: PortConfig) -> Version {
        let mut ports = self.port_infos();
        if let Some(own) = ports.iter_mut().find(|own| own.number == port) {
            own.config = config;
            let port = PortDescription::of(own, LinkFeatures::default());
            let status = PortStatus { reason: PortStatusReason::Modify, port };
            self.report(ControllerEvent::PortStatus(Arc::new(status)));
        }
        let changed = self.pipeline.set_ports(BRIDGE, ports);
        changed.map_or_else(|_| self.pipeline.version(), |change| self.publish(&change))
    }

    fn set_sends_misses(&self, sends_misses: bool) {
        let Some(settings) = self.pipeline.settings(BRIDGE) else { return };
        self.set_settings(BridgeSettings { sends_misses, ..settings });
    }

    fn set_fails_open(&self, fails_open: bool) {
        let Some(settings) = self.pipeline.settings(BRIDGE) else { return };
        self.set_settings(BridgeSettings { fails_open, ..settings });
    }

    fn commit(
        &self,
        steps: impl IntoIterator<Item = HostStep>,
        origin: &ChangeOrigin,
    ) -> Result<Version, RejectedMod> {
        let mut packets = Vec::new();
        let bundle = steps.into_iter().map(|step| match step {
            HostStep::Modify(modification) => BundleStep::Modify(modification),
            HostStep::Port(port, config) => BundleStep::Port(port, config),
            HostStep::Packet(packet) => {
                let (key, actions) = (Box::new(key(&packet)), packet.actions.clone());
                packets.push(packet);
                BundleStep::Packet { key, actions }
            }
        });
        let (change, traversals) = self.pipeline.commit(BRIDGE, bundle, self.now())?;
        for (packet, traversal) in packets.into_iter().zip(traversals) {
            self.send(packet, &traversal);
        }
        origin.claim(&change);
        Ok(self.publish(&change))
    }

    fn packet_out(&self, packet: PacketOut) {
        let version = self.pipeline.version();
        let traversal = self.pipeline.translate_actions(&key(&packet), &packet.actions, version);
        self.send(packet, &traversal);
    }

    fn resume(&self, packet: message::PacketIn) -> Result<(), ErrorCode> {
        let message::PacketIn { metadata, continuation, data, .. } = packet;
        let paused = self.paused.find(&continuation).ok_or(ErrorCode::ResumeStale)?;
        let (in_port, actions) = (metadata.key().in_port(), Vec::new());
        let packet = PacketOut { in_port, actions, data };
        let traversal = self.pipeline.resume_paused(&key(&packet), &paused, &metadata);
        self.send(packet, &traversal);
        Ok(())
    }

    async fn adopted(&self, version: Version) {
        let mut adopted = self.adopted.subscribe();
        // The sender lives as long as this host.
        let _ = adopted.wait_for(|adopted| *adopted >= version).await;
    }

    async fn pull_counts(&self) {}
}

/// Returns the flow key of a packet-out.
fn key(packet: &PacketOut) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract(&packet.data, VlanLimit::default(), &mut key);
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(packet.in_port);
    key
}

/// Returns a port with a number and a name.
fn port((number, name): (u32, &str)) -> PortInfo {
    let mac = [0xaa, 0x55, 0xaa, 0x55, 0, number.to_be_bytes()[3]];
    PortInfo { name: name.to_owned(), mac, ..PortInfo::datapath(number) }
}
