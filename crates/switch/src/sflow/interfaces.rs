//! The ports of a bridge as interfaces of sFlow: their indices and counters.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use nix::net::if_::if_nametoindex;
use shunt_flow_export::sflow::{InterfaceStatistics, LinkDuplex};
use shunt_pipeline::{BridgeId, DatapathPort, Time};

use crate::{
    config::PortType,
    ports::{bridges::Bridges, port::BridgePort},
    status::bridge::BridgePortStatus,
};

/// The ports of a bridge that packet threads have.
#[derive(Debug, Default)]
pub(super) struct BridgeInterfaces {
    /// The index of each port.
    pub(super) indices: BTreeMap<DatapathPort, u32>,
    /// The counters of each port.
    pub(super) statistics: Vec<InterfaceStatistics>,
}

/// The network devices of the host.
pub(super) struct HostDevices {
    folder: PathBuf,
}

/// The first index of ports without a network device of the host.
///
/// Indices of the kernel count from 1, and an index has 24 bits in a datagram.
const OWN_INDEX_FIRST: u32 = 1 << 23;

impl HostDevices {
    /// The devices of the network namespace of the process.
    pub(super) fn of_system() -> Self {
        Self { folder: "/sys/class/net".into() }
    }

    /// Returns the speed in bits per second and the duplex mode of a device.
    fn link(&self, device: &str) -> (u64, LinkDuplex) {
        let folder = self.folder.join(device);
        // The kernel has a negative speed for devices without a wire.
        let megabits = read(&folder, "speed").and_then(|text| text.parse::<u64>().ok());
        let duplex = match read(&folder, "duplex").as_deref() {
            Some("full") => LinkDuplex::Full,
            Some("half") => LinkDuplex::Half,
            _ => LinkDuplex::Unknown,
        };
        (megabits.unwrap_or_default().saturating_mul(1_000_000), duplex)
    }
}

impl BridgeInterfaces {
    /// Reads the ports of a bridge.
    ///
    /// A port of a network device that does not exist now has no index, and is left out.
    pub(super) fn of(
        bridges: &Bridges,
        bridge: BridgeId,
        devices: &HostDevices,
        now: Time,
    ) -> Self {
        let ports: Vec<_> = {
            let registry = bridges.lock();
            let Some(own) = registry.by_id(bridge) else { return Self::default() };
            let status = BridgePortStatus::of_bridge(&registry, bridge, now);
            let ports = own.ports.values().zip(status);
            let described = ports.filter_map(|(port, (status, _))| {
                let datapath = port.datapath?;
                Some((datapath, device_of(port), statistics(port, &status, own.datapath_id)))
            });
            described.collect()
        };
        let mut interfaces = Self::default();
        for (datapath, device, statistics) in ports {
            let index = match &device {
                Some(device) => if_nametoindex(device.as_str()).ok(),
                None => Some(OWN_INDEX_FIRST + datapath.number()),
            };
            let Some(index) = index else { continue };
            let (speed_bps, duplex) =
                device.map(|device| devices.link(&device)).unwrap_or_default();
            interfaces.indices.insert(datapath, index);
            interfaces.statistics.push(InterfaceStatistics {
                index,
                speed_bps,
                duplex,
                ..statistics
            });
        }
        interfaces
    }
}

/// Returns the network device of the host that a port has.
fn device_of(port: &BridgePort) -> Option<String> {
    match port.settings.kind {
        PortType::AfPacket | PortType::AfXdp | PortType::Tap => {
            Some(port.settings.device().to_owned())
        }
        PortType::Null
        | PortType::Pcap
        | PortType::Patch
        | PortType::VhostUser
        | PortType::Dpdk
        | PortType::Unbound => None,
    }
}

/// Returns the counters of a port, without the properties of its device.
fn statistics(
    port: &BridgePort,
    status: &BridgePortStatus,
    datapath_id: u64,
) -> InterfaceStatistics {
    InterfaceStatistics {
        is_admin_up: !port.config.port_down,
        is_link_up: port.link_up && port.open.is_some(),
        rx_bytes: status.rx_bytes,
        rx_packets: status.rx_packets,
        rx_dropped: status.rx_dropped,
        tx_bytes: status.tx_bytes,
        tx_packets: status.tx_packets,
        tx_dropped: status.tx_dropped,
        datapath_id,
        port_number: status.number,
        name: status.name.clone(),
        ..InterfaceStatistics::default()
    }
}

/// Returns the text of a file of a device.
///
/// Some of them cannot be read while the device is down.
fn read(device: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(device.join(file)).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_a_link_may_be_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let devices = HostDevices { folder: folder.path().to_owned() };
        let device = folder.path().join("eth1");
        assert_eq!(devices.link("eth1"), (0, LinkDuplex::Unknown));
        fs::create_dir(&device).unwrap();
        for (speed, duplex, expected) in [
            ("-1\n", "unknown\n", (0, LinkDuplex::Unknown)),
            ("10000\n", "full\n", (10_000_000_000, LinkDuplex::Full)),
            ("10\n", "half\n", (10_000_000, LinkDuplex::Half)),
        ] {
            fs::write(device.join("speed"), speed).unwrap();
            fs::write(device.join("duplex"), duplex).unwrap();
            assert_eq!(devices.link("eth1"), expected);
        }
    }
}
