//! The counters of an egress queue, which all packet threads write.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of an egress queue.
#[derive(Debug, Default)]
pub(super) struct QueueCounters {
    /// Packets sent from the queue.
    tx_packets: AtomicU64,
    /// Bytes sent from the queue.
    tx_bytes: AtomicU64,
    /// Number of packets that the queue dropped.
    tx_errors: AtomicU64,
}

/// The counts of an egress queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets that left the queue to the transmit queue of the port.
    pub tx_packets: u64,
    /// Number of bytes of sent packets.
    pub tx_bytes: u64,
    /// Packets that were dropped because the queue was full.
    pub tx_errors: u64,
}

impl QueueCounters {
    /// Counts a packet that left the queue.
    pub(super) fn count_sent(&self, bytes: u64) {
        self.tx_packets.fetch_add(1, Ordering::Relaxed);
        self.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a packet that found the queue full.
    pub(super) fn count_error(&self) {
        self.tx_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the packets and bytes that the queue sent, and its errors, until now.
    pub(super) fn counts(&self) -> QueueCounts {
        QueueCounts {
            tx_packets: self.tx_packets.load(Ordering::Relaxed),
            tx_bytes: self.tx_bytes.load(Ordering::Relaxed),
            tx_errors: self.tx_errors.load(Ordering::Relaxed),
        }
    }
}
