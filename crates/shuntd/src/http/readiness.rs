//! Readiness check: the configuration is in force, and its ports are open.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use shunt_switch::{BridgePortStatus, BridgeStatus, ControllerState, ControllerStatus, Switch};

use crate::{daemon::reload::Reloader, ovsdb::DatabaseProblem};

/// Lists the parts of the configuration that are not in force.
pub(super) struct ReadinessMonitor {
    switch: Arc<Switch>,
    reloader: Arc<Reloader>,
    /// The reason why the switch does not follow its database.
    database: DatabaseProblem,
    /// Addresses of `http.listen` that cannot be used, each with the last error.
    closed_addresses: Mutex<BTreeMap<SocketAddr, String>>,
}

impl ReadinessMonitor {
    pub(super) fn new(
        switch: Arc<Switch>,
        reloader: Arc<Reloader>,
        database: DatabaseProblem,
    ) -> Self {
        Self { switch, reloader, database, closed_addresses: Mutex::default() }
    }

    /// Returns the parts of the configuration that are not in force, with the reasons.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = missing(&self.switch.bridges(), &self.reloader.not_in_force());
        missing.extend(self.database.reason());
        let closed = self.closed_addresses();
        let closed = closed.iter();
        missing.extend(closed.map(|(address, reason)| format!("http.listen: {address}: {reason}")));
        missing
    }

    /// Records that an address of `http.listen` cannot be used.
    pub(super) fn note_closed_address(&self, address: SocketAddr, error: &io::Error) {
        self.closed_addresses().insert(address, error.to_string());
    }

    /// Records that the server listens on an address.
    pub(super) fn note_open_address(&self, address: SocketAddr) {
        self.closed_addresses().remove(&address);
    }

    /// Locks the addresses that no server listens on, with the reasons.
    fn closed_addresses(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, String>> {
        self.closed_addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the parts of the configuration that are not in force, with the reasons.
///
/// `not_in_force` lists the parts of the configuration that were refused, or wait for a restart.
fn missing(bridges: &[BridgeStatus], not_in_force: &[String]) -> Vec<String> {
    let configuration = not_in_force.iter().map(|change| format!("configuration: {change}"));
    let ports = bridges.iter().flat_map(|bridge| &bridge.ports).filter_map(closed_port);
    let listeners = bridges.iter().flat_map(|bridge| {
        let closed = bridge.controllers.iter().filter_map(closed_listener);
        closed.map(|(target, reason)| format!("bridge {}: {target}: {reason}", bridge.name))
    });
    let management = bridges.iter().filter_map(|bridge| {
        Some(format!("bridge {}: {}", bridge.name, bridge.management_problem.as_ref()?))
    });
    configuration.chain(ports).chain(listeners).chain(management).collect()
}

/// Returns a description of a port that is not open, with the reason.
fn closed_port(port: &BridgePortStatus) -> Option<String> {
    let reason = port.problem.as_deref().or_else(|| (port.link == NO_PEER).then_some(NO_PEER))?;
    let own = format!("port {}: ", port.name);
    let reason = reason.strip_prefix(&own).unwrap_or(reason);
    Some(format!("port {} of bridge {}: {reason}", port.name, port.bridge))
}

/// Link state of a patch port if the port at its other end does not exist.
const NO_PEER: &str = "no peer";

/// Returns an address at which no controller can connect, with the reason.
fn closed_listener(controller: &ControllerStatus) -> Option<(&str, &str)> {
    match &controller.state {
        ControllerState::Waiting { reason, .. } if controller.is_listener() => {
            Some((&controller.target, reason))
        }
        ControllerState::Listening { problem: Some(problem), .. } => {
            Some((&controller.target, problem))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shunt_datapath::port::LinkMode;
    use shunt_switch::{
        PacketInTotals, PortCopyStatus,
        config::{PortVlanMode, PriorityTags, QinqEthtype},
    };

    use super::*;

    /// Returns the status of a port.
    fn port(name: &str, link: &str, problem: Option<&str>) -> BridgePortStatus {
        BridgePortStatus {
            bridge: "br0".to_owned(),
            name: name.to_owned(),
            number: 1,
            datapath: Some(1),
            kind: "null",
            socket_mode: None,
            link: link.to_owned(),
            problem: problem.map(str::to_owned),
            peer_problem: None,
            mtu_problem: None,
            user_problem: None,
            nic_problem: None,
            mac_problem: None,
            device: None,
            numa_node: None,
            link_mode: LinkMode::default(),
            driver: None,
            link_resets: 0,
            vlan_mode: PortVlanMode::Trunk,
            tag: None,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            qinq_ethtype: QinqEthtype::default(),
            priority_tags: PriorityTags::default(),
            protected: false,
            mcast_snooping_flood: false,
            mcast_snooping_flood_reports: false,
            ingress_policing: BTreeMap::new(),
            qos: None,
            bfd: None,
            htb: None,
            queues: Vec::new(),
            rx_packets: 0,
            rx_bytes: 0,
            rx_dropped: 0,
            forward_dropped: 0,
            tx_packets: 0,
            tx_bytes: 0,
            tx_dropped: 0,
            copies: PortCopyStatus::default(),
            drops: Vec::new(),
            driver_counters: BTreeMap::new(),
        }
    }

    #[test]
    fn closed_ports_and_listeners_have_reasons() {
        let waiting = ControllerState::Waiting { reason: "in use".to_owned(), retry_in_s: 1 };
        let controller =
            |target: &str| ControllerStatus { target: target.to_owned(), state: waiting.clone() };
        let problem = Some("no private key".to_owned());
        let without_key = ControllerStatus {
            target: "pssl:6655".to_owned(),
            state: ControllerState::Listening { port: None, problem },
        };
        let bridge = BridgeStatus {
            name: "br0".to_owned(),
            datapath_id: String::new(),
            datapath_id_problem: None,
            management_problem: Some("no management socket".to_owned()),
            fail_open: false,
            // A controller that does not answer does not make this host unready.
            controllers: ["tcp:192.0.2.1", "ptcp:6653", "pssl:6654"]
                .map(controller)
                .into_iter()
                .chain([without_key])
                .collect(),
            connections: Vec::new(),
            packet_ins: PacketInTotals::default(),
            rules: 0,
            nic: None,
            ports: vec![
                port("open", "up", None),
                port("unplugged", "down", None),
                port("eth9", "down: ..", Some("port eth9: no device")),
                port("patch", "no peer", None),
            ],
            bonds: Vec::new(),
            mirrors: Vec::new(),
            multicast: None,
            sflow: None,
            netflow: None,
            ipfix: None,
            collector_sets: Vec::new(),
        };
        let missing = missing(&[bridge], &["port x: refused".to_owned()]);
        let expected = [
            "configuration: port x: refused",
            "port eth9 of bridge br0: no device",
            "port patch of bridge br0: no peer",
            "bridge br0: ptcp:6653: in use",
            "bridge br0: pssl:6654: in use",
            "bridge br0: pssl:6655: no private key",
            "bridge br0: no management socket",
        ];
        assert_eq!(missing, expected);
    }
}
