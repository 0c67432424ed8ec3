//! The numbers of an exporter, which outlive changes of its options.

use parking_lot::Mutex;

/// The numbers of an exporter, shared with the senders of its datagrams.
///
/// An exporter that changes and its successor count together, also while the first one still sends.
#[derive(Debug, Default)]
pub(super) struct ExportTotals(Mutex<ExportCounts>);

/// Numbers since the exporter was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExportCounts {
    /// Samples that were taken from the rings of packet threads.
    pub(super) samples: u64,
    /// Samples that did not fit these rings.
    ///
    /// Those of running samplers are not among them.
    pub(super) samples_dropped: u64,
    /// Flows that were encoded.
    pub(super) flows: u64,
    /// Flows or samples of lost datagrams, counted for each collector.
    ///
    /// Also flows for which no time was left at the end.
    pub(super) records_lost: u64,
    /// Datagrams that the system took, counted for each collector.
    pub(super) sent: u64,
    /// Datagrams that were lost, counted for each collector.
    pub(super) lost: u64,
}

impl ExportTotals {
    pub(super) fn counts(&self) -> ExportCounts {
        *self.0.lock()
    }

    /// Adds to the numbers.
    pub(super) fn add(&self, change: impl FnOnce(&mut ExportCounts)) {
        change(&mut self.0.lock());
    }
}
