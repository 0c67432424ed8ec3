//! A port of a bridge: its options, its open device, and its state.

use std::{collections::BTreeSet, sync::Arc};

use shunt_datapath::{
    DropReason,
    egress::PortQos,
    metrics::{PortTraffic, RxLoad},
    packet::ingress_policer::IngressPolicer,
    port::{
        DeviceLosses, HostDeviceState, LinkMode, Port, PortCopies, PortCounters, PortError,
        PortSpec, RxQueue,
        memif::{MemifOptions, MemifSecret},
        tap::TapSettings,
    },
};
use shunt_flow::PortNo;
use shunt_nic::NicPortLosses;
use shunt_pipeline::{DatapathPort, PortConfig, PortInfo, PortKind, Time};

use crate::{
    config::{self, PortType},
    error::{SwitchError, with_causes},
    ports::{
        bfd::port_session::PortSession, device_users::DeviceUser, exclusive::ExclusiveResource,
        lacp::MemberPort,
    },
};

/// A port of a bridge: its options, its device while open, and its counters.
pub(crate) struct BridgePort {
    /// Options of the port in force.
    pub(crate) settings: config::PortOptions,
    /// OpenFlow number of the port.
    pub(crate) number: PortNo,
    /// Datapath port number, if packet threads have the port.
    pub(crate) datapath: Option<DatapathPort>,
    /// Device of the port while it is open.
    pub(crate) open: Option<Box<dyn Port>>,
    /// Sum of the counters of devices that were open earlier.
    pub(crate) closed: PortCounters,
    /// Sum of the copies of devices that were open earlier.
    pub(crate) closed_copies: PortCopies,
    /// Packets that an embedded NIC lost at the port, over all NICs.
    pub(crate) nic_losses: Arc<NicPortLosses>,
    /// Reason why the port is not open.
    pub(crate) problem: Option<String>,
    /// True if `problem` is the error of an attempt to open the device.
    pub(crate) has_open_error: bool,
    /// Receive queues of the port while it is open, by number.
    pub(crate) rx_queues: Vec<PlacedRxQueue>,
    /// Receive queues that were not sent to packet threads yet, each with its thread.
    pub(crate) held_queues: Vec<(usize, Box<dyn RxQueue>)>,
    /// Counters of each packet thread; the counters stay while the port is closed.
    pub(crate) traffic: Vec<Arc<PortTraffic>>,
    /// Rate limit of received packets, which all packet threads share.
    pub(crate) policer: Option<Arc<IngressPolicer>>,
    /// Quality of service of sent packets, which all packet threads share.
    pub(crate) egress_qos: Option<PortQos>,
    /// BFD session of the port, as of the last publication of port lists.
    pub(crate) bfd: Option<Arc<PortSession>>,
    /// Port configuration set by controllers.
    pub(crate) config: PortConfig,
    /// MAC address of the port.
    pub(crate) mac: [u8; 6],
    /// MAC address that is set when the device is opened; `None`:
    /// the device keeps its own.
    pub(crate) configured_mac: Option<[u8; 6]>,
    /// State of the device at the last check; `None` without a device of the host.
    pub(crate) device: Option<HostDeviceState>,
    /// Index of the device with which the port was opened last.
    pub(crate) opened_index: Option<u32>,
    /// Speed and duplex mode of the link at the last check.
    pub(crate) link_mode: LinkMode,
    /// Last known speed of the link, in bits per second.
    pub(crate) link_bps: Option<u64>,
    /// True if the link was up at the last check.
    pub(crate) link_up: bool,
    /// Number of changes of the link while the port was open.
    pub(crate) link_resets: u64,
    /// Users of the device other than the switch, of which a warning was logged.
    pub(crate) users: BTreeSet<DeviceUser>,
    /// Number of multicast snooping messages that newer messages have displaced.
    pub(crate) snooping_lost: u64,
    /// The device, socket or file that no other port may have.
    pub(crate) exclusive: Option<ExclusiveResource>,
    /// Time when the port was added.
    pub(crate) added: Time,
}

/// A receive queue of a port.
#[derive(Clone, Debug)]
pub(crate) struct PlacedRxQueue {
    /// Number of the packet thread that has the queue.
    pub(crate) thread: usize,
    /// The measured load of the queue.
    pub(crate) load: Arc<RxLoad>,
}

impl PlacedRxQueue {
    /// Places a new queue at a packet thread.
    pub(crate) fn new(thread: usize) -> Self {
        Self { thread, load: Arc::default() }
    }
}

impl BridgePort {
    /// Returns whether a packet thread receives from the port while it is open.
    pub(crate) fn has_receiver(&self, thread: usize) -> bool {
        self.rx_queues.iter().any(|queue| queue.thread == thread)
    }

    /// Returns whether the type of the port allows it as a member of a bond.
    pub(crate) fn can_be_member(&self) -> bool {
        self.number != PortNo::LOCAL && self.settings.kind != PortType::Patch
    }

    /// Returns whether the link of a member is up;
    /// `None` if the port is closed or disabled.
    ///
    /// The delays of the bond apply only when the link changes, not to `None`.
    pub(crate) fn member_link(&self) -> Option<bool> {
        (self.open.is_some() && !self.config.port_down).then_some(self.link_up)
    }

    /// Returns the number of received LACP frames that packet threads dropped.
    pub(crate) fn refused_lacp_frames(&self) -> u64 {
        let dropped = self.traffic.iter().map(|traffic| &traffic.forward_dropped);
        dropped.map(|dropped| dropped.get(DropReason::LacpFrameRefused)).sum()
    }

    /// Returns the port in the form that the LACP actor takes.
    ///
    /// The link of a closed or disabled port is down.
    pub(crate) fn lacp_member(&self) -> MemberPort {
        let link_up = self.member_link().unwrap_or(false);
        MemberPort { number: self.number, mac: self.mac, link_up }
    }

    /// Returns a closed port that counts from `added` on.
    pub(crate) fn new(
        settings: config::PortOptions,
        number: PortNo,
        threads: u16,
        added: Time,
    ) -> Self {
        let traffic = (0..threads).map(|_| Arc::new(PortTraffic::default())).collect();
        let policer = IngressPolicer::new(settings.ingress_policing(), added).map(Arc::new);
        let configured_mac = settings.mac();
        let mut port = Self {
            settings,
            number,
            datapath: None,
            open: None,
            closed: PortCounters::default(),
            closed_copies: PortCopies::default(),
            nic_losses: Arc::default(),
            problem: None,
            has_open_error: false,
            rx_queues: Vec::new(),
            held_queues: Vec::new(),
            traffic,
            policer,
            egress_qos: None,
            bfd: None,
            config: PortConfig::default(),
            mac: [0; 6],
            configured_mac,
            device: None,
            opened_index: None,
            link_mode: LinkMode::default(),
            link_bps: None,
            link_up: false,
            link_resets: 0,
            users: BTreeSet::new(),
            snooping_lost: 0,
            exclusive: None,
            added,
        };
        port.renew_qos(added);
        port
    }

    /// Returns the specification of the device to open.
    ///
    /// `None` for a port for which the switch opens no device.
    pub(crate) fn spec(&self) -> Option<PortSpec> {
        let settings = &self.settings;
        let path =
            |path: &std::path::PathBuf| Some(path.clone()).filter(|p| !p.as_os_str().is_empty());
        Some(match settings.kind {
            PortType::Null => PortSpec::Null,
            PortType::Pcap => PortSpec::Pcap {
                rx: path(&settings.rx),
                tx: path(&settings.tx),
                repeat: settings.repeat,
            },
            PortType::AfPacket => {
                let rx_slots = (settings.rx_slots > 0).then_some(settings.rx_slots);
                let device = settings.device().to_owned();
                PortSpec::AfPacket { device, mtu: settings.mtu(), rx_slots }
            }
            PortType::AfXdp => PortSpec::AfXdp {
                device: settings.device().to_owned(),
                mtu: settings.mtu(),
                mode: settings.xdp_mode,
                busy_poll_us: settings.busy_poll_us,
            },
            PortType::Tap => {
                let is_local = self.number == PortNo::LOCAL;
                // The local port belongs to the bridge: its device outlives the daemon, with the
                // addresses that the host has set.
                let (mac, mtu) = (self.configured_mac, settings.mtu());
                let tap = TapSettings { mac, mtu, persistent: is_local };
                PortSpec::Tap { device: settings.device().to_owned(), settings: tap }
            }
            PortType::VhostUser => {
                PortSpec::VhostUser { path: settings.path.clone(), mode: settings.mode }
            }
            PortType::Memif => PortSpec::Memif(memif_options(settings)),
            PortType::Dpdk => PortSpec::Dpdk {
                devargs: settings.devargs.clone(),
                rx_queues: (settings.queues > 0).then_some(settings.queues),
                mtu: settings.mtu(),
            },
            PortType::Patch | PortType::Unbound => return None,
        })
    }

    /// Takes the device out of the port, and keeps the counters of the device.
    pub(crate) fn take_device(&mut self) -> Option<Box<dyn Port>> {
        let open = self.open.take()?;
        if let Some(device) = self.device.filter(|_| self.settings.kind == PortType::Tap) {
            open.note_losses(&DeviceLosses::of(device.index));
        }
        let PortCounters { rx_dropped, tx_dropped } = open.counters();
        self.closed.rx_dropped += rx_dropped;
        self.closed.tx_dropped += tx_dropped;
        self.closed_copies += open.copies();
        Some(open)
    }

    /// Returns the counters of the open device and of earlier devices together.
    pub(crate) fn device_counters(&self) -> PortCounters {
        let PortCounters { rx_dropped, tx_dropped } =
            self.open.as_ref().map(|open| open.counters()).unwrap_or_default();
        PortCounters {
            rx_dropped: self.closed.rx_dropped + rx_dropped,
            tx_dropped: self.closed.tx_dropped + tx_dropped,
        }
    }

    /// Returns the copies of the open device and of earlier devices together.
    pub(crate) fn copies(&self) -> PortCopies {
        let mut copies = self.closed_copies;
        if let Some(open) = &self.open {
            copies += open.copies();
        }
        copies
    }

    /// Returns the NUMA node of the device, if the port is open.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        self.open.as_ref()?.numa_node()
    }

    /// Returns whether packet threads have received packets from the port.
    pub(crate) fn has_received(&self) -> bool {
        self.traffic.iter().any(|traffic| traffic.rx_packets.get() > 0)
    }

    /// Returns whether other queues receive the packets of a closed queue.
    pub(crate) const fn spreads_packets(&self) -> bool {
        self.settings.kind.spreads_packets()
    }

    /// Returns whether the port is reopened automatically.
    pub(crate) const fn is_reopened(&self) -> bool {
        self.settings.kind.is_reopened()
    }

    /// Returns whether a packet thread found a receive queue of the port broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.open.is_some() && self.traffic.iter().any(|traffic| traffic.rx_broken.get() > 0)
    }

    /// Records why the device cannot be opened; returns whether the reason is new.
    ///
    /// The reason why an open device was lost stays while there is no device of the name.
    pub(crate) fn note_open_error(&mut self, error: &SwitchError) -> bool {
        let is_absent =
            matches!(error, SwitchError::Port { source: PortError::NoDevice { .. }, .. });
        if is_absent && self.problem.is_some() && !self.has_open_error {
            return false;
        }
        let problem = Some(with_causes(error));
        let is_new = self.problem != problem;
        (self.problem, self.has_open_error) = (problem, true);
        is_new
    }

    /// Returns the port as the tables see it.
    pub(crate) fn info(&self, kind: PortKind) -> PortInfo {
        PortInfo {
            number: self.number,
            name: self.settings.name.clone(),
            kind,
            config: self.config,
            link_up: self.link_up,
            mac: self.mac,
            vlans: self.settings.vlans(),
            bond: None,
            is_protected: self.settings.protected,
            multicast: self.settings.multicast_flooding(),
            bfd: self.bfd.as_ref().map(|session| session.info()),
        }
    }
}

/// Returns the settings of a memif port.
fn memif_options(settings: &config::PortOptions) -> MemifOptions {
    let rsize = Some(settings.rsize).filter(|rsize| *rsize > 0);
    let bsize = Some(settings.bsize).filter(|bsize| *bsize > 0);
    MemifOptions {
        socket: settings.socket.clone(),
        id: settings.id,
        role: settings.role,
        secret: MemifSecret::new(settings.secret.clone()),
        ring_log2: rsize.unwrap_or(MemifOptions::RING_LOG2),
        buffer_bytes: bsize.unwrap_or(MemifOptions::BUFFER_BYTES),
        queues: settings.queues.max(1),
        allow_unsealed: settings.allow_unsealed,
        name: settings.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use shunt_datapath::{
        Pool,
        port::{FrameCopies, pair::pair},
    };

    use super::*;

    /// The counters of a monitoring system never decrease.
    #[test]
    fn copies_of_closed_devices_stay_counted() {
        let mut port =
            BridgePort::new(config::PortOptions::default(), PortNo::new(1), 1, Time::ZERO);
        let (mut pool, mut sent) = (Pool::new(), 0);
        for count in [3, 4] {
            let (mut device, _peer) = pair(1, 1);
            let mut queues = device.split(1).unwrap().remove(0);
            port.open = Some(Box::new(device));
            let packets: Vec<_> =
                (0..count).filter_map(|_| pool.take(60, DatapathPort::default())).collect();
            assert_eq!(queues.tx.tx(&packets), packets.len());
            packets.into_iter().for_each(|packet| pool.put_back(packet));
            sent += count;
            let expected = FrameCopies { frames: sent, bytes: 60 * sent };
            assert_eq!(port.copies().tx, expected);
            assert!(port.take_device().is_some());
            assert_eq!((port.copies().tx, port.copies().rx), (expected, FrameCopies::default()));
        }
    }

    #[test]
    fn a_closed_port_has_its_last_problem() {
        let options = config::PortOptions { name: "p1".to_owned(), ..Default::default() };
        let mut port = BridgePort::new(options, PortNo::new(1), 1, Time::ZERO);
        let error = |source| SwitchError::Port { name: "p1".to_owned(), source };
        let absent = error(PortError::NoDevice { name: "p1".to_owned() });
        let refused = error(PortError::NotTap { name: "p1".to_owned() });
        port.problem = Some("the device has vanished".to_owned());
        assert!(!port.note_open_error(&absent));
        assert_eq!(port.problem.as_deref(), Some("the device has vanished"));
        assert!(port.note_open_error(&refused));
        assert!(!port.note_open_error(&refused), "the reason is the same");
        // Without the device, the reason of the last attempt no longer holds.
        assert!(port.note_open_error(&absent));
        assert_eq!(port.problem.as_deref(), Some("port p1: there is no device p1"));
    }
}
