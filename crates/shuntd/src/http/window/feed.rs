//! The events of the live page: the status of the switch once a second.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};
use shunt_switch::Switch;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior, interval, timeout},
};

use crate::http::{health::HealthMonitor, readiness::ReadinessMonitor};

/// The source of events for all viewers of the live page.
///
/// The feed reads the status only while there are viewers, and only once for all viewers.
pub(in crate::http) struct WindowFeed {
    /// The channel to each open live page.
    viewers: Mutex<Vec<mpsc::Sender<Bytes>>>,
    /// Notified when a viewer subscribes.
    has_subscribed: Notify,
}

/// Maximum number of viewers.
const VIEWERS_MAX: usize = 16;

/// Maximum number of events that wait for a viewer; further events are skipped.
const WAITING_MAX: usize = 2;

/// Time between two events.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time to wait for the status of the eviction thread.
const EVICTION_TIME_MAX: Duration = Duration::from_millis(500);

impl WindowFeed {
    pub(in crate::http) fn new() -> Self {
        Self { viewers: Mutex::default(), has_subscribed: Notify::new() }
    }

    /// Adds a viewer and returns its events; `None` if there are too many viewers.
    pub(in crate::http) fn subscribe(&self) -> Option<mpsc::Receiver<Bytes>> {
        let mut viewers = self.lock_viewers();
        viewers.retain(|viewer| !viewer.is_closed());
        if viewers.len() >= VIEWERS_MAX {
            return None;
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        viewers.push(sender);
        self.has_subscribed.notify_one();
        Some(receiver)
    }

    /// Sends events until the future is dropped.
    pub(in crate::http) async fn run(
        &self,
        switch: &Switch,
        readiness: &ReadinessMonitor,
        health: &HealthMonitor,
    ) {
        let start = Instant::now();
        let mut ticks = interval(EVENT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while self.lock_viewers().is_empty() {
                self.has_subscribed.notified().await;
            }
            ticks.tick().await;
            let mut status = status(switch).await;
            status["time_ms"] = json!(start.elapsed().as_secs_f64() * 1000.0);
            status["unhealthy"] = json!(health.problems());
            status["missing"] = json!(readiness.missing());
            self.publish(&Bytes::from(format!("data: {status}\n\n")));
        }
    }

    /// Sends an event to every viewer that has space for it.
    ///
    /// Viewers that have disconnected are removed.
    fn publish(&self, event: &Bytes) {
        self.lock_viewers().retain(|viewer| {
            let sent = viewer.try_send(event.clone());
            !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)))
        });
    }

    /// Locks the list of viewers.
    fn lock_viewers(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Bytes>>> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the status of the switch as a JSON object.
async fn status(switch: &Switch) -> Value {
    let evictions = timeout(EVICTION_TIME_MAX, switch.evictions()).await;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "bridges": switch.bridges(),
        "tables": switch.tables(),
        "links": switch.table_links(),
        "caches": switch.caches(),
        "drops": switch.drops(),
        "threads": switch.threads(),
        "evictions": evictions.ok().and_then(Result::ok),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_slow_viewer_misses_events() {
        let feed = WindowFeed::new();
        let mut slow = feed.subscribe().unwrap();
        let mut quick = feed.subscribe().unwrap();
        for count in 0..5_u8 {
            feed.publish(&Bytes::from(vec![count]));
            assert_eq!(quick.recv().await.unwrap()[..], [count]);
        }
        assert_eq!(slow.recv().await.unwrap()[..], [0]);
        assert_eq!(slow.recv().await.unwrap()[..], [1]);
        assert!(slow.try_recv().is_err());
        drop(quick);
        feed.publish(&Bytes::new());
        assert_eq!(feed.lock_viewers().len(), 1);
    }

    #[test]
    fn the_number_of_log_viewers_is_bounded() {
        let feed = WindowFeed::new();
        let mut viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| feed.subscribe().unwrap()).collect();
        assert!(feed.subscribe().is_none());
        viewers.pop();
        assert!(feed.subscribe().is_some(), "the place of one that has gone");
    }
}
