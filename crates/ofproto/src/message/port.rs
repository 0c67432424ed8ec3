//! Port descriptions, port status, port modification and port statistics.

use std::time::Duration;

use shunt_flow::PortNo;
use shunt_pipeline::{PortConfig, PortInfo, QueueId};

/// Features of a link (`ofp_port_features` bits, speeds in kbit/s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFeatures {
    /// Features that the link uses now.
    pub current: u32,
    /// Features that the port advertises.
    pub advertised: u32,
    /// Features that the port supports.
    pub supported: u32,
    /// Features that the peer advertises.
    pub peer: u32,
    /// Current speed of the link, in kbit/s.
    pub speed_kbps: u32,
    /// Maximum speed of the link, in kbit/s.
    pub speed_max_kbps: u32,
}

/// A port as controllers see it (`ofp_port`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDescription {
    /// Number of the port.
    pub number: PortNo,
    /// Hardware address of the port.
    pub mac: [u8; 6],
    /// Name of the port: at most 15 bytes.
    pub name: String,
    /// Settings of the port. OpenFlow 1.3 cannot express `no_flood`.
    pub config: PortConfig,
    /// True if the link is up.
    pub link_up: bool,
    /// True if the port carries packets, so that a bucket that watches it is live.
    pub is_live: bool,
    /// Features of the link.
    pub link: LinkFeatures,
}

impl PortDescription {
    /// Describes a port for controllers.
    #[must_use]
    pub fn of(port: &PortInfo, link: LinkFeatures) -> Self {
        Self {
            number: port.number,
            mac: port.mac,
            name: port.name.clone(),
            config: port.config,
            link_up: port.link_up,
            is_live: port.is_live(),
            link,
        }
    }
}

/// `ofp_port_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortStatusReason {
    /// The port was added.
    Add,
    /// The port was removed.
    Delete,
    /// The port was changed.
    Modify,
}

/// `ofp_port_status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The kind of change.
    pub reason: PortStatusReason,
    /// The port after the change, or before its removal.
    pub port: PortDescription,
}

/// `ofp_port_mod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// Number of the port to change.
    pub port: PortNo,
    /// Hardware address of the port, which must match as a safeguard.
    pub mac: [u8; 6],
    /// New values of the settings.
    pub config: PortConfig,
    /// The settings to change.
    pub mask: PortConfig,
    /// Features to advertise; 0 keeps the current features.
    pub advertise: u32,
}

impl PortMod {
    /// Returns the settings of a port with settings `old` after this change.
    #[must_use]
    pub const fn apply_to(&self, old: PortConfig) -> PortConfig {
        /// Returns the new flag if the mask selects it, else the old flag.
        const fn select_flag(mask: bool, new: bool, old: bool) -> bool {
            if mask { new } else { old }
        }
        PortConfig {
            port_down: select_flag(self.mask.port_down, self.config.port_down, old.port_down),
            no_recv: select_flag(self.mask.no_recv, self.config.no_recv, old.no_recv),
            no_fwd: select_flag(self.mask.no_fwd, self.config.no_fwd, old.no_fwd),
            no_packet_in: select_flag(
                self.mask.no_packet_in,
                self.config.no_packet_in,
                old.no_packet_in,
            ),
            no_flood: select_flag(self.mask.no_flood, self.config.no_flood, old.no_flood),
        }
    }
}

/// Counters of a port, as reported to controllers; all ones if not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedPortCounters {
    /// Number of received packets.
    pub rx_packets: u64,
    /// Number of sent packets.
    pub tx_packets: u64,
    /// Number of received bytes.
    pub rx_bytes: u64,
    /// Number of sent bytes.
    pub tx_bytes: u64,
    /// Number of received packets that were dropped.
    pub rx_dropped: u64,
    /// Number of packets that could not be sent.
    pub tx_dropped: u64,
    /// Number of receive errors.
    pub rx_errors: u64,
    /// Number of send errors.
    pub tx_errors: u64,
    /// Number of received frames with alignment errors.
    pub rx_frame_errors: u64,
    /// Number of receive overruns.
    pub rx_over_errors: u64,
    /// Number of received frames with a wrong frame check sequence.
    pub rx_crc_errors: u64,
    /// Number of collisions on the port.
    pub collisions: u64,
}

impl Default for ReportedPortCounters {
    /// Returns counters, all of them unsupported.
    fn default() -> Self {
        /// The value of an unsupported counter (OpenFlow 1.3.5, 7.3.5.6).
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
    /// Number of the port.
    pub port: PortNo,
    /// Counters of the port.
    pub counters: ReportedPortCounters,
    /// Time since the port was added.
    pub duration: Duration,
}

/// `ofp_packet_queue`: a queue and its rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    /// The port of the queue.
    pub port: PortNo,
    /// Number of the queue on its port.
    pub queue: QueueId,
    /// Minimum rate, in tenths of a percent of the rate of the port (`OFPQT_MIN_RATE`).
    pub min_rate: Option<u16>,
    /// Maximum rate, in tenths of a percent of the rate of the port (`OFPQT_MAX_RATE`).
    pub max_rate: Option<u16>,
}

/// `ofp_queue_get_config_reply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The port of the request; [`PortNo::ANY`] for all ports.
    pub port: PortNo,
    /// The queues of the port.
    pub queues: Vec<QueueDescription>,
}

impl QueueConfig {
    /// The most queues of a reply: the message has one part, of less than 64 KiB.
    pub const QUEUES_MAX: usize = 1300;
}

/// `ofp_queue_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatistics {
    /// The port of the queue.
    pub port: PortNo,
    /// Number of the queue on its port.
    pub queue: QueueId,
    /// Number of bytes sent.
    pub tx_bytes: u64,
    /// Number of packets sent.
    pub tx_packets: u64,
    /// Number of packets dropped because the queue was full.
    pub tx_errors: u64,
    /// Time since the queue was added.
    pub duration: Duration,
}

/// `ofp_queue_stats_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFilter {
    /// The port of the queues; [`PortNo::ANY`] selects all ports.
    pub port: PortNo,
    /// The queue; `None` selects all queues (`OFPQ_ALL`).
    pub queue: Option<QueueId>,
}

impl QueueFilter {
    /// Returns whether the filter selects a queue.
    #[must_use]
    pub fn selects(&self, port: PortNo, queue: QueueId) -> bool {
        (self.port == PortNo::ANY || self.port == port) && self.queue.is_none_or(|own| own == queue)
    }
}
