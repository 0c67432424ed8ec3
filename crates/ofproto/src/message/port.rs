//! What is told and asked of ports.

use std::time::Duration;

use shunt_flow::PortNo;
use shunt_pipeline::{PortConfig, PortInfo};

/// What a link can do and does (`ofp_port_features` bits, speeds in kbit/s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFeatures {
    /// What is in use.
    pub current: u32,
    /// What the port advertises.
    pub advertised: u32,
    /// What the port can do.
    pub supported: u32,
    /// What the other end advertises.
    pub peer: u32,
    /// Speed in use.
    pub speed_kbps: u32,
    /// Highest speed.
    pub speed_max_kbps: u32,
}

/// A port as controllers see it (`ofp_port`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDescription {
    /// Its number.
    pub number: PortNo,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its name: at most 15 bytes.
    pub name: String,
    /// Settings. `no_flood` has no place in OpenFlow 1.3.
    pub config: PortConfig,
    /// Whether its link is up.
    pub link_up: bool,
    /// What its link can do.
    pub link: LinkFeatures,
}

impl PortDescription {
    /// What there is to tell of a port.
    #[must_use]
    pub fn of(port: &PortInfo, link: LinkFeatures) -> Self {
        Self {
            number: port.number,
            mac: port.mac,
            name: port.name.clone(),
            config: port.config,
            link_up: port.link_up,
            link,
        }
    }
}

/// `ofp_port_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortStatusReason {
    /// The port is new.
    Add,
    /// The port is gone.
    Delete,
    /// Something about it changed.
    Modify,
}

/// `ofp_port_status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// What happened.
    pub reason: PortStatusReason,
    /// The port, as it is or was.
    pub port: PortDescription,
}

/// `ofp_port_mod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// Which port.
    pub port: PortNo,
    /// Its hardware address, as a safeguard.
    pub mac: [u8; 6],
    /// The settings to have.
    pub config: PortConfig,
    /// The settings to change.
    pub mask: PortConfig,
    /// What to advertise; 0: no change.
    pub advertise: u32,
}

impl PortMod {
    /// The settings of a port that had `old`, once this is obeyed.
    #[must_use]
    pub const fn apply_to(&self, old: PortConfig) -> PortConfig {
        const fn pick(mask: bool, new: bool, old: bool) -> bool {
            if mask { new } else { old }
        }
        PortConfig {
            port_down: pick(self.mask.port_down, self.config.port_down, old.port_down),
            no_recv: pick(self.mask.no_recv, self.config.no_recv, old.no_recv),
            no_fwd: pick(self.mask.no_fwd, self.config.no_fwd, old.no_fwd),
            no_packet_in: pick(self.mask.no_packet_in, self.config.no_packet_in, old.no_packet_in),
            no_flood: pick(self.mask.no_flood, self.config.no_flood, old.no_flood),
        }
    }
}

/// Counters of a port; all ones where the port does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedPortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets that could not be sent.
    pub tx_dropped: u64,
    /// Errors while receiving.
    pub rx_errors: u64,
    /// Errors while sending.
    pub tx_errors: u64,
    /// Frames received that were not aligned.
    pub rx_frame_errors: u64,
    /// Packets received while there was no room.
    pub rx_over_errors: u64,
    /// Received frames with a wrong check sequence.
    pub rx_crc_errors: u64,
    /// Collisions.
    pub collisions: u64,
}

impl Default for ReportedPortCounters {
    /// Nothing is counted.
    fn default() -> Self {
        const UNKNOWN: u64 = u64::MAX;
        Self {
            rx_packets: UNKNOWN,
            tx_packets: UNKNOWN,
            rx_bytes: UNKNOWN,
            tx_bytes: UNKNOWN,
            rx_dropped: UNKNOWN,
            tx_dropped: UNKNOWN,
            rx_errors: UNKNOWN,
            tx_errors: UNKNOWN,
            rx_frame_errors: UNKNOWN,
            rx_over_errors: UNKNOWN,
            rx_crc_errors: UNKNOWN,
            collisions: UNKNOWN,
        }
    }
}

/// `ofp_port_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatistics {
    /// Which port.
    pub port: PortNo,
    /// What it counted.
    pub counters: ReportedPortCounters,
    /// How long it has been there.
    pub duration: Duration,
}

/// `ofp_queue_stats_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFilter {
    /// Queues of this port; [`PortNo::ANY`]: of all.
    pub port: PortNo,
    /// This queue; `None`: all (`OFPQ_ALL`).
    pub queue: Option<u32>,
}
