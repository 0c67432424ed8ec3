//! The loop of the tasks that encode samples and flows for collectors.

use std::time::Duration;

use shunt_pipeline::Time;
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use crate::threads::data_plane::DataPlane;

/// Time between two readings of the rings of packet threads.
///
/// A sample or flow reaches its collector within this time. With the size of the rings it limits their
/// number per second.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time in which an exporter that ends encodes its flows.
pub(super) const LAST_REPORTS_MAX: Duration = Duration::from_secs(10);

/// Number of samples or flows that are encoded between two checks for room.
pub(super) const CHUNK: usize = 512;

/// Runs a round at intervals while there are exporters, forever.
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

/// Returns the time since 1970 at a point of the clock.
pub(super) fn unix_time(plane: &DataPlane, now: Time) -> Duration {
    plane.clock().unix_time_at_zero() + now.since(Time::ZERO)
}
