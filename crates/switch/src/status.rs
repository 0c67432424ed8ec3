//! What a switch says of itself: plain values that programs read as JSON and people as tables.

use std::time::Duration;

use serde::Serialize;
use shunt_datapath::{DropReason, ThreadCounters};
use shunt_pipeline::BridgeId;

use crate::{
    bridges::{Bridge, Bridges},
    chains::{ChainStatus, CoverageStatus},
    config,
    control::Control,
    nic::NicStatus,
    ports::BridgePort,
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

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadStatus {
    /// What it is called: `packet thread 0`, `eviction thread`.
    pub name: String,
    /// How it is.
    pub state: ThreadState,
}

/// How a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// It runs.
    Running,
    /// It has ended by a panic, which is a bug.
    Panicked,
    /// It was stopped: no packet thread goes on without the eviction thread.
    Stopped,
}

/// The caches and the slow path, summed over packet threads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheStatus {
    /// The version of the tables that all threads have adopted.
    pub version: u64,
    /// Packets received.
    pub received: u64,
    /// Packets that the exact-match cache answered.
    pub exact_hits: u64,
    /// Packets that the megaflow cache answered.
    pub megaflow_hits: u64,
    /// Packets that were translated.
    pub upcalls: u64,
    /// Entries.
    pub entries: u64,
    /// Masks of the megaflow cache.
    pub masks: u64,
    /// Subtables asked for one packet, on average.
    pub probes: f64,
    /// Hits that were translated anew, to see whether the cache was right.
    pub verified: u64,
    /// Of these, those of which the tables said something else.
    pub differences: u64,
    /// Entries that a change of rules made stale.
    pub evicted: u64,
    /// Entries that were idle for too long.
    pub expired: u64,
    /// Entries dropped because their install and a change crossed.
    pub install_conflicts: u64,
    /// Entries not made because the cache was full.
    pub refused_full: u64,
    /// Entries not made because their report did not fit the queue.
    pub refused_ring: u64,
    /// What knows packets by the bits that decided: the megaflow cache, or a chain of stages.
    pub kind: config::CacheKind,
    /// The chains of all packet threads together, where that is the kind.
    pub chain: Option<ChainStatus>,
    /// The chain of each packet thread.
    pub chains: Vec<ChainStatus>,
    /// How many ways the entries of each packet thread make, where that was asked for.
    pub coverage: Vec<CoverageStatus>,
    /// The NIC in front of the packet threads.
    pub nic: Option<NicStatus>,
}

/// Where packets went: what came equals what went and what is held.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DropStatus {
    /// Packets received on all ports.
    pub received: u64,
    /// Packets that controllers sent out.
    pub injected: u64,
    /// Copies made for further outputs.
    pub copied: u64,
    /// Packets that transmit queues took.
    pub sent: u64,
    /// Packets that went to controllers.
    pub punted: u64,
    /// Of these, packets that found no room on their way there.
    pub punted_lost: u64,
    /// Packets that wait.
    pub held: u64,
    /// Packets dropped, by reason; reasons that never happened are left out.
    pub dropped: Vec<(&'static str, u64)>,
}

impl DropStatus {
    /// Packets dropped, whatever the reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }
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

    /// The caches, summed over threads.
    pub(crate) fn cache_status(&self) -> CacheStatus {
        let sum = |field: fn(&ThreadCounters) -> u64| -> u64 {
            self.plane.counters().iter().map(|counters| field(counters)).sum()
        };
        let asked = sum(|c| c.megaflow.hits.get() + c.megaflow.misses.get());
        #[expect(clippy::cast_precision_loss, reason = "an average for people")]
        let probes = sum(|c| c.probes.get()) as f64 / asked.max(1) as f64;
        let chains = self.chain_statuses();
        CacheStatus {
            kind: self.config.lock().caches.kind,
            chain: (!chains.is_empty()).then(|| ChainStatus::sum(&chains)),
            chains,
            coverage: Vec::new(),
            nic: self.nic_status(),
            version: self.plane.version().number(),
            received: sum(|c| c.received.get()),
            exact_hits: sum(|c| c.exact.hits.get()),
            megaflow_hits: sum(|c| c.megaflow.hits.get()),
            upcalls: sum(|c| c.upcalls.get()),
            entries: sum(|c| c.entries.get()),
            masks: sum(|c| c.masks.get()),
            probes,
            verified: sum(|c| c.verified.get()),
            differences: sum(|c| c.differences.get()),
            evicted: sum(|c| c.evicted.get()),
            expired: sum(|c| c.expired.get()),
            install_conflicts: sum(|c| c.install_conflicts.get()),
            refused_full: sum(|c| c.refused_full.get()),
            refused_ring: sum(|c| c.refused_ring.get()),
        }
    }

    /// Where packets went, summed over threads.
    pub(crate) fn drop_status(&self) -> DropStatus {
        let mut status = DropStatus::default();
        let mut dropped = [0; DropReason::COUNT];
        for counters in self.plane.counters() {
            status.received += counters.received.get();
            status.injected += counters.injected.get();
            status.copied += counters.copied.get();
            status.sent += counters.sent.get();
            status.punted += counters.punted.get();
            status.held += counters.held.get();
            for (sum, counter) in dropped.iter_mut().zip(&counters.dropped) {
                *sum += counter.get();
            }
        }
        status.punted_lost = self.plane.packet_ins_dropped();
        let named = DropReason::ALL.iter().map(|reason| reason.name()).zip(dropped);
        status.dropped = named.filter(|(_, count)| *count > 0).collect();
        status
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
