//! The loop of the tasks that encode samples and flows for collectors.

use std::time::Duration;

use shunt_pipeline::Time;
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use crate::threads::data_plane::DataPlane;

/// Time between two rounds that read the rings of packet threads.
///
/// A sample or flow is sent to its collector within this time. The size of a ring, divided by this
/// interval, limits the samples or flows per second.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time for which an ending exporter encodes its remaining flows.
pub(super) const LAST_REPORTS_MAX: Duration = Duration::from_secs(10);

/// Number of samples or flows that are encoded between two checks for space.
pub(super) const CHUNK: usize = 512;

/// Runs rounds at intervals while there are exporters; never returns.
///
/// `started` is notified when an exporter starts.
pub(super) async fn run_rounds<F: Future<Output = ()>>(
    started: &Notify,
    is_idle: impl Fn() -> bool,
    round: impl Fn() -> F,
) {
    let mut interval = interval(READ_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if is_idle() {
            started.notified().await;
        }
        interval.tick().await;
        round().await;
    }
}

/// Returns the time since 1970 for a time of the daemon's clock.
pub(super) fn unix_time(plane: &DataPlane, now: Time) -> Duration {
    plane.clock().unix_time_at_zero() + now.since(Time::ZERO)
}
