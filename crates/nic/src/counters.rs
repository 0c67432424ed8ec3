//! The packet counters of a NIC.
//!
//! Each packet from a port, a representor or the controller has exactly one outcome. The packet is
//! sent, handed over to the controller, passed to the representor of its port, or dropped for one
//! reason. So received = sent + handed over + represented + dropped, apart from packets that are
//! held to keep the order of their flow.
//!
//! Each lost packet also counts at its port ([`NicPortLosses`]), so that the switch can list it.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_datapath::{RxLoss, port::RxReport};

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicDropReason {
    /// An entry drops the packet, or would send the packet back to its ingress port.
    Rule,
    /// The output port does not exist.
    NoPort,
    /// The output port did not accept the packet.
    Refused,
    /// The packet cannot be segmented, or the buffer has no room for a VLAN tag.
    Unsendable,
    /// No packet buffer was free.
    NoBuffer,
    /// The queue to the controller is full.
    Controller,
    /// The representor did not accept the packet.
    Representor,
}

impl NicDropReason {
    /// All reasons why the NIC drops packets.
    pub const ALL: [Self; 7] = [
        Self::Rule,
        Self::NoPort,
        Self::Refused,
        Self::Unsendable,
        Self::NoBuffer,
        Self::Controller,
        Self::Representor,
    ];

    /// Returns the name of the drop reason in a status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::NoPort => "no port",
            Self::Refused => "refused",
            Self::Unsendable => "unsendable",
            Self::NoBuffer => "no buffer",
            Self::Controller => "controller",
            Self::Representor => "representor",
        }
    }

    /// Returns the name of the drop reason in a list of all losses of a switch.
    #[must_use]
    pub const fn loss_name(self) -> &'static str {
        match self {
            Self::Rule => "nic_rule",
            Self::NoPort => "nic_no_port",
            Self::Refused => "nic_refused",
            Self::Unsendable => "nic_unsendable",
            Self::NoBuffer => "nic_no_buffer",
            Self::Controller => "nic_controller",
            Self::Representor => "nic_representor",
        }
    }
}

/// The packet counters of a NIC.
///
/// The packet thread writes the counters, and other threads read them.
#[derive(Debug, Default)]
pub struct NicCounters {
    received: AtomicU64,
    sent: AtomicU64,
    handed_over: AtomicU64,
    represented: AtomicU64,
    hits: AtomicU64,
    partial_hits: AtomicU64,
    dropped: [AtomicU64; NicDropReason::ALL.len()],
    ports_broken: AtomicU64,
}

impl NicCounters {
    /// Returns the number of packets from ports, representors and the controller.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that left by a port.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that were handed over to the controller.
    #[must_use]
    pub fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that went to the representor of their port.
    #[must_use]
    pub fn represented(&self) -> u64 {
        self.represented.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that hit, and that the stages sent or dropped.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that matched some entries and then missed.
    /// Packets with a partial hit also count as misses.
    #[must_use]
    pub fn partial_hits(&self) -> u64 {
        self.partial_hits.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that were dropped for a reason.
    #[must_use]
    pub fn dropped(&self, reason: NicDropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of ports that failed and are no longer polled.
    #[must_use]
    pub fn ports_broken(&self) -> u64 {
        self.ports_broken.load(Ordering::Relaxed)
    }

    /// Counts packets that the NIC received.
    pub(crate) fn count_received(&self, count: usize) {
        self.received.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts a packet that left by a port.
    pub(crate) fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that the switch sent by a representor.
    pub(crate) fn count_represented(&self) {
        self.represented.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that reached the end of its traversal.
    pub(crate) fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that matched only the first entries.
    pub(crate) fn count_partial_hit(&self) {
        self.partial_hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that left by a representor to the switch.
    pub(crate) fn count_handed_over(&self) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a dropped packet, also at the port on which it arrived.
    pub(crate) fn count_drop(&self, reason: NicDropReason, ingress: Option<&NicPortLosses>) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(ingress) = ingress {
            ingress.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a packet of the switch that could not be sent, also at its output port.
    pub(crate) fn count_not_sent(&self, reason: NicDropReason, output: &NicPortLosses) {
        self.count_drop(reason, None);
        output.count_not_sent(1);
    }

    /// Counts a port that failed.
    pub(crate) fn count_broken_port(&self) {
        self.ports_broken.fetch_add(1, Ordering::Relaxed);
    }
}

/// The packets that a NIC lost at one of its ports.
///
/// The packet thread of the NIC writes the counters, and other threads read them. The owner of the
/// port keeps the counters while the port is closed, and while the NIC is replaced.
#[derive(Debug, Default)]
pub struct NicPortLosses {
    dropped: [AtomicU64; NicDropReason::ALL.len()],
    not_received: [AtomicU64; RxLoss::COUNT],
    not_sent: AtomicU64,
}

impl NicPortLosses {
    /// Returns the number of packets from the port that were dropped for a reason.
    ///
    /// Packets that a controller sends count at the port that it names.
    #[must_use]
    pub fn dropped(&self, reason: NicDropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of frames that the NIC could not receive, for a reason.
    #[must_use]
    pub fn not_received(&self, reason: RxLoss) -> u64 {
        self.not_received[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of packets of the switch that the NIC could not send.
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        self.not_sent.load(Ordering::Relaxed)
    }

    /// Counts the received frames that were lost, by their reasons.
    pub(crate) fn count_refused(&self, report: &RxReport) {
        let RxReport { refused, no_buffer, ring_full, .. } = *report;
        if refused == 0 {
            return;
        }
        let others = refused.saturating_sub(no_buffer).saturating_sub(ring_full);
        for (reason, count) in [
            (RxLoss::NoBuffer, no_buffer),
            (RxLoss::RingFull, ring_full),
            (RxLoss::Refused, others),
        ] {
            self.not_received[reason as usize].fetch_add(count.into(), Ordering::Relaxed);
        }
    }

    /// Counts packets that the port could not send.
    pub(crate) fn count_not_sent(&self, count: u32) {
        if count > 0 {
            self.not_sent.fetch_add(count.into(), Ordering::Relaxed);
        }
    }
}
