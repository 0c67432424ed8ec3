//! The outcome of a forecast in an offload device, for its packet thread.
//!
//! Packets that hit in the device never reach the packet thread. So the thread's entry of the
//! forecast stays without a hit, and only the agent of the device knows if the forecast was right.

use std::sync::{Arc, OnceLock};

use shunt_foresight::ForecastSource;
use shunt_pipeline::Time;

use super::ForecastTicket;

/// The origin of the entries of a forecast, and the time at which they expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryForecast {
    /// The origin of the forecast.
    pub source: ForecastSource,
    /// Time at which entries without a hit expire.
    pub expires: Time,
}

/// The outcome of a forecast in an offload device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOutcome {
    /// All entries that were made for the forecast were hit.
    ///
    /// A reading of counters found the last of these hits at this time.
    Hit(Time),
    /// Entries that packets caused, or that packets had hit, covered the flow before.
    Covered,
    /// The device has no entries for the forecast, or has removed one without a hit.
    Unused,
}

/// The agent's end of a forecast in an offload device.
///
/// If this value is dropped before the outcome is known, the outcome is [`DeviceOutcome::Unused`].
#[derive(Debug)]
pub struct DeviceForecast {
    /// The entry's end, by which the agent reports.
    pub(crate) entry: EntryForecast,
    /// The outcome, which the packet thread reads.
    outcome: Arc<OnceLock<DeviceOutcome>>,
    /// The preload of the flow, until the device has accepted or refused it.
    ticket: Option<Arc<ForecastTicket>>,
}

/// The packet thread's end of a forecast in an offload device.
#[derive(Debug)]
pub struct DeviceWatch(Arc<OnceLock<DeviceOutcome>>);

/// Creates the two ends of a forecast, which may belong to a preload.
pub(crate) fn device_forecast(
    entry: EntryForecast,
    ticket: Option<Arc<ForecastTicket>>,
) -> (DeviceForecast, DeviceWatch) {
    let outcome = Arc::new(OnceLock::new());
    ticket.iter().for_each(|ticket| ticket.offer_to_device());
    (DeviceForecast { entry, outcome: Arc::clone(&outcome), ticket }, DeviceWatch(outcome))
}

impl DeviceForecast {
    /// Counts that the device has entries for the flow.
    pub(crate) fn accept(&mut self) {
        self.ticket.take().into_iter().for_each(|ticket| ticket.accept_in_device());
    }

    /// Ends a forecast of a port that does not belong to the device.
    pub(crate) fn skip(mut self) {
        self.ticket.take().into_iter().for_each(|ticket| ticket.skip_device());
    }

    /// Sets what the device did with the forecast.
    pub(crate) fn settle(self, outcome: DeviceOutcome) {
        // The outcome cannot be set already, because setting it consumes the agent's only end.
        let _ = self.outcome.set(outcome);
    }
}

impl Drop for DeviceForecast {
    fn drop(&mut self) {
        self.ticket.take().into_iter().for_each(|ticket| ticket.refuse_in_device());
        // This fails if the outcome is set already.
        let _ = self.outcome.set(DeviceOutcome::Unused);
    }
}

impl DeviceWatch {
    /// Returns the outcome; `None` while it is unknown.
    #[must_use]
    pub fn outcome(&self) -> Option<DeviceOutcome> {
        self.0.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_forecast_is_unused() {
        let entry = EntryForecast { source: ForecastSource::Reply, expires: Time::ZERO };
        let (forecast, watch) = device_forecast(entry, None);
        assert_eq!(watch.outcome(), None);
        drop(forecast);
        assert_eq!(watch.outcome(), Some(DeviceOutcome::Unused));
        let (forecast, watch) = device_forecast(entry, None);
        forecast.settle(DeviceOutcome::Hit(Time::ZERO));
        assert_eq!(watch.outcome(), Some(DeviceOutcome::Hit(Time::ZERO)));
    }

    #[test]
    fn a_device_accepts_or_refuses_a_flow_once() {
        let ticket = Arc::<ForecastTicket>::default();
        let entry = EntryForecast { source: ForecastSource::Preload, expires: Time::ZERO };
        let forecast = || device_forecast(entry, Some(Arc::clone(&ticket))).0;
        let mut accepted = forecast();
        accepted.accept();
        accepted.accept();
        drop(accepted);
        drop(forecast());
        let counts = ticket.counts();
        let device = (counts.device_offered, counts.device_accepted, counts.device_refused);
        assert_eq!(device, (2, 1, 1));
    }
}
