//! The control plane: adds and removes bridges and ports, and keeps the data plane consistent.
//!
//! A new port is added to the packet threads first and to the tables afterwards. A port that is
//! removed leaves the tables first. It leaves the threads when no packet can be sent to it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_datapath::{
    Command,
    command::ThreadPort,
    port::{Port, Queues, open},
};
use shunt_flow::PortNo;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, Pipeline, PortConfig, PortInfo, TableId, Version,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tracing::{info, warn};

use crate::{
    config::{self, Config, PortType},
    error::{SwitchError, with_causes},
    nic::NicFront,
    openflow::events::{ChangedPorts, ControlEvent, ControlReceivers, EVENTS_MAX},
    ports::{
        bridges::BridgeRegistry,
        capture::Captures,
        port::{BridgePort, free_number},
    },
    threads::data_plane::{DataPlane, EngineMaker, StartedDataPlane},
};

/// The control plane of a switch.
pub(crate) struct ControlPlane {
    pub(crate) plane: DataPlane,
    /// The NIC in front of a bridge.
    ///
    /// Stays after the NIC is switched off, for the next one.
    pub(crate) nic: Mutex<Option<Arc<NicFront>>>,
    pub(crate) bridges: Mutex<BridgeRegistry>,
    /// Directory of the sockets; `None`: no sockets.
    pub(crate) run_dir: Option<PathBuf>,
    /// Settings in force, without the bridges.
    pub(crate) config: Mutex<Config>,
    pub(crate) captures: Captures,
    /// Held from the first check to the last step of a change.
    ///
    /// Bridges, ports and settings change one at a time.
    pub(crate) structure: AsyncMutex<()>,
    /// Held while port lists are published, so that they are published in order.
    publishing: Mutex<()>,
    events: mpsc::Sender<ControlEvent>,
    pub(crate) changed_ports: ChangedPorts,
    pub(crate) seed: u64,
}

/// The data path of a port.
#[derive(Clone, Copy)]
enum PortBacking {
    /// Packet threads send to it and receive from it.
    Packets,
    /// Packet threads do not know the port.
    None,
}

/// The result of adding a port to its bridge.
struct PortInsertion {
    number: PortNo,
    /// Reason why the port is not open.
    trouble: Option<SwitchError>,
}

impl ControlPlane {
    /// Starts the data plane of a configuration, without its bridges.
    pub(crate) fn start(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
        engine: EngineMaker,
    ) -> Result<(Arc<Self>, ControlReceivers), SwitchError> {
        config.check()?;
        let mut own = Config { bridges: Vec::new(), ..config.clone() };
        let offload = &mut own.caches.gigaflow.offload;
        if let Some(first) = config.bridges.first().filter(|_| offload.bridge.is_empty()) {
            offload.bridge.clone_from(&first.name);
        }
        let StartedDataPlane { plane, packet_ins } = DataPlane::start(&own, seed, engine)?;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let control = Self {
            plane,
            nic: Mutex::default(),
            bridges: Mutex::default(),
            run_dir,
            config: Mutex::new(own),
            captures: Captures::default(),
            structure: AsyncMutex::default(),
            publishing: Mutex::default(),
            events,
            changed_ports: ChangedPorts::default(),
            seed,
        };
        Ok((Arc::new(control), ControlReceivers { events: receiver, packet_ins }))
    }

    /// Adds a bridge with its local port and the ports of its configuration.
    pub(crate) async fn add_bridge(
        &self,
        settings: &config::BridgeOptions,
    ) -> Result<(), SwitchError> {
        let whole = Config { bridges: vec![settings.clone()], ..Config::default() };
        whole.check_parts().map_err(|error| *error.problem)?;
        let name = settings.name.clone();
        let _structure = self.structure.lock().await;
        self.reclaim_if_short().await;
        if self.bridges.lock().is_reserved(&name) {
            // The bridge gets its previous number again: no thread may use that number for the old
            // bridge.
            self.plane.adopted(self.plane.pipeline.version()).await;
            self.reclaim();
        }
        let own = config::BridgeOptions { ports: Vec::new(), ..settings.clone() };
        let id = self.bridges.lock().add(own)?.id;
        let tables = bridge_settings(settings);
        self.change(|pipeline| Ok::<_, SwitchError>(pipeline.add_bridge(id, tables)))?;
        if let Err(error) = self.fill_bridge(id, settings).await {
            // A bridge without all of its ports is removed again.
            if let Err(trouble) = self.remove_bridge_locked(&name).await {
                warn!(error = with_causes(&trouble), "bridge {name}: cannot be removed again");
            }
            return Err(error);
        }
        info!(ports = settings.ports.len(), "bridge {name}: added");
        Ok(())
    }

    /// Adds the ports of a bridge, and opens its sockets.
    async fn fill_bridge(
        &self,
        id: BridgeId,
        settings: &config::BridgeOptions,
    ) -> Result<(), SwitchError> {
        let name = &settings.name;
        let mac = settings.mac()?;
        self.add_configured_port(name, settings.local_port(), Some(PortNo::LOCAL)).await?;
        self.with_port(id, PortNo::LOCAL, |port| port.mac = mac);
        self.publish_ports();
        for port in &settings.ports {
            self.add_configured_port(name, port.clone(), None).await?;
        }
        let (ready, opened) = oneshot::channel();
        self.notify(ControlEvent::BridgeAdded(id, ready)).await;
        // The receiver is dropped without an answer only while the switch stops.
        opened.await.unwrap_or(Ok(()))
    }

    /// Removes a bridge with its ports and rules.
    pub(crate) async fn remove_bridge(&self, name: &str) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        self.remove_bridge_locked(name).await
    }

    async fn remove_bridge_locked(&self, name: &str) -> Result<(), SwitchError> {
        let (id, ports) = {
            let bridges = self.bridges.lock();
            let bridge = bridges.find(name)?;
            let names = bridge.ports.values().map(|port| port.settings.name.clone());
            (bridge.id, names.collect::<Vec<_>>())
        };
        self.notify(ControlEvent::BridgeRemoved(id)).await;
        for port in ports {
            self.remove_port_locked(&port).await?;
        }
        let version = self.change(|pipeline| Ok::<_, SwitchError>(pipeline.remove_bridge(id)))?;
        self.bridges.lock().remove(name, version);
        info!("bridge {name}: removed");
        Ok(())
    }

    /// Adds a port. It is an error if the port cannot be opened.
    pub(crate) async fn add_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
    ) -> Result<(), SwitchError> {
        settings.check()?;
        let name = settings.name.clone();
        let _structure = self.structure.lock().await;
        let entered = self.insert_port(bridge, settings, None, None).await?;
        self.require_open(&name, entered).await.map(|_| ())
    }

    /// Removes a port that could not be opened, and returns the error.
    async fn require_open(
        &self,
        name: &str,
        entered: PortInsertion,
    ) -> Result<PortNo, SwitchError> {
        let Some(trouble) = entered.trouble else { return Ok(entered.number) };
        self.remove_port_locked(name).await?;
        Err(trouble)
    }

    /// Adds a port that an embedding program supplies.
    pub(crate) async fn add_own_port(
        &self,
        bridge: &str,
        name: &str,
        port: Box<dyn Port>,
    ) -> Result<PortNo, SwitchError> {
        let settings = config::PortOptions {
            name: name.to_owned(),
            kind: PortType::Unbound,
            ..config::PortOptions::default()
        };
        settings.check()?;
        let _structure = self.structure.lock().await;
        let entered = self.insert_port(bridge, settings, None, Some(port)).await?;
        self.require_open(name, entered).await
    }

    /// Adds a port of the configuration.
    ///
    /// An `af_packet` port stays down while its device does not exist.
    async fn add_configured_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
        number: Option<PortNo>,
    ) -> Result<(), SwitchError> {
        let (name, may_wait) = (settings.name.clone(), settings.kind == PortType::AfPacket);
        let entered = self.insert_port(bridge, settings, number, None).await?;
        match entered.trouble {
            Some(trouble) if may_wait => {
                let trouble = with_causes(&trouble);
                warn!(error = trouble, "port {name}: down until it can be opened");
                Ok(())
            }
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// Registers a port in its bridge and opens it, or notes why it cannot be opened.
    async fn insert_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
        number: Option<PortNo>,
        own: Option<Box<dyn Port>>,
    ) -> Result<PortInsertion, SwitchError> {
        let name = settings.name.clone();
        let backing = match settings.kind {
            PortType::Patch | PortType::Unbound if own.is_none() => PortBacking::None,
            _ => PortBacking::Packets,
        };
        self.reclaim_if_short().await;
        let (id, number) = self.register_port(bridge, settings, number, backing)?;
        let opened = match own {
            Some(port) => self.attach(&name, port).await,
            None => self.open_port(&name).await,
        };
        let trouble = opened.err();
        if let Some(error) = &trouble {
            self.with_port(id, number, |port| port.trouble = Some(with_causes(error)));
            self.publish_ports();
        }
        self.notify(ControlEvent::PortAdded(id, number)).await;
        Ok(PortInsertion { number, trouble })
    }

    fn register_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
        number: Option<PortNo>,
        backing: PortBacking,
    ) -> Result<(BridgeId, PortNo), SwitchError> {
        let mut bridges = self.bridges.lock();
        if let Ok((other, port)) = bridges.find_port(&settings.name) {
            let (name, bridge) = (port.settings.name.clone(), other.settings.name.clone());
            return Err(SwitchError::PortExists { name, bridge });
        }
        let ports = &bridges.find(bridge)?.ports;
        let wanted = number.or_else(|| (settings.number > 0).then(|| PortNo::new(settings.number)));
        let number = wanted.unwrap_or_else(|| free_number(ports));
        if let Some(other) = ports.get(&number) {
            let port = other.settings.name.clone();
            return Err(SwitchError::NumberTaken { number: number.number(), port });
        }
        bridges.check_exclusive(&settings)?;
        let (threads, now) = (self.plane.threads_count(), self.plane.clock.now());
        let mut port = BridgePort::new(settings, number, threads, now);
        match backing {
            PortBacking::Packets => port.datapath = Some(bridges.take_datapath_port()?),
            PortBacking::None => port.link_up = true,
        }
        let bridge = bridges.find_mut(bridge)?;
        bridge.ports.insert(number, port);
        Ok((bridge.id, number))
    }

    /// Opens a registered port, and adds it to the packet threads.
    pub(crate) async fn open_port(&self, name: &str) -> Result<(), SwitchError> {
        let (spec, number) = {
            let bridges = self.bridges.lock();
            let port = bridges.find_port(name)?.1;
            (port.spec(), port.datapath.map_or(0, |number| u64::from(number.number())))
        };
        let Some(spec) = spec else {
            self.publish_ports();
            return Ok(());
        };
        let seed = self.seed.wrapping_add(number);
        // Opening a capture file reads it completely, and opening a device takes the system a
        // while.
        let opened = tokio::task::spawn_blocking(move || open(&spec, seed)).await;
        let doing = || format!("open port {name}");
        let opened =
            opened.map_err(|error| SwitchError::System { doing: doing(), source: error.into() })?;
        let failed = |source| SwitchError::Port { name: name.to_owned(), source };
        self.attach(name, opened.map_err(failed)?).await
    }

    /// Adds an open port to the packet threads, and then to the tables.
    async fn attach(&self, name: &str, mut port: Box<dyn Port>) -> Result<(), SwitchError> {
        let (id, number, datapath, traffic) = {
            let bridges = self.bridges.lock();
            let (bridge, entered) = bridges.find_port(name)?;
            (bridge.id, entered.number, entered.datapath, entered.traffic.clone())
        };
        let failed = |source| SwitchError::Port { name: name.to_owned(), source };
        let threads = self.plane.living();
        let count = u16::try_from(threads.len()).unwrap_or(u16::MAX);
        if count == 0 {
            return Err(SwitchError::NoThreads);
        }
        let Some(datapath) = datapath else { return Ok(()) };
        if let Some(nic) = self.nic() {
            port = nic.in_front_of(id, (number, datapath), port);
        }
        let queues = port.split(count).map_err(failed)?;
        let capabilities = port.capabilities();
        let mut receivers = Vec::new();
        for (thread, queues) in threads.into_iter().zip(queues) {
            let Some(traffic) = traffic.get(thread).cloned() else { continue };
            receivers.extend(queues.rx.is_some().then_some(thread));
            let added =
                ThreadPort { port: datapath, bridge: id, number, capabilities, queues, traffic };
            self.plane.send(thread, Command::AddPort(Box::new(added))).await;
        }
        // Threads process commands in order: after this acknowledgement they have the port.
        self.plane.pull_threads().await;
        self.with_port(id, number, |entered| {
            entered.mac = if number == PortNo::LOCAL { entered.mac } else { port.mac() };
            entered.link_up = port.link_up();
            entered.trouble = None;
            entered.receivers = receivers;
            entered.open = Some(port);
        });
        self.publish_ports();
        Ok(())
    }

    /// Removes a port.
    pub(crate) async fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        if self.bridges.lock().find_port(name)?.1.number == PortNo::LOCAL {
            let problem = "a local port cannot be removed: remove its bridge";
            return Err(SwitchError::PortSetting { port: name.to_owned(), problem });
        }
        self.remove_port_locked(name).await
    }

    async fn remove_port_locked(&self, name: &str) -> Result<(), SwitchError> {
        self.detach(name).await?;
        let (id, datapath, info) = {
            let mut bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let (id, number, datapath) = (bridge.id, port.number, port.datapath);
            let info = port.info(shunt_pipeline::PortKind::Unbound);
            if let Some(bridge) = bridges.by_id_mut(id) {
                bridge.ports.remove(&number);
            }
            (id, datapath, info)
        };
        self.publish_ports();
        if let Some(datapath) = datapath {
            self.end_captures_at(datapath).await;
            let version = self.plane.pipeline.version();
            self.bridges.lock().give_datapath_port_back(datapath, version);
        }
        self.notify(ControlEvent::PortRemoved(id, Box::new(info))).await;
        Ok(())
    }

    /// Removes a port from the tables, then from the packet threads, and closes it.
    pub(crate) async fn detach(&self, name: &str) -> Result<(), SwitchError> {
        let (id, number, datapath, open) = {
            let mut bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let (id, number, datapath) = (bridge.id, port.number, port.datapath);
            let port = bridges.by_id_mut(id).and_then(|own| own.ports.get_mut(&number));
            let open = port.and_then(|port| {
                port.link_up = false;
                port.open.take()
            });
            (id, number, datapath, open)
        };
        self.publish_ports();
        if let (Some(datapath), Some(open)) = (datapath, open) {
            self.plane.adopted(self.plane.pipeline.version()).await;
            let question = |_, reply| Command::RemovePort(datapath, reply);
            let queues: Vec<Option<Queues>> = self.plane.ask(question).await;
            // Closing a device takes the system a while, so this runs on neither a packet thread
            // nor this one.
            let close = tokio::task::spawn_blocking(move || drop((queues, open)));
            let _ = close.await;
        }
        if let Some(nic) = self.nic() {
            nic.leave(id, (number, datapath));
        }
        Ok(())
    }

    /// Reclaims everything that only versions older than all packet threads can see.
    pub(crate) fn reclaim(&self) {
        let oldest = self.plane.version();
        self.plane.pipeline.reclaim(oldest);
        self.bridges.lock().reclaim(oldest);
    }

    /// Makes returned numbers available if no others are left.
    async fn reclaim_if_short(&self) {
        let is_short = self.bridges.lock().is_short_of_numbers();
        if is_short {
            self.plane.adopted(self.plane.pipeline.version()).await;
            self.reclaim();
        }
    }

    /// Changes the tables; returns the new version.
    pub(crate) fn change<E>(
        &self,
        make: impl FnOnce(&Pipeline) -> Result<Change, E>,
    ) -> Result<Version, E> {
        self.plane.change(make)
    }

    /// Publishes all port lists that differ from those in the tables.
    pub(crate) fn publish_ports(&self) {
        // The list that is published last must be the newest.
        let _publishing = self.publishing.lock();
        let infos = self.bridges.lock().infos();
        for (id, ports) in infos {
            let same = self.plane.pipeline.ports(id).is_some_and(|known| *known == *ports);
            if !same && let Err(error) = self.change(|pipeline| pipeline.set_ports(id, ports)) {
                warn!(%error, "bridge {}: cannot publish ports", id.number());
            }
        }
    }

    /// Changes the tables and the OpenFlow port configuration, in order.
    pub(crate) fn change_ports<E>(
        &self,
        id: BridgeId,
        make: impl FnOnce(&Pipeline, &mut Vec<(PortNo, PortConfig)>) -> Result<Change, E>,
    ) -> Result<Version, E> {
        // No other publication of port lists may run between these steps.
        let _publishing = self.publishing.lock();
        let mut configs = Vec::new();
        let version = self.change(|pipeline| make(pipeline, &mut configs))?;
        for (number, config) in configs {
            self.with_port(id, number, |port| port.config = config);
            self.changed_ports.add(id, number);
        }
        Ok(version)
    }

    /// Returns the tables' view of a port.
    pub(crate) fn port_info(&self, bridge: BridgeId, number: PortNo) -> Option<PortInfo> {
        let ports = self.plane.pipeline.ports(bridge)?;
        ports.iter().find(|port| port.number == number).cloned()
    }

    /// Changes the stored state of a port.
    pub(crate) fn with_port<T>(
        &self,
        bridge: BridgeId,
        number: PortNo,
        change: impl FnOnce(&mut BridgePort) -> T,
    ) -> Option<T> {
        let mut bridges = self.bridges.lock();
        bridges.by_id_mut(bridge)?.ports.get_mut(&number).map(change)
    }

    async fn notify(&self, event: ControlEvent) {
        // The receiver is gone only while the switch is being dropped.
        let _ = self.events.send(event).await;
    }
}

fn bridge_settings(settings: &config::BridgeOptions) -> BridgeSettings {
    let defaults = BridgeSettings::default();
    let limit = settings.table_rules;
    let tables = (0..TableId::COUNT).filter_map(TableId::new).filter(|_| limit > 0);
    BridgeSettings {
        name: settings.name.clone(),
        rules_max: tables.map(|table| (table, limit)).collect(),
        overflow: settings.table_overflow.into(),
        mac_ageing: match settings.mac_ageing_s {
            0 => defaults.mac_ageing,
            seconds => Duration::from_secs(seconds.into()),
        },
        macs_max: match settings.mac_entries {
            0 => defaults.macs_max,
            entries => entries,
        },
    }
}

#[cfg(test)]
mod tests;
