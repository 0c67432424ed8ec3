//! Events that no connection may lose: port status and flow removed.
//!
//! Each connection has its own queue, and takes events from it as fast as its peer reads. Neither
//! the publisher nor another connection waits for a slow peer. If the queue of a connection grows
//! too long, the connection lags: its events are dropped and it is closed at once. The controller
//! reads the current state after it has reconnected.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use crate::connection::ControllerEvent;

/// Queue length above which the next event makes a connection lag.
///
/// One publication may exceed the limit by any number, because a single request can remove every
/// rule.
const QUEUED_MAX: usize = 1 << 17;

/// The event queues of all connections of a bridge.
#[derive(Debug, Default)]
pub(super) struct ReliableEvents(Mutex<Vec<Weak<EventQueue>>>);

/// The event queue of one connection.
#[derive(Debug, Default)]
struct EventQueue {
    /// The events that were not sent yet.
    waiting: Mutex<QueuedEvents>,
    /// Notified when an event is added.
    notify: Notify,
}

/// The events that a connection has not sent yet.
#[derive(Debug, Default)]
struct QueuedEvents {
    /// The events that wait, oldest first.
    events: VecDeque<ControllerEvent>,
    /// True if the queue was too long; the queue is empty from then on.
    is_lagging: bool,
}

/// The receiving end of an event queue.
#[derive(Debug)]
pub(super) struct EventReceiver(Arc<EventQueue>);

/// The connection lags too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lagged;

impl ReliableEvents {
    /// Creates the queue of a new connection.
    pub(super) fn subscribe(&self) -> EventReceiver {
        let queue = Arc::<EventQueue>::default();
        lock(&self.0).push(Arc::downgrade(&queue));
        EventReceiver(queue)
    }

    /// Adds events to every queue; ends a queue that is too long.
    pub(super) fn publish_reliable(&self, events: &[ControllerEvent]) {
        lock(&self.0).retain(|queue| queue.upgrade().is_some_and(|queue| queue.push(events)));
    }
}

impl EventQueue {
    /// Adds events; returns whether the connection still keeps up.
    fn push(&self, events: &[ControllerEvent]) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.events.len() > QUEUED_MAX {
            *waiting = QueuedEvents { events: VecDeque::new(), is_lagging: true };
        } else {
            waiting.events.extend(events.iter().cloned());
        }
        self.notify.notify_one();
        !waiting.is_lagging
    }
}

impl EventReceiver {
    /// Waits for the next event, or until the connection lags.
    ///
    /// Takes no event while `wants_more` is false. Cancelling the wait loses no event.
    pub(super) async fn next(&self, wants_more: bool) -> Result<ControllerEvent, Lagged> {
        loop {
            // An event that arrives after this check leaves a permit, which ends the wait.
            if let Some(found) = self.try_next(wants_more) {
                return found;
            }
            self.0.notify.notified().await;
        }
    }

    /// Returns the next event, or an error if the reader was too slow.
    fn try_next(&self, wants_more: bool) -> Option<Result<ControllerEvent, Lagged>> {
        let mut waiting = lock(&self.0.waiting);
        if waiting.is_lagging {
            return Some(Err(Lagged));
        }
        waiting.events.pop_front_if(|_| wants_more).map(Ok)
    }
}

/// Locks a mutex, also after a panic, which leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        Host,
        message::{PortStatus, PortStatusReason},
        testing::MemoryHost,
    };

    /// Returns an event for controllers.
    fn event() -> ControllerEvent {
        let host = MemoryHost::new(|| shunt_pipeline::Time::ZERO);
        let port = host.ports().remove(0);
        ControllerEvent::PortStatus(Arc::new(PortStatus { reason: PortStatusReason::Modify, port }))
    }

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Takes all events and returns their number.
    fn drain(inbox: &EventReceiver) -> usize {
        let next = || matches!(poll_once(inbox.next(true)), Poll::Ready(Ok(_)));
        std::iter::repeat_with(next).take_while(|notify| *notify).count()
    }

    #[test]
    fn a_stalled_connection_delays_no_other() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        let (reading, stalled) = (reliable_events.subscribe(), reliable_events.subscribe());
        let burst = vec![event; 1000];
        for _ in 0..3 * QUEUED_MAX / burst.len() {
            reliable_events.publish_reliable(&burst);
            assert_eq!(drain(&reading), burst.len());
        }
        assert!(matches!(poll_once(stalled.next(true)), Poll::Ready(Err(Lagged))));
        assert!(lock(&stalled.0.waiting).events.is_empty(), "unread events are freed");
    }

    #[test]
    fn one_publication_may_exceed_the_limit() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        let inbox = reliable_events.subscribe();
        reliable_events.publish_reliable(&vec![event.clone(); 3 * QUEUED_MAX]);
        assert_eq!(drain(&inbox), 3 * QUEUED_MAX);
        reliable_events.publish_reliable(&vec![event; 3 * QUEUED_MAX]);
        assert_eq!(drain(&inbox), 3 * QUEUED_MAX);
    }

    #[test]
    fn full_connection_takes_no_event_until_lagging() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        let inbox = reliable_events.subscribe();
        let mut next = pin!(inbox.next(false));
        let mut context = Context::from_waker(Waker::noop());
        reliable_events.publish_reliable(&vec![event.clone(); QUEUED_MAX + 1]);
        assert!(next.as_mut().poll(&mut context).is_pending());
        reliable_events.publish_reliable(&[event]);
        assert!(matches!(next.as_mut().poll(&mut context), Poll::Ready(Err(Lagged))));
    }

    #[test]
    fn an_ended_connection_frees_its_queue() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        drop(reliable_events.subscribe());
        reliable_events.publish_reliable(&[event]);
        assert!(lock(&reliable_events.0).is_empty());
    }
}
