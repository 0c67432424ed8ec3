//! Packet counts of a packet thread, before they are published as metrics.

use std::iter;

use crate::{
    metrics::{DropReason, ThreadCounters},
    packet::{segment::SegmentError, virtio::Unsendable},
};

/// Packet counts as plain integers, published once per iteration.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Packets received from ports.
    pub(crate) received: u64,
    /// Packets injected by the control plane.
    pub(crate) injected: u64,
    /// Packets copied for several outputs.
    pub(crate) copied: u64,
    /// Packets forwarded to at least one port.
    pub(crate) forwarded: u64,
    /// Packets given to transmit queues.
    pub(crate) sent: u64,
    /// Packets sent to the control plane.
    pub(crate) punted: u64,
    /// Dropped packets, by reason.
    pub(crate) dropped: [u64; DropReason::COUNT],
}

impl Tally {
    /// Creates a tally in which all counts are zero.
    pub(super) const fn new() -> Self {
        Self {
            received: 0,
            injected: 0,
            copied: 0,
            forwarded: 0,
            sent: 0,
            punted: 0,
            dropped: [0; DropReason::COUNT],
        }
    }

    /// Counts the `segments` frames into which software completed a packet.
    ///
    /// Returns the drop reason if the completion failed.
    ///
    /// All frames but one count as copies. A packet without payload has no segment, and counts as
    /// malformed.
    pub(super) const fn finish(
        &mut self,
        finished: Result<(), Unsendable>,
        segments: usize,
    ) -> Option<DropReason> {
        let reason = match finished {
            Ok(()) if segments == 0 => DropReason::Malformed,
            Ok(()) => {
                self.copied += segments as u64 - 1;
                return None;
            }
            Err(refused) => reason(refused),
        };
        self.dropped[reason as usize] += 1;
        Some(reason)
    }

    /// Counts a copy for which a buffer was missing as copied and as dropped.
    pub(super) const fn drop_copy(&mut self, reason: DropReason) {
        self.copied += 1;
        self.dropped[reason as usize] += 1;
    }

    /// Copies the counts to the published counters.
    pub(crate) fn publish(&self, counters: &ThreadCounters) {
        counters.received.set(self.received);
        counters.injected.set(self.injected);
        counters.copied.set(self.copied);
        counters.forwarded.set(self.forwarded);
        counters.sent.set(self.sent);
        counters.punted.set(self.punted);
        for (counter, count) in iter::zip(counters.dropped.iter(), self.dropped) {
            counter.set(count);
        }
    }
}

/// Returns the drop reason of a packet that the port cannot send.
const fn reason(refused: Unsendable) -> DropReason {
    match refused {
        Unsendable::MtuExceeded { .. } => DropReason::MtuExceeded,
        Unsendable::Segment(SegmentError::PoolEmpty) => DropReason::NoBuffer,
        Unsendable::Segment(SegmentError::Protocol | SegmentError::TooMany { .. }) => {
            DropReason::SegmentationUnsupported
        }
    }
}
