//! The ports of a bridge as sFlow interfaces: their indices and counters.

use std::collections::BTreeMap;

use shunt_datapath::port::LinkMode;
use shunt_flow::PortNo;
use shunt_flow_export::sflow::{InterfaceStatistics, LinkDuplex};
use shunt_pipeline::{BridgeId, DatapathPort};

use crate::{
    config::PortType,
    ports::{bridges::Bridges, port::BridgePort},
    status::bridge::PortTotals,
};

/// The interface index of each datapath port.
pub(crate) type InterfaceIndices = BTreeMap<DatapathPort, u32>;

/// The first interface index of ports without a network device of the host.
///
/// The kernel numbers its devices from 1, and an index has 24 bits in a datagram.
const OWN_INDEX_FIRST: u32 = 1 << 23;

/// Returns the interface indices of the ports of a bridge, without asking a device.
///
/// A port of a network device without a known `ifindex` is left out until it is open.
pub(crate) fn indices(bridges: &Bridges, bridge: BridgeId) -> InterfaceIndices {
    let registry = bridges.lock();
    let ports = registry.by_id(bridge).into_iter().flat_map(|own| own.ports.values());
    ports.filter_map(|port| Some((port.datapath?, index(port)?))).collect()
}

/// Returns the interface indices of the ports of a bridge, by port number.
pub(crate) fn indices_by_number(bridges: &Bridges, bridge: BridgeId) -> BTreeMap<PortNo, u32> {
    let registry = bridges.lock();
    let ports = registry.by_id(bridge).into_iter().flat_map(|own| own.ports.values());
    ports.filter_map(|port| Some((port.number, index(port)?))).collect()
}

/// Reads the counters of the ports of a bridge that have an interface index.
///
/// The counters of some devices come from the driver, which may take longer than other system
/// calls.
pub(super) fn statistics(bridges: &Bridges, bridge: BridgeId) -> Vec<InterfaceStatistics> {
    let registry = bridges.lock_counted();
    let Some(own) = registry.by_id(bridge) else { return Vec::new() };
    let of_port = |port: &BridgePort| Some(port_statistics(port, index(port)?, own.datapath_id));
    own.ports.values().filter_map(of_port).collect()
}

/// Returns the interface index of a port, if the port has one now.
fn index(port: &BridgePort) -> Option<u32> {
    let datapath = port.datapath?;
    match port.device.filter(|device| port.open.is_some() && device.index > 0) {
        Some(device) => Some(device.index),
        None if has_device(port) => None,
        None => Some(OWN_INDEX_FIRST + datapath.number()),
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
        | PortType::Memif
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

/// Returns the counters and the link of a port.
fn port_statistics(port: &BridgePort, index: u32, datapath_id: u64) -> InterfaceStatistics {
    let totals = PortTotals::of(port);
    InterfaceStatistics {
        index,
        is_admin_up: !port.config.port_down && port.device.is_none_or(|device| device.is_up),
        is_link_up: port.link_up && port.open.is_some(),
        rx_bytes: totals.rx_bytes,
        rx_packets: totals.rx_packets,
        rx_dropped: totals.rx_dropped,
        tx_bytes: totals.tx_bytes,
        tx_packets: totals.tx_packets,
        tx_dropped: totals.tx_dropped,
        datapath_id,
        port_number: port.number.number(),
        name: port.settings.name.clone(),
        speed_bps: port.link_mode.speed_bps.unwrap_or_default(),
        duplex: duplex(port.link_mode),
    }
}
