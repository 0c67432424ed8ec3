//! The MTU of a port, which can change while packets pass.

use shunt_flow::PortNo;

use crate::{
    Switch,
    config::{PortOptions, PortType},
    error::SwitchError,
    ports::bridges::Bridges,
};

impl PortOptions {
    /// MTUs that a device can have.
    ///
    /// Every IPv4 host takes 68 bytes (RFC 791, 3.2), and no IP packet is longer than 65,535.
    pub const MTUS: std::ops::RangeInclusive<u32> = 68..=65_535;

    /// Returns whether the MTU can change while the port is open.
    ///
    /// Other types of ports are opened again, since their buffers depend on it.
    pub(crate) const fn has_runtime_mtu(&self) -> bool {
        matches!(self.kind, PortType::AfPacket | PortType::Tap)
    }
}

impl Switch {
    /// Sets the MTU of an `af_packet` or `tap` port.
    ///
    /// The local port of a bridge has the name of the bridge.
    /// The device keeps its addresses. An MTU of 0 leaves the device as it is.
    ///
    /// # Errors
    ///
    /// If the port does not exist, or the system refuses the MTU; then nothing changes.
    pub async fn set_mtu(&self, port: &str, mtu: u32) -> Result<(), SwitchError> {
        self.control.structure().await.set_mtu(port, mtu)
    }
}

impl Bridges {
    /// Sets the MTU of a port; returns whether it differs from the old one.
    pub(crate) fn set_mtu(&self, name: &str, mtu: u32) -> Result<bool, SwitchError> {
        let mut bridges = self.lock();
        let (bridge, port) = bridges.find_port(name)?;
        let (bridge, number) = (bridge.id, port.number);
        if port.settings.mtu == mtu {
            return Ok(false);
        }
        let changed = PortOptions { mtu, ..port.settings.clone() };
        changed.check()?;
        if let Some(open) = port.open.as_ref().filter(|_| mtu > 0) {
            let doing = || format!("set the MTU of port {name} to {mtu}");
            open.set_mtu(mtu).map_err(|source| SwitchError::System { doing: doing(), source })?;
        }
        if let Some(bridge) = bridges.by_id_mut(bridge) {
            if number == PortNo::LOCAL {
                bridge.settings.mtu = mtu;
            }
            if let Some(port) = bridge.ports.get_mut(&number) {
                port.settings = changed;
            }
        }
        Ok(true)
    }
}
