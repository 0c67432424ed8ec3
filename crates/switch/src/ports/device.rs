//! The network device of a port: its link, MTU, MAC address, and administrative state.
//!
//! Operators also change devices by `ip link`, so the switch reads a device when the kernel reports
//! a change.

use std::{collections::BTreeSet, io, ops::RangeInclusive, sync::Arc};

use shunt_datapath::port::{
    DeviceReading, DeviceWork, HostDeviceSetting, HostDeviceState, LinkMode, MtuRefusalReason,
    Port, PortWork, af_xdp::AfXdp,
};
use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::{
    Switch,
    config::{PortOptions, PortType, mac::parse_mac, mac_text},
    error::SwitchError,
    openflow::events::{PortChanges, StatusPorts},
    ports::{bridges::Bridges, port::BridgePort, registry::BridgeState, set_down::DevicesSetDown},
};

/// A change of the device of a port, by its effect on the published state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeviceChange {
    /// The device has not changed.
    #[default]
    None,
    /// The status of the port has changed, but nothing that controllers see.
    Status,
    /// The link or the MAC address has changed, which controllers see.
    Description,
}

impl PortOptions {
    /// MTUs that a device can have.
    ///
    /// Every IPv4 host accepts 68 bytes (RFC 791, 3.2), and no IP packet is longer than 65,535
    /// bytes.
    pub const MTUS: RangeInclusive<u32> = 68..=65_535;

    /// Returns the MTUs that a port of a type can have.
    #[must_use]
    pub const fn mtus(kind: PortType) -> RangeInclusive<u32> {
        match kind {
            PortType::AfXdp => *Self::MTUS.start()..=AfXdp::MTU_MAX,
            PortType::AfPacket
            | PortType::Tap
            | PortType::Dpdk
            | PortType::Null
            | PortType::Pcap
            | PortType::Patch
            | PortType::VhostUser
            | PortType::Memif
            | PortType::Unbound => Self::MTUS,
        }
    }

    /// Returns whether the MTU can change while the port is open.
    pub(crate) const fn has_runtime_mtu(&self) -> bool {
        self.kind.has_runtime_mtu()
    }

    /// Returns the MAC address that the switch sets, if a valid address is configured.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        parse_mac("mac", &self.mac).ok()
    }
}

impl Switch {
    /// Returns a receiver of status changes of ports, from now on.
    #[must_use]
    pub fn port_changes(&self) -> PortChanges {
        self.control.bridges.changed().subscribe()
    }

    /// Takes the names of the ports of which the status has changed.
    ///
    /// `None`: any port may have changed. Ports that do not exist any more are left out.
    #[must_use]
    pub fn take_changed_ports(&self, changes: &PortChanges) -> Option<BTreeSet<String>> {
        let StatusPorts::Only(ports) = changes.take() else { return None };
        let bridges = self.control.bridges.lock();
        let name = |(bridge, number): (BridgeId, PortNo)| {
            let port = bridges.by_id(bridge)?.ports.get(number)?;
            Some(port.settings.name.clone())
        };
        Some(ports.into_iter().filter_map(name).collect())
    }
}

impl BridgePort {
    /// Stores the open device of the port and its state.
    ///
    /// Returns whether the device must be set up or down as a controller configured the port.
    pub(crate) fn enter_device(
        &mut self,
        port: Box<dyn Port>,
        link_mode: LinkMode,
        set_down: &DevicesSetDown,
    ) -> bool {
        self.link_up = port.link_up();
        (self.device, self.link_mode) = (port.device_state(), link_mode);
        let own = if self.number == PortNo::LOCAL { self.mac } else { port.mac() };
        self.mac = self.device.map_or(own, |device| device.mac);
        (self.problem, self.has_open_error) = (None, false);
        self.open = Some(port);
        let Some(device) = self.device else { return false };
        let (name, device_name) = (&self.settings.name, self.settings.device());
        let is_own = set_down.contains(device.index, device_name);
        if !device.is_up && !is_own && !self.config.port_down {
            warn!(
                "port {name}: the device {device_name} is down, use `ip link set {device_name} up`"
            );
        }
        is_own || self.config.port_down
    }

    /// Returns whether the port was opened with another device than before.
    ///
    /// Records the device, so that the next call compares with it.
    pub(crate) fn note_opened_device(&mut self) -> bool {
        let Some(HostDeviceState { index, .. }) = self.device else { return false };
        self.opened_index.replace(index).is_some_and(|before| before != index)
    }

    /// Returns the reason why the open port has lost its device, if it has.
    pub(crate) fn lost(&self) -> Option<String> {
        self.open.as_ref()?.lost()
    }

    /// Returns the state of the device at the last check.
    ///
    /// With `asks_driver`, the result has no link mode, so that the driver is asked again.
    pub(crate) fn last_reading(&self, asks_driver: bool) -> DeviceReading {
        let link_mode = (!asks_driver).then_some(self.link_mode);
        DeviceReading { state: self.device, link_up: self.link_up, link_mode, lost: None }
    }

    /// Reads the state of the open device and its link, and logs changes.
    ///
    /// The driver is asked only if the state or the link has changed, or if `asks_driver` is true.
    pub(crate) fn refresh_device(&mut self, asks_driver: bool) -> DeviceChange {
        let Some(open) = &self.open else { return DeviceChange::None };
        let (state, link_up) = (open.device_state(), open.link_up());
        let is_asked = asks_driver || (state, link_up) != (self.device, self.link_up);
        let link_mode = is_asked.then(|| open.link_mode());
        self.note_device(&DeviceReading { state, link_up, link_mode, lost: None })
    }

    /// Stores the current state of the open device and its link, and logs changes.
    pub(crate) fn note_device(&mut self, reading: &DeviceReading) -> DeviceChange {
        let (name, link_up) = (&self.settings.name, reading.link_up);
        let mut change = DeviceChange::None;
        if reading.state != self.device || link_up != self.link_up {
            self.device = reading.state;
            change = DeviceChange::Status;
        }
        if let Some(link_mode) = reading.link_mode.filter(|mode| *mode != self.link_mode) {
            self.link_mode = link_mode;
            change = DeviceChange::Status;
        }
        if link_up != self.link_up {
            self.link_up = link_up;
            self.link_resets += 1;
            info!("port {name}: link {}", if link_up { "up" } else { "down" });
            change = DeviceChange::Description;
        }
        let mac = reading.state.map(|device| device.mac).filter(|mac| *mac != self.mac);
        if let Some(mac) = mac {
            let (text, previous) = (mac_text(mac), mac_text(self.mac));
            info!(mac = text, previous, "port {name}: the MAC address of the device has changed");
            self.mac = mac;
            change = DeviceChange::Description;
        }
        change
    }

    /// Returns the reason why the link of the open port is down.
    ///
    /// `None` if no reason is known, mostly because the link has no carrier.
    pub(crate) fn down_reason(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        open.link_reason().or_else(|| down_text(self.settings.device(), &self.device?))
    }

    /// Returns the reason why the configured MTU is not in force.
    ///
    /// `None` if the MTU is in force, or none is configured.
    pub(crate) fn mtu_problem(&self) -> Option<String> {
        let (wanted, device) = (self.settings.mtu()?, self.device?);
        let refusal = self.open.as_ref()?.mtu_refusal().filter(|refusal| refusal.mtu == wanted);
        let refusal = refusal.map(|refusal| refusal.reason);
        (device.mtu != wanted)
            .then(|| kept_mtu_text(self.settings.device(), wanted, device.mtu, refusal))
    }

    /// Returns the reason why the configured MAC address is not in force.
    ///
    /// `None` if the address is in force, or none is configured. The address of a local port is
    /// configured in its bridge.
    pub(crate) fn mac_problem(&self, bridge: &BridgeState) -> Option<String> {
        let is_local = self.number == PortNo::LOCAL;
        let text = if is_local { &bridge.settings.mac } else { &self.settings.mac };
        let (wanted, device) = (parse_mac("mac", text).ok()?, self.device?);
        self.open.as_ref()?;
        (device.mac != wanted).then(|| {
            let (wanted, device) = (mac_text(wanted), mac_text(device.mac));
            format!("the MAC address {wanted} has no effect: the device keeps {device}")
        })
    }

    /// Returns the operation that sets the device up or down for a controller.
    ///
    /// The operation sets a device up only if the switch has set it down.
    pub(crate) fn admin_work(&self, set_down: &Arc<DevicesSetDown>) -> Option<PortWork> {
        let open = self.open.as_ref()?;
        let device = open.device_state()?;
        let device_name = self.settings.device();
        let is_up = !self.config.port_down;
        if is_up {
            if !set_down.remove(device.index, device_name) {
                return None;
            }
        } else if device.is_up {
            set_down.insert(device.index, device_name);
        } else {
            return None;
        }
        let work = open.change_device(HostDeviceSetting::Up(is_up))?;
        let (name, set_down) = (self.settings.name.clone(), Arc::clone(set_down));
        Some(Box::new(move || {
            if !is_up {
                set_down.save();
            }
            if let Err(error) = work() {
                let state = if is_up { "up" } else { "down" };
                warn!(%error, "port {name}: the device cannot be set {state}; use `ip link set`");
            }
            if is_up {
                set_down.save();
            }
        }))
    }

    /// Returns the operation on the device for the removal of its port.
    ///
    /// The operation sets the device up if the switch has set it down.
    pub(crate) fn take_up_work(&mut self, set_down: &Arc<DevicesSetDown>) -> Option<PortWork> {
        self.config.port_down = false;
        self.admin_work(set_down)
    }

    /// Returns the operation that changes the device; `None` while the port is closed.
    fn change_work(&self, setting: HostDeviceSetting) -> Result<Option<DeviceWork>, SwitchError> {
        let Some(open) = &self.open else { return Ok(None) };
        match open.change_device(setting) {
            Some(work) => Ok(Some(work)),
            None => Err(device_error(&self.settings.name, io::ErrorKind::Unsupported.into())),
        }
    }
}

/// Returns a text if a device is down because an operator has set it down.
fn down_text(device: &str, state: &HostDeviceState) -> Option<String> {
    match state {
        HostDeviceState { is_up: true, .. } => None,
        // A TAP that was moved has no known index, and the command does not find it.
        HostDeviceState { index: 0, .. } => {
            Some(format!("the device {device} is set down in its network namespace"))
        }
        _ => Some(format!("the device {device} is set down: use `ip link set {device} up`")),
    }
}

/// Returns why a device has the MTU `own` and not `wanted`, and what to do.
///
/// `refusal` is the reason why the MTU was refused, if it was.
fn kept_mtu_text(device: &str, wanted: u32, own: u32, refusal: Option<MtuRefusalReason>) -> String {
    match refusal {
        Some(MtuRefusalReason::PortType { max }) => format!(
            "MTU {wanted} has no effect: a port of this type takes at most {max}, so the device \
             {device} keeps its MTU {own}: lower `mtu`, or use type af_packet"
        ),
        Some(MtuRefusalReason::System(io::ErrorKind::PermissionDenied)) => format!(
            "MTU {wanted} has no effect: the daemon lacks CAP_NET_ADMIN, so the device {device} \
             keeps its MTU {own}: give the daemon the capability, or use `ip link set {device} mtu \
             {wanted}`"
        ),
        Some(MtuRefusalReason::System(_)) => format!(
            "MTU {wanted} has no effect: the device {device} does not take it, and keeps its MTU \
             {own}: choose an MTU within the limits that `ip -d link show {device}` shows, or \
             remove `mtu`"
        ),
        None => format!("MTU {wanted} has no effect: the device has the MTU {own}"),
    }
}

impl BridgeState {
    /// Returns the open devices at which the kernel may drop packets.
    pub(crate) fn lossy_devices(&self) -> impl Iterator<Item = &(dyn Port + 'static)> {
        let lossy = self.ports.values().filter(|port| port.settings.kind.has_device_losses());
        lossy.filter_map(|port| port.open.as_deref())
    }
}

impl Bridges {
    /// Returns whether the MAC address of the device differs from the configured one.
    pub(crate) fn has_other_mac(&self, name: &str) -> bool {
        let bridges = self.lock();
        bridges.find_port(name).is_ok_and(|(bridge, port)| port.mac_problem(bridge).is_some())
    }

    /// Sets the MTU of a port; returns whether the option has changed.
    ///
    /// The device keeps its addresses. With an MTU of 0, the switch does not set the MTU. After an
    /// error, nothing has changed.
    pub(crate) async fn set_mtu(&self, name: &str, mtu: u32) -> Result<bool, SwitchError> {
        let change = |own: &PortOptions| PortOptions { mtu, ..own.clone() };
        let setting = (mtu > 0).then_some(HostDeviceSetting::Mtu(mtu));
        self.change_device(name, change, setting).await
    }

    /// Sets the MAC address of a port; returns whether the option has changed.
    ///
    /// The device keeps its IP addresses. With an empty text, the switch does not set the address.
    /// After an error, nothing has changed.
    pub(crate) async fn set_mac(&self, name: &str, mac: &str) -> Result<bool, SwitchError> {
        if self.lock().find_port(name)?.1.number == PortNo::LOCAL {
            let problem = "the address of a local port is `mac` of its bridge: set it there";
            return Err(SwitchError::PortSetting { port: name.to_owned(), problem });
        }
        let change = |own: &PortOptions| PortOptions { mac: mac.to_owned(), ..own.clone() };
        let setting = parse_mac("mac", mac).ok().map(HostDeviceSetting::Mac);
        self.change_device(name, change, setting).await
    }

    /// Sets the MAC address of the local port of a bridge.
    pub(crate) async fn set_local_mac(
        &self,
        id: BridgeId,
        mac: [u8; 6],
    ) -> Result<(), SwitchError> {
        let work = |port: &mut BridgePort| port.change_work(HostDeviceSetting::Mac(mac));
        let work = self.with_port(id, PortNo::LOCAL, work).transpose()?.flatten();
        let name = self.with_port(id, PortNo::LOCAL, |port| port.settings.name.clone());
        run(&name.unwrap_or_default(), work).await?;
        self.with_port(id, PortNo::LOCAL, |port| {
            (port.mac, port.configured_mac) = (mac, Some(mac));
            port.refresh_device(false);
        });
        self.publish_device(id, PortNo::LOCAL, DeviceChange::Description);
        Ok(())
    }

    /// Changes the open device of a port, and then its options.
    ///
    /// Returns whether the options have changed. The caller must not change ports until the call
    /// returns.
    async fn change_device(
        &self,
        name: &str,
        change: impl FnOnce(&PortOptions) -> PortOptions,
        setting: Option<HostDeviceSetting>,
    ) -> Result<bool, SwitchError> {
        let (id, number, options, work) = {
            let bridges = self.lock();
            let (bridge, port) = bridges.find_port(name)?;
            let options = change(&port.settings);
            let is_in_force = match setting {
                Some(HostDeviceSetting::Mac(mac)) => port.device.is_none_or(|own| own.mac == mac),
                _ => true,
            };
            if port.settings == options && is_in_force {
                return Ok(false);
            }
            options.check()?;
            let work = setting.map(|setting| port.change_work(setting)).transpose()?.flatten();
            (bridge.id, port.number, options, work)
        };
        run(name, work).await?;
        let change = {
            let mut bridges = self.lock();
            if let Some(bridge) = bridges.by_id_mut(id).filter(|_| number == PortNo::LOCAL) {
                bridge.settings.mtu = options.mtu;
            }
            let mac = options.mac();
            bridges.set_port_options(id, number, options).map(|port| {
                if number != PortNo::LOCAL {
                    port.configured_mac = mac;
                }
                port.refresh_device(false)
            })
        };
        self.publish_device(id, number, change.unwrap_or_default());
        Ok(true)
    }

    /// Sets the devices of ports up or down as controllers have configured these ports.
    pub(crate) async fn follow_controllers(&self, ports: BTreeSet<(BridgeId, PortNo)>) {
        let work = |(bridge, number)| {
            self.with_port(bridge, number, |port| port.admin_work(self.set_down()))?
        };
        let working: Vec<_> = ports.into_iter().filter_map(work).map(spawn_blocking).collect();
        for work in working {
            let _ = work.await;
        }
    }

    /// Returns the operation on the device for the removal of the port `name`.
    ///
    /// The operation sets the device up if the switch has set it down.
    pub(crate) fn take_up_work(&self, name: &str) -> Result<Option<PortWork>, SwitchError> {
        let mut bridges = self.lock();
        let (bridge, port) = bridges.find_port(name)?;
        let (bridge, number) = (bridge.id, port.number);
        let port = bridges.port_mut(bridge, number);
        Ok(port.and_then(|port| port.take_up_work(self.set_down())))
    }

    /// Publishes a change of the device of a port.
    pub(crate) fn publish_device(&self, bridge: BridgeId, number: PortNo, change: DeviceChange) {
        match change {
            DeviceChange::None => {}
            DeviceChange::Status => self.changed().note_port(bridge, number),
            DeviceChange::Description => {
                self.publish_ports();
                self.changed().add(bridge, number);
            }
        }
    }
}

/// Runs an operation on the device of a port on a thread that may block.
async fn run(port: &str, work: Option<DeviceWork>) -> Result<(), SwitchError> {
    let Some(work) = work else { return Ok(()) };
    let done = spawn_blocking(work).await.unwrap_or_else(|panic| Err(panic.into()));
    done.map_err(|source| device_error(port, source))
}

/// Returns the error of a device of a port.
fn device_error(port: &str, source: io::Error) -> SwitchError {
    SwitchError::System { doing: format!("change the device of port {port}"), source }
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::Time;

    use super::*;
    use crate::config::{BridgeOptions, Config, PortType};

    /// The names of changed ports are taken, and only their status is returned.
    #[tokio::test]
    async fn changed_ports_are_named() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        let ports = ["p1", "p2"].map(|name| PortOptions {
            name: name.to_owned(),
            kind: PortType::Null,
            ..PortOptions::default()
        });
        let name = "br0".to_owned();
        let bridge = BridgeOptions { name, ports: ports.into(), ..BridgeOptions::default() };
        switch.add_bridge(&bridge).await.unwrap();
        let changes = switch.port_changes();
        let bridges = &switch.control.bridges;
        let (id, number) = {
            let bridges = bridges.lock();
            let (bridge, port) = bridges.find_port("p2").unwrap();
            (bridge.id, port.number)
        };
        bridges.changed().note_port(id, number);
        // The port was removed meanwhile.
        bridges.changed().note_port(id, PortNo::new(99));
        let names = switch.take_changed_ports(&changes).unwrap();
        assert_eq!(names, BTreeSet::from(["p2".to_owned()]));
        assert_eq!(switch.take_changed_ports(&changes), Some(BTreeSet::new()));
        let status = switch.bridges_with_ports(&names);
        let of_ports: Vec<_> = status[0].ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!((status.len(), of_ports), (1, vec!["p2"]));
        bridges.changed().note();
        assert_eq!(switch.take_changed_ports(&changes), None);
    }

    /// A port has another device if the index of its device has changed.
    #[test]
    fn a_port_notices_another_device() {
        let options = PortOptions { name: "p1".to_owned(), ..PortOptions::default() };
        let mut port = BridgePort::new(options, PortNo::new(1), 1, Time::ZERO);
        let mut has_other = |index: Option<u32>| {
            let state = |index| HostDeviceState { index, is_up: true, mac: [2; 6], mtu: 1500 };
            port.device = index.map(state);
            port.note_opened_device()
        };
        let opened = [None, Some(4), Some(4), None, Some(5), Some(5), Some(4)];
        assert_eq!(
            opened.map(&mut has_other),
            [false, false, false, false, true, false, true],
            "the first device is not another one"
        );
    }

    /// A device that is set down has a reason, and a device without a carrier has none.
    #[test]
    fn a_device_set_down_has_a_reason() {
        let text = |index, is_up| {
            let mac = [2, 0, 0, 0, 0, 1];
            down_text("eth1", &HostDeviceState { index, is_up, mac, mtu: 1500 })
        };
        assert_eq!(text(4, true), None);
        let reason = "the device eth1 is set down: use `ip link set eth1 up`";
        assert_eq!(text(4, false).as_deref(), Some(reason));
        let moved = "the device eth1 is set down in its network namespace";
        assert_eq!(text(0, false).as_deref(), Some(moved));
    }

    /// The text has both MTUs, the reason, and what to do.
    #[test]
    fn a_kept_mtu_has_a_reason() {
        let system = MtuRefusalReason::System;
        let denied = system(io::ErrorKind::PermissionDenied);
        let text = |refusal| kept_mtu_text("eth1", 1400, 1500, refusal);
        for (refusal, reason, remedy) in [
            (denied, "lacks CAP_NET_ADMIN", "ip link set eth1 mtu 1400"),
            (system(io::ErrorKind::InvalidInput), "does not take it", "remove `mtu`"),
            (MtuRefusalReason::PortType { max: 1300 }, "takes at most 1300", "lower `mtu`"),
        ] {
            let text = text(Some(refusal));
            for part in ["MTU 1400 has no effect", "keeps its MTU 1500", reason, remedy] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(text(None), "MTU 1400 has no effect: the device has the MTU 1500");
    }
}
