//! The status of bridges, ports and controllers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use shunt_datapath::{
    DropReason, RxLoss,
    egress::{counters::QueueCounts, htb::HtbOptions},
    metrics::PortTraffic,
    port::{DriverInfo, HostDeviceState, LinkMode},
};
use shunt_flow::PortNo;
use shunt_nic::NicDropReason;
use shunt_ofproto::connection::PacketInCounts;
use shunt_pipeline::{BridgeId, Pipeline, PriorityTags, QinqEthtype, QueueId, Time};

use crate::{
    config,
    nic::{NicFront, NicStatus},
    openflow::endpoint::ControllerEndpoint,
    ports::{
        port::BridgePort,
        registry::{BridgeRegistry, BridgeState},
        removed_losses::RemovedPortLosses,
    },
    status::{
        bfd::BfdPortStatus, bond::BondStatus, collector_set::CollectorSetStatus,
        ipfix::IpfixStatus, mirror::MirrorStatus, multicast::MulticastStatus,
        netflow::NetflowStatus, port_copies::PortCopyStatus, sflow::SflowStatus,
    },
    switch::Switch,
};

/// The status of a bridge: controllers, connections, ports, bonds and mirrors.
#[derive(Clone, Debug, Serialize)]
pub struct BridgeStatus {
    /// Name of the bridge.
    pub name: String,
    /// Datapath id in sixteen hexadecimal digits.
    pub datapath_id: String,
    /// Reason why controllers cannot distinguish the bridge from another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datapath_id_problem: Option<String>,
    /// Reason why the bridge has no management socket yet; opening it is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_problem: Option<String>,
    /// Controllers, then listening addresses, in configured order.
    pub controllers: Vec<ControllerStatus>,
    /// True if the bridge is a learning switch, because no controller is reachable.
    pub fail_open: bool,
    /// OpenFlow connections of the bridge, oldest first.
    pub connections: Vec<ConnectionSummary>,
    /// Packet-ins of all connections, also of connections that have ended.
    pub packet_ins: PacketInTotals,
    /// Number of rules in all tables.
    pub rules: u64,
    /// NIC in front of the bridge.
    pub nic: Option<NicStatus>,
    /// The ports of the bridge, by number.
    pub ports: Vec<BridgePortStatus>,
    /// Bonds, in configured order.
    pub bonds: Vec<BondStatus>,
    /// Mirrors, in configured order.
    pub mirrors: Vec<MirrorStatus>,
    /// Multicast snooping; `None` if it is off.
    pub multicast: Option<MulticastStatus>,
    /// The sFlow agent; `None` if sFlow is off.
    pub sflow: Option<SflowStatus>,
    /// The NetFlow exporter; `None` if NetFlow is off.
    pub netflow: Option<NetflowStatus>,
    /// The IPFIX exporter; `None` if IPFIX is off.
    pub ipfix: Option<IpfixStatus>,
    /// Sets of IPFIX collectors for the packets that rules sample, by number.
    pub collector_sets: Vec<CollectorSetStatus>,
}

/// The status of a connection to a controller, or of a listening address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControllerStatus {
    /// Address as in the configuration.
    pub target: String,
    /// State of the connection.
    #[serde(flatten)]
    pub state: ControllerState,
}

impl ControllerStatus {
    /// Returns whether controllers connect to the switch at the address.
    #[must_use]
    pub fn is_listener(&self) -> bool {
        matches!(self.target.parse::<ControllerEndpoint>(), Ok(ControllerEndpoint::Listen(..)))
    }
}

/// The state of the connection to a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ControllerState {
    /// A connection is being established.
    Connecting,
    /// The controller is connected.
    Connected {
        /// Role that the controller requested: `equal`, `master` or `slave`.
        role: &'static str,
    },
    /// The controller is not connected.
    Waiting {
        /// Reason why the controller is not connected.
        reason: String,
        /// Seconds until the next attempt.
        retry_in_s: u64,
    },
    /// The switch listens for controllers at the address.
    Listening {
        /// The port that the system chose, if the address has port 0.
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Reason why no controller can connect, although the switch listens.
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
}

/// An OpenFlow connection, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionSummary {
    /// Address of the peer.
    pub peer: String,
    /// Role that the peer requested: `equal`, `master` or `slave`.
    pub role: &'static str,
    /// Packet-ins of the connection.
    pub packet_ins: PacketInTotals,
}

/// Numbers of packet-ins, by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PacketInTotals {
    /// Packet-ins that were queued for a peer.
    pub delivered: u64,
    /// Packet-ins that were dropped because a peer reads too slowly.
    pub dropped_unread: u64,
    /// Packet-ins that a connection missed because they arrived too fast.
    pub dropped_missed: u64,
    /// Packet-ins that were dropped because no connected peer receives any; 0 for a
    /// connection.
    pub no_connection: u64,
}

impl From<PacketInCounts> for PacketInTotals {
    fn from(counts: PacketInCounts) -> Self {
        let PacketInCounts { sent, dropped_unread, dropped_missed } = counts;
        Self { delivered: sent, dropped_unread, dropped_missed, no_connection: 0 }
    }
}

/// The status of a port.
///
/// Counters are sums over the packet threads, as last reported by each thread.
#[derive(Clone, Debug, Serialize)]
pub struct BridgePortStatus {
    /// Name of the bridge.
    pub bridge: String,
    /// Name of the port.
    pub name: String,
    /// OpenFlow port number; 4294967294 for the local port.
    pub number: u32,
    /// Datapath port number, if packet threads have the port.
    #[serde(skip)]
    pub datapath: Option<u32>,
    /// Type of the port.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Socket mode of a `vhost_user` port, to listen or connect; `None` for others.
    #[serde(skip)]
    pub socket_mode: Option<config::SocketMode>,
    /// `up`, `down`, or the reason why the port is not open.
    ///
    /// For a patch port without a peer it is `no peer`.
    pub link: String,
    /// Reason why the port is not open.
    #[serde(skip)]
    pub problem: Option<String>,
    /// Reason why a patch port has no peer.
    #[serde(skip)]
    pub peer_problem: Option<String>,
    /// Reason why the configured MTU is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_problem: Option<String>,
    /// Other users of the device of the port, and what to do about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_problem: Option<String>,
    /// Reason why the NIC in front of the bridge does not have the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_problem: Option<String>,
    /// Reason why the configured MAC address is not in force.
    #[serde(skip)]
    pub mac_problem: Option<String>,
    /// State of the network device; `None` without a device,
    /// or while the port is closed.
    #[serde(skip)]
    pub device: Option<HostDeviceState>,
    /// NUMA node of the device; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Speed and duplex mode of the link.
    #[serde(skip)]
    pub link_mode: LinkMode,
    /// Driver of the device; `None` without one, or while the port is closed.
    #[serde(skip)]
    pub driver: Option<Arc<DriverInfo>>,
    /// Number of changes of the link while the port was open.
    #[serde(skip)]
    pub link_resets: u64,
    /// VLAN mode, such as access or trunk.
    pub vlan_mode: config::PortVlanMode,
    /// VLAN of untagged frames; `None` in mode `trunk`.
    pub tag: Option<u16>,
    /// Further VLANs of the port; empty: all VLANs that the mode allows.
    pub trunks: Vec<u16>,
    /// Customer VLANs of a dot1q-tunnel port; empty: all.
    pub cvlans: Vec<u16>,
    /// Ethernet type of the service tag of a dot1q-tunnel port.
    pub qinq_ethtype: QinqEthtype,
    /// Which frames `NORMAL` sends with a tag of VLAN 0.
    pub priority_tags: PriorityTags,
    /// True if `NORMAL` sends nothing from this port to other protected ports.
    pub protected: bool,
    /// True if the packets of all multicast groups are sent on the port.
    pub mcast_snooping_flood: bool,
    /// True if the reports of all hosts are sent on the port.
    pub mcast_snooping_flood_reports: bool,
    /// Ingress policing limits, by key; limits of 0 are omitted.
    pub ingress_policing: BTreeMap<&'static str, u32>,
    /// Quality of service of sent packets.
    pub qos: Option<config::QosOptions>,
    /// Status of the BFD session; `None` if the port has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdPortStatus>,
    /// Rates of `linux-htb` in force.
    #[serde(skip)]
    pub htb: Option<HtbOptions>,
    /// Egress queues of the port, ordered by number.
    pub queues: Vec<EgressQueueStatus>,
    /// Packets that the port received.
    pub rx_packets: u64,
    /// Bytes that the port received.
    pub rx_bytes: u64,
    /// Frames dropped on receipt: by the port, its policing, the kernel or the NIC.
    pub rx_dropped: u64,
    /// Packets that the port received and the switch then dropped.
    ///
    /// Rules, settings or full queues drop such packets.
    pub forward_dropped: u64,
    /// Packets that the port sent.
    pub tx_packets: u64,
    /// Bytes that the port sent.
    pub tx_bytes: u64,
    /// Packets that could not be sent.
    pub tx_dropped: u64,
    /// Copies that the port made of frames.
    #[serde(flatten)]
    pub copies: PortCopyStatus,
    /// Dropped frames and packets by reason; reasons with count 0 are omitted.
    pub drops: Vec<PortDrops>,
    /// Further counters of the device with a value other than 0.
    ///
    /// The driver of the device names these counters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub driver_counters: BTreeMap<String, u64>,
}

/// Packets that were dropped at a port, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortDrops {
    /// Direction: `rx`, `forward` or `tx`.
    ///
    /// `rx` means before a packet thread looked the packets up. `forward` means between lookup and
    /// transmission.
    pub direction: &'static str,
    /// Name of the drop reason.
    pub reason: &'static str,
    /// Number of packets that were dropped for this reason.
    pub packets: u64,
}

impl Switch {
    /// Returns the status of the bridges and their ports.
    #[must_use]
    pub fn bridges(&self) -> Vec<BridgeStatus> {
        self.bridges_where(None)
    }

    /// Returns the status of the bridges, with that of the ports in `names` alone.
    ///
    /// Counters of devices may be some seconds old.
    #[must_use]
    pub fn bridges_with_ports(&self, names: &BTreeSet<String>) -> Vec<BridgeStatus> {
        self.bridges_where(Some(names))
    }

    /// Returns the status of all bridges, or of those with some names.
    fn bridges_where(&self, names: Option<&BTreeSet<String>>) -> Vec<BridgeStatus> {
        self.bridges_and_losses(names).0
    }

    /// Returns the status of the bridges, and the losses of removed ports.
    ///
    /// Each lost packet is in one of them: no port is removed between the two readings.
    pub(crate) fn bridges_and_losses(
        &self,
        names: Option<&BTreeSet<String>>,
    ) -> (Vec<BridgeStatus>, RemovedPortLosses) {
        let nic = self.control.nic.status();
        let (mut bridges, removed) = self.openflow.bridge_status(nic.as_ref(), names);
        let front = self.control.nic.front();
        for bridge in &mut bridges {
            if bridge.nic.is_some()
                && let Some(front) = &front
            {
                bridge.add_nic_problems(front);
            }
            // The bridge may have been removed meanwhile.
            if let Ok(id) = self.control.bridges.id(&bridge.name) {
                self.control.exports.add_status(id, bridge);
            }
        }
        (bridges, removed)
    }
}

impl BridgeStatus {
    /// Returns the status of all bridges and their ports.
    ///
    /// The states of controllers and of exporters are filled in later. If `names` is given, other
    /// ports are left out.
    pub(crate) fn of_all(
        bridges: &BridgeRegistry,
        pipeline: &Pipeline,
        nic: Option<&NicStatus>,
        now: Time,
        names: Option<&BTreeSet<String>>,
    ) -> Vec<(BridgeId, Self)> {
        let of = |bridge: &BridgeState| {
            let tables = pipeline.table_stats(bridge.id);
            let status = Self {
                name: bridge.settings.name.clone(),
                datapath_id: format!("{:016x}", bridge.datapath_id),
                datapath_id_problem: bridges.datapath_id_problem(bridge),
                management_problem: bridge.management_problem.clone(),
                controllers: controllers(&bridge.settings),
                fail_open: false,
                connections: Vec::new(),
                packet_ins: PacketInTotals::default(),
                nic: nic.filter(|nic| nic.bridge == bridge.settings.name).cloned(),
                rules: tables.iter().map(|table| table.rules_count as u64).sum(),
                ports: ports_of(bridge, names)
                    .into_iter()
                    .map(|port| port_status(bridges, &bridge.settings.name, port, now))
                    .collect(),
                bonds: BondStatus::of_bridge(bridge, now),
                mirrors: MirrorStatus::of_bridge(bridge, pipeline),
                multicast: MulticastStatus::of_bridge(pipeline, bridge.id),
                sflow: None,
                netflow: None,
                ipfix: None,
                collector_sets: Vec::new(),
            };
            (bridge.id, status)
        };
        bridges.iter().map(of).collect()
    }

    /// Adds the reasons why ports of the bridge are not on its NIC.
    fn add_nic_problems(&mut self, nic: &NicFront) {
        // Patch ports have no packets of their own.
        for port in self.ports.iter_mut().filter(|port| port.datapath.is_some()) {
            port.nic_problem = nic.port_problem(port.number);
        }
    }
}

/// The counters of an egress queue.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct EgressQueueStatus {
    /// Number of the queue.
    pub id: u32,
    /// Packets that left the queue.
    pub tx_packets: u64,
    /// Bytes in these packets.
    pub tx_bytes: u64,
    /// Packets that were dropped because the queue was full.
    pub tx_errors: u64,
}

impl EgressQueueStatus {
    /// Returns the status of a queue with its counters.
    const fn of((queue, counts): (QueueId, QueueCounts)) -> Self {
        let QueueCounts { tx_packets, tx_bytes, tx_errors } = counts;
        Self { id: queue.number(), tx_packets, tx_bytes, tx_errors }
    }
}

impl BridgePortStatus {
    /// Returns whether the type of the port allows a QoS.
    #[must_use]
    pub fn may_have_qos(&self) -> bool {
        self.number != PortNo::LOCAL.number() && self.kind != config::PortType::Patch.name()
    }

    /// Returns the ports of one bridge, each with the time since it was added.
    pub(crate) fn of_bridge(
        bridges: &BridgeRegistry,
        id: BridgeId,
        now: Time,
    ) -> Vec<(Self, Duration)> {
        let Some(bridge) = bridges.by_id(id) else { return Vec::new() };
        let status = |port: &BridgePort| {
            (port_status(bridges, &bridge.settings.name, port, now), now.since(port.added))
        };
        bridge.ports.values().map(status).collect()
    }
}

/// Returns the ports of a bridge by number; with `names`, only these ports.
///
/// The cost depends on the number of returned ports.
fn ports_of<'a>(bridge: &'a BridgeState, names: Option<&BTreeSet<String>>) -> Vec<&'a BridgePort> {
    let Some(names) = names else { return bridge.ports.values().collect() };
    let mut ports: Vec<_> = names.iter().filter_map(|name| bridge.port_named(name)).collect();
    ports.sort_by_key(|port| port.number);
    ports
}

/// Returns the controllers of a bridge, before their states are filled in.
fn controllers(settings: &config::BridgeOptions) -> Vec<ControllerStatus> {
    let status = |(target, state): (&String, ControllerState)| ControllerStatus {
        target: target.clone(),
        state,
    };
    let connect = settings.controllers.iter().map(|target| (target, ControllerState::Connecting));
    let listening = || ControllerState::Listening { port: None, problem: None };
    let listen = settings.listen.iter().map(|target| (target, listening()));
    connect.chain(listen).map(status).collect()
}

/// The packet and byte counters of a port, as sums over packet threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortTotals {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    /// Frames dropped on receipt: by the port, its policing, the kernel or the NIC.
    pub(crate) rx_dropped: u64,
    /// Packets that the port received and the switch then dropped.
    pub(crate) forward_dropped: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    /// Packets that could not be sent.
    pub(crate) tx_dropped: u64,
}

impl PortTotals {
    /// Returns the totals of a port.
    pub(crate) fn of(port: &BridgePort) -> Self {
        Self::with_drops(port, &port_drops(port))
    }

    /// Returns the totals of a port, computed with its `drops`.
    fn with_drops(port: &BridgePort, drops: &[PortDrops]) -> Self {
        let sum = |field: fn(&PortTraffic) -> u64| -> u64 {
            port.traffic.iter().map(|traffic| field(traffic)).sum()
        };
        let dropped = |direction: &str| -> u64 {
            let own = drops.iter().filter(|drops| drops.direction == direction);
            own.map(|drops| drops.packets).sum()
        };
        Self {
            rx_packets: sum(|traffic| traffic.rx_packets.get()),
            rx_bytes: sum(|traffic| traffic.rx_bytes.get()),
            rx_dropped: dropped("rx"),
            forward_dropped: dropped("forward"),
            tx_packets: sum(|traffic| traffic.tx_packets.get()),
            tx_bytes: sum(|traffic| traffic.tx_bytes.get()),
            tx_dropped: dropped("tx"),
        }
    }
}

/// Returns the status of a port.
fn port_status(
    bridges: &BridgeRegistry,
    bridge: &str,
    port: &BridgePort,
    now: Time,
) -> BridgePortStatus {
    let drops = port_drops(port);
    let totals = PortTotals::with_drops(port, &drops);
    let link = match &port.problem {
        Some(problem) => format!("down: {problem}"),
        None if port.config.port_down => "down: by a controller".to_owned(),
        None if bridges.peer_problem(port).is_some() => "no peer".to_owned(),
        None if port.link_up => "up".to_owned(),
        None => {
            let reason = port.down_reason();
            reason.map_or_else(|| "down".to_owned(), |reason| format!("down: {reason}"))
        }
    };
    BridgePortStatus {
        bridge: bridge.to_owned(),
        name: port.settings.name.clone(),
        number: port.number.number(),
        datapath: port.datapath.map(|datapath| datapath.number()),
        kind: port.settings.kind.name(),
        socket_mode: (port.settings.kind == config::PortType::VhostUser)
            .then_some(port.settings.mode),
        link,
        problem: port.problem.clone(),
        peer_problem: bridges.peer_problem(port),
        mtu_problem: port.mtu_problem(),
        user_problem: port.user_problem(),
        // The NIC adds its problem.
        nic_problem: None,
        mac_problem: bridges.find(bridge).ok().and_then(|own| port.mac_problem(own)),
        device: port.device.filter(|_| port.open.is_some()),
        numa_node: port.numa_node(),
        link_mode: port.link_mode,
        driver: port.open.as_ref().and_then(|open| open.driver()).cloned(),
        link_resets: port.link_resets,
        vlan_mode: port.settings.effective_vlan_mode(),
        tag: port.settings.tag,
        trunks: port.settings.trunks.clone(),
        cvlans: port.settings.cvlans.clone(),
        qinq_ethtype: port.settings.qinq_ethtype,
        priority_tags: port.settings.priority_tags,
        protected: port.settings.protected,
        mcast_snooping_flood: port.settings.mcast_snooping_flood,
        mcast_snooping_flood_reports: port.settings.mcast_snooping_flood_reports,
        ingress_policing: port.settings.ingress_policing_keys().collect(),
        qos: port.settings.qos.clone(),
        bfd: port.bfd.as_ref().map(|session| session.status(now)),
        htb: port.htb(),
        queues: port.queue_counts().map(EgressQueueStatus::of).collect(),
        rx_packets: totals.rx_packets,
        rx_bytes: totals.rx_bytes,
        rx_dropped: totals.rx_dropped,
        forward_dropped: totals.forward_dropped,
        tx_packets: totals.tx_packets,
        tx_bytes: totals.tx_bytes,
        tx_dropped: totals.tx_dropped,
        copies: PortCopyStatus::new(port.copies()),
        drops,
        driver_counters: port
            .open
            .as_ref()
            .map_or_else(BTreeMap::new, |open| open.driver_counters().into_iter().collect()),
    }
}

/// Returns the packets that were dropped at a port, by direction and reason.
pub(crate) fn port_drops(port: &BridgePort) -> Vec<PortDrops> {
    let (device, nic) = (port.device_counters(), &port.nic_losses);
    let sum = |field: &dyn Fn(&PortTraffic) -> u64| -> u64 {
        port.traffic.iter().map(|traffic| field(traffic)).sum()
    };
    let rx = RxLoss::ALL.iter().map(|reason| {
        let of_device = if *reason == RxLoss::RingFull { device.rx_dropped } else { 0 };
        let lost = sum(&|traffic| traffic.rx_lost[*reason as usize].get());
        ("rx", reason.name(), lost + of_device + nic.not_received(*reason))
    });
    let rx_nic =
        NicDropReason::ALL.iter().map(|reason| ("rx", reason.loss_name(), nic.dropped(*reason)));
    let forward = DropReason::ALL.iter().map(|reason| {
        let dropped = sum(&|traffic| traffic.forward_dropped.get(*reason));
        ("forward", reason.name(), dropped)
    });
    let tx = DropReason::ALL
        .iter()
        .map(|reason| ("tx", reason.name(), sum(&|traffic| traffic.tx_dropped.get(*reason))));
    rx.chain(rx_nic)
        .chain(forward)
        .chain([("forward", SNOOPING_INBOX_FULL, port.snooping_lost)])
        .chain(tx)
        .chain([("tx", DEVICE_LOST, device.tx_dropped + nic.not_sent())])
        .filter(|(.., packets)| *packets > 0)
        .map(|(direction, reason, packets)| PortDrops { direction, reason, packets })
        .collect()
}

/// Drop reason of IGMP and MLD messages that were dropped before they were read.
const SNOOPING_INBOX_FULL: &str = "snooping_inbox_full";

/// Reason of packets that a device accepted and could not send.
pub(crate) const DEVICE_LOST: &str = "device_lost";
