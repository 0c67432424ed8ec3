//! The loop of the tasks that send samples and flows to collectors.

use std::time::Duration;

use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

/// Time between two readings of the rings of packet threads.
///
/// A sample or flow reaches its collector within this time. With the size of the rings it limits their
/// number per second.
pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Calls `send` at intervals while there are exporters, forever.
///
/// `started` is notified when an exporter starts.
pub(crate) async fn run_exports(
    started: &Notify,
    is_idle: impl Fn() -> bool,
    mut send: impl FnMut(),
) {
    let mut interval = interval(READ_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if is_idle() {
            started.notified().await;
        }
        interval.tick().await;
        send();
    }
}
