//! The status of bridges, ports and controllers.

use std::time::Duration;

use serde::Serialize;
use shunt_pipeline::BridgeId;

use crate::{
    config,
    control::Control,
    nic::NicStatus,
    ports::{
        bridges::{Bridge, Bridges},
        port::BridgePort,
    },
};

/// A bridge.
#[derive(Clone, Debug, Serialize)]
pub struct BridgeStatus {
    /// Its name.
    pub name: String,
    /// Sixteen hexadecimal digits.
    pub datapath_id: String,
    /// Controllers and then addresses to listen on, as configured.
    pub controllers: Vec<ControllerStatus>,
    /// Number of rules, in all tables.
    pub rules: u64,
    /// The NIC in front of it.
    pub nic: Option<NicStatus>,
    /// Its ports, by number.
    pub ports: Vec<PortStatus>,
}

/// A controller, or an address to listen on for some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControllerStatus {
    /// As configured.
    pub target: String,
    /// How it stands with it.
    #[serde(flatten)]
    pub state: ControllerState,
}

/// How it stands with a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ControllerState {
    /// A connection is being made.
    Connecting,
    /// There is a connection.
    Connected {
        /// What the controller asked to be: `equal`, `master`, `slave`.
        role: &'static str,
    },
    /// There is none.
    Waiting {
        /// Why not.
        why: String,
        /// Seconds until the next attempt.
        next_try_s: u64,
    },
    /// Controllers may connect there.
    Listening,
}

/// A port, with the sums of what all packet threads counted until they last said.
#[derive(Clone, Debug, Serialize)]
pub struct PortStatus {
    /// Its bridge.
    pub bridge: String,
    /// Its name.
    pub name: String,
    /// Its OpenFlow number; the local port's is 4294967294.
    pub number: u32,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `up`, `down`, or why it is not open; `no peer` for a patch that leads nowhere.
    pub link: String,
    /// How it has VLANs.
    pub vlan_mode: config::VlanMode,
    /// The VLAN of frames without a tag; of a port of mode `trunk` there is none.
    pub tag: Option<u16>,
    /// The VLANs that it takes besides; none: all that its mode takes.
    pub trunks: Vec<u16>,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that could not be taken, here or in the system.
    pub rx_dropped: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that were to be sent and were not.
    pub tx_dropped: u64,
}

impl Control {
    /// Bridges and their ports.
    pub(crate) fn bridge_status(&self) -> Vec<(BridgeId, BridgeStatus)> {
        let nic = self.nic_status();
        let bridges = self.bridges.lock();
        let of = |bridge: &Bridge| {
            let tables = self.plane.pipeline.table_stats(bridge.id);
            let status = BridgeStatus {
                name: bridge.settings.name.clone(),
                datapath_id: format!("{:016x}", bridge.datapath_id),
                controllers: controllers(&bridge.settings),
                nic: nic.clone().filter(|nic| nic.bridge == bridge.settings.name),
                rules: tables.iter().map(|table| table.rules_count as u64).sum(),
                ports: bridge
                    .ports
                    .values()
                    .map(|port| port_status(&bridges, &bridge.settings.name, port))
                    .collect(),
            };
            (bridge.id, status)
        };
        bridges.iter().map(of).collect()
    }

    /// The ports of one bridge, and how long each has been there.
    pub(crate) fn port_statuses(&self, id: BridgeId) -> Vec<(PortStatus, Duration)> {
        let now = self.plane.clock.now();
        let bridges = self.bridges.lock();
        let Some(bridge) = bridges.by_id(id) else { return Vec::new() };
        let status = |port: &BridgePort| {
            (port_status(&bridges, &bridge.settings.name, port), now.since(port.added))
        };
        bridge.ports.values().map(status).collect()
    }
}

/// The controllers of a bridge, before anything is known of them.
fn controllers(settings: &config::Bridge) -> Vec<ControllerStatus> {
    let status = |(target, state): (&String, ControllerState)| ControllerStatus {
        target: target.clone(),
        state,
    };
    let connect = settings.controllers.iter().map(|target| (target, ControllerState::Connecting));
    let listen = settings.listen.iter().map(|target| (target, ControllerState::Listening));
    connect.chain(listen).map(status).collect()
}

fn port_status(bridges: &Bridges, bridge: &str, port: &BridgePort) -> PortStatus {
    let sum = |field: fn(&shunt_datapath::metrics::PortTraffic) -> u64| -> u64 {
        port.traffic.iter().map(|traffic| field(traffic)).sum()
    };
    let device = port.open.as_ref().map(|open| open.counters()).unwrap_or_default();
    let link = match &port.trouble {
        Some(trouble) => format!("down: {trouble}"),
        None if port.config.port_down => "down: by a controller".to_owned(),
        None if bridges.lacks_peer(port) => "no peer".to_owned(),
        None if port.link_up => "up".to_owned(),
        None => "down".to_owned(),
    };
    PortStatus {
        bridge: bridge.to_owned(),
        name: port.settings.name.clone(),
        number: port.number.number(),
        kind: port.settings.kind.name(),
        link,
        vlan_mode: port.settings.effective_vlan_mode(),
        tag: port.settings.tag,
        trunks: port.settings.trunks.clone(),
        rx_packets: sum(|traffic| traffic.rx_packets.get()),
        rx_bytes: sum(|traffic| traffic.rx_bytes.get()),
        rx_dropped: sum(|traffic| traffic.rx_refused.get()) + device.rx_dropped,
        tx_packets: sum(|traffic| traffic.tx_packets.get()),
        tx_bytes: sum(|traffic| traffic.tx_bytes.get()),
        tx_dropped: sum(|traffic| traffic.tx_dropped.get()) + device.tx_dropped,
    }
}
