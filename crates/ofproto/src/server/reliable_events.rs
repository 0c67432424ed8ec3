//! What no connection may miss: that a port came, went or changed, that a rule went.
//!
//! Each connection has a queue of its own, out of which it takes as much as its peer has room for.
//! So nobody waits for a peer: not who tells, and no other connection. A peer that lets too much
//! pile up is behind. Its connection ends at once, and it learns how things are when it comes back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use crate::connection::ControllerEvent;

/// Events that may lie before one connection when more come; of those there may be any number, for
/// one request can take every rule.
const QUEUED_MAX: usize = 1 << 17;

/// The queues of all connections of a bridge.
#[derive(Debug, Default)]
pub(super) struct ReliableEvents(Mutex<Vec<Weak<EventQueue>>>);

/// What lies before one connection.
#[derive(Debug, Default)]
struct EventQueue {
    waiting: Mutex<QueuedEvents>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct QueuedEvents {
    events: VecDeque<ControllerEvent>,
    /// Too much lay here; nothing does any more.
    is_lagging: bool,
}

/// A connection's end of its queue.
#[derive(Debug)]
pub(super) struct EventReceiver(Arc<EventQueue>);

/// The connection is too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lagged;

impl ReliableEvents {
    /// The queue of a new connection.
    pub(super) fn subscribe(&self) -> EventReceiver {
        let queue = Arc::<EventQueue>::default();
        lock(&self.0).push(Arc::downgrade(&queue));
        EventReceiver(queue)
    }

    /// Puts events into every queue; one that is too long already is ended.
    pub(super) fn publish_reliable(&self, events: &[ControllerEvent]) {
        lock(&self.0).retain(|queue| queue.upgrade().is_some_and(|queue| queue.push(events)));
    }
}

impl EventQueue {
    /// Adds events; answers whether the connection is not behind.
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
    /// Waits for the next event, unless `wants_more` is false, or for the connection to be behind.
    /// Whoever stops waiting has taken nothing.
    pub(super) async fn next(&self, wants_more: bool) -> Result<ControllerEvent, Lagged> {
        loop {
            // What comes after this look leaves a mark, which ends the wait.
            if let Some(found) = self.try_next(wants_more) {
                return found;
            }
            self.0.notify.notified().await;
        }
    }

    fn try_next(&self, wants_more: bool) -> Option<Result<ControllerEvent, Lagged>> {
        let mut waiting = lock(&self.0.waiting);
        if waiting.is_lagging {
            return Some(Err(Lagged));
        }
        waiting.events.pop_front_if(|_| wants_more).map(Ok)
    }
}

/// Every change leaves what is locked whole.
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

    fn event() -> ControllerEvent {
        let host = MemoryHost::new(|| shunt_pipeline::Time::ZERO);
        let port = host.ports().remove(0);
        ControllerEvent::PortStatus(Arc::new(PortStatus { reason: PortStatusReason::Modify, port }))
    }

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// How many events come out until there are no more.
    fn drain(inbox: &EventReceiver) -> usize {
        let next = || matches!(poll_once(inbox.next(true)), Poll::Ready(Ok(_)));
        std::iter::repeat_with(next).take_while(|notify| *notify).count()
    }

    #[test]
    fn a_connection_that_reads_hears_everything_whatever_another_does() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        let (reading, stalled) = (reliable_events.subscribe(), reliable_events.subscribe());
        let burst = vec![event; 1000];
        for _ in 0..3 * QUEUED_MAX / burst.len() {
            reliable_events.publish_reliable(&burst);
            assert_eq!(drain(&reading), burst.len());
        }
        assert!(matches!(poll_once(stalled.next(true)), Poll::Ready(Err(Lagged))));
        assert!(lock(&stalled.0.waiting).events.is_empty(), "what it did not read takes no room");
    }

    #[test]
    fn one_request_may_take_any_number_of_rules() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        let inbox = reliable_events.subscribe();
        reliable_events.publish_reliable(&vec![event.clone(); 3 * QUEUED_MAX]);
        assert_eq!(drain(&inbox), 3 * QUEUED_MAX);
        reliable_events.publish_reliable(&vec![event; 3 * QUEUED_MAX]);
        assert_eq!(drain(&inbox), 3 * QUEUED_MAX);
    }

    #[test]
    fn a_connection_without_room_takes_nothing_and_hears_that_it_is_behind() {
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
    fn a_connection_that_has_ended_takes_no_room() {
        let (reliable_events, event) = (ReliableEvents::default(), event());
        drop(reliable_events.subscribe());
        reliable_events.publish_reliable(&[event]);
        assert!(lock(&reliable_events.0).is_empty());
    }
}
