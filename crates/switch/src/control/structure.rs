//! Changes of bridges, ports and settings, one at a time.
//!
//! [`ControlPlane`](super::ControlPlane) keeps a [`Structure`] behind its first lock. A caller
//! holds this lock from the first check to the last step of a change. A change that combines
//! several steps, such as the difference between two configurations, is one more method of
//! [`Structure`].

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::port::{DeviceMtu, Port};
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PortKind};
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};
use tracing::{info, warn};

use super::{mirror_log::MirrorLog, settings::bridge_settings};
use crate::{
    bfd_thread::end_sessions,
    config::{self, Config, PortType},
    error::{SwitchError, with_causes},
    exports::Exporters,
    lacp_task::leave_partners,
    nic::NicSlot,
    openflow::events::{ControlEvent, SocketsToClose},
    ports::{attacher::PortAttacher, bridges::Bridges, capture::Captures, registry::PortBacking},
    saved_state::config_in_force,
    threads::data_plane::DataPlane,
};

/// The changes of bridges, ports and settings.
pub(crate) struct Structure {
    pub(super) plane: Arc<DataPlane>,
    pub(super) bridges: Arc<Bridges>,
    pub(super) ports: PortAttacher,
    pub(super) nic: Arc<NicSlot>,
    /// The settings of the switch in force.
    pub(super) config: Arc<Mutex<Config>>,
    /// Settings as operators have configured them.
    pub(super) configured: Arc<Mutex<Config>>,
    /// Keys of the settings that a program overrides.
    pub(super) overridden: Mutex<BTreeSet<&'static str>>,
    pub(super) captures: Arc<Captures>,
    pub(super) exports: Arc<Exporters>,
    /// The logged reasons why mirrors copy less than configured.
    pub(super) mirror_log: MirrorLog,
    /// Sender of events for the OpenFlow servers.
    pub(super) events: mpsc::Sender<ControlEvent>,
}

/// The handling of a device or socket address that cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenPolicy {
    /// The bridge or port is refused, except for ports that may wait for their device.
    Required,
    /// The bridge or port is added nevertheless, and the switch retries to open it.
    ///
    /// A missing device or address must not cost the bridge its rules.
    Retried,
}

/// A function that fills the tables of a new bridge, given the name of the bridge.
pub(crate) type TableFiller<'a> = dyn FnMut(&str) + Send + 'a;

/// The result of adding a port to its bridge.
///
/// The OpenFlow server of the bridge does not have the port yet.
struct PortInsertion {
    /// The bridge of the port.
    bridge: BridgeId,
    /// The OpenFlow number that the port got.
    number: PortNo,
    /// Reason why the port could not be opened.
    error: Option<SwitchError>,
}

impl Structure {
    /// Returns the attacher, which opens and closes existing ports.
    pub(crate) const fn ports(&self) -> &PortAttacher {
        &self.ports
    }

    /// Returns the bridges and ports that exist.
    pub(crate) fn bridges(&self) -> &Bridges {
        &self.bridges
    }

    /// Returns the configured settings, with the bridges that exist.
    pub(crate) fn running_config(&self) -> Config {
        let settings = self.configured.lock().clone();
        config_in_force(&settings, &self.bridges.lock())
    }

    /// Applies the configured NIC.
    ///
    /// Ports behind the previous or the new NIC are reopened.
    pub(crate) async fn apply_nic(&self) -> Result<(), SwitchError> {
        let config = self.config.lock().clone();
        if let Some(nic) = self.nic.apply(&config).await? {
            self.ports.reopen_at_nic(&nic).await;
        }
        Ok(())
    }

    /// Adds a bridge with its local port and the ports of its configuration.
    pub(crate) async fn add_bridge(
        &self,
        settings: &config::BridgeOptions,
    ) -> Result<(), SwitchError> {
        self.create_bridge(settings, OpenPolicy::Required, &mut |_| ()).await
    }

    /// Adds a bridge, with a policy for its devices and addresses.
    ///
    /// `fill` is called before the bridge has ports and controllers; it may add rules to the
    /// tables.
    pub(crate) async fn create_bridge(
        &self,
        settings: &config::BridgeOptions,
        policy: OpenPolicy,
        fill: &mut TableFiller<'_>,
    ) -> Result<(), SwitchError> {
        self.check_bridge(&config::BridgeOptions::default(), settings)?;
        let name = settings.name.clone();
        self.reclaim_if_short().await;
        let is_reserved = self.bridges.lock().is_reserved(&name);
        if is_reserved {
            // The new bridge may get the number of a removed bridge. No packet thread may still use
            // that number for the removed bridge.
            self.plane.adopted_newest().await;
            self.bridges.reclaim(self.plane.version());
        }
        let own = config::BridgeOptions { ports: Vec::new(), ..settings.clone() };
        let id = self.bridges.lock().add(own)?.id;
        let tables = bridge_settings(settings);
        self.plane
            .publisher()
            .change(|pipeline| Ok::<_, SwitchError>(pipeline.add_bridge(id, tables)))?;
        fill(&name);
        if let Err(error) = self.fill_bridge(id, settings, policy).await {
            // A bridge is removed again if one of its ports could not be added.
            if let Err(refused) = self.remove_bridge(&name).await {
                warn!(
                    error = with_causes(&refused),
                    "bridge {name}: the bridge is incomplete, and cannot be removed"
                );
            }
            return Err(error);
        }
        let without = config::BridgeOptions { name: name.clone(), ..Default::default() };
        self.exports.apply(id, &without, settings).await;
        info!(ports = settings.ports.len(), "bridge {name}: added");
        self.warn_of_shared_datapath_id(id);
        Ok(())
    }

    /// Checks the options of a bridge, and the names of its bonds.
    ///
    /// `before` has the options of the bridge that is replaced.
    fn check_bridge(
        &self,
        before: &config::BridgeOptions,
        settings: &config::BridgeOptions,
    ) -> Result<(), SwitchError> {
        let whole = Config { bridges: vec![settings.clone()], ..Config::default() };
        whole.check_parts().map_err(|error| *error.problem)?;
        self.check_bond_names(before, settings)
    }

    /// Checks whether `settings` could replace the bridge of the same name.
    pub(crate) fn check_replacement(
        &self,
        settings: &config::BridgeOptions,
    ) -> Result<(), SwitchError> {
        let before = {
            let bridges = self.bridges.lock();
            bridges.check_exclusive(&settings.local_port())?;
            bridges.find(&settings.name)?.settings.clone()
        };
        self.check_bridge(&before, settings)
    }

    /// Adds the ports of a bridge, and opens its OpenFlow sockets.
    async fn fill_bridge(
        &self,
        id: BridgeId,
        settings: &config::BridgeOptions,
        policy: OpenPolicy,
    ) -> Result<(), SwitchError> {
        let (name, local) = (&settings.name, Some(PortNo::LOCAL));
        let mut ports = vec![(settings.local_port(), local)];
        ports.extend(settings.ports.iter().map(|port| (port.clone(), None)));
        self.add_configured_ports(name, ports, policy).await?;
        let (ready, opened) = oneshot::channel();
        self.notify(ControlEvent::BridgeAdded(id, policy, ready)).await;
        // The reply is missing only while the switch stops.
        opened.await.unwrap_or(Ok(()))
    }

    /// Closes all OpenFlow sockets of a bridge and opens them again.
    pub(crate) async fn reconnect(&self, id: BridgeId) -> Result<(), SwitchError> {
        let (ready, changed) = oneshot::channel();
        let (closing, policy) = (SocketsToClose::All, OpenPolicy::Retried);
        self.notify(ControlEvent::BridgeChanged { id, closing, policy, ready }).await;
        // The reply is missing only while the switch stops.
        changed.await.unwrap_or(Ok(()))
    }

    /// Removes a bridge with its ports and rules.
    pub(crate) async fn remove_bridge(&self, name: &str) -> Result<(), SwitchError> {
        let (id, ports, before) = {
            let bridges = self.bridges.lock();
            let bridge = bridges.find(name)?;
            let names = bridge.ports.values().map(|port| port.settings.name.clone());
            (bridge.id, names.collect::<Vec<_>>(), bridge.settings.clone())
        };
        self.notify(ControlEvent::BridgeRemoved(id)).await;
        let without = config::BridgeOptions { name: name.to_owned(), ..Default::default() };
        self.exports.apply(id, &before, &without).await;
        for port in ports {
            self.remove_any_port(&port).await?;
        }
        let publisher = self.plane.publisher();
        let version =
            publisher.change(|pipeline| Ok::<_, SwitchError>(pipeline.remove_bridge(id)))?;
        self.bridges.lock().remove(name, version);
        info!("bridge {name}: removed");
        Ok(())
    }

    /// Adds a port; returns an error if the port cannot be opened.
    ///
    /// After an error, the device of the port has its previous MTU.
    pub(crate) async fn add_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
    ) -> Result<(), SwitchError> {
        settings.check()?;
        let name = settings.name.clone();
        let mtu = settings.mtu().and_then(|_| DeviceMtu::read(settings.device()));
        let added = match self.insert_port(bridge, settings, None).await {
            Ok(entered) => self.require_open(bridge, &name, entered).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Some(mtu) = mtu.filter(|_| added.is_err()) {
            let _ = spawn_blocking(move || mtu.restore()).await;
        }
        added
    }

    /// Adds a port that the program with the switch in it supplies.
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
        let entered = self.insert_port(bridge, settings, Some(port)).await?;
        self.require_open(bridge, name, entered).await
    }

    /// Removes a port that could not be opened, and returns the error.
    async fn require_open(
        &self,
        bridge: &str,
        name: &str,
        mut entered: PortInsertion,
    ) -> Result<PortNo, SwitchError> {
        let kept_mtu =
            self.bridges.with_port(entered.bridge, entered.number, |port| port.mtu_problem());
        let error = entered.error.take().or_else(|| {
            let problem = kept_mtu.flatten()?;
            Some(SwitchError::PortMtu { port: name.to_owned(), problem })
        });
        let Some(error) = error else {
            self.announce_port(bridge, name, &entered).await;
            return Ok(entered.number);
        };
        warn!(error = with_causes(&error), "port {name}: cannot be added");
        // The port was not announced to controllers, so its removal is not announced either.
        drop(self.take_port_out(name).await?);
        Err(error)
    }

    /// Adds a port of the configuration.
    ///
    /// Returns the reason if the port is down. An `af_packet` or `af_xdp` port stays down while its
    /// device does not exist.
    pub(crate) async fn add_configured_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
        number: Option<PortNo>,
        policy: OpenPolicy,
    ) -> Result<Option<String>, SwitchError> {
        let problems = self.add_configured_ports(bridge, vec![(settings, number)], policy).await?;
        Ok(problems.into_iter().next().flatten())
    }

    /// Adds ports of the configuration, each with its number if one is given.
    ///
    /// Returns for each port the reason if it is down. All ports are opened at the same time.
    async fn add_configured_ports(
        &self,
        bridge: &str,
        ports: Vec<(config::PortOptions, Option<PortNo>)>,
        policy: OpenPolicy,
    ) -> Result<Vec<Option<String>>, SwitchError> {
        let kinds: Vec<_> = ports.iter().map(|(port, _)| (port.name.clone(), port.kind)).collect();
        for (settings, number) in ports {
            let backing = PortBacking::of(settings.kind);
            self.register_port(bridge, settings, number, backing).await?;
        }
        let names: Vec<_> = kinds.iter().map(|(name, _)| name.clone()).collect();
        let opened = self.ports.open_all(&names).await;
        let mut problems = Vec::with_capacity(opened.len());
        for ((name, kind), opened) in kinds.iter().zip(opened) {
            let may_wait = policy == OpenPolicy::Retried || kind.may_wait_for_device();
            let entered = self.note_opened(name, opened)?;
            if entered.error.is_none() || may_wait {
                self.announce_port(bridge, name, &entered).await;
            }
            match entered.error {
                Some(error) if may_wait => {
                    let error = with_causes(&error);
                    if kind.is_reopened() {
                        warn!(error, "port {name}: down until it can be opened");
                    } else {
                        warn!(error, "port {name}: down until the daemon starts again");
                    }
                    problems.push(Some(error));
                }
                Some(error) => return Err(error),
                None => problems.push(None),
            }
        }
        Ok(problems)
    }

    /// Registers a port in its bridge and opens it;
    /// records the reason if it cannot be opened.
    async fn insert_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
        own: Option<Box<dyn Port>>,
    ) -> Result<PortInsertion, SwitchError> {
        let name = settings.name.clone();
        let backing =
            if own.is_some() { PortBacking::Packets } else { PortBacking::of(settings.kind) };
        self.register_port(bridge, settings, None, backing).await?;
        let opened = match own {
            Some(port) => self.ports.attach(&name, port).await,
            None => self.ports.open(&name).await,
        };
        self.note_opened(&name, opened)
    }

    /// Registers a closed port in its bridge.
    async fn register_port(
        &self,
        bridge: &str,
        settings: config::PortOptions,
        number: Option<PortNo>,
        backing: PortBacking,
    ) -> Result<(), SwitchError> {
        self.reclaim_if_short().await;
        let (threads, now) = (self.plane.threads_count(), self.plane.now());
        self.bridges.lock().add_port(bridge, settings, number, backing, threads, now).map(drop)
    }

    /// Records the reason if a registered port could not be opened.
    fn note_opened(
        &self,
        name: &str,
        opened: Result<(), SwitchError>,
    ) -> Result<PortInsertion, SwitchError> {
        let (bridge, number) = {
            let bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            (bridge.id, port.number)
        };
        let error = opened.err();
        if let Some(error) = &error {
            self.bridges.with_port(bridge, number, |port| port.note_open_error(error));
            self.bridges.publish_ports();
        }
        Ok(PortInsertion { bridge, number, error })
    }

    /// Logs a port that stays in its bridge, and announces it to the controllers.
    async fn announce_port(&self, bridge: &str, name: &str, entered: &PortInsertion) {
        info!(number = %entered.number, "port {name}: added to {bridge}");
        self.notify(ControlEvent::PortAdded(entered.bridge, entered.number)).await;
    }

    /// Removes a port; refuses the local port of a bridge.
    pub(crate) async fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        if self.bridges.lock().find_port(name)?.1.number == PortNo::LOCAL {
            let problem = "a local port cannot be removed: remove its bridge";
            return Err(SwitchError::PortSetting { port: name.to_owned(), problem });
        }
        self.remove_any_port(name).await
    }

    /// Removes a port, also the local port of a bridge.
    async fn remove_any_port(&self, name: &str) -> Result<(), SwitchError> {
        let removed = self.take_port_out(name).await?;
        self.notify(removed).await;
        info!("port {name}: removed");
        Ok(())
    }

    /// Closes a port and removes it from its bridge.
    ///
    /// Returns the event that announces the removal to the controllers.
    async fn take_port_out(&self, name: &str) -> Result<ControlEvent, SwitchError> {
        leave_partners(&self.plane, &self.bridges, |_, _, member| member == name).await;
        end_sessions(&self.plane, self.bridges.bfd(), |own| own.name == name).await;
        self.ports.remove(name).await?;
        let (id, datapath, last) = {
            let mut bridges = self.bridges.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let (id, number, datapath) = (bridge.id, port.number, port.datapath);
            let last = port.info(PortKind::Unbound);
            bridges.remove_port(id, number);
            (id, datapath, last)
        };
        self.bridges.publish_ports();
        if let Some(datapath) = datapath {
            self.captures.end_at(datapath).await;
            let version = self.plane.pipeline().version();
            self.bridges.lock().give_datapath_port_back(datapath, version);
        }
        Ok(ControlEvent::PortRemoved(id, Box::new(last)))
    }

    /// Sets the VLANs and the protection of a port to the values in the options `port`.
    ///
    /// Returns when no packet uses the old VLANs.
    pub(crate) async fn set_vlans(&self, port: &config::PortOptions) -> Result<(), SwitchError> {
        let (name, vlans) = (port.name.clone(), port.vlans_text());
        let mistake = self.bridges.lock().bond_of(&name).and_then(|bond| port.bond_mistake(bond));
        if let Some(mistake) = mistake {
            return Err(*mistake.problem);
        }
        self.bridges.set_vlans(port)?;
        self.plane.adopted_newest().await;
        info!("port {name}: VLANs set: {vlans}");
        Ok(())
    }

    /// Waits for numbers of removed ports if no unused port number is left.
    async fn reclaim_if_short(&self) {
        let is_short = self.bridges.lock().is_short_of_numbers();
        if is_short {
            self.plane.adopted_newest().await;
            self.bridges.reclaim(self.plane.version());
        }
    }

    /// Sends a control event to its receiver.
    pub(super) async fn notify(&self, event: ControlEvent) {
        // The receiver is closed only while the switch is being dropped.
        let _ = self.events.send(event).await;
    }
}
