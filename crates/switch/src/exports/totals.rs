//! The counters of an exporter, which continue after changes of its options.

use parking_lot::Mutex;

/// The counters of an exporter, shared with the senders of its datagrams.
///
/// A changed exporter passes its counters to its successor. Both exporters use these counters while
/// the old exporter still sends.
#[derive(Debug, Default)]
pub(super) struct ExportTotals(Mutex<ExportCounts>);

/// Counters since the exporter was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExportCounts {
    /// Samples that were taken from the rings of packet threads.
    pub(super) samples: u64,
    /// Samples that did not fit the rings of packet threads.
    ///
    /// Only samplers that were replaced are counted here, not running samplers.
    pub(super) samples_dropped: u64,
    /// Flows that were encoded.
    pub(super) flows: u64,
    /// Flows or samples in lost datagrams, counted for each collector.
    ///
    /// Flows that were not encoded in time when an exporter ended are added.
    pub(super) records_lost: u64,
    /// Datagrams that the kernel accepted, counted for each collector.
    pub(super) sent: u64,
    /// Datagrams that were lost, counted for each collector.
    pub(super) lost: u64,
}

impl ExportTotals {
    /// Returns the counts of datagrams and losses.
    pub(super) fn counts(&self) -> ExportCounts {
        *self.0.lock()
    }

    /// Changes the counts under their lock.
    pub(super) fn update(&self, change: impl FnOnce(&mut ExportCounts)) {
        change(&mut self.0.lock());
    }
}
