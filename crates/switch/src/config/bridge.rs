//! The configuration of bridges and their ports.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bridge {
    /// Its name, also that of its local port: at most 15 bytes.
    pub name: String,
    /// Sixteen hexadecimal digits; made from the name if empty.
    pub datapath_id: String,
    /// Hardware address of the local port; made from the name if empty.
    pub mac: String,
    /// What stands behind the local port.
    pub local: Local,
    /// Controllers to connect to, as `tcp:IP:PORT`.
    pub controllers: Vec<String>,
    /// Addresses to listen on for controllers, as `ptcp:PORT[:IP]`.
    pub listen: Vec<String>,
    /// Rules that a table takes; 0: no limit.
    pub table_rules: usize,
    /// What happens to a rule that is added to a full table.
    pub table_overflow: Overflow,
    /// Seconds without a frame after which `NORMAL` forgets a MAC address; 0: 300.
    pub mac_ageing_s: u32,
    /// MAC addresses that `NORMAL` knows at most; 0: 8192.
    pub mac_entries: usize,
    /// Its ports.
    #[serde(rename = "port")]
    pub ports: Vec<Port>,
}

/// What stands behind the local port of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Local {
    /// Nothing: packets to it are dropped.
    #[default]
    None,
    /// A TAP device of the bridge's name.
    Tap,
}

/// What happens to a rule that is added to a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// It is refused.
    #[default]
    Refuse,
    /// A rule that has a timeout makes room for it: the least important, then the one that would
    /// expire first.
    Evict,
}

/// A port of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Port {
    /// Its name: at most 15 bytes, unique in the daemon.
    pub name: String,
    /// Its OpenFlow number; 0: the lowest that is free.
    pub number: u32,
    /// What kind of port it is.
    #[serde(rename = "type")]
    pub kind: PortType,
    /// The network device, for `af_packet` and `tap`; the port's name if empty.
    pub device: String,
    /// The capture to replay, for `pcap`; nothing is received if empty.
    pub rx: PathBuf,
    /// The capture to write, for `pcap`; what is sent is discarded if empty.
    pub tx: PathBuf,
    /// How often the capture is replayed, for `pcap`.
    pub repeat: Repeat,
    /// The port at the other end, for `patch`.
    pub peer: String,
    /// How frames of its VLANs look to `NORMAL`; `access` if there is only a `tag`, else `trunk`.
    pub vlan_mode: Option<VlanMode>,
    /// Its VLAN, for all modes but `trunk`.
    pub tag: Option<u16>,
    /// The VLANs that it carries, 0 for frames without a tag, for all modes but `access`; empty: all.
    pub trunks: Vec<u16>,
}

/// How frames of its VLANs look on the wire of a port (`vlan_mode` of `ovs-vswitchd.conf.db(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VlanMode {
    /// One VLAN, without a tag.
    Access,
    /// With their tags.
    Trunk,
    /// As `trunk`; frames that come in without a tag belong to VLAN `tag`.
    NativeTagged,
    /// As `native-tagged`, and frames of that VLAN go out without a tag.
    NativeUntagged,
}

/// Kinds of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortType {
    /// Swallows what is sent, receives nothing.
    #[default]
    Null,
    /// Receives from a capture file and writes to another.
    Pcap,
    /// One end of a cable between two bridges of this daemon.
    Patch,
    /// A network device, by a packet socket.
    AfPacket,
    /// A TAP device that the switch makes.
    Tap,
    /// Nothing stands behind it: a local port without a device, or one that an embedder brings.
    Unbound,
}

impl PortType {
    /// The name, as configuration and command line spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Pcap => "pcap",
            Self::Patch => "patch",
            Self::AfPacket => "af_packet",
            Self::Tap => "tap",
            Self::Unbound => "unbound",
        }
    }
}

/// How often a capture is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// From beginning to end, once.
    #[default]
    Once,
    /// Over and over.
    Endless,
}

/// Longest name of a bridge or port: what OpenFlow's 16 bytes hold beside the NUL.
pub const NAME_BYTES_MAX: usize = 15;
