//! A bridge that has tables and ports and no packets.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use shunt_flow::{
    FlowKey, PortNo,
    extract::{VlanLimit, extract},
};
use shunt_pipeline::{
    Action, BridgeId, BridgeSettings, Change, DatapathAction, DatapathPort, Delta, FlowModError,
    Group, GroupId, Meter, MeterId, Modification, PacketIn, Pipeline, PortConfig, PortInfo,
    PortKind, PortVlans, RejectedMod, RemovedReason, Rule, RuleChange, RuleFilter, Time, Version,
};
use tokio::sync::watch;

use crate::{
    Host,
    connection::Event,
    message::{
        Description, Features, FlowRemoved, LinkFeatures, PacketOut, PortCounters, PortDescription,
        PortStatistics, PortStatus, PortStatusReason, TableStatistics,
    },
};

/// The bridge that a [`MemoryHost`] has.
const BRIDGE: BridgeId = BridgeId::new(1);

/// A [`Host`] over a [`Pipeline`] without a datapath: ports `p1` and `p2`, and LOCAL.
pub struct MemoryHost {
    pipeline: Pipeline,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
    /// Whether versions are adopted as soon as they are made.
    prompt: AtomicBool,
    /// Whether there is too much to tell.
    behind: watch::Sender<bool>,
    adopted: watch::Sender<Version>,
    events: Mutex<VecDeque<Event>>,
    packets: Mutex<Vec<PacketOut>>,
}

impl MemoryHost {
    /// A bridge that goes by `clock`.
    #[must_use]
    pub fn new(clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        let pipeline = Pipeline::new(0);
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
            behind: watch::Sender::new(false),
            adopted,
            events: Mutex::default(),
            packets: Mutex::default(),
        }
    }

    /// From now on, versions are adopted only by [`Self::adopt`].
    pub fn hold_versions(&self) {
        self.prompt.store(false, Ordering::Relaxed);
    }

    /// All threads have adopted the newest version.
    pub fn adopt(&self) {
        self.adopted.send_replace(self.pipeline.version());
    }

    /// From now on there is too much to tell, or not any more.
    pub fn set_behind(&self, behind: bool) {
        self.behind.send_replace(behind);
    }

    /// Whether all threads work by `version` or a later one.
    #[must_use]
    pub fn has_adopted(&self, version: Version) -> bool {
        *self.adopted.borrow() >= version
    }

    /// What connections should hear of, since this was asked last.
    pub fn take_events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// The packets that controllers sent, since this was asked last.
    pub fn take_packets(&self) -> Vec<PacketOut> {
        std::mem::take(&mut *self.packets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn report(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
    }

    fn publish(&self, change: &Change) -> Version {
        if self.prompt.load(Ordering::Relaxed) {
            self.adopt();
        }
        for delta in &change.deltas {
            let Delta::Rule(delta) = delta else { continue };
            let RuleChange::Removed(reason) = delta.change else { continue };
            if delta.rule.flags.send_flow_removed && reason != RemovedReason::Replaced {
                let totals = delta.rule.stats.totals();
                let removed = FlowRemoved::of(&delta.rule, reason, totals, self.now());
                self.report(Event::FlowRemoved(Arc::new(removed)));
            }
        }
        change.version
    }

    fn port_infos(&self) -> Vec<PortInfo> {
        self.pipeline.ports(BRIDGE).map_or_else(Vec::new, |ports| ports.to_vec())
    }
}

impl Host for MemoryHost {
    fn now(&self) -> Time {
        (self.clock)()
    }

    fn features(&self) -> Features {
        Features::of_bridge(0x0000_aa55_aa55_0000)
    }

    fn description(&self) -> Description {
        Description {
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
        let counters = PortCounters::default();
        let statistics = |port: &PortInfo| PortStatistics { port: port.number, counters, duration };
        self.port_infos().iter().map(statistics).collect()
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

    fn rules(&self, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        self.pipeline.rules(BRIDGE, filter)
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

    fn modify(&self, mods: Vec<Modification>) -> Result<Version, RejectedMod> {
        let change = self.pipeline.modify(BRIDGE, mods, self.now())?;
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
            self.report(Event::PortStatus(Arc::new(status)));
        }
        let changed = self.pipeline.set_ports(BRIDGE, ports);
        changed.map_or_else(|_| self.pipeline.version(), |change| self.publish(&change))
    }

    fn packet_out(&self, packet: PacketOut) {
        let mut key = FlowKey::ZERO;
        extract(&packet.data, VlanLimit::default(), &mut key);
        key.set_bridge(BRIDGE.number().into());
        key.set_in_port(packet.in_port);
        let version = self.pipeline.version();
        let traversal = self.pipeline.translate_actions(&key, &packet.actions, version);
        self.pipeline.credit(&traversal, 1, packet.data.len() as u64, self.now());
        for action in traversal.actions.iter() {
            if let DatapathAction::Punt(punt) = action {
                let packet = PacketIn { punt: Arc::clone(punt), frame: packet.data.clone() };
                self.report(Event::PacketIn(Arc::new(packet)));
            }
        }
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).push(packet);
    }

    async fn adopted(&self, version: Version) {
        let mut adopted = self.adopted.subscribe();
        // The sender lives as long as this host.
        let _ = adopted.wait_for(|adopted| *adopted >= version).await;
    }

    async fn pull_counts(&self) {}

    fn is_behind(&self) -> bool {
        *self.behind.borrow()
    }

    async fn caught_up(&self) {
        // The sender lives as long as this host.
        let _ = self.behind.subscribe().wait_for(|behind| !behind).await;
    }
}

fn port((number, name): (u32, &str)) -> PortInfo {
    PortInfo {
        number: PortNo::new(number),
        name: name.to_owned(),
        kind: PortKind::Datapath(DatapathPort::new(number)),
        config: PortConfig::default(),
        link_up: true,
        mac: [0xaa, 0x55, 0xaa, 0x55, 0, number.to_be_bytes()[3]],
        vlans: PortVlans::default(),
    }
}
