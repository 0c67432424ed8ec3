//! Checks of ports: changes of links and devices, other users of devices, and due work.
//!
//! Devices are read without the lock of the ports, on a thread that may block, because a driver may
//! take long to answer.

use shunt_datapath::port::{DeviceReader, DeviceReading, PortWork};
use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;
use tokio::task::spawn_blocking;
use tracing::{debug, info, warn};

use super::PortAttacher;
use crate::{
    error::SwitchError,
    ports::{
        device::DeviceChange, device_users::HostAddresses, link_events::ChangedDevices,
        port::BridgePort,
    },
};

/// The extent of a check: which devices are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckScope {
    /// No device: only faults that packet threads found, and ports that may open again.
    Threads,
    /// The link, name and state of the given devices, and all that `Threads` checks.
    Devices(ChangedDevices),
    /// The link, name, state and speed of all devices, and all that `Threads` checks.
    Drivers,
}

/// The results of a check that need further work.
#[derive(Default)]
struct PortsToCheck {
    /// Names of broken ports, each with the reason.
    broken: Vec<(String, String)>,
    /// Closed ports that may open again.
    closed: Vec<(String, BridgeId, PortNo)>,
    /// Work on devices that is due.
    due: Vec<(BridgeId, PortNo, PortWork)>,
    /// Devices to read in this check.
    devices: Vec<DeviceToRead>,
    /// Ports with a changed link or MAC address.
    changed: Vec<(BridgeId, PortNo)>,
    /// Ports with another changed status.
    noted: Vec<(BridgeId, PortNo)>,
}

/// A device to read in this check.
struct DeviceToRead {
    bridge: BridgeId,
    /// The OpenFlow number of the port.
    number: PortNo,
    /// The reader of the device's state.
    reader: DeviceReader,
    /// The state of the device at the last check.
    last: DeviceReading,
}

/// An open device that may have other users than the switch.
struct UsedDevice {
    bridge: BridgeId,
    /// The OpenFlow number of the port.
    number: PortNo,
    /// The reader of the device's state.
    reader: DeviceReader,
}

impl UsedDevice {
    /// Returns the device of a port, if another user would receive the same packets.
    fn of(bridge: BridgeId, port: &BridgePort) -> Option<Self> {
        let open = port.open.as_ref().filter(|_| port.shares_device())?;
        Some(Self { bridge, number: port.number, reader: open.device_reader()? })
    }
}

impl CheckScope {
    /// Returns whether the scope includes the device of a port.
    ///
    /// A device without a known index is always read, for example a device in another network
    /// namespace.
    fn has_device_of(&self, port: &BridgePort) -> bool {
        match self {
            Self::Threads => false,
            Self::Devices(changed) => {
                port.device.is_none_or(|own| own.index == 0 || changed.contains(own.index))
            }
            Self::Drivers => true,
        }
    }
}

impl PortsToCheck {
    /// Records a change of the device of a port.
    fn add(&mut self, bridge: BridgeId, number: PortNo, change: DeviceChange) {
        match change {
            DeviceChange::None => {}
            DeviceChange::Status => self.noted.push((bridge, number)),
            DeviceChange::Description => self.changed.push((bridge, number)),
        }
    }
}

impl PortAttacher {
    /// Checks all ports, and their devices if the scope contains them.
    ///
    /// Records link changes, closes broken ports, and opens ports when their device returns.
    /// The caller must not change ports until the call returns.
    pub(crate) async fn check(&self, scope: &CheckScope) {
        let mut ports = self.ports_to_check(scope);
        self.read_devices(&mut ports).await;
        if !ports.changed.is_empty() {
            self.bridges.publish_ports();
        }
        for (id, number) in ports.changed {
            self.bridges.changed().add(id, number);
        }
        for (id, number) in ports.noted {
            self.bridges.changed().note_port(id, number);
        }
        self.maintain(ports.due).await;
        for (name, reason) in ports.broken {
            warn!("port {name}: {reason}; down until the device returns");
            self.take_down(&name, &reason).await;
        }
        for (name, id, number) in ports.closed {
            match self.open(&name).await {
                Ok(()) => {
                    info!("port {name}: the device has returned, so the port is up");
                    self.bridges.changed().add(id, number);
                }
                Err(error) => self.note_failed_reopening(id, number, &error),
            }
        }
    }

    /// Records the reason why a closed port cannot be opened again.
    fn note_failed_reopening(&self, bridge: BridgeId, number: PortNo, error: &SwitchError) {
        let note = |port: &mut BridgePort| {
            let is_new = port.note_open_error(error);
            if is_new {
                let reason = port.problem.as_deref().unwrap_or_default();
                info!(reason, "port {}: the port is still down", port.settings.name);
            }
            is_new
        };
        if self.bridges.with_port(bridge, number, note) == Some(true) {
            self.bridges.changed().note_port(bridge, number);
        }
    }

    /// Finds the ports that need further work, and checks the ports without a device.
    fn ports_to_check(&self, scope: &CheckScope) -> PortsToCheck {
        let has_threads = !self.plane.living().is_empty();
        let nic = self.nic.front().filter(|nic| nic.closes_ports().is_some());
        let now = self.plane.now();
        let mut found = PortsToCheck::default();
        let mut bridges = self.bridges.lock();
        for bridge in bridges.iter_mut() {
            let id = bridge.id;
            for port in bridge.ports.values_mut() {
                let number = port.number;
                if port.is_broken() {
                    let name = port.settings.name.clone();
                    found.broken.push((name, "the device has vanished".to_owned()));
                } else if let Some(open) = &mut port.open {
                    let work = open.maintenance(now);
                    found.due.extend(work.map(|work| (id, number, work)));
                    let is_read = scope.has_device_of(port);
                    let open = port.open.as_ref().filter(|_| is_read);
                    let reader = open.and_then(|open| open.device_reader());
                    // The port itself has the link state if there is no reader.
                    let is_asked = is_read || port.settings.kind.has_own_link();
                    if let Some(reader) = reader {
                        let last = port.last_reading(*scope == CheckScope::Drivers);
                        found.devices.push(DeviceToRead { bridge: id, number, reader, last });
                    } else if is_asked && let Some(reason) = port.lost() {
                        found.broken.push((port.settings.name.clone(), reason));
                    } else if is_asked {
                        let change = port.refresh_device(*scope == CheckScope::Drivers);
                        found.add(id, number, change);
                    }
                } else if port.problem.is_some()
                    && port.is_reopened()
                    && has_threads
                    && !nic.as_ref().is_some_and(|nic| nic.is_nic_port(id, number))
                {
                    found.closed.push((port.settings.name.clone(), id, number));
                }
            }
            let changed = found.changed.iter().filter(|(own, _)| *own == id);
            changed.for_each(|(_, number)| bridge.ports.note_changed(*number));
        }
        found
    }

    /// Reads the devices, and records what has changed.
    async fn read_devices(&self, ports: &mut PortsToCheck) {
        let devices = std::mem::take(&mut ports.devices);
        if devices.is_empty() {
            return;
        }
        let read = |own: DeviceToRead| (own.bridge, own.number, own.reader.read(&own.last));
        let readings = spawn_blocking(move || devices.into_iter().map(read).collect::<Vec<_>>());
        let Ok(readings) = readings.await else { return };
        let mut bridges = self.bridges.lock();
        for (bridge, number, reading) in readings {
            let Some(own) = bridges.by_id_mut(bridge) else { continue };
            let Some(port) = own.ports.state_mut(number) else { continue };
            let Some(open) = &port.open else { continue };
            match open.lost_by(&reading) {
                Some(reason) => ports.broken.push((port.settings.name.clone(), reason)),
                None => {
                    let change = port.note_device(&reading);
                    if change == DeviceChange::Description {
                        own.ports.note_changed(number);
                    }
                    ports.add(bridge, number, change);
                }
            }
        }
    }

    /// Runs the due work of ports on their devices.
    ///
    /// After this work, stores the descriptors of these ports again.
    async fn maintain(&self, due: Vec<(BridgeId, PortNo, PortWork)>) {
        // The kernel takes tens of milliseconds for each port, mostly waiting, so all run at the
        // same time.
        let begin = |(bridge, number, work): (BridgeId, PortNo, PortWork)| {
            (bridge, number, spawn_blocking(work))
        };
        let working: Vec<_> = due.into_iter().map(begin).collect();
        let mut stored = Vec::new();
        for (bridge, number, work) in working {
            let _ = work.await;
            self.bridges.with_port(bridge, number, |port| {
                let prefix = port.spec().and_then(|spec| spec.store_prefix());
                stored.extend(prefix.zip(port.open.as_ref().map(|own| own.stored_descriptors())));
            });
        }
        self.keep(stored).await;
    }

    /// Warns of new users, other than the switch, of the devices of selected ports.
    pub(crate) async fn check_users(&self, is_selected: impl Fn(&BridgePort) -> bool) {
        let devices = {
            let bridges = self.bridges.lock();
            let ports = bridges
                .iter()
                .flat_map(|bridge| bridge.ports.values().map(move |port| (bridge.id, port)));
            let selected = ports.filter(|(_, port)| is_selected(port));
            selected.filter_map(|(bridge, port)| UsedDevice::of(bridge, port)).collect()
        };
        self.read_users(devices).await;
    }

    /// Warns of new users of the devices of named ports, as [`Self::check_users`].
    ///
    /// The cost depends on these ports, and not on the other ports.
    pub(super) async fn check_users_of(&self, names: &[String]) {
        let devices = {
            let bridges = self.bridges.lock();
            let ports = names.iter().filter_map(|name| bridges.find_named(name));
            ports.filter_map(|(bridge, port)| UsedDevice::of(bridge.id, port)).collect()
        };
        self.read_users(devices).await;
    }

    /// Reads the users of devices, and warns of new ones.
    async fn read_users(&self, devices: Vec<UsedDevice>) {
        if devices.is_empty() {
            return;
        }
        let work = move || {
            let masters: Vec<_> = devices.iter().map(|own| own.reader.master()).collect();
            (HostAddresses::read(), devices, masters)
        };
        let Ok((addresses, devices, masters)) = spawn_blocking(work).await else { return };
        if let Err(error) = &addresses {
            debug!(%error, "the addresses of the host cannot be read: known users of devices stay");
        }
        for (own, master) in devices.iter().zip(masters) {
            let index = own.reader.index();
            self.bridges.with_port(own.bridge, own.number, |port| {
                port.check_users(index, master, &addresses);
            });
        }
    }
}
