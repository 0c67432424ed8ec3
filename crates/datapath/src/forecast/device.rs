//! The outcome of a forecast in an offload device, for its packet thread.
//!
//! Packets that hit in the device never reach the packet thread. So its own entry of the forecast stays
//! without a hit, and only the agent knows if the forecast was right.

use std::sync::{Arc, OnceLock};

use shunt_foresight::ForecastSource;
use shunt_pipeline::Time;

use super::ForecastTicket;

/// The origin of the entries of a forecast, and the end of their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryForecast {
    /// The origin.
    pub source: ForecastSource,
    /// Time at which entries without a hit expire.
    pub expires: Time,
}

/// The outcome of a forecast in an offload device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOutcome {
    /// All entries that were made for it were hit.
    ///
    /// The reading that found the last of these hits was at this time.
    Hit(Time),
    /// Entries of packets, or with hits, covered the flow before.
    Covered,
    /// The device has no entries for it, or removed one without a hit.
    Unused,
}

/// The agent's end of a forecast.
///
/// Dropping it before the outcome is known makes the outcome [`DeviceOutcome::Unused`].
#[derive(Debug)]
pub struct DeviceForecast {
    pub(crate) entry: EntryForecast,
    outcome: Arc<OnceLock<DeviceOutcome>>,
    /// The preload of the flow, until the device has accepted or refused it.
    ticket: Option<Arc<ForecastTicket>>,
}

/// The packet thread's end of a forecast.
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

    /// Ends a forecast of a port that is not behind the device.
    pub(crate) fn skip(mut self) {
        self.ticket.take().into_iter().for_each(|ticket| ticket.skip_device());
    }

    /// Sets the outcome.
    pub(crate) fn settle(self, outcome: DeviceOutcome) {
        // There is one end that sets it, and this consumes it.
        let _ = self.outcome.set(outcome);
    }
}

impl Drop for DeviceForecast {
    fn drop(&mut self) {
        self.ticket.take().into_iter().for_each(|ticket| ticket.refuse_in_device());
        // Fails if the outcome is known.
        let _ = self.outcome.set(DeviceOutcome::Unused);
    }
}

impl DeviceWatch {
    /// Returns the outcome; `None`: it is not known yet.
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
