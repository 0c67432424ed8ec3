//! The configuration of bridges and their ports.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use shunt_datapath::port::{Repeat, af_xdp::XdpMode, memif::MemifRole, vhost_user::SocketMode};
use shunt_pipeline::{OverflowPolicy, PriorityTags, QinqEthtype};

use crate::config::{
    BfdOptions, BondOptions, CollectorSetOptions, IpfixOptions, MirrorOptions, NetflowOptions,
    QosOptions, SflowOptions,
};

/// A `[[bridge]]` section of the configuration, with its ports and bonds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeOptions {
    /// Name of the bridge and of its local port: at most 15 bytes.
    pub name: String,
    /// Datapath id in sixteen hexadecimal digits; empty: derived from `mac`.
    pub datapath_id: String,
    /// MAC address of the local port; empty: derived from the name of the bridge.
    pub mac: String,
    /// Device behind the local port.
    pub local: LocalPort,
    /// MTU of the local port's device in bytes; 0: the switch does not set it.
    pub mtu: u32,
    /// Controllers to connect to, as `tcp:IP:PORT`.
    pub controllers: Vec<String>,
    /// Addresses to listen on for controllers, as `ptcp:PORT[:IP]`.
    pub listen: Vec<String>,
    /// OpenFlow versions of connections, such as `OpenFlow13`; empty: all versions.
    pub protocols: Vec<String>,
    /// Behaviour while no controller is reachable.
    pub fail_mode: FailMode,
    /// Maximum number of rules in each table; 0: no limit.
    pub table_rules: usize,
    /// Behaviour when a rule is added to a full table.
    pub table_overflow: OverflowPolicy,
    /// Limits of particular tables, as `TABLE:RULES[:refuse|:evict]`.
    pub table_limits: Vec<String>,
    /// Names of particular tables, as `TABLE:NAME`.
    pub table_names: Vec<String>,
    /// Seconds without a frame after which `NORMAL` forgets a MAC address; 0 means 300.
    pub mac_ageing_s: u32,
    /// Maximum number of MAC addresses in the table of `NORMAL`; 0 means 8192.
    pub mac_entries: usize,
    /// VLANs in which `NORMAL` learns no MAC addresses, and floods every packet.
    pub flood_vlans: Vec<u16>,
    /// True if `NORMAL` sends multicast packets only to ports that report their group.
    pub mcast_snooping_enable: bool,
    /// Seconds without a report after which a port leaves a multicast group.
    ///
    /// The time is at most 3600 seconds; 0 means 300.
    pub mcast_snooping_ageing_s: u32,
    /// Maximum number of multicast groups: at most 1,000,000; 0 means 2048.
    pub mcast_snooping_entries: usize,
    /// True if `NORMAL` does not flood packets of groups that no host has reported.
    pub mcast_snooping_disable_flood_unregistered: bool,
    /// Ports of the bridge.
    #[serde(rename = "port")]
    pub ports: Vec<PortOptions>,
    /// Bonds of the bridge; `NORMAL` uses the ports of a bond as one port.
    #[serde(rename = "bond")]
    pub bonds: Vec<BondOptions>,
    /// Mirrors of the bridge, which copy packets to a port or VLAN for analysis.
    #[serde(rename = "mirror")]
    pub mirrors: Vec<MirrorOptions>,
    /// sFlow: sampled packets and port counters, sent to collectors.
    pub sflow: SflowOptions,
    /// NetFlow: flows with their counts, sent to collectors.
    pub netflow: NetflowOptions,
    /// IPFIX: flows of sampled packets, sent to collectors.
    pub ipfix: IpfixOptions,
    /// Sets of IPFIX collectors for the packets that rules sample.
    #[serde(rename = "collector_set")]
    pub collector_sets: Vec<CollectorSetOptions>,
}

/// The behaviour of a bridge that cannot reach its controllers.
///
/// As `fail_mode` of `ovs-vswitchd.conf.db(5)`; a bridge without controllers is not affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// The rules stay in force.
    #[default]
    Secure,
    /// The bridge forwards as a learning switch until a controller connects.
    Standalone,
}

/// The device behind the local port of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalPort {
    /// No device: packets that are sent to the port are dropped.
    #[default]
    None,
    /// A TAP device that has the name of the bridge.
    Tap,
}

/// The options of a port, with the keys of `[[bridge.port]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortOptions {
    /// Name: unique among all bridges and ports of the daemon.
    ///
    /// A name has at most 15 bytes, or 128 for types without `device`.
    pub name: String,
    /// OpenFlow port number; 0: the lowest free number.
    pub number: u32,
    /// Type of the port.
    #[serde(rename = "type")]
    pub kind: PortType,
    /// Network device of an `af_packet`, `af_xdp` or `tap` port.
    ///
    /// Empty: the name of the port.
    pub device: String,
    /// MAC address of the device of a `tap` port; empty: the switch does not set it.
    pub mac: String,
    /// MTU of the device in bytes; 0: the switch does not set it.
    ///
    /// Only ports of `af_packet`, `af_xdp`, `tap` and `dpdk` have the key.
    pub mtu: u32,
    /// Slots of the receive ring of each thread, for `af_packet`; 0: the default.
    pub rx_slots: u32,
    /// Mode in which the kernel passes frames to the switch, for `af_xdp`.
    pub xdp_mode: XdpMode,
    /// Time of a busy poll in microseconds, for `af_xdp`; 0: the device interrupts.
    pub busy_poll_us: u32,
    /// Device of DPDK and the arguments of its driver, for `dpdk`.
    pub devargs: String,
    /// Number of receive queues for `dpdk`; 0: one for each packet thread.
    ///
    /// For a client of `memif` it is the number of rings in each direction; 0 means one.
    pub queues: u16,
    /// Socket, for `memif`: an absolute path, or `@` and an abstract name.
    pub socket: PathBuf,
    /// Number of the interface at its socket, for `memif`.
    pub id: u32,
    /// Role of the switch at the socket, server or client, for `memif`.
    pub role: MemifRole,
    /// Secret that server and client must share, for `memif`; empty: none.
    pub secret: String,
    /// Binary logarithm of the size of a ring, for a client of `memif`; 0 means 10.
    pub rsize: u8,
    /// Length of a buffer in bytes, for a client of `memif`; 0 means 2048.
    pub bsize: u16,
    /// True if a `memif` server accepts a memory file that its client could shorten.
    pub allow_unsealed: bool,
    /// Path of the socket, for `vhost_user`.
    pub path: PathBuf,
    /// Socket mode, for `vhost_user`: the switch listens or connects.
    pub mode: SocketMode,
    /// Capture file to replay, for `pcap`; empty: the port receives nothing.
    pub rx: PathBuf,
    /// Capture file to write, for `pcap`; empty: the port discards sent packets.
    pub tx: PathBuf,
    /// Number of times that the capture is replayed, for `pcap`.
    pub repeat: Repeat,
    /// Name of the patch port at the other end, for `patch`.
    pub peer: String,
    /// VLAN mode for `NORMAL`.
    ///
    /// By default `access` if the port has a `tag`, else `trunk`.
    pub vlan_mode: Option<PortVlanMode>,
    /// VLAN of the port, for all modes but `trunk`.
    pub tag: Option<u16>,
    /// VLANs that the port carries, for all modes but `access` and `dot1q-tunnel`.
    ///
    /// 0 means untagged frames; empty: all VLANs.
    pub trunks: Vec<u16>,
    /// Customer VLANs that the port carries, for the mode `dot1q-tunnel`.
    ///
    /// 0 means untagged frames; empty: all VLANs.
    pub cvlans: Vec<u16>,
    /// Ethernet type of the service tag, for the mode `dot1q-tunnel`.
    pub qinq_ethtype: QinqEthtype,
    /// Which frames `NORMAL` sends with a tag of VLAN 0.
    pub priority_tags: PriorityTags,
    /// True if `NORMAL` sends nothing from this port to other protected ports.
    pub protected: bool,
    /// True if the packets of all multicast groups are sent on the port.
    ///
    /// `mcast_snooping_flood` and `mcast_snooping_flood_reports` need the `mcast_snooping_enable`
    /// of the bridge.
    pub mcast_snooping_flood: bool,
    /// True if the reports of all hosts are sent on the port.
    pub mcast_snooping_flood_reports: bool,
    /// Maximum rate of received bits, in kilobits per second; 0: no limit.
    pub ingress_policing_rate: u32,
    /// Burst above `ingress_policing_rate`, in kilobits; 0 means 8000.
    pub ingress_policing_burst: u32,
    /// Maximum rate of received packets, in thousands per second; 0: no limit.
    pub ingress_policing_kpkts_rate: u32,
    /// Burst above `ingress_policing_kpkts_rate`, in thousands of packets; 0 means 16.
    pub ingress_policing_kpkts_burst: u32,
    /// Quality of service of sent packets: rate limits and queues.
    pub qos: Option<QosOptions>,
    /// BFD session with the system at the other end of the link.
    pub bfd: Option<BfdOptions>,
}

/// The VLAN mode of a port (`vlan_mode` of `ovs-vswitchd.conf.db(5)`).
///
/// The variants of [`shunt_pipeline::VlanMode`] contain the VLAN; the configuration file has it in
/// the separate key `tag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortVlanMode {
    /// Carries untagged frames of one VLAN.
    Access,
    /// The port carries tagged frames.
    Trunk,
    /// Like `trunk`, but untagged frames belong to VLAN `tag`.
    NativeTagged,
    /// Like `native-tagged`, but frames of VLAN `tag` leave untagged.
    NativeUntagged,
    /// Carries all frames, with their tags, in the service VLAN `tag`.
    Dot1qTunnel,
}

impl PortVlanMode {
    /// All VLAN modes of ports.
    pub const ALL: [Self; 5] =
        [Self::Access, Self::Trunk, Self::NativeTagged, Self::NativeUntagged, Self::Dot1qTunnel];

    /// Returns the name of the VLAN mode in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Trunk => "trunk",
            Self::NativeTagged => "native-tagged",
            Self::NativeUntagged => "native-untagged",
            Self::Dot1qTunnel => "dot1q-tunnel",
        }
    }
}

/// The kind of device or peer that a port connects to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortType {
    /// Discards the packets that are sent to it, and receives none.
    Null,
    /// Receives packets from a capture file and writes packets to another.
    Pcap,
    /// One end of a link between two bridges of this daemon.
    Patch,
    /// A network device of the host, through a packet socket (`AF_PACKET`).
    #[default]
    AfPacket,
    /// A network device of the host, through AF_XDP sockets.
    AfXdp,
    /// A TAP device that the switch creates.
    Tap,
    /// The network card of a virtual machine.
    VhostUser,
    /// A memory interface to another program of the host.
    Memif,
    /// A network card or a virtual device, by a driver of DPDK.
    Dpdk,
    /// A port without a device that the switch opens.
    ///
    /// Such a port is a local port without a device, or a port of the program that embeds the
    /// switch.
    Unbound,
}

impl PortType {
    /// The types that a configuration can name: all but `Unbound`.
    pub const ALL: [Self; 9] = [
        Self::Null,
        Self::Pcap,
        Self::Patch,
        Self::AfPacket,
        Self::AfXdp,
        Self::Tap,
        Self::VhostUser,
        Self::Memif,
        Self::Dpdk,
    ];

    /// Returns the port type with the given name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether other queues receive the packets of a closed queue of the port.
    ///
    /// If so, the kernel distributes them over the queues that are still open.
    pub(crate) const fn spreads_packets(self) -> bool {
        match self {
            Self::AfPacket | Self::Tap => true,
            // The device or the peer chooses the queue of a packet, so the packets of a closed
            // queue are lost.
            Self::AfXdp | Self::VhostUser | Self::Memif | Self::Dpdk => false,
            Self::Null | Self::Pcap | Self::Patch | Self::Unbound => false,
        }
    }

    /// Returns whether the kernel counts packets that it drops before the port.
    pub(crate) const fn has_device_losses(self) -> bool {
        match self {
            Self::AfPacket | Self::AfXdp | Self::Tap => true,
            Self::VhostUser | Self::Memif | Self::Dpdk => false,
            Self::Null | Self::Pcap | Self::Patch | Self::Unbound => false,
        }
    }

    /// Returns whether a port that went down is reopened automatically.
    ///
    /// A `pcap` port is not reopened: its replay would start again, and its output file would be
    /// overwritten.
    pub(crate) const fn is_reopened(self) -> bool {
        match self {
            Self::AfPacket
            | Self::AfXdp
            | Self::Tap
            | Self::VhostUser
            | Self::Memif
            | Self::Dpdk
            | Self::Null => true,
            Self::Pcap | Self::Patch | Self::Unbound => false,
        }
    }

    /// Returns whether the port may be added before its device exists.
    pub(crate) const fn may_wait_for_device(self) -> bool {
        match self {
            Self::AfPacket | Self::AfXdp => true,
            Self::Null
            | Self::Pcap
            | Self::Patch
            | Self::Tap
            | Self::VhostUser
            | Self::Memif
            | Self::Dpdk
            | Self::Unbound => false,
        }
    }

    /// Returns whether another user of its device would receive the same packets.
    ///
    /// The result is false for a TAP: its other users are at the other end, and do not receive the
    /// same packets.
    #[must_use]
    pub const fn shares_device(self) -> bool {
        match self {
            Self::AfPacket | Self::AfXdp => true,
            Self::Null
            | Self::Pcap
            | Self::Patch
            | Self::Tap
            | Self::VhostUser
            | Self::Memif
            | Self::Dpdk
            | Self::Unbound => false,
        }
    }

    /// Returns whether the MTU of the port can change while it is open.
    ///
    /// Ports of other types are closed and opened again, because their buffers depend on the MTU.
    pub(crate) const fn has_runtime_mtu(self) -> bool {
        match self {
            Self::AfPacket | Self::Tap => true,
            Self::Null
            | Self::Pcap
            | Self::Patch
            | Self::AfXdp
            | Self::VhostUser
            | Self::Memif
            | Self::Dpdk
            | Self::Unbound => false,
        }
    }

    /// Returns whether the switch must poll the link state of the port.
    ///
    /// No kernel event reports a change of the link of such a port.
    pub(crate) const fn has_own_link(self) -> bool {
        match self {
            Self::VhostUser | Self::Memif | Self::Dpdk => true,
            Self::Null
            | Self::Pcap
            | Self::Patch
            | Self::AfPacket
            | Self::AfXdp
            | Self::Tap
            | Self::Unbound => false,
        }
    }

    /// Returns whether the switch opens a device for the port.
    pub(crate) const fn has_backing(self) -> bool {
        match self {
            Self::Null
            | Self::Pcap
            | Self::AfPacket
            | Self::AfXdp
            | Self::Tap
            | Self::VhostUser
            | Self::Memif
            | Self::Dpdk => true,
            Self::Patch | Self::Unbound => false,
        }
    }

    /// Returns the name of the port type in configuration files and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Pcap => "pcap",
            Self::Patch => "patch",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tap => "tap",
            Self::VhostUser => "vhost_user",
            Self::Memif => "memif",
            Self::Dpdk => "dpdk",
            Self::Unbound => "unbound",
        }
    }
}

/// The constant does not compile if [`PortType::ALL`] lacks a type.
const _: () = {
    let mut index = 0;
    while index < PortType::ALL.len() {
        assert!(PortType::ALL[index] as usize == index, "ALL has the order of the enum");
        index += 1;
    }
    assert!(PortType::Unbound as usize == index, "ALL has every type except Unbound");
};

/// Maximum length of the name of a bridge, or of a port with a network device.
///
/// The name of a device has 16 bytes in the kernel, and one of them is NUL.
pub const NAME_BYTES_MAX: usize = 15;
