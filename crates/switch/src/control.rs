//! Control: bridges and ports come and go, and the data plane follows.
//!
//! A port that appears is handed to the packet threads first and to the tables afterwards; one that
//! goes leaves the tables first, and the threads when no packet can be sent to it any more.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::{
    Command,
    command::ThreadPort,
    port::{Port, Queues, open},
};
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, BridgeSettings, Change, PortInfo, RemovedReason, TableId};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tracing::{info, warn};

use crate::{
    Config, SwitchError,
    bridges::Bridges,
    capture::Captures,
    config::{self, Local, PortType},
    events::{Event, News},
    plane::Plane,
    ports::{BridgePort, free_number},
    with_causes,
};

/// The control side of a switch.
pub(crate) struct Control {
    pub(crate) plane: Plane,
    pub(crate) bridges: Mutex<Bridges>,
    /// Where sockets go; `None`: there are none.
    pub(crate) run_dir: Option<PathBuf>,
    /// Settings that can be changed while the switch runs.
    pub(crate) config: Mutex<Config>,
    pub(crate) captures: Captures,
    /// Bridges and ports change one at a time.
    structure: AsyncMutex<()>,
    /// Lists of ports are published one at a time.
    publishing: Mutex<()>,
    events: mpsc::UnboundedSender<Event>,
    seed: u64,
}

/// A port that was entered in its bridge.
struct Entered {
    number: PortNo,
    /// Why it is not open.
    trouble: Option<SwitchError>,
}

impl Control {
    /// Starts the data plane of a configuration, without its bridges.
    pub(crate) fn start(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
    ) -> Result<(Arc<Self>, News), SwitchError> {
        config.check()?;
        let (plane, packet_ins) = Plane::start(config, seed)?;
        let (events, receiver) = mpsc::unbounded_channel();
        let control = Self {
            plane,
            bridges: Mutex::default(),
            run_dir,
            config: Mutex::new(Config { bridges: Vec::new(), ..config.clone() }),
            captures: Captures::default(),
            structure: AsyncMutex::default(),
            publishing: Mutex::default(),
            events,
            seed,
        };
        Ok((Arc::new(control), News { events: receiver, packet_ins }))
    }

    /// Adds a bridge with its local port, and then the ports of its configuration.
    pub(crate) async fn add_bridge(&self, settings: &config::Bridge) -> Result<(), SwitchError> {
        let whole = Config { bridges: vec![settings.clone()], ..Config::default() };
        whole.check()?;
        let name = settings.name.clone();
        let id = {
            let _structure = self.structure.lock().await;
            let own = config::Bridge { ports: Vec::new(), ..settings.clone() };
            let id = self.bridges.lock().add(own)?.id;
            let tables = bridge_settings(settings);
            self.change(|pipeline| Ok::<_, SwitchError>(pipeline.add_bridge(id, tables)))?;
            id
        };
        if let Err(error) = self.fill_bridge(id, settings).await {
            // Half a bridge is none.
            if let Err(trouble) = self.remove_bridge(&name).await {
                warn!(bridge = name, trouble = with_causes(&trouble), "half a bridge stays behind");
            }
            return Err(error);
        }
        info!(bridge = name, "the bridge is there");
        Ok(())
    }

    /// Adds the ports of a bridge, and opens its sockets.
    async fn fill_bridge(
        &self,
        id: BridgeId,
        settings: &config::Bridge,
    ) -> Result<(), SwitchError> {
        let name = &settings.name;
        let local = config::Port {
            name: name.clone(),
            kind: match settings.local {
                Local::None => PortType::Unbound,
                Local::Tap => PortType::Tap,
            },
            ..config::Port::default()
        };
        let mac = settings.mac()?;
        self.add_configured_port(name, local, Some(PortNo::LOCAL)).await?;
        self.with_port(id, PortNo::LOCAL, |port| port.mac = mac);
        self.publish_ports();
        for port in &settings.ports {
            self.add_configured_port(name, port.clone(), None).await?;
        }
        let (ready, opened) = oneshot::channel();
        self.say(Event::BridgeAdded(id, ready));
        // The other end is dropped unanswered only while the switch stops.
        opened.await.unwrap_or(Ok(()))
    }

    /// Removes a bridge with its ports and rules.
    pub(crate) async fn remove_bridge(&self, name: &str) -> Result<(), SwitchError> {
        let (id, ports) = {
            let bridges = self.bridges.lock();
            let bridge = bridges.find(name)?;
            let names = bridge.ports.values().map(|port| port.settings.name.clone());
            (bridge.id, names.collect::<Vec<_>>())
        };
        self.say(Event::BridgeRemoved(id));
        for port in ports {
            self.take_port_out(&port).await?;
        }
        let _structure = self.structure.lock().await;
        self.change(|pipeline| Ok::<_, SwitchError>(pipeline.remove_bridge(id)))?;
        self.bridges.lock().remove(name);
        info!(bridge = name, "the bridge is gone");
        Ok(())
    }

    /// Adds a port that must open.
    pub(crate) async fn add_port(
        &self,
        bridge: &str,
        settings: config::Port,
    ) -> Result<(), SwitchError> {
        settings.check()?;
        let name = settings.name.clone();
        let entered = self.insert_port(bridge, settings, None, None).await?;
        self.must_be_open(&name, entered).await.map(|_| ())
    }

    /// Takes a port out again that did not open.
    async fn must_be_open(&self, name: &str, entered: Entered) -> Result<PortNo, SwitchError> {
        let Some(trouble) = entered.trouble else { return Ok(entered.number) };
        self.take_port_out(name).await?;
        Err(trouble)
    }

    /// Adds a port that an embedder brings.
    pub(crate) async fn add_own_port(
        &self,
        bridge: &str,
        name: &str,
        port: Box<dyn Port>,
    ) -> Result<PortNo, SwitchError> {
        let settings = config::Port {
            name: name.to_owned(),
            kind: PortType::Unbound,
            ..config::Port::default()
        };
        settings.check()?;
        let entered = self.insert_port(bridge, settings, None, Some(port)).await?;
        self.must_be_open(name, entered).await
    }

    /// Adds a port of the configuration: where its device is not there yet, it stays down until it
    /// is.
    async fn add_configured_port(
        &self,
        bridge: &str,
        settings: config::Port,
        number: Option<PortNo>,
    ) -> Result<(), SwitchError> {
        let (name, may_wait) = (settings.name.clone(), settings.kind == PortType::AfPacket);
        let entered = self.insert_port(bridge, settings, number, None).await?;
        match entered.trouble {
            Some(trouble) if may_wait => {
                let trouble = with_causes(&trouble);
                warn!(port = name, trouble, "the port is down until it opens");
                Ok(())
            }
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// Enters a port in its bridge and opens it, or notes why it does not open.
    async fn insert_port(
        &self,
        bridge: &str,
        settings: config::Port,
        number: Option<PortNo>,
        own: Option<Box<dyn Port>>,
    ) -> Result<Entered, SwitchError> {
        let structure = self.structure.lock().await;
        let name = settings.name.clone();
        let has_datapath =
            own.is_some() || !matches!(settings.kind, PortType::Patch | PortType::Unbound);
        let (id, number) = {
            let mut bridges = self.bridges.lock();
            let datapath = has_datapath.then(|| bridges.next_datapath_port());
            let (id, number) = self.enter(&mut bridges, bridge, settings, number)?;
            if let Some(port) = bridges.by_id_mut(id).and_then(|own| own.ports.get_mut(&number)) {
                port.datapath = datapath;
                port.link_up = datapath.is_none();
            }
            (id, number)
        };
        drop(structure);
        let opened = match own {
            Some(port) => self.attach(&name, port).await,
            None => self.open_port(&name).await,
        };
        let trouble = opened.err();
        if let Some(error) = &trouble {
            self.with_port(id, number, |port| port.trouble = Some(with_causes(error)));
            self.publish_ports();
        }
        self.say(Event::PortAdded(id, number));
        Ok(Entered { number, trouble })
    }

    fn enter(
        &self,
        bridges: &mut Bridges,
        bridge: &str,
        settings: config::Port,
        number: Option<PortNo>,
    ) -> Result<(BridgeId, PortNo), SwitchError> {
        if let Ok((other, port)) = bridges.find_port(&settings.name) {
            let (name, bridge) = (port.settings.name.clone(), other.settings.name.clone());
            return Err(SwitchError::PortExists { name, bridge });
        }
        let bridge = bridges.find_mut(bridge)?;
        let wanted = number.or_else(|| (settings.number > 0).then(|| PortNo::new(settings.number)));
        let number = wanted.unwrap_or_else(|| free_number(&bridge.ports));
        if let Some(other) = bridge.ports.get(&number) {
            let port = other.settings.name.clone();
            return Err(SwitchError::NumberTaken { number: number.number(), port });
        }
        let port =
            BridgePort::new(settings, number, self.plane.threads_count(), self.plane.clock.now());
        bridge.ports.insert(number, port);
        Ok((bridge.id, number))
    }

    /// Opens a port that is entered and not open, and hands it to the packet threads.
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
        // A capture file is read whole, and a device takes the system a while.
        let opened = tokio::task::spawn_blocking(move || open(&spec, seed)).await;
        let doing = || format!("open port {name}");
        let opened =
            opened.map_err(|error| SwitchError::System { doing: doing(), source: error.into() })?;
        let failed = |source| SwitchError::Port { name: name.to_owned(), source };
        self.attach(name, opened.map_err(failed)?).await
    }

    /// Hands an open port to the packet threads, and then to the tables.
    async fn attach(&self, name: &str, mut port: Box<dyn Port>) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        let (id, number, datapath, traffic) = {
            let bridges = self.bridges.lock();
            let (bridge, entered) = bridges.find_port(name)?;
            if entered.open.is_some() {
                // Somebody else was faster.
                return Ok(());
            }
            (bridge.id, entered.number, entered.datapath, entered.traffic.clone())
        };
        let failed = |source| SwitchError::Port { name: name.to_owned(), source };
        let queues = port.split(self.plane.threads_count()).map_err(failed)?;
        let Some(datapath) = datapath else { return Ok(()) };
        let capabilities = port.capabilities();
        for (thread, (queues, traffic)) in queues.into_iter().zip(traffic).enumerate() {
            let added =
                ThreadPort { port: datapath, bridge: id, number, capabilities, queues, traffic };
            self.plane.send(thread, Command::AddPort(Box::new(added))).await;
        }
        // The threads answer in order, so once they answer this they have the port.
        self.plane.pull().await;
        self.with_port(id, number, |entered| {
            entered.mac = if number == PortNo::LOCAL { entered.mac } else { port.mac() };
            entered.link_up = port.link_up();
            entered.trouble = None;
            entered.open = Some(port);
        });
        self.publish_ports();
        Ok(())
    }

    /// Removes a port.
    pub(crate) async fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        if self.bridges.lock().find_port(name)?.1.number == PortNo::LOCAL {
            let problem = "it is the bridge's own; remove the bridge";
            return Err(SwitchError::PortSetting { port: name.to_owned(), problem });
        }
        self.take_port_out(name).await
    }

    async fn take_port_out(&self, name: &str) -> Result<(), SwitchError> {
        self.detach(name).await?;
        let (id, info) = {
            let mut bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let (id, number) = (bridge.id, port.number);
            let info = port.info(shunt_pipeline::PortKind::Unbound);
            if let Some(bridge) = bridges.by_id_mut(id) {
                bridge.ports.remove(&number);
            }
            (id, info)
        };
        self.publish_ports();
        self.say(Event::PortRemoved(id, Box::new(info)));
        Ok(())
    }

    /// Takes a port out of the tables and then from the packet threads, and closes it.
    pub(crate) async fn detach(&self, name: &str) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        let (datapath, open) = {
            let mut bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let (id, number, datapath) = (bridge.id, port.number, port.datapath);
            let port = bridges.by_id_mut(id).and_then(|own| own.ports.get_mut(&number));
            let open = port.and_then(|port| {
                port.link_up = false;
                port.open.take()
            });
            (datapath, open)
        };
        self.publish_ports();
        if let (Some(datapath), Some(open)) = (datapath, open) {
            self.plane.adopted(self.plane.pipeline.version()).await;
            let question = |_, reply| Command::RemovePort(datapath, reply);
            let queues: Vec<Option<Queues>> = self.plane.ask(question).await;
            // Closing a device takes the system a while: not on a packet thread, nor on this one.
            let close = tokio::task::spawn_blocking(move || drop((queues, open)));
            let _ = close.await;
        }
        Ok(())
    }

    /// Looks after ports: notes links that went up or down, takes out what broke, opens what comes
    /// back.
    pub(crate) async fn watch_ports(&self) {
        let (mut broken, mut closed, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for bridge in self.bridges.lock().iter_mut() {
            for port in bridge.ports.values_mut() {
                let name = port.settings.name.clone();
                if port.is_broken() {
                    broken.push(name);
                } else if let Some(open) = &port.open {
                    let link_up = open.link_up();
                    if link_up != port.link_up {
                        port.link_up = link_up;
                        changed.push((bridge.id, port.number));
                    }
                } else if port.trouble.is_some() && port.spec().is_some() {
                    closed.push((name, bridge.id, port.number));
                }
            }
        }
        if !changed.is_empty() {
            self.publish_ports();
        }
        changed.into_iter().for_each(|(id, number)| self.say(Event::PortChanged(id, number)));
        for name in broken {
            warn!(port = name, "the port has vanished; it stays down until it comes back");
            if self.detach(&name).await.is_ok() {
                self.forget_breakage(&name);
            }
        }
        for (name, id, number) in closed {
            if self.open_port(&name).await.is_ok() {
                info!(port = name, "the port is back");
                self.say(Event::PortChanged(id, number));
            }
        }
    }

    fn forget_breakage(&self, name: &str) {
        let place = self.bridges.lock().find_port(name).map(|(own, port)| (own.id, port.number));
        if let Ok((id, number)) = place {
            self.with_port(id, number, |port| {
                port.trouble = Some("the device has vanished".to_owned());
                port.traffic.iter().for_each(|traffic| traffic.rx_broken.set(0));
            });
            self.say(Event::PortChanged(id, number));
        }
    }

    /// Makes a change of tables, and says which rules it took.
    pub(crate) fn change<E>(
        &self,
        make: impl FnOnce(&shunt_pipeline::Pipeline) -> Result<Change, E>,
    ) -> Result<Change, E> {
        let change = self.plane.change(make)?;
        let removed: Vec<_> = change
            .deltas
            .iter()
            .filter_map(|delta| match delta {
                shunt_pipeline::Delta::Rule(delta) => match delta.change {
                    shunt_pipeline::RuleChange::Removed(reason)
                        if delta.rule.flags.send_flow_removed
                            && reason != RemovedReason::Replaced =>
                    {
                        Some((Arc::clone(&delta.rule), reason))
                    }
                    _ => None,
                },
                shunt_pipeline::Delta::Changed(_) => None,
            })
            .collect();
        if !removed.is_empty() {
            self.say(Event::RulesRemoved(change.version, removed));
        }
        Ok(change)
    }

    /// Tells the tables of all ports as they are now.
    pub(crate) fn publish_ports(&self) {
        // What is published last must have been looked at last.
        let _publishing = self.publishing.lock();
        let infos = self.bridges.lock().infos();
        for (id, ports) in infos {
            let same = self.plane.pipeline.ports(id).is_some_and(|known| *known == *ports);
            if !same && let Err(error) = self.change(|pipeline| pipeline.set_ports(id, ports)) {
                warn!(%error, "ports of a bridge that is gone");
            }
        }
    }

    /// What tables know of a port.
    pub(crate) fn port_info(&self, bridge: BridgeId, number: PortNo) -> Option<PortInfo> {
        let ports = self.plane.pipeline.ports(bridge)?;
        ports.iter().find(|port| port.number == number).cloned()
    }

    /// Changes what is noted of a port.
    pub(crate) fn with_port<T>(
        &self,
        bridge: BridgeId,
        number: PortNo,
        change: impl FnOnce(&mut BridgePort) -> T,
    ) -> Option<T> {
        let mut bridges = self.bridges.lock();
        bridges.by_id_mut(bridge)?.ports.get_mut(&number).map(change)
    }

    pub(crate) fn say(&self, event: Event) {
        // Nobody listens only while the switch is being dropped.
        let _ = self.events.send(event);
    }
}

fn bridge_settings(settings: &config::Bridge) -> BridgeSettings {
    let limit = settings.table_rules;
    let tables = (0..TableId::COUNT).filter_map(TableId::new).filter(|_| limit > 0);
    BridgeSettings {
        name: settings.name.clone(),
        rules_max: tables.map(|table| (table, limit)).collect(),
    }
}
