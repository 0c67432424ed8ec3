//! The outcomes of the flows of one preload, over all packet threads and the offload device.

use shunt_foresight::ForecastRefusal;

use super::counters::SharedCounter;

/// Counts the flows of one preload until each has entries or is refused.
///
/// A flow counts once for each packet thread that it is sent to. The counters of an origin add up
/// the flows of all preloads, so they cannot give the counts of one preload.
#[derive(Debug, Default)]
pub struct ForecastTicket {
    /// Number of flows that were sent to packet threads.
    sent: SharedCounter,
    /// Number of flows that got entries.
    installed: SharedCounter,
    /// Number of flows that existing entries covered.
    covered: SharedCounter,
    /// Number of refused flows, by reason.
    refused: [SharedCounter; ForecastRefusal::COUNT],
    /// Number of flows that were offered to the device.
    device_offered: SharedCounter,
    /// Number of flows that the device accepted.
    device_accepted: SharedCounter,
    /// Number of flows that the device refused.
    device_refused: SharedCounter,
    /// Number of flows from ports without the device.
    device_elsewhere: SharedCounter,
}

/// The counts of a [`ForecastTicket`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TicketCounts {
    /// Flows that were sent to packet threads.
    pub sent: u64,
    /// Flows with new entries.
    pub installed: u64,
    /// Flows that live entries covered already.
    pub covered: u64,
    /// Refused flows, by [`ForecastRefusal`].
    pub refused: [u64; ForecastRefusal::COUNT],
    /// Flows with new entries that were also offered to the offload device.
    pub device_offered: u64,
    /// Offered flows with entries in the device.
    pub device_accepted: u64,
    /// Offered flows for which the device refused entries.
    pub device_refused: u64,
    /// Offered flows of ports that do not belong to the device.
    pub device_elsewhere: u64,
}

impl ForecastTicket {
    /// Counts flows that are sent to packet threads.
    pub fn count_sent(&self, count: u64) {
        self.sent.add(count);
    }

    /// Returns how many flows of the preload had each outcome until now.
    #[must_use]
    pub fn counts(&self) -> TicketCounts {
        let mut refused = [0; ForecastRefusal::COUNT];
        for (count, own) in refused.iter_mut().zip(&self.refused) {
            *count = own.get();
        }
        // The outcomes are read before `device_offered`, so there are never more outcomes than
        // offered flows.
        TicketCounts {
            sent: self.sent.get(),
            installed: self.installed.get(),
            covered: self.covered.get(),
            refused,
            device_accepted: self.device_accepted.get(),
            device_refused: self.device_refused.get(),
            device_elsewhere: self.device_elsewhere.get(),
            device_offered: self.device_offered.get(),
        }
    }

    /// Counts a flow that got an entry.
    pub(crate) fn install(&self) {
        self.installed.add(1);
    }

    /// Counts a flow that an existing entry covers.
    pub(crate) fn cover(&self) {
        self.covered.add(1);
    }

    /// Counts a flow that was refused.
    pub(crate) fn refuse(&self, reason: ForecastRefusal) {
        self.refused[reason as usize].add(1);
    }

    /// Counts a flow that was offered to the offload device.
    pub(crate) fn offer_to_device(&self) {
        self.device_offered.add(1);
    }

    /// Counts a flow that the offload device has accepted.
    pub(crate) fn accept_in_device(&self) {
        self.device_accepted.add(1);
    }

    /// Counts a flow that the offload device has refused.
    pub(crate) fn refuse_in_device(&self) {
        self.device_refused.add(1);
    }

    /// Counts a flow that does not arrive at the offload device.
    pub(crate) fn skip_device(&self) {
        self.device_elsewhere.add(1);
    }
}
