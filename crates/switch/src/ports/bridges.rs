//! The bridges of a switch: the registry behind its lock, and its publication to the tables.

use std::{path::Path, sync::Arc, thread};

use parking_lot::{Mutex, MutexGuard};
use shunt_classifier::Version;
use shunt_datapath::port::{DeviceLosses, PortWork};
use shunt_flow::PortNo;
use shunt_pipeline::{
    BridgeId, Change, DatapathPort, NoSuchBridge, Pipeline, PortConfig, PortInfo,
};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::{
    config::PortOptions,
    error::SwitchError,
    openflow::events::ChangedPorts,
    ports::{
        bfd::sessions::BfdSessions,
        bond_events::BondEvent,
        changed_bonds::ChangedBonds,
        port::BridgePort,
        publication::{PublishedPorts, find_info},
        registry::{BridgeRegistry, BridgeState},
        set_down::DevicesSetDown,
        static_macs::log_removed_statics,
    },
    threads::publisher::Publisher,
};

/// Maximum number of threads that close devices.
const CLOSERS_MAX: usize = 128;

/// The bridges of a switch.
pub(crate) struct Bridges {
    /// The bridges with their ports and settings.
    registry: Mutex<BridgeRegistry>,
    /// Held while port lists are published, so that they are published in order.
    publishing: Mutex<()>,
    /// The maker of versions of the tables.
    publisher: Arc<Publisher>,
    /// Ports that have changed since controllers were last notified.
    changed: ChangedPorts,
    /// Ports that a controller has set up or down.
    ///
    /// The devices of these ports must still be set up or down.
    admin_changes: ChangedPorts,
    /// Devices that the switch has set down for controllers.
    set_down: Arc<DevicesSetDown>,
    /// The bonds that have changed, for their tasks.
    changed_bonds: ChangedBonds,
    /// Notified when the members of bonds, their links or options may have changed.
    lacp_changed: Notify,
    /// BFD sessions of ports.
    bfd: BfdSessions,
}

impl Bridges {
    /// Returns a switch without bridges. `run_dir` keeps the devices set down.
    pub(crate) fn new(publisher: Arc<Publisher>, run_dir: Option<&Path>, seed: u64) -> Self {
        let (registry, publishing) = (Mutex::default(), Mutex::default());
        let (changed, admin_changes) = (ChangedPorts::default(), ChangedPorts::default());
        let (changed_bonds, lacp_changed) = (ChangedBonds::default(), Notify::new());
        Self {
            registry,
            publishing,
            publisher,
            changed,
            admin_changes,
            set_down: Arc::new(DevicesSetDown::read(run_dir)),
            changed_bonds,
            lacp_changed,
            bfd: BfdSessions::new(seed),
        }
    }

    /// Locks the registry. The caller calls [`Self::publish_ports`] after a change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BridgeRegistry> {
        self.registry.lock()
    }

    /// Locks the registry, with current counters of devices.
    ///
    /// One request to the kernel reads the losses of all devices, before the lock is taken.
    pub(crate) fn lock_counted(&self) -> MutexGuard<'_, BridgeRegistry> {
        let is_lossy = self.lock().iter().any(|bridge| bridge.lossy_devices().next().is_some());
        let losses = if is_lossy { DeviceLosses::read() } else { DeviceLosses::default() };
        let bridges = self.lock();
        for device in bridges.iter().flat_map(BridgeState::lossy_devices) {
            device.note_losses(&losses);
        }
        bridges
    }

    /// Returns the number of the bridge with the given name.
    pub(crate) fn id(&self, name: &str) -> Result<BridgeId, SwitchError> {
        Ok(self.lock().find(name)?.id)
    }

    /// Changes the stored state of a port; `None` if the port does not exist.
    pub(crate) fn with_port<T>(
        &self,
        bridge: BridgeId,
        number: PortNo,
        change: impl FnOnce(&mut BridgePort) -> T,
    ) -> Option<T> {
        self.lock().port_mut(bridge, number).map(change)
    }

    /// Sets the VLANs and the protection of a port to the values in `vlans`.
    ///
    /// Other options in `vlans` are ignored.
    pub(crate) fn set_vlans(&self, vlans: &PortOptions) -> Result<(), SwitchError> {
        vlans.check()?;
        {
            let mut bridges = self.lock();
            let (bridge, port) = bridges.find_port(&vlans.name)?;
            let (id, number, options) =
                (bridge.id, port.number, port.settings.with_vlans_of(vlans));
            bridges.set_port_options(id, number, options);
        }
        self.publish_ports();
        Ok(())
    }

    /// Changes the rate limits of a port; refuses a local port.
    ///
    /// `change` returns the new options, and `renew` creates new token buckets. Returns the
    /// datapath port and the result of `renew`, or `None` if the options have not changed.
    pub(crate) fn change_limits<T>(
        &self,
        name: &str,
        change: impl FnOnce(&PortOptions) -> PortOptions,
        renew: impl FnOnce(&mut BridgePort) -> T,
    ) -> Result<Option<(Option<DatapathPort>, T)>, SwitchError> {
        let mut bridges = self.lock();
        let (bridge, port) = bridges.find_port(name)?;
        let (bridge, number) = (bridge.id, port.number);
        if number == PortNo::LOCAL {
            let problem = "a local port has no ingress policing and no QoS: limit the other ports \
                           of its bridge";
            return Err(SwitchError::PortSetting { port: name.to_owned(), problem });
        }
        let changed = change(&port.settings);
        changed.check()?;
        if port.settings == changed {
            return Ok(None);
        }
        let Some(port) = bridges.set_port_options(bridge, number, changed) else {
            return Ok(None);
        };
        Ok(Some((port.datapath, renew(port))))
    }

    /// Publishes all ports that differ from the tables.
    ///
    /// Bonds are updated first. So the version in which a link is down already has the next active
    /// member. The cost depends on the changed ports, the members of bonds, and the BFD sessions.
    pub(crate) fn publish_ports(&self) {
        // Without this lock, an older list could be published after a newer list.
        let _publishing = self.publishing.lock();
        let pipeline = self.publisher.pipeline();
        let ids: Vec<_> = self.lock().iter().map(|bridge| bridge.id).collect();
        // The ports of a bridge that is being added are published once the bridge is in the tables.
        let published: PublishedPorts =
            ids.into_iter().filter_map(|id| Some((id, pipeline.ports(id)?))).collect();
        let unpublished = {
            let mut bridges = self.lock();
            bridges.update_bfd(&self.bfd, self.publisher.now());
            let events = bridges.update_bonds(self.publisher.now());
            if !events.is_empty() {
                self.note_bond_events(events);
            }
            if bridges.uses_lacp() {
                self.lacp_changed.notify_one();
            }
            bridges.take_unpublished(&published)
        };
        for (id, ports) in unpublished {
            let change = self.publisher.change(|pipeline| {
                log_removed_statics(pipeline, id, |pipeline| pipeline.change_ports(id, ports))
            });
            if let Err(error) = change {
                self.note_refused(id, &error);
            }
        }
    }

    /// Logs changes of bonds, and wakes the tasks that handle them.
    fn note_bond_events(&self, events: Vec<(BridgeId, String, BondEvent)>) {
        for (_, bond, event) in &events {
            info!("bond {bond}: {event}");
        }
        let moved = events.into_iter().filter_map(|(bridge, bond, event)| match event {
            BondEvent::Active(_) | BondEvent::Moved(_) => Some((bridge, bond)),
            _ => None,
        });
        self.changed_bonds.add(moved);
        self.changed.note();
    }

    /// Returns the changed bonds that tasks still have to process.
    pub(crate) const fn changed_bonds(&self) -> &ChangedBonds {
        &self.changed_bonds
    }

    /// Returns the notification for the LACP task.
    pub(crate) const fn lacp_changed(&self) -> &Notify {
        &self.lacp_changed
    }

    /// Returns the BFD sessions of ports.
    pub(crate) const fn bfd(&self) -> &BfdSessions {
        &self.bfd
    }

    /// Changes the tables and the OpenFlow port configuration, in one order for both.
    pub(crate) fn change_ports<E>(
        &self,
        id: BridgeId,
        make: impl FnOnce(&Pipeline, &mut Vec<(PortNo, PortConfig)>) -> Result<Change, E>,
    ) -> Result<Version, E> {
        // No other port list may be published between the following steps.
        let _publishing = self.publishing.lock();
        let mut configs = Vec::new();
        let version = self.publisher.change(|pipeline| {
            let change = make(pipeline, &mut configs)?;
            Ok(self.with_failover(id, pipeline, change, &configs))
        })?;
        configs.iter().for_each(|(number, _)| self.changed.add(id, *number));
        Ok(version)
    }

    /// Stores the port configuration in a change, and adds the failover of bonds.
    ///
    /// `OFPPC_PORT_DOWN` disables a member of a bond. The failover is added to the same change, so
    /// no packet sees a version between them.
    fn with_failover(
        &self,
        id: BridgeId,
        pipeline: &Pipeline,
        mut change: Change,
        configs: &[(PortNo, PortConfig)],
    ) -> Change {
        let published: PublishedPorts =
            pipeline.ports(id).map(|ports| (id, ports)).into_iter().collect();
        let ports = {
            let mut bridges = self.lock();
            for (number, config) in configs {
                if let Some(port) = bridges.port_mut(id, *number) {
                    self.store_port_config(id, port, *config);
                }
            }
            if configs.is_empty() {
                return change;
            }
            bridges.update_bfd(&self.bfd, self.publisher.now());
            if !bridges.has_bonds(id) {
                return change;
            }
            let events = bridges.update_bonds(self.publisher.now());
            if bridges.uses_lacp() {
                self.lacp_changed.notify_one();
            }
            if events.is_empty() {
                return change;
            }
            self.note_bond_events(events);
            bridges.take_unpublished(&published).pop()
        };
        let failover = ports.map(|(_, ports)| pipeline.change_ports(id, ports));
        match failover {
            Some(Ok(Change { version, deltas })) => {
                change.version = version;
                change.deltas.extend(deltas);
            }
            Some(Err(error)) => self.note_refused(id, &error),
            None => {}
        }
        change
    }

    /// Logs that the tables refuse changed ports.
    ///
    /// The next publication compares all ports.
    fn note_refused(&self, id: BridgeId, error: &NoSuchBridge) {
        warn!(%error, "bridge {}: the tables refuse the changed ports, and keep the previous ones",
              id.number());
        self.lock().note_all_changed(id);
    }

    /// Stores the port configuration that a controller has set.
    ///
    /// A task then sets the device up or down.
    pub(crate) fn set_port_config(&self, id: BridgeId, number: PortNo, config: PortConfig) {
        self.with_port(id, number, |port| self.store_port_config(id, port, config));
    }

    /// Stores the configuration of a port, and notes a change of `port_down`.
    fn store_port_config(&self, id: BridgeId, port: &mut BridgePort, config: PortConfig) {
        let before = std::mem::replace(&mut port.config, config);
        if before.port_down != config.port_down {
            self.admin_changes.add(id, port.number);
        }
    }

    /// Returns the ports with devices that must be set as a controller requested.
    pub(crate) const fn admin_changes(&self) -> &ChangedPorts {
        &self.admin_changes
    }

    /// Returns the devices that the switch has set down for controllers.
    pub(crate) const fn set_down(&self) -> &Arc<DevicesSetDown> {
        &self.set_down
    }

    /// Returns the ports that have changed since controllers were last notified.
    pub(crate) const fn changed(&self) -> &ChangedPorts {
        &self.changed
    }

    /// Closes all devices, because the switch stops.
    ///
    /// The kernel waits for a grace period of tens of milliseconds when a packet socket is closed.
    /// Sockets that are closed at the same time share this period.
    pub(crate) fn close_devices(&self) {
        let ports: Vec<_> = {
            let mut bridges = self.lock();
            bridges.iter_mut().for_each(|bridge| bridge.ports.note_all_changed());
            let ports = bridges.iter_mut().flat_map(|bridge| bridge.ports.values_mut());
            let ended = ports.filter_map(|port| {
                let set_up = port.take_up_work(&self.set_down);
                Some((set_up, port.open.take()?))
            });
            ended.collect()
        };
        let closers = ports.len().min(CLOSERS_MAX);
        let waiting = Mutex::new(ports);
        let close = || {
            while let Some((set_up, port)) = { waiting.lock().pop() } {
                set_up.into_iter().for_each(|work: PortWork| work());
                drop(port);
            }
        };
        thread::scope(|scope| {
            for _ in 1..closers {
                // If a thread cannot start, the other threads close its devices.
                let _ = thread::Builder::new().spawn_scoped(scope, close);
            }
            close();
        });
    }

    /// Reclaims everything that only versions before `oldest` contain.
    pub(crate) fn reclaim(&self, oldest: Version) {
        self.publisher.pipeline().reclaim(oldest);
        self.lock().reclaim(oldest);
    }

    /// Calls [`Self::reclaim`] if many rules have been removed or modified.
    ///
    /// So memory stays bounded when controllers change the same rules repeatedly between two runs
    /// of the upkeep.
    pub(crate) fn reclaim_if_many(&self, oldest: Version) {
        if self.publisher.take_retired() {
            self.reclaim(oldest);
        }
    }

    /// Returns the published port list of a bridge.
    ///
    /// Until a port changes, each call returns the same list.
    pub(crate) fn published(&self, bridge: BridgeId) -> Option<Arc<[Arc<PortInfo>]>> {
        self.publisher.pipeline().ports(bridge)
    }

    /// Returns the port as the tables see it.
    pub(crate) fn port_info(&self, bridge: BridgeId, number: PortNo) -> Option<PortInfo> {
        let ports = self.published(bridge)?;
        find_info(&ports, number).cloned()
    }
}
