//! The ports of a bridge as interfaces of sFlow: their indices and counters.

use std::collections::BTreeMap;

use shunt_datapath::port::LinkMode;
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

/// The first index of ports without a network device of the host.
///
/// Indices of the kernel count from 1, and an index has 24 bits in a datagram.
const OWN_INDEX_FIRST: u32 = 1 << 23;

impl BridgeInterfaces {
    /// Reads the ports of a bridge.
    ///
    /// A port of a network device that is not open now has no index, and is left out.
    pub(super) fn of(bridges: &Bridges, bridge: BridgeId, now: Time) -> Self {
        let registry = bridges.lock();
        let Some(own) = registry.by_id(bridge) else { return Self::default() };
        let status = BridgePortStatus::of_bridge(&registry, bridge, now);
        let mut interfaces = Self::default();
        for (port, (status, _)) in own.ports.values().zip(status) {
            let Some(datapath) = port.datapath else { continue };
            let index = match status.device {
                Some(device) => device.index,
                None if has_device(port) => continue,
                None => OWN_INDEX_FIRST + datapath.number(),
            };
            interfaces.indices.insert(datapath, index);
            let statistics = statistics(port, &status, own.datapath_id);
            interfaces.statistics.push(InterfaceStatistics { index, ..statistics });
        }
        interfaces
    }
}

/// Returns whether a port has a network device of the host.
const fn has_device(port: &BridgePort) -> bool {
    match port.settings.kind {
        PortType::AfPacket | PortType::AfXdp | PortType::Tap => true,
        PortType::Null
        | PortType::Pcap
        | PortType::Patch
        | PortType::VhostUser
        | PortType::Dpdk
        | PortType::Unbound => false,
    }
}

/// Returns the duplex mode of a link.
const fn duplex(mode: LinkMode) -> LinkDuplex {
    match mode.is_full_duplex {
        Some(true) => LinkDuplex::Full,
        Some(false) => LinkDuplex::Half,
        None => LinkDuplex::Unknown,
    }
}

/// Returns the counters and the link of a port, without its index.
fn statistics(
    port: &BridgePort,
    status: &BridgePortStatus,
    datapath_id: u64,
) -> InterfaceStatistics {
    InterfaceStatistics {
        is_admin_up: !port.config.port_down && status.device.is_none_or(|device| device.is_up),
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
        speed_bps: status.link_mode.speed_bps.unwrap_or_default(),
        duplex: duplex(status.link_mode),
        ..InterfaceStatistics::default()
    }
}
