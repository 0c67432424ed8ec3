//! Packet and byte counters to which packet threads add.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number of packets, and the number of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// Number of packets, each counted once.
    pub packets: u64,
    /// Number of bytes, without the frame check sequence.
    pub bytes: u64,
}

/// A counter of packets and bytes.
#[derive(Debug, Default)]
pub(crate) struct PacketCount {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl PacketCount {
    /// Adds hits, in packets and bytes.
    pub(crate) fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the counts of packets and bytes.
    pub(crate) fn totals(&self) -> PacketTotals {
        PacketTotals {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
