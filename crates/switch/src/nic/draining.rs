//! A device that was replaced, and that removes its entries as long as it answers.
//!
//! Operations in progress are completed first, so that no insertion follows the removals. A device
//! that was lost gets the removals again when it is restored. Entries that the device refuses to
//! remove stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shunt_gigaflow::offload::{
    LtmIndex, OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket,
};
use shunt_pipeline::Time;
use tracing::{info, warn};

/// A replaced device, of which the entries are being removed.
pub(super) struct DrainingDevice<T> {
    device: T,
    /// True while the device is connected.
    is_connected: bool,
    /// Operations of the agent that the device has not acknowledged.
    under_way: BTreeSet<Ticket>,
    /// Removals to submit after the operations in `under_way`.
    removals: Vec<(Ticket, Operation)>,
    /// Removals that were submitted and not acknowledged.
    submitted: BTreeMap<Ticket, LtmIndex>,
    /// Entries that the device may hold.
    held: BTreeSet<LtmIndex>,
    /// Time at which the device is abandoned.
    until: Time,
}

/// Maximum time to empty a device: longer than the timeout of a request.
pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(6);

impl<T: OffloadDevice> DrainingDevice<T> {
    /// Starts to remove the entries of a device.
    ///
    /// `under_way` has its unacknowledged operations, and `held` the entries that it may hold. The
    /// device is abandoned at the time `until`.
    pub(super) fn new(
        device: T,
        is_connected: bool,
        under_way: BTreeSet<Ticket>,
        held: BTreeSet<LtmIndex>,
        until: Time,
    ) -> Self {
        let removals = held.iter().zip((0..).map(Ticket)).map(|(entry, ticket)| (*entry, ticket));
        let removals = removals.map(|(entry, ticket)| (ticket, Operation::Remove { entry }));
        let (removals, submitted) = (removals.collect(), BTreeMap::new());
        Self { device, is_connected, under_way, removals, submitted, held, until }
    }

    /// Continues to remove entries; returns whether removals are left and time remains.
    pub(super) fn poll(&mut self, now: Time) -> bool {
        let mut events = Vec::new();
        self.device.poll(&mut events);
        events.into_iter().for_each(|event| self.handle_event(event));
        if self.is_connected && self.under_way.is_empty() && !self.removals.is_empty() {
            self.request_removals();
        }
        let is_over = self.removals.is_empty() && self.submitted.is_empty();
        !is_over && now < self.until
    }

    /// Handles an event of the device that is drained.
    fn handle_event(&mut self, event: OffloadEvent) {
        match event {
            OffloadEvent::Completed { ticket, result } => {
                if self.under_way.remove(&ticket) {
                    return;
                }
                let Some(entry) = self.submitted.remove(&ticket) else { return };
                if is_gone(&result) {
                    self.held.remove(&entry);
                } else if matches!(result, Err(OffloadError::Lost(_))) {
                    self.removals.push((ticket, Operation::Remove { entry }));
                }
            }
            OffloadEvent::Lost(_) => self.is_connected = false,
            OffloadEvent::Restored => self.is_connected = true,
            OffloadEvent::Counted { .. } | OffloadEvent::Idle { .. } => {}
        }
    }

    /// Asks the device to remove entries, as many as it accepts now.
    fn request_removals(&mut self) {
        let removal = |(ticket, operation): &(Ticket, Operation)| match operation {
            Operation::Remove { entry } => Some((*ticket, *entry)),
            Operation::Insert { .. } | Operation::Modify { .. } | Operation::Count { .. } => None,
        };
        let submitted: Vec<(Ticket, LtmIndex)> = self.removals.iter().filter_map(removal).collect();
        // If the device was lost, its next poll reports that.
        let _ = self.device.submit(&mut self.removals);
        let taken = submitted.len() - self.removals.len();
        self.submitted.extend(submitted.into_iter().take(taken));
    }

    /// Drops the device and logs the number of entries that could not be removed.
    pub(super) fn end(self) {
        let entries = self.held.len();
        if entries == 0 {
            info!("previous NIC: all entries removed");
        } else {
            warn!(
                entries,
                "previous NIC: abandoned, and may still forward by stale entries that could not \
                 be removed: restart that device"
            );
        }
    }
}

/// Returns whether an entry is absent after a removal with this result.
pub(super) const fn is_gone(result: &Result<(), OffloadError>) -> bool {
    matches!(result, Ok(()) | Err(OffloadError::NoSuchEntry))
}
