//! The outcome of a forecast in an offload device, for its packet thread.
//!
//! Packets that hit in the device never reach the packet thread. So its own entry of the forecast stays
//! without a hit, and only the agent knows if the forecast was right.

use std::sync::{Arc, OnceLock};

use shunt_foresight::ForecastSource;
use shunt_pipeline::Time;

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
    /// Entries of other flows covered the flow before.
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
}

/// The packet thread's end of a forecast.
#[derive(Debug)]
pub struct DeviceWatch(Arc<OnceLock<DeviceOutcome>>);

/// Creates the two ends of a forecast.
pub(crate) fn device_forecast(entry: EntryForecast) -> (DeviceForecast, DeviceWatch) {
    let outcome = Arc::new(OnceLock::new());
    (DeviceForecast { entry, outcome: Arc::clone(&outcome) }, DeviceWatch(outcome))
}

impl DeviceForecast {
    /// Sets the outcome.
    pub(crate) fn settle(self, outcome: DeviceOutcome) {
        // There is one end that sets it, and this consumes it.
        let _ = self.outcome.set(outcome);
    }
}

impl Drop for DeviceForecast {
    fn drop(&mut self) {
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
        let (forecast, watch) = device_forecast(entry);
        assert_eq!(watch.outcome(), None);
        drop(forecast);
        assert_eq!(watch.outcome(), Some(DeviceOutcome::Unused));
        let (forecast, watch) = device_forecast(entry);
        forecast.settle(DeviceOutcome::Hit(Time::ZERO));
        assert_eq!(watch.outcome(), Some(DeviceOutcome::Hit(Time::ZERO)));
    }
}
